"""Generation: decode time against hand-computed integrals, regimes, laws, memory, real steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from generation_inputs import (
    ALL_REDUCE_S,
    ATTENTION_START_S,
    ATTENTION_TOKEN_S,
    GEMM_ROW_S,
    GEMM_START_S,
    TINY,
    TINY_MOE,
    context,
    fixed,
    histogram,
    lognormal,
    strategies,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog.models import load_model
from planner.cost.decode import step_table
from planner.cost.engine_kernels import EngineShapes
from planner.cost.generate import PARTS, generate_cost
from planner.cost.parameters import count_parameters
from planner.cost.transfer import SyncRoute, step_fixed_s, weight_sync_s
from planner.cost.weight_formats import uniform
from planner.schema import Constant, FrameworkProfile

PROMPT = 100.0
LENGTHS = ((100, 2.0), (200, 1.0), (400, 1.0))


def step_by_hand(context_tokens: float, running: float, engine, *, tp: int = 1) -> float:
    """Seconds of one decode step of TINY on AffineKernels, written out."""
    layers = 4
    matrices = 4 * layers + 1  # qkv, o, up, down in each layer, and the head
    products = matrices * (GEMM_START_S + GEMM_ROW_S * running)
    attention = layers * (ATTENTION_START_S + ATTENTION_TOKEN_S * running * context_tokens)
    reduces = 2 * layers * ALL_REDUCE_S if tp > 1 else 0.0
    passes = layers * running * passes_by_hand(tp)
    host = engine.value("step_s") + layers * engine.value("layer_s")
    host += running * engine.value("sequence_step_s")
    return products + attention + reduces + passes + host


def passes_by_hand(tp: int = 1) -> float:
    """Seconds that the small kernels of one layer of TINY take for one row: norms with the
    residual 8 x 256 words, rotary embedding 2 x 512, activation 3 x 512, of two bytes each."""
    device = context(response=fixed(100.0)).group.device
    nbytes = 2 * (8 * 256 + (2 * 512 + 3 * 512) / tp)
    return nbytes / (device.memory_bandwidth_bytes_per_s * device.memory_efficiency)


def decode_s(cost) -> float:
    return float(cost.time_s[0] - cost.time_parts_s["prefill"][0])


def test_drain_equals_the_integral_over_tokens_by_hand() -> None:
    """sum over token indices of tau(alive, prompt + index), in a plain loop."""
    ctx = context(response=histogram(*LENGTHS))
    expected = 0.0
    for token in range(400):
        alive = 64 * sum(w for length, w in LENGTHS if length > token) / 4.0
        expected += step_by_hand(PROMPT + token + 0.5, alive, ctx.engine)
    cost = generate_cost(ctx, strategies(tp=[1], dp=[1]))
    assert decode_s(cost) == pytest.approx(expected, rel=1e-4)


def test_drain_under_tensor_parallelism_and_replicas_by_hand() -> None:
    ctx = context(response=fixed(300.0))
    expected = sum(
        step_by_hand(PROMPT + token + 0.5, 64 / 4, ctx.engine, tp=2) for token in range(300)
    )
    cost = generate_cost(ctx, strategies(tp=[2], dp=[4]))
    assert decode_s(cost) == pytest.approx(expected, rel=1e-4)


def test_waves_of_equal_lengths_follow_one_another() -> None:
    """64 responses in 24 places: three waves, of 24, 24 and 16."""
    ctx = context(response=fixed(300.0))
    expected = sum(
        step_by_hand(PROMPT + token + 0.5, wave, ctx.engine)
        for wave in (24, 24, 16)
        for token in range(300)
    )
    cost = generate_cost(ctx, strategies(dp=[1], max_running_sequences=[24]))
    assert decode_s(cost) == pytest.approx(expected, rel=1e-3)


def test_decode_time_falls_as_short_responses_finish() -> None:
    """The same longest response with ever more short ones beside it takes less time."""
    times = [
        decode_s(
            generate_cost(context(response=histogram((50, short), (400, 1.0))), strategies(dp=[1]))
        )
        for short in (0.01, 1.0, 3.0)
    ]
    assert times[0] > times[1] > times[2]
    table = step_table(
        context(response=fixed(100.0)), EngineShapes(*[np.array([1])] * 3), uniform("bf16"), 64
    )
    step = table.step(np.array([0]), np.array([[64.0, 32.0, 8.0, 1.0]]), np.full((1, 4), 200.0))
    assert (np.diff(step.total_s[0]) < 0).all()


def test_decode_time_grows_with_context() -> None:
    response = fixed(200.0)
    short = generate_cost(context(response=response, prompt=fixed(100.0)), strategies(dp=[1]))
    long = generate_cost(context(response=response, prompt=fixed(1100.0)), strategies(dp=[1]))
    # 1,000 more cached tokens in each of 200 steps of 64 sequences and 4 layers.
    expected = 200 * 4 * 64 * 1000 * ATTENTION_TOKEN_S
    grown = long.time_parts_s["decode_attention"] - short.time_parts_s["decode_attention"]
    assert grown[0] == pytest.approx(expected, rel=1e-3)


def test_flow_is_work_over_throughput() -> None:
    ctx = context(response=fixed(300.0), staleness=1)
    cost = generate_cost(ctx, strategies(dp=[2], max_running_sequences=[16]))
    # 32 responses of 300 tokens a replica, 16 at a time, at the mean context of a running one.
    expected = 32 * 300 / 16 * step_by_hand(PROMPT + 150.0, 16, ctx.engine)
    assert decode_s(cost) == pytest.approx(expected, rel=1e-3)
    assert cost.time_parts_s["tail"][0] == 0.0


def test_staleness_removes_the_tail_but_no_response_outlives_its_steps() -> None:
    response = histogram((50, 60.0), (1000, 4.0))
    times = [
        decode_s(generate_cost(context(response=response, staleness=k), strategies(dp=[1])))
        for k in (0, 1, 2, 4, 8)
    ]
    assert (np.diff(times) <= 1e-12).all()
    ctx = context(response=response)
    for k, time in zip((1, 2, 4, 8), times[1:], strict=True):
        fastest = 1000 * step_by_hand(PROMPT, 1, ctx.engine)
        assert time >= 0.95 * fastest / (1 + k)
    assert times[1] < 0.75 * times[0]


def test_tail_is_the_time_below_half_occupancy() -> None:
    ctx = context(response=histogram(*LENGTHS))
    cost = generate_cost(ctx, strategies(dp=[1]))
    expected = sum(step_by_hand(PROMPT + t + 0.5, 16, ctx.engine) for t in range(200, 400))
    assert cost.time_parts_s["tail"][0] == pytest.approx(expected, rel=1e-3)


def test_pipeline_stages_decode_microbatches_in_turn() -> None:
    """With pp = 2 each of two microbatches holds half the batch and pays every layer."""
    ctx = context(response=fixed(300.0), constants={"step_s": 0.0})
    whole = generate_cost(ctx, strategies(pp=[1], dp=[1]))
    split = generate_cost(ctx, strategies(pp=[2], dp=[1]))
    product = GEMM_START_S + 32 * GEMM_ROW_S
    assert split.time_parts_s["decode_weights"][0] == pytest.approx(
        300 * (16 * product + 2 * product + 4 * 32 * passes_by_hand()), rel=1e-3
    )
    assert (
        split.time_parts_s["tp_communication"][0] > 0.0 == whole.time_parts_s["tp_communication"][0]
    )


def test_samples_of_a_prompt_share_its_prefill() -> None:
    response = fixed(100.0)
    shared = generate_cost(context(response=response, prompt=fixed(4000.0)), strategies(dp=[1]))
    alone = generate_cost(
        context(response=response, prompt=fixed(4000.0), constants={"prefix_caching": 0.0}),
        strategies(dp=[1]),
    )
    ratio = alone.time_parts_s["prefill"][0] / shared.time_parts_s["prefill"][0]
    assert ratio == pytest.approx(8.0, rel=0.05)
    assert alone.useful_flop[0] > shared.useful_flop[0]


def test_host_roof_and_grace() -> None:
    constants = {"sequence_step_s": 0.0, "host_roof_sequence_s": 1e-3}
    ctx = context(response=fixed(100.0), constants=constants)
    cost = generate_cost(ctx, strategies(dp=[1]))
    assert decode_s(cost) == pytest.approx(100 * 64 * 1e-3, rel=1e-6)
    host = {"sequence_step_s": 1e-3}
    x86 = generate_cost(context(response=fixed(100.0), constants=host), strategies(dp=[1]))
    grace = generate_cost(
        context(response=fixed(100.0), constants=host, cluster="gb200-nvl72:2x4"),
        strategies(dp=[1]),
    )
    ratio = grace.time_parts_s["engine_overhead"] / x86.time_parts_s["engine_overhead"]
    assert ratio[0] == pytest.approx(ctx.engine.value("grace_factor"), rel=1e-6)


GRID = strategies(
    tp=np.repeat([1, 2, 4], 12),
    dp=np.tile(np.repeat([1, 2, 8], 4), 3),
    max_running_sequences=np.tile([4, 16, 64, 1024], 9),
)
lengths = st.builds(
    lognormal,
    st.floats(20.0, 900.0),
    st.just(1000),
    st.sampled_from([0.3, 0.9, 1.6]),
)


@settings(max_examples=40, deadline=None)
@given(
    response=lengths,
    samples=st.sampled_from([2, 8, 32]),
    staleness=st.integers(0, 3),
    model=st.sampled_from([TINY, TINY_MOE]),
    beside_trainer=st.booleans(),
)
def test_laws(response, samples, staleness, model, beside_trainer) -> None:
    ctx = context(model, response=response, samples=samples, staleness=staleness)
    ctx = replace(ctx, beside_trainer=beside_trainer)
    cost = generate_cost(ctx, GRID)
    assert tuple(cost.time_parts_s) == PARTS
    assert np.isfinite(cost.time_s).all()
    np.testing.assert_allclose(sum(cost.time_parts_s.values()), cost.time_s, rtol=1e-12)
    assert all((part >= 0).all() for part in cost.time_parts_s.values())
    assert (cost.time_s >= cost.bound_s * (1 - 1e-9)).all()
    np.testing.assert_allclose(sum(cost.memory_parts_bytes.values()), cost.peak_bytes, rtol=1e-12)
    reserved = 0.9 * ctx.group.device.memory_bytes
    if beside_trainer:
        reserved -= ctx.engine.value("trainer_residue_bytes")
    np.testing.assert_allclose(cost.peak_bytes, reserved, rtol=1e-12)
    assert len(np.unique(cost.useful_flop)) == 1
    assert (cost.depth > 0).all()
    by_dp = cost.time_s.reshape(3, 3, 4)
    assert (np.diff(by_dp, axis=1) <= 1e-9 * by_dp[:, :-1]).all(), "more replicas are never slower"


@settings(max_examples=25, deadline=None)
@given(
    mean=st.floats(50.0, 800.0),
    factor=st.floats(1.02, 1.2),
    samples=st.sampled_from([2, 8]),
    staleness=st.integers(0, 2),
)
def test_longer_responses_take_longer(mean, factor, samples, staleness) -> None:
    short, long = (
        generate_cost(
            context(response=lognormal(m, 1000), samples=samples, staleness=staleness), GRID
        ).time_s
        for m in (mean, mean * factor)
    )
    # Nearer to the cap lengths vary less, which evens out the replicas: a few per cent at most.
    assert (long >= short * 0.97).all()


@settings(max_examples=25, deadline=None)
@given(response=lengths, staleness=st.integers(1, 3))
def test_flow_is_never_slower_than_draining(response, staleness) -> None:
    drained = generate_cost(context(response=response), GRID).time_s
    flowing = generate_cost(context(response=response, staleness=staleness), GRID).time_s
    assert (flowing <= drained * (1 + 1e-12)).all()


def test_rows_are_independent_of_each_other() -> None:
    ctx = context(response=lognormal(300.0, 1000))
    together = generate_cost(ctx, GRID)
    for row in (0, 7, 35):
        alone = generate_cost(ctx, GRID.take([row]))
        assert alone.time_s[0] == pytest.approx(together.time_s[row], rel=1e-12)
        assert alone.bound_s[0] == pytest.approx(together.bound_s[row], rel=1e-12)


def test_doubling_layers_doubles_all_but_the_head_and_the_fixed_step() -> None:
    twice = TINY.model_copy(update={"num_layers": 8})
    one = generate_cost(context(response=fixed(200.0)), strategies(dp=[1]))
    two = generate_cost(context(twice, response=fixed(200.0)), strategies(dp=[1]))
    attention = [cost.time_parts_s["decode_attention"][0] for cost in (one, two)]
    assert attention[1] == pytest.approx(2 * attention[0], rel=1e-9)
    assert one.time_s[0] < two.time_s[0] < 2 * one.time_s[0]


def test_no_room_for_one_sequence_is_infinite_and_says_what_it_needs() -> None:
    model = load_model("meta-llama/Llama-3.1-70B")
    ctx = context(model, response=lognormal(800.0, 4000), measured=True)
    cost = generate_cost(ctx, strategies(tp=[1, 4], dp=[1, 1]))
    assert np.isinf(cost.time_s[0])
    assert np.isfinite(cost.time_s[1])
    weights = 2.0 * count_parameters(model).total
    assert cost.memory_parts_bytes["engine_weights"][0] == pytest.approx(weights, rel=1e-3)
    assert cost.peak_bytes[0] > ctx.group.device.memory_bytes


def test_a_dtype_that_the_device_lacks_is_infinite() -> None:
    ctx = context(response=fixed(100.0), cluster="a100:1x8")
    cost = generate_cost(ctx, strategies(dp=[1, 1], dtype=[0, 1]))
    assert np.isfinite(cost.time_s[0])
    assert np.isinf(cost.time_s[1])


def test_cache_slots_bound_the_running_batch() -> None:
    """Qwen3-235B at TP8 and 0.8 of 80 GB keeps about 39 sequences of a published recipe."""
    from planner.cost.engine_memory import engine_memory
    from planner.cost.occupancy import length_cells

    response = lognormal(5671.0, 8082)
    ctx = context(
        load_model("Qwen/Qwen3-235B-A22B"),
        response=response,
        prompt=fixed(110.0),
        prompts=16,
        samples=32,
        measured=True,
        cluster="h100:32x8",
        staleness=1,
    )
    age = length_cells(response, 512).stationary_age
    row = strategies(tp=[8], dp=[16], memory_fraction=[0.8])
    memory = engine_memory(ctx, row, np.array([32.0]), age)
    assert memory.slots[0] == pytest.approx(39, abs=2)


def test_latent_cache_is_not_divided_and_key_value_heads_repeat() -> None:
    from planner.cost.engine_memory import cache_bytes

    rows = strategies(tp=[1, 2, 4, 8, 16])
    tokens = np.full(5, 1000.0)
    latent = context(load_model("deepseek-ai/DeepSeek-V3"), response=fixed(100.0), measured=True)
    assert len(np.unique(cache_bytes(latent, rows, tokens))) == 1
    grouped = context(load_model("Qwen/Qwen3-30B-A3B"), response=fixed(100.0), measured=True)
    held = cache_bytes(grouped, rows, tokens)
    np.testing.assert_allclose(held / held[0], [1.0, 0.5, 0.25, 0.25, 0.25])


@pytest.mark.parametrize(
    ("mean", "measured_s"),
    [(795.0, 58.0), (777.0, 57.0)],
    ids=["megatron", "dtensor"],
)
def test_published_rollout_of_llama_8b_on_8_h100(mean: float, measured_s: float) -> None:
    """NeMo RL v0.3 blog: 64 prompts x 32 samples, at most 4,096 tokens in all."""
    ctx = context(
        load_model("meta-llama/Llama-3.1-8B"),
        response=lognormal(mean, 3990),
        prompt=lognormal(102.0, 106),
        prompts=64,
        samples=32,
        measured=True,
        cluster="h100:1x8",
    )
    cost = generate_cost(ctx, strategies(tp=[1], dp=[8], memory_fraction=[0.6]))
    assert cost.time_s[0] == pytest.approx(measured_s, rel=0.1)


def test_sleeping_engine_keeps_a_residue_and_weights_on_the_host() -> None:
    ctx = context(response=fixed(100.0))
    cost = generate_cost(ctx, strategies(tp=[1], dp=[1]))
    assert cost.resident_bytes[0] == ctx.engine.value("sleep_residue_bytes")
    assert cost.host_bytes_per_device[0] == cost.memory_parts_bytes["engine_weights"][0]


def _framework(**constants: float) -> FrameworkProfile:
    return FrameworkProfile(
        name="test",
        kind="framework",
        description="test",
        constants={
            name: Constant(value=value, unit="s", meaning="m", low=0.0, high=100.0, source="s")
            for name, value in constants.items()
        },
        relative_error=0.1,
        relative_error_source="test",
    )


def test_weight_sync_and_fixed_time() -> None:
    framework = _framework(
        refit_shared_fixed_s=4.0,
        refit_shared_s_per_byte=0.044e-9,
        refit_disjoint_fixed_s=1.2,
        refit_link_passes=1.35,
        step_fixed_s=2.0,
        step_per_sequence_s=3.7e-3,
    )
    model = load_model("Qwen/Qwen3-30B-A3B")
    gigabytes = 2 * count_parameters(model).total / 1e9
    assert weight_sync_s(model, framework, "bf16", None) == pytest.approx(4 + 0.044 * gigabytes)
    for link in (50e9, 25e9):  # half the link, twice the bytes' time
        across = SyncRoute(link, devices=64, within_domain=False)
        assert weight_sync_s(model, framework, "fp8", across) == pytest.approx(
            1.2 + 1.35 * gigabytes / 2 * 1e9 / link
        )
    workload = context(response=fixed(100.0)).workload
    assert step_fixed_s(workload, framework) == pytest.approx(2.0 + 64 * 3.7e-3)
