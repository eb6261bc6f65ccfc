"""Laws of forward calls: log-probabilities, values, rewards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from training_contexts import (
    DEEPSEEK_V3,
    LLAMA_8B,
    LLAMA_70B,
    QWEN3_30B,
    arrays,
    context,
    fixed,
    framework,
    training_strategies,
)

from planner.cost.arrays import CallCosts
from planner.cost.flops import forward_flop
from planner.cost.forward import forward_cost
from planner.cost.lengths import sequence_moments
from planner.cost.train import train_cost
from planner.schema import Strategy

MODELS = {m.name: m for m in (LLAMA_8B, QWEN3_30B, DEEPSEEK_V3)}
LAWS = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def one(ctx, **strategy) -> CallCosts:
    return forward_cost(ctx, arrays(Strategy(**strategy)))


def part(costs: CallCosts, name: str) -> float:
    return float(costs.time_parts_s[name][0])


@LAWS
@given(st.data(), st.sampled_from(sorted(MODELS)), st.booleans())
def test_parts_sum_bound_holds_and_useful_work_is_invariant(data, name, trained):
    spec = MODELS[name]
    strategies = training_strategies(experts=spec.moe is not None)
    chosen = data.draw(st.lists(strategies, min_size=2, max_size=6))
    costs = forward_cost(context(spec, kind="forward", trained=trained), arrays(*chosen))
    np.testing.assert_allclose(sum(costs.time_parts_s.values()), costs.time_s, rtol=1e-12)
    np.testing.assert_allclose(sum(costs.memory_parts_bytes.values()), costs.peak_bytes, rtol=1e-12)
    assert (costs.time_s >= costs.bound_s * (1 - 1e-12)).all()
    assert len(set(costs.useful_flop)) == 1
    assert (costs.work_flop >= costs.useful_flop * (1 - 1e-9)).all()


@LAWS
@given(st.data(), st.sampled_from(sorted(MODELS)))
def test_scoring_a_batch_is_cheaper_than_training_on_it(data, name):
    spec = MODELS[name]
    strategy = data.draw(training_strategies(experts=spec.moe is not None))
    forward = forward_cost(context(spec, kind="forward"), arrays(strategy))
    train = train_cost(context(spec), arrays(strategy))
    assert forward.time_s[0] < 0.6 * train.time_s[0]
    assert forward.work_flop[0] < 0.5 * train.work_flop[0]
    assert forward.depth[0] < train.depth[0]


def test_useful_work_by_hand():
    ctx = context(LLAMA_8B, kind="forward", sequences=8, prompt=fixed(1024), response=fixed(1024))
    expected = forward_flop(LLAMA_8B, sequence_moments(ctx.workload), 1024, scalar_head=False)
    costs = one(ctx)
    assert costs.useful_flop[0] == pytest.approx(8 * expected)
    # The head runs on prompt tokens as well.
    assert costs.work_flop[0] - costs.useful_flop[0] == pytest.approx(
        8 * 1024 * 2 * 4096 * 128256, rel=1e-6
    )


def test_values_skip_the_vocabulary():
    logprobs = one(context(kind="forward"), dp=8)
    values = one(context(kind="forward", role="critic", output="values"), dp=8)
    assert part(values, "head") < 0.05 * part(logprobs, "head")
    assert values.memory_parts_bytes["logits"][0] == 0.0
    assert logprobs.memory_parts_bytes["logits"][0] > 0.0
    assert values.useful_flop[0] < logprobs.useful_flop[0]


def test_pipeline_streams_and_interleaving_shortens_its_fill():
    ctx = context(LLAMA_70B, kind="forward", role="reward", output="rewards", sequences=64)
    plain = one(ctx, tp=8, pp=4)
    interleaved = one(ctx, tp=8, pp=4, vpp=5)
    assert 0 < part(interleaved, "pipeline_bubble") < part(plain, "pipeline_bubble")


def test_frozen_weights_are_loaded_once_and_sharded_only_by_zero_3():
    ctx = context(kind="forward", role="reference", trained=False)
    kept, loaded = one(ctx, tp=2, dp=4), one(ctx, tp=2, dp=4, offload="all")
    link = ctx.group.device.host_link_bandwidth_bytes_per_s
    assert part(loaded, "offload") == pytest.approx(8.03e9 * 2 / 2 / link, rel=0.01)
    assert part(kept, "offload") == 0.0
    assert loaded.resident_bytes[0] == 0.0
    assert loaded.host_bytes_per_device[0] == pytest.approx(kept.resident_bytes[0])
    sharded = one(ctx, tp=2, dp=4, zero_stage=3)
    assert sharded.resident_bytes[0] == pytest.approx(kept.resident_bytes[0] / 4)
    assert part(kept, "dp_comm") == 0.0 < part(sharded, "dp_comm")


def test_a_trained_model_scores_beside_its_training_state():
    trained = context(kind="forward")
    frozen = context(kind="forward", role="reference", trained=False)
    state = {
        mode: one(trained, tp=8, dp=2, offload=mode).peak_bytes[0]
        for mode in ("none", "optimizer", "all")
    }
    assert state["none"] > state["optimizer"] > state["all"]
    assert state["all"] == pytest.approx(one(frozen, tp=8, dp=2).peak_bytes[0], rel=0.01)


def test_launch_floor_counts_each_layer_once():
    profile = framework("nemo-rl", layer_pass_moe_s=0.1, straggler_per_doubling=0.0)
    ctx = context(QWEN3_30B, kind="forward", sequences=160, profile=profile)
    costs = one(ctx, dp=16, ep=16, micro_batch_sequences=1)
    # Ten sequences a rank, three to a microbatch: four microbatches through 48 layers.
    busy = sum(
        part(costs, name)
        for name in ("host", "compute", "experts", "attention", "elementwise", "ep_comm")
    )
    assert busy == pytest.approx(4 * 48 * 0.1, rel=0.02)
