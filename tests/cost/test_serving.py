"""Serving throughput: conservation of device time, limits of the cache, quantised weights."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from generation_inputs import context, fixed, lognormal

from planner.catalog.models import load_model
from planner.cost.arrays import StrategyArrays
from planner.cost.engine_memory import weights_bytes
from planner.cost.serving import Server, server
from planner.cost.weight_formats import WeightFormat, WeightFormats, uniform
from planner.errors import InputError
from planner.schema import Strategy

LLAMA = load_model("meta-llama/Llama-3.1-8B")


def llama(
    prompt: float = 1024.0,
    response: float = 512.0,
    *,
    engine: str = "vllm",
    strategy: Strategy | None = None,
    formats: WeightFormats | None = None,
    constants: dict[str, float] | None = None,
    cluster: str = "h100:1x8",
) -> Server:
    ctx = context(
        LLAMA,
        prompt=fixed(prompt),
        response=fixed(response),
        engine=engine,
        constants=constants,
        measured=True,
        cluster=cluster,
        prompts=256,
        samples=1,
    )
    return server(ctx, strategy or Strategy(), formats or uniform("bf16"))


def test_fixed_concurrency_conserves_device_time() -> None:
    """C requests finish in C prefills and o - 1 steps; the parts say where the time goes."""
    one = llama(constants={"request_s": 3e-3})
    load = one.fixed_concurrency(32)
    latency = 32 * (one.prefill_s(32) + 3e-3) + 511 * load.step_s
    assert load.tokens_per_s == pytest.approx(32 * 512 / latency, rel=1e-9)
    assert sum(load.parts_s.values()) == pytest.approx(latency, rel=1e-9)
    assert load.parts_s["request"] == pytest.approx(32 * 3e-3)


@settings(max_examples=25, deadline=None)
@given(
    prompt=st.sampled_from([64.0, 1000.0, 9000.0]),
    response=st.sampled_from([16.0, 300.0, 4000.0]),
    few=st.integers(1, 60),
    factor=st.sampled_from([2, 3, 10]),
)
def test_more_requests_give_more_tokens_and_wider_gaps(prompt, response, few, factor) -> None:
    one = llama(prompt, response)
    low, high = one.fixed_concurrency(few), one.fixed_concurrency(few * factor)
    # Where prefills take all the time, beside few decoding rows they ride on the weights read.
    assert high.tokens_per_s >= low.tokens_per_s * 0.85
    assert high.step_s >= low.step_s * (1 - 1e-9)
    assert one.token_gap_s(few) >= low.step_s
    assert one.prefill_s(float(few)) > 0.0


def test_requests_beyond_the_cache_wait_outside() -> None:
    one = llama(8000.0, 8000.0)
    full = one.fixed_concurrency(one.slots)
    assert one.slots < 200
    beyond = one.fixed_concurrency(4 * one.slots)
    assert beyond.running == one.slots
    assert beyond.tokens_per_s == pytest.approx(full.tokens_per_s, rel=1e-9)


def test_reserving_whole_requests_leaves_fewer_slots() -> None:
    whole = llama(100.0, 8000.0, constants={"reserves_whole_request": 1.0})
    paged = llama(100.0, 8000.0, constants={"reserves_whole_request": 0.0})
    assert paged.slots / whole.slots == pytest.approx(8100 / 6100, rel=0.02)
    free = llama(constants={"cache_fraction_of_free": 1.0})
    assert free.slots > llama(constants={"cache_fraction_of_free": 0.0}).slots


def test_queued_requests_drain_at_the_end() -> None:
    one = llama()
    few, many = one.all_queued(500), one.all_queued(50_000)
    assert few.tokens_per_s < many.tokens_per_s
    steady = one.fixed_concurrency(50_000).tokens_per_s
    assert 0.95 * steady < many.tokens_per_s < steady


def test_a_burst_of_mixed_lengths_is_slower_than_a_steady_load() -> None:
    def burst(response):
        ctx = context(LLAMA, prompt=fixed(200.0), response=response, engine="vllm", measured=True)
        return server(ctx, Strategy(), uniform("bf16")).burst(512).tokens_per_s

    assert burst(lognormal(200.0, 2000)) < burst(fixed(200.0))


def test_weight_only_formats_save_reading_and_not_computing() -> None:
    narrow = WeightFormat("fp8", "bf16")
    formats = WeightFormats(narrow, narrow, narrow)
    factor = {"weight_only_factor": 1.0}
    wide, packed = llama(constants=factor), llama(formats=formats, constants=factor)
    one_wide, one_packed = wide.fixed_concurrency(1), packed.fixed_concurrency(1)
    saved = one_packed.parts_s["decode_weights"] / one_wide.parts_s["decode_weights"]
    assert 0.5 < saved < 0.75
    assert packed.prefill_s(1.0) == pytest.approx(wide.prefill_s(1.0), rel=0.15)
    slower = llama(formats=formats, constants={"weight_only_factor": 1.5})
    assert slower.prefill_s(64.0) > 1.2 * packed.prefill_s(64.0)


def test_formats_decide_what_the_weights_take() -> None:
    model = load_model("Qwen/Qwen3-30B-A3B")
    ctx = context(model, response=fixed(100.0), measured=True)
    row = StrategyArrays.from_strategies([Strategy(tp=2)])
    wide = weights_bytes(ctx, row)[0]
    assert weights_bytes(ctx, row, uniform("bf16"))[0] == pytest.approx(wide, rel=1e-12)
    bf16 = WeightFormat("bf16", "bf16")
    packed = weights_bytes(ctx, row, WeightFormats(bf16, bf16, WeightFormat("fp4", "bf16")))[0]
    experts = 48 * 128 * 3 * 2048 * 768 / 2
    assert wide - packed == pytest.approx(1.5 * experts, rel=1e-6)


def test_attention_ranks_share_experts_and_each_serves_its_part() -> None:
    model = load_model("Qwen/Qwen3-30B-A3B")

    def tokens_per_s(dp: int) -> float:
        ctx = context(
            model,
            prompt=fixed(500.0),
            response=fixed(500.0),
            engine="trtllm",
            measured=True,
            cluster="h200:1x8",
        )
        one = server(ctx, Strategy(tp=1, ep=dp, dp=dp), uniform("bf16"))
        return one.fixed_concurrency(64 * dp).tokens_per_s

    # More than four times: each rank reads a quarter of the experts.
    assert 2.0 * tokens_per_s(1) < tokens_per_s(4) < 8.0 * tokens_per_s(1)


def test_a_model_without_room_is_refused() -> None:
    ctx = context(load_model("meta-llama/Llama-3.1-70B"), response=fixed(100.0), measured=True)
    with pytest.raises(InputError, match="no room"):
        server(ctx, Strategy(tp=1), uniform("bf16"))
    assert np.isfinite(server(ctx, Strategy(tp=4), uniform("bf16")).slots)
