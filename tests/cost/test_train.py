"""Laws of the training cost model."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from training_contexts import (
    DEEPSEEK_V3,
    GPT_OSS_20B,
    LLAMA_8B,
    LLAMA_70B,
    QWEN3_30B,
    arrays,
    context,
    fixed,
    framework,
    training_strategies,
)

from planner.catalog.frameworks import list_frameworks, load_framework
from planner.cost.arrays import CallCosts
from planner.cost.calls import call_costs
from planner.cost.distinct import distinct
from planner.cost.flops import forward_flop
from planner.cost.lengths import LengthMoments, sequence_moments
from planner.cost.train import train_cost
from planner.schema import LengthDistribution, Strategy

MODELS = {m.name: m for m in (LLAMA_8B, QWEN3_30B, DEEPSEEK_V3, GPT_OSS_20B)}
LAWS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def case(name: str):
    return MODELS[name], training_strategies(experts=MODELS[name].moe is not None)


def seconds(costs: CallCosts) -> float:
    return float(costs.time_s[0])


def part(costs: CallCosts, name: str) -> float:
    return float(costs.time_parts_s.get(name, np.zeros(1))[0])


def one(ctx, **strategy) -> CallCosts:
    return train_cost(ctx, arrays(Strategy(**strategy)))


@LAWS
@given(st.data(), st.sampled_from(sorted(MODELS)))
def test_parts_sum_to_time_and_time_is_at_least_its_bound(data, name):
    spec, strategies = case(name)
    chosen = data.draw(st.lists(strategies, min_size=1, max_size=8))
    costs = train_cost(context(spec), arrays(*chosen))
    assert np.isfinite(costs.time_s).all()
    np.testing.assert_allclose(sum(costs.time_parts_s.values()), costs.time_s, rtol=1e-12)
    assert all((seconds >= 0).all() for seconds in costs.time_parts_s.values())
    assert (costs.time_s >= costs.bound_s * (1 - 1e-12)).all()
    np.testing.assert_allclose(sum(costs.memory_parts_bytes.values()), costs.peak_bytes, rtol=1e-12)
    assert (costs.peak_bytes > 0).all()
    assert (costs.depth > 0).all()


@LAWS
@given(st.data(), st.sampled_from(sorted(MODELS)))
def test_useful_work_is_the_same_under_every_strategy(data, name):
    spec, strategies = case(name)
    chosen = data.draw(st.lists(strategies, min_size=2, max_size=6))
    ctx = context(spec)
    costs = train_cost(ctx, arrays(*chosen))
    assert len(set(costs.useful_flop)) == 1
    assert (costs.work_flop >= costs.useful_flop * (1 - 1e-9)).all()


@LAWS
@given(st.data(), st.sampled_from(sorted(MODELS)))
def test_a_strategy_costs_the_same_alone_and_among_others(data, name):
    spec, strategies = case(name)
    chosen = data.draw(st.lists(strategies, min_size=2, max_size=6))
    ctx = context(spec)
    together = train_cost(ctx, arrays(*chosen))
    for index, strategy in enumerate(chosen):
        alone = train_cost(ctx, arrays(strategy))
        for item in fields(CallCosts):
            mine, whole = getattr(alone, item.name), getattr(together, item.name)
            if not isinstance(mine, dict):
                mine, whole = {"": mine}, {"": whole}
            for key, value in mine.items():
                np.testing.assert_allclose(value[0], whole[key][index], rtol=1e-9)


def test_degree_one_has_no_parallel_cost():
    costs = one(context(QWEN3_30B, sequences=8), dp=1)
    for name in ("tp_comm", "cp_comm", "ep_comm", "dp_comm", "pipeline_bubble", "straggler"):
        assert part(costs, name) == 0.0


def test_hand_computed_work_of_full_recomputation():
    # Equal lengths, no padding: 3 forward matrix passes + 1 recomputed, the head three times; the
    # attention core once forward, once recomputed, and 2.5 times in flash attention's backward.
    ctx = context(LLAMA_8B, sequences=8, prompt=fixed(1), response=fixed(2047))
    moments = LengthMoments(2048.0, 2048.0**2)
    whole = forward_flop(LLAMA_8B, moments, 2048.0, scalar_head=False)
    head = 2.0 * 4096 * 128256 * 2048
    core = 32 * 2 * 32 * 256 * 2048 * 2049 / 2
    matrices = whole - head - core
    plain = one(ctx, recompute="none").work_flop[0]
    full = one(ctx, recompute="full").work_flop[0]
    assert plain == pytest.approx(8 * (3 * matrices + 3 * head + 3.5 * core), rel=1e-9)
    assert full - plain == pytest.approx(8 * (matrices + core), rel=1e-9)


def test_twice_the_layers_take_twice_the_layer_time():
    small = context(LLAMA_8B)
    large = context(LLAMA_8B.model_copy(update={"num_layers": 64}))
    a, b = one(small, dp=8, recompute="full"), one(large, dp=8, recompute="full")
    for name in ("compute", "attention", "tp_comm", "host"):
        assert part(b, name) == pytest.approx(2 * part(a, name))
    assert part(b, "head") == pytest.approx(part(a, "head"))


def test_twice_the_batch_takes_twice_the_time_of_its_microbatches():
    a = one(context(sequences=512), dp=8)
    b = one(context(sequences=1024), dp=8)
    for name in ("compute", "attention", "elementwise", "head"):
        assert part(b, name) == pytest.approx(2 * part(a, name), rel=0.02)
    assert part(b, "optimizer") == part(a, "optimizer")
    assert b.useful_flop[0] == 2 * a.useful_flop[0]


def test_epochs_and_minibatches_repeat_optimizer_and_synchronisation():
    once = one(context(), dp=16, zero_stage=1)
    minibatches = one(context(optimizer_steps=4), dp=16, zero_stage=1)
    assert part(minibatches, "optimizer") == pytest.approx(4 * part(once, "optimizer"))
    assert minibatches.useful_flop[0] == once.useful_flop[0]
    epochs = one(context(epochs=3), dp=16, zero_stage=1)
    assert seconds(epochs) == pytest.approx(3 * seconds(once))
    assert epochs.useful_flop[0] == 3 * once.useful_flop[0]


def test_packed_attention_costs_by_the_square_of_lengths():
    even = context(response=fixed(1000))
    uneven = context(response=LengthDistribution(mean_tokens=1000.0, max_tokens=8000, sigma=1.2))
    profile = {"packing": True, "micro_batch_sequences": 1}
    a, b = sequence_moments(even.workload), sequence_moments(uneven.workload)
    assert b.mean == pytest.approx(a.mean)
    ratio = part(one(uneven, **profile), "attention") / part(one(even, **profile), "attention")
    squares = b.mean_square / a.mean_square
    # Longer sequences run at a better rate, so time grows by less than work.
    assert 0.5 * squares < ratio <= 1.05 * squares
    assert ratio > 1.3


def test_padding_costs_what_packing_saves():
    ctx = context()  # mean 1,100 of at most 4,096 tokens
    packed, padded = one(ctx, dp=8, packing=True), one(ctx, dp=8, packing=False)
    waste = 4096 / sequence_moments(ctx.workload).mean
    assert part(padded, "compute") / part(packed, "compute") == pytest.approx(waste, rel=0.1)
    assert padded.useful_flop[0] == packed.useful_flop[0]


def test_recomputation_adds_one_forward_pass_or_only_the_core():
    ctx = context(LLAMA_8B, profile=framework("nemo-rl", layer_pass_dense_s=0.0))
    none, selective, full = (
        one(ctx, dp=8, recompute=mode) for mode in ("none", "selective", "full")
    )
    assert part(full, "compute") == pytest.approx(4 / 3 * part(none, "compute"), rel=0.05)
    assert part(selective, "compute") == part(none, "compute")
    assert part(selective, "attention") == part(full, "attention") > part(none, "attention")


def test_early_stopping_recomputation_skips_the_down_projection():
    stops = context(profile=framework("nemo-rl", recompute_skips_last_product=1))
    whole = context(profile=framework("nemo-rl", recompute_skips_last_product=0))
    plain = one(whole, dp=8, recompute="none")
    extra = one(stops, dp=8, recompute="full").work_flop - plain.work_flop
    full_extra = one(whole, dp=8, recompute="full").work_flop - plain.work_flop
    # The down projection is 4096 x 14336 of the layer's 218 million parameters, 27 %; the core
    # attention is recomputed either way.
    assert 0.72 < extra[0] / full_extra[0] < 0.76


def test_pipeline_waits_for_the_other_stages_once():
    # 64 microbatches, 4 equal stages of 20 layers, a scalar head: bubble = 3 of 64 + 3 parts.
    ctx = context(
        LLAMA_70B,
        sequences=64,
        role="critic",
        prompt=fixed(1),
        response=fixed(4095),
        profile=framework("nemo-rl", optimizer_step_fixed_s=0.0, straggler_per_doubling=0.0),
    )
    plain = one(ctx, tp=8, pp=4, dp=1, packing=False)
    interleaved = one(ctx, tp=8, pp=4, vpp=4, dp=1, packing=False)
    busy = sum(part(plain, name) for name in ("compute", "attention", "elementwise", "tp_comm"))
    assert part(plain, "pipeline_bubble") / busy == pytest.approx(3 / 64, rel=0.05)
    ratio = part(interleaved, "pipeline_bubble") / part(plain, "pipeline_bubble")
    assert ratio == pytest.approx(1 / 4, rel=0.1)


def test_a_lighter_last_stage_pays_when_the_head_is_heavy():
    spec = LLAMA_8B.model_copy(update={"vocab_size": 400_000})
    even = one(context(spec, sequences=128), pp=4, dp=1)
    uneven = one(
        context(spec, sequences=128), pp=4, dp=1, first_stage_layers=9, last_stage_layers=5
    )
    assert seconds(uneven) < seconds(even)


def test_launch_floor_is_a_sharp_maximum():
    def host(floor_s: float) -> CallCosts:
        profile = framework("nemo-rl", layer_pass_moe_s=floor_s, straggler_per_doubling=0.0)
        return one(context(QWEN3_30B, profile=profile), dp=16, ep=16)

    without, low, high = host(0.0), host(1e-4), host(0.5)
    assert seconds(low) == seconds(without)
    assert part(without, "host") == 0.0
    assert part(high, "host") > 0.5 * seconds(high)
    # 48 layers, forward once and backward twice the floor, for every microbatch.
    batch = 512 / 16 / 3  # three sequences of 1,100 tokens share 4,096 at 95 %
    launches = np.ceil(batch) * 48 * 3 * 0.5
    busy = part(high, "host") + sum(
        part(high, name)
        for name in ("compute", "experts", "attention", "elementwise", "ep_comm", "cp_comm")
    )
    assert busy == pytest.approx(launches, rel=0.01)


def test_grace_hosts_launch_more_slowly_and_only_they():
    slow = framework("nemo-rl", grace_host_factor=2.0)
    even = framework("nemo-rl", grace_host_factor=1.0)
    on = {"cluster": "gb200-nvl72:4x4"}
    degrees = {"dp": 16, "ep": 16}
    grace = part(one(context(QWEN3_30B, profile=slow, **on), **degrees), "host")
    assert grace > 1.5 * part(one(context(QWEN3_30B, profile=even, **on), **degrees), "host")
    x86 = [one(context(QWEN3_30B, profile=p), dp=16, ep=16) for p in (slow, even)]
    assert seconds(x86[0]) == seconds(x86[1])


def test_zero_3_gathers_for_every_microbatch():
    profile = framework("fsdp2", dp_overlap=0.0)
    few = one(context(sequences=128, profile=profile), dp=16, zero_stage=3, packing=False)
    many = one(context(sequences=512, profile=profile), dp=16, zero_stage=3, packing=False)
    assert part(many, "dp_comm") == pytest.approx(4 * part(few, "dp_comm"))
    other = one(context(sequences=512, profile=profile), dp=16, zero_stage=1, packing=False)
    assert part(other, "dp_comm") < part(many, "dp_comm")


def test_overlap_hides_gradient_exchange_but_not_its_last_layer():
    hidden = part(one(context(profile="nemo-rl"), dp=64, zero_stage=1), "dp_comm")
    exposed_profile = framework("nemo-rl", dp_overlap=0.0)
    exposed = part(one(context(profile=exposed_profile), dp=64, zero_stage=1), "dp_comm")
    assert 0.0 < hidden < 0.5 * exposed


def test_exchange_across_domains_costs_more_than_inside():
    inside = context(QWEN3_30B, cluster="gb200-nvl72:4x4")
    across = context(QWEN3_30B, cluster="b200:2x8")
    strategy = {"dp": 16, "ep": 16}
    assert part(one(across, **strategy), "ep_comm") > 1.5 * part(one(inside, **strategy), "ep_comm")


def test_tensor_parallelism_across_nodes_is_slow():
    costs = [one(context(LLAMA_70B), tp=tp, dp=16 // tp) for tp in (8, 16)]
    assert part(costs[1], "tp_comm") > 2 * part(costs[0], "tp_comm")


def test_ring_hides_behind_long_attention_and_ulysses_never_does():
    long = {"prompt": fixed(1), "response": fixed(131_071), "sequences": 32}
    ring = one(context(**long, profile=framework("nemo-rl", cp_ulysses=0)), tp=8, cp=4)
    ulysses = one(context(**long, profile=framework("nemo-rl", cp_ulysses=1)), tp=8, cp=4)
    assert part(ring, "cp_comm") < 0.2 * part(ring, "attention")
    assert part(ulysses, "cp_comm") > 0.0


def test_optimizer_on_the_host_costs_time_and_offload_is_charged_once_a_step():
    device, host = (one(context(), dp=8, zero_stage=1, optimizer_on_cpu=x) for x in (False, True))
    assert part(host, "optimizer") > part(device, "optimizer")
    counted = framework("nemo-rl", offload_within_refit=0.0)
    ctx = context(profile=counted, optimizer_steps=4)
    moved = one(ctx, dp=8, zero_stage=1, offload="optimizer")
    # 12 bytes of optimizer for each of 8.03e9 parameters over 8 ranks, there and back.
    expected = 2 * 12 * 8.03e9 / 8 / ctx.group.device.host_link_bandwidth_bytes_per_s
    assert part(moved, "offload") == pytest.approx(expected, rel=0.01)
    assert part(one(context(), dp=8, zero_stage=1, offload="all"), "offload") == 0.0


def test_fp8_is_faster_where_the_device_has_it_and_impossible_where_not():
    strategy = {"tp": 8, "dp": 1}
    hopper = context(LLAMA_70B, sequences=64)
    assert seconds(one(hopper, **strategy, dtype="fp8")) < seconds(one(hopper, **strategy))
    ampere = context(LLAMA_70B, sequences=64, cluster="a100:1x8")
    assert np.isinf(seconds(one(ampere, **strategy, dtype="fp8")))


def test_old_attention_kernels_are_slower_on_new_devices_only():
    long = {"prompt": fixed(1), "response": fixed(32_767), "sequences": 32}

    def slowdown(cluster: str) -> float:
        new, old = (
            part(one(context(**long, cluster=cluster, profile=p), dp=8), "attention")
            for p in ("nemo-rl", framework("nemo-rl", attention_max_flop_per_s=3.3e14))
        )
        return old / new

    assert slowdown("a100:1x8") == pytest.approx(1.0)
    assert 1.3 < slowdown("h100:1x8") < 2.5
    assert slowdown("b200:1x8") > slowdown("h100:1x8")


def test_unfused_attention_moves_its_scores():
    ctx = {"prompt": fixed(1), "response": fixed(4095), "cluster": "a100:1x8"}
    fused = one(context(**ctx), dp=8)
    unfused = one(context(**ctx, profile=framework("nemo-rl", attention_unfused=1)), dp=8)
    assert part(unfused, "attention") > 2 * part(fused, "attention")
    assert unfused.memory_parts_bytes["activations"] > fused.memory_parts_bytes["activations"]


def test_blocks_of_many_strategies_join_without_a_seam():
    base = arrays(Strategy(dp=8), Strategy(tp=8), Strategy(pp=2, dp=4))
    many = base.take(np.arange(70_000) % 3)
    costs = call_costs(context(), many)
    three = call_costs(context(), base)
    np.testing.assert_array_equal(costs.time_s, three.time_s[np.arange(70_000) % 3])
    assert len(costs.time_parts_s["compute"]) == 70_000


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.booleans(), st.sampled_from([0.5, 1.5, 2.5])),
        min_size=1,
        max_size=50,
    )
)
def test_distinct_rows_reproduce_every_row(rows):
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    first, inverse = distinct(*columns)
    assert len(first) == len(set(rows))
    for column in columns:
        np.testing.assert_array_equal(column[first][inverse], column)


def test_shipped_profiles_have_the_same_constants_within_their_ranges():
    names = [n for n in list_frameworks() if load_framework(n).kind == "framework"]
    assert {"megatron", "fsdp2", "deepspeed", "nemo-rl", "verl-fsdp", "generic"} <= set(names)
    keys = set(load_framework("generic").constants)
    for name in names:
        constants = load_framework(name).constants
        # Mechanisms of weight synchronisation have terms of their own.
        assert {key for key in constants if not key.startswith("refit_")} | keys == keys
        assert keys <= set(constants)
        for constant in constants.values():
            assert constant.low <= constant.value <= constant.high
