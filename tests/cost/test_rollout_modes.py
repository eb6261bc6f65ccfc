"""Generation and training beyond one answer a prompt: rounds, turns, blocks, drafts.

Every mode at its neutral value costs exactly what it did without.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from generation_inputs import TINY, context, fixed, lognormal, strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog.frameworks import load_framework
from planner.catalog.models import load_model
from planner.cost.arrays import CallCosts
from planner.cost.context import CallContext
from planner.cost.decode import step_table
from planner.cost.engine_kernels import EngineShapes
from planner.cost.flops import layer_matrix_parameters
from planner.cost.generate import generate_cost, useful_flop
from planner.cost.train import train_cost
from planner.cost.weight_formats import uniform
from planner.workload.calls import train

ENGINES = strategies(tp=[1, 2, 4], dp=[8, 4, 2], max_running_sequences=[64, 8, 16])
RESPONSE = lognormal(400.0, 1600)


def costs(response: Any = RESPONSE, **fields: Any) -> CallCosts:
    return generate_cost(context(response=response, **fields), ENGINES)


def same(one: CallCosts, other: CallCosts) -> None:
    np.testing.assert_array_equal(one.time_s, other.time_s)
    for name, seconds in one.time_parts_s.items():
        np.testing.assert_array_equal(seconds, other.time_parts_s[name])
    for name in ("work_flop", "traffic_bytes", "depth", "bound_s", "peak_bytes"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("staleness", [0, 2])
@pytest.mark.parametrize(
    "neutral",
    [
        {"acceptance": 1.0, "oversampling": 1.0, "kept_fraction": 1.0},
        {"turns": {"mean": 1.0, "observation_tokens": 70.0, "prefix_cache_hit": 0.0}},
        {"turns": {"mean": 5.0}},
        {"block_diffusion": {"block_tokens": 1, "mean_passes": 1.0}},
        {"speculation": {"draft_tokens": 1, "acceptance": 0.0, "draft_cost": 0.0}},
    ],
)
def test_a_neutral_mode_costs_nothing(neutral: dict[str, Any], staleness: int) -> None:
    if "speculation" in neutral:
        # Even a rejected token goes through the policy: as many steps, twice the rows.
        more = costs(staleness=staleness, **neutral)
        assert (more.time_s >= costs(staleness=staleness).time_s).all()
        assert (more.depth == costs(staleness=staleness).depth).all()
        return
    same(costs(staleness=staleness, **neutral), costs(staleness=staleness))


def test_rounds_repeat_the_batch() -> None:
    ctx = context(response=RESPONSE)
    twice = CallContext(**{**vars(ctx), "call": ctx.call.model_copy(update={"rounds": 2.0})})
    one, two = generate_cost(ctx, ENGINES), generate_cost(twice, ENGINES)
    np.testing.assert_allclose(two.time_s, 2.0 * one.time_s)
    np.testing.assert_allclose(two.work_flop, 2.0 * one.work_flop)
    np.testing.assert_allclose(two.depth, 2.0 * one.depth, atol=1)
    np.testing.assert_array_equal(two.peak_bytes, one.peak_bytes)


@given(st.floats(0.05, 1.0), st.floats(0.05, 1.0))
@settings(max_examples=20, deadline=None)
def test_lower_acceptance_takes_longer_and_works_more(a: float, b: float) -> None:
    low, high = sorted((a, b))
    more, less = costs(acceptance=low, max_rounds=100), costs(acceptance=high, max_rounds=100)
    assert (more.time_s >= less.time_s * (1 - 1e-12)).all()
    assert (more.work_flop >= less.work_flop * (1 - 1e-12)).all()


def test_one_large_round_is_shorter_than_two() -> None:
    """The longest response is waited for once: why DAPO generates three batches at a time."""
    spread = lognormal(400.0, 4000)
    several = costs(spread, prompts=64, acceptance=0.4, max_rounds=100)
    at_once = costs(spread, prompts=64, acceptance=0.4, oversampling=3.0, max_rounds=100)
    assert (at_once.time_s < several.time_s).all()
    assert (at_once.time_parts_s["tail"] < several.time_parts_s["tail"]).all()


@given(st.floats(1.0, 20.0), st.floats(1.0, 20.0))
@settings(max_examples=20, deadline=None)
def test_more_turns_never_cost_less(a: float, b: float) -> None:
    low, high = sorted((a, b))

    def of(turns: float) -> CallCosts:
        environment = {"latency_s": 0.5, "workers": 10_000}
        return costs(turns={"mean": turns, "observation_tokens": 40.0, "environment": environment})

    less, more = of(low), of(high)
    assert (more.time_s >= less.time_s * (1 - 1e-9)).all()
    assert (more.work_flop >= less.work_flop * (1 - 1e-12)).all()
    assert (more.depth == less.depth).all()


def test_work_of_turns_counts_every_prefilled_token() -> None:
    """Answers pass the layers once; what the cache lost passes once more, as often as lost."""
    plain = useful_flop(context(response=fixed(400.0)))
    turns = {"mean": 5.0, "observation_tokens": 100.0}
    cached = useful_flop(context(response=fixed(400.0), turns=turns))
    lost = useful_flop(context(response=fixed(400.0), turns={**turns, "prefix_cache_hit": 0.0}))
    per_token = 2.0 * layer_matrix_parameters(TINY)
    pairs = 4 * 2.0 * TINY.num_heads * 2 * TINY.head_dim
    sequences = 64
    # Trajectories of 400 + 4 x 100 tokens after a prompt of 100.
    seen = (900 * 901 - 500 * 501) / 2
    assert cached - plain == pytest.approx(sequences * (4 * 100 * per_token + pairs * seen))
    contexts = np.array([180.0, 360.0, 540.0, 720.0])
    again = contexts.sum() * per_token + pairs * (contexts**2 / 2).sum()
    assert lost - cached == pytest.approx(sequences * again, rel=0.01)


def test_waiting_leaves_room_for_others_by_littles_law() -> None:
    """R in flight, B decoding: B (tau(B) + e) = R tau(B)."""
    turns = {"mean": 11.0, "environment": {"latency_s": 0.4, "workers": 10**6}}
    engine = strategies(tp=[1], dp=[1], max_running_sequences=[64])
    ctx = context(response=fixed(400.0), turns=turns)
    parts = generate_cost(ctx, engine).time_parts_s
    per_token = 10 * 0.4 / 400
    assert parts["environment"][0] == pytest.approx(400 * per_token)
    shapes = EngineShapes(np.array([1]), np.array([1]), np.array([1]))
    table = step_table(ctx, shapes, uniform("bf16"), 4096.0)
    row = np.zeros(1, dtype=np.int64)
    in_flight, age = np.array([[64.0]]), np.array([[300.0]])
    running = in_flight
    for _ in range(200):
        tau = table.step(row, running, age).total_s
        running = in_flight * tau / (tau + per_token)
    decode = sum(parts[name][0] for name in parts if name not in ("prefill", "environment"))
    requests = ctx.engine.value("request_s") * 64
    assert (decode - requests) / 400 == pytest.approx(float(tau[0, 0]), rel=0.02)


def test_latency_of_answers_is_hidden_by_more_in_flight() -> None:
    """Ten times the latency takes longer, but the engine catches up when it may hold more."""

    def of(latency: float, slots: int) -> float:
        turns = {"mean": 6.0, "environment": {"latency_s": latency, "workers": 10**6}}
        engine = strategies(tp=[1], dp=[1], max_running_sequences=[slots])
        ctx = context(response=fixed(400.0), turns=turns, prompts=64, samples=16, staleness=8)
        return float(generate_cost(ctx, engine).time_s[0])

    assert of(1.0, 64) > 1.3 * of(0.0, 64)
    assert of(1.0, 1024) < 1.3 * of(0.0, 64)


def test_workers_too_few_set_the_pace() -> None:
    def of(workers: int) -> CallCosts:
        environment = {"latency_s": 1.0, "workers": workers}
        return costs(turns={"mean": 3.0, "environment": environment})

    few, many = of(2), of(10**6)
    pool_s = 2 * 64 * 1.0 / 2
    np.testing.assert_allclose(few.time_s, pool_s)
    assert (many.time_s < pool_s).all()
    for row in range(3):
        parts = {name: seconds[row] for name, seconds in few.time_parts_s.items()}
        assert max(parts, key=lambda name: parts[name]) == "environment_pool"


@pytest.mark.parametrize(
    ("passes", "separate", "depth", "work"),
    [
        (2.0, False, 0.5, 2.0),
        (2.0, True, 0.75, 3.0),
        (4.0, False, 1.0, 4.0),
        (4.0, True, 1.25, 5.0),
    ],
)
def test_block_diffusion_trades_work_for_depth(
    passes: float, separate: bool, depth: float, work: float
) -> None:
    """Blocks of 4 at batch 1 (work_depth of SDAR): (S + e) / 4 the depth, S + e times the work."""
    one = {"prompts": 1, "samples": 1, "response": fixed(400.0)}
    engine = strategies(tp=[1], dp=[1], max_running_sequences=[1])
    plain_context = context(**one)
    block = {"block_tokens": 4, "mean_passes": passes, "separate_commit": separate}
    block_context = context(**one, block_diffusion=block)
    plain, blocks = (generate_cost(ctx, engine) for ctx in (plain_context, block_context))
    assert blocks.depth[0] / plain.depth[0] == pytest.approx(depth, abs=0.01)
    prompt = useful_flop(context(prompts=1, samples=1, response=fixed(1.0)))
    ratio = (blocks.work_flop[0] - prompt) / (plain.work_flop[0] - prompt)
    assert ratio == pytest.approx(work, abs=0.1)
    if passes == 4.0:
        assert blocks.time_s[0] >= 0.99 * plain.time_s[0]  # no early exit: nothing is gained
    else:
        assert blocks.time_s[0] < plain.time_s[0]


def test_block_diffusion_is_compute_bound_at_a_quarter_of_the_batch() -> None:
    """The batch at which a pass takes twice its time at batch 1, on measured kernels."""
    model = load_model("Qwen/Qwen3-8B")
    ctx = context(model, response=fixed(400.0), measured=True, engine="vllm")
    shapes = EngineShapes(np.array([1]), np.array([1]), np.array([1]))
    table = step_table(ctx, shapes, uniform("bf16"), 65_536.0)
    batch = np.geomspace(1.0, 4096.0, 400)[None, :]
    row = np.zeros(1, dtype=np.int64)

    def crossover(rows: float) -> float:
        weights = table.step(row, batch, np.full_like(batch, 500.0), rows).weights_s[0]
        return float(batch[0][np.argmax(weights > 2.0 * weights[0])])

    assert crossover(4.0) / crossover(1.0) == pytest.approx(0.25, rel=0.25)


def test_speculation_pays_at_small_batches_and_less_at_large_ones() -> None:
    """Rejected tokens are free while weights are read anyway, not once the products compute."""
    model = load_model("Qwen/Qwen3-8B")
    engine = strategies(tp=[1], dp=[1], max_running_sequences=[1024])
    draft = {"draft_tokens": 3, "acceptance": 0.8, "draft_cost": 0.05}

    def both(samples: int) -> tuple[CallCosts, CallCosts]:
        few = {"prompts": 1, "samples": samples, "response": fixed(400.0), "measured": True}
        with_draft = generate_cost(context(model, **few, speculation=draft), engine)
        return generate_cost(context(model, **few), engine), with_draft

    def gain(samples: int) -> float:
        plain, drafted = both(samples)
        return float(plain.time_s[0] / drafted.time_s[0])

    tokens = (1 - 0.8**4) / (1 - 0.8)
    assert gain(1) == pytest.approx(tokens / 1.15, rel=0.1)
    assert gain(1) > gain(256) > gain(1024)
    plain, drafted = both(1024)
    assert drafted.time_parts_s["decode_weights"][0] > plain.time_parts_s["decode_weights"][0]


def test_training_sees_every_view_of_a_token() -> None:
    def of(**fields: Any) -> CallCosts:
        ctx = context(response=RESPONSE, measured=True, **fields)
        framework = load_framework("generic")
        ctx = replace(ctx, call=train(ctx.workload, "actor"), framework=framework, trained=True)
        return train_cost(ctx, strategies(dp=[8, 4], tp=[1, 2]))

    plain = of()
    one = of(block_diffusion={"block_tokens": 4, "mean_passes": 2.0, "training_views": 1.0})
    two = of(block_diffusion={"block_tokens": 4, "mean_passes": 2.0})
    same(plain, one)
    np.testing.assert_allclose(two.useful_flop, 2.0 * plain.useful_flop)
    np.testing.assert_allclose(two.work_flop, 2.0 * plain.work_flop)
    assert (two.time_s > plain.time_s).all()
    assert (two.peak_bytes > plain.peak_bytes).all()


def test_training_sees_the_environments_answers() -> None:
    """Answers pass layers and attention, but are masked from the loss and need no logits."""
    turns = {"mean": 5.0, "observation_tokens": 100.0}
    ctx = context(response=fixed(400.0), prompt=fixed(100.0), turns=turns)
    ctx = replace(
        ctx, call=train(ctx.workload, "actor"), framework=load_framework("generic"), trained=True
    )
    head = 2.0 * TINY.hidden_size * TINY.vocab_size * 400
    layers = 2.0 * layer_matrix_parameters(TINY) * 900
    attention = 4 * 2.0 * TINY.num_heads * 2 * TINY.head_dim * 900 * 901 / 2
    found = float(train_cost(ctx, strategies(dp=[8])).useful_flop[0])
    assert found == pytest.approx(3 * 64 * (head + layers + attention))
