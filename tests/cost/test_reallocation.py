"""Resharding volume is the set difference of shards: counted cell by cell on small models."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training_contexts import arrays, context, model

from planner.cost.context import CallContext
from planner.cost.parameters import count_parameters
from planner.cost.reallocation import reallocation_s, received_bytes, shard_bytes
from planner.schema import MoESpec, Strategy

DENSE = model(
    name="small",
    hidden_size=64,
    num_layers=6,
    num_heads=8,
    num_kv_heads=8,
    ffn_size=128,
    vocab_size=512,
)
MOE = model(
    name="small-moe",
    hidden_size=64,
    num_layers=4,
    num_heads=8,
    num_kv_heads=8,
    ffn_size=128,
    vocab_size=512,
    moe=MoESpec(num_experts=8, top_k=2, expert_ffn_size=32),
)
CELLS = 16
"""Every tensor is cut into so many equal cells: enough for degrees that multiply to 16."""


def forward(spec: object = DENSE) -> CallContext:
    return context(spec, kind="forward", trained=False)  # type: ignore[arg-type]


def held_cells(spec: object, s: Strategy, rank: int) -> set[tuple[str, int, int]]:
    """(kind, layer, cell) of everything on one device, by walking the layout."""
    stages = s.pp
    per_stage = s.devices // stages
    stage, inside = divmod(rank, per_stage)
    layers = spec.num_layers  # type: ignore[attr-defined]
    per_chunk = layers // (stages * s.vpp)
    own = [layer for layer in range(layers) if (layer // per_chunk) % stages == stage]
    tensor, replica = inside % s.tp, inside // s.tp
    cells = range(CELLS * tensor // s.tp, CELLS * (tensor + 1) // s.tp)
    if s.zero_stage == 3:
        share = len(cells) // (s.dp * s.cp)
        cells = cells[replica * share : (replica + 1) * share]
    found = {("dense", layer, cell) for layer in own for cell in cells}
    if stage == 0:
        found |= {("embedding", 0, cell) for cell in cells}
    if stage == stages - 1:
        found |= {("head", 0, cell) for cell in cells}
    if spec.moe is not None:  # type: ignore[attr-defined]
        slot = inside % s.ep
        experts = range(CELLS * slot // s.ep, CELLS * (slot + 1) // s.ep)
        found |= {("expert", layer, cell) for layer in own for cell in experts}
    return found


def counted_bytes(spec: object, source: Strategy | None, destination: Strategy) -> float:
    """bf16 bytes that the worst-off device lacks."""
    counts = count_parameters(spec)  # type: ignore[arg-type]
    layer = counts.moe_layer if counts.num_moe_layers else counts.dense_layer
    parameters = {
        "dense": layer.total - layer.expert,
        "embedding": counts.embedding,
        "head": counts.head + counts.final_norm,
        "expert": layer.expert,
    }
    worst = 0.0
    for rank in range(destination.devices):
        lacking = held_cells(spec, destination, rank)
        if source is not None:
            lacking -= held_cells(spec, source, rank)
        worst = max(worst, sum(2.0 * parameters[kind] / CELLS for kind, _, _ in lacking))
    return worst


def layouts(devices: int) -> list[Strategy]:
    found = []
    for tp, pp, cp, zero in itertools.product((1, 2, 4), (1, 2), (1, 2), (1, 3)):
        if devices % (tp * pp * cp) or (zero == 3 and pp > 1):
            continue
        dp = devices // (tp * pp * cp)
        found += [
            Strategy(tp=tp, pp=pp, cp=cp, dp=dp, vpp=vpp, zero_stage=zero)
            for vpp in ((1, 3) if pp == 2 else (1,))
        ]
    return found


@pytest.mark.parametrize("devices", [2, 8])
def test_a_dense_model_moves_the_set_difference_of_its_shards(devices: int) -> None:
    options = layouts(devices)
    pairs = list(itertools.product(options, options))
    got = received_bytes(forward(), arrays(*(a for a, _ in pairs)), arrays(*(b for _, b in pairs)))
    expected = [counted_bytes(DENSE, a, b) for a, b in pairs]
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1.0)
    assert (got > 0).any()
    assert (got == 0).any()


@settings(max_examples=40, deadline=None)
@given(
    tp=st.lists(st.sampled_from([1, 2, 4]), min_size=2, max_size=2),
    pp=st.lists(st.sampled_from([1, 2]), min_size=2, max_size=2),
    ep=st.lists(st.sampled_from([1, 2, 4]), min_size=2, max_size=2),
)
def test_experts_move_by_their_own_slices(tp: list[int], pp: list[int], ep: list[int]) -> None:
    source, destination = (
        Strategy(tp=t, pp=p, ep=min(e, 8 // p), dp=8 // (t * p), zero_stage=1)
        for t, p, e in zip(tp, pp, ep, strict=True)
    )
    got = received_bytes(forward(MOE), arrays(source), arrays(destination))[0]
    assert got == pytest.approx(counted_bytes(MOE, source, destination), abs=1.0)


def test_a_smaller_part_of_what_is_there_is_free() -> None:
    """A rank with the whole model has any quarter of it; the other way three quarters are new."""
    whole = Strategy(dp=4, zero_stage=1)
    split = Strategy(tp=4, dp=1, zero_stage=1)
    assert received_bytes(forward(), arrays(whole), arrays(split))[0] == 0.0
    assert reallocation_s(forward(), arrays(split), arrays(whole))[0] == 0.0
    back = received_bytes(forward(), arrays(split), arrays(whole))[0]
    assert back == pytest.approx(0.75 * 2 * count_parameters(DENSE).total)


def test_equal_layouts_move_nothing_and_other_devices_everything() -> None:
    for strategy in layouts(8):
        same = arrays(strategy)
        assert reallocation_s(forward(), same, same)[0] == 0.0
        assert shard_bytes(forward(), same)[0] == pytest.approx(
            counted_bytes(DENSE, None, strategy)
        )
        assert reallocation_s(forward(), same)[0] > 0.0


def test_an_offloaded_trainer_loads_its_weights_first() -> None:
    here = Strategy(tp=2, dp=4, zero_stage=1)
    there = Strategy(dp=8, zero_stage=3)
    kept, offloaded = (
        reallocation_s(forward(), arrays(there), arrays(here.model_copy(update={"offload": o})))[0]
        for o in ("optimizer", "all")
    )
    host = forward().group.device.host_link_bandwidth_bytes_per_s
    assert offloaded - kept == pytest.approx(shard_bytes(forward(), arrays(here))[0] / host)


def test_uneven_stages_hold_what_the_split_says() -> None:
    split = Strategy(pp=2, dp=1, zero_stage=1, first_stage_layers=4, last_stage_layers=2)
    counts = count_parameters(DENSE)
    first = 2.0 * (counts.embedding + 4 * counts.dense_layer.total)
    assert shard_bytes(forward(), arrays(split))[0] == pytest.approx(first)
    assert math.isclose(
        received_bytes(forward(), arrays(split), arrays(Strategy(pp=2, dp=1, zero_stage=1)))[0],
        2.0 * counts.dense_layer.total,
    )


def test_layouts_on_different_numbers_of_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="same number of devices"):
        received_bytes(forward(), arrays(Strategy(dp=2)), arrays(Strategy(dp=4)))
