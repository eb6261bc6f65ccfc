"""Pipeline stages: how many layers each holds, and the time of a schedule over microbatches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.arrays import DUALPIPE, SCHEDULES, FloatArray, IntArray, StrategyArrays
from planner.cost.context import CallContext
from planner.cost.parameters import moe_layer_mask

_ZB_H1, _ZB_H2 = SCHEDULES.index("zb-h1"), SCHEDULES.index("zb-h2")

Kind = str
"""Layer kind: "dense" or "moe"."""

KINDS: tuple[Kind, ...] = ("dense", "moe")

STAGES = ("first", "middle", "last")
"""The stages that differ; all middle ones are alike."""


@dataclass(frozen=True)
class Stages:
    """Layers by kind on the first, a middle and the last stage; arrays of shape [n] each.

    With one stage, "first" holds everything and the others nothing.
    """

    layers: dict[str, dict[Kind, FloatArray]]
    has_embedding: dict[str, FloatArray]
    """1.0 where the stage holds the input embedding."""
    has_head: dict[str, FloatArray]
    """1.0 where the stage holds the output head."""


def split_layers(num_layers: int, s: StrategyArrays) -> dict[str, IntArray]:
    """Layers on the first, each middle (the fullest) and the last stage, each of shape [n].

    Explicit first or last counts are honoured and the rest spreads evenly. An even split that
    leaves a remainder gives the smaller stages to the ends, which also carry embedding and head.
    """
    layers = np.full(len(s), num_layers, dtype=np.int64)
    single = s.pp == 1
    first, last = s.first_stage_layers, s.last_stage_layers
    free_stages = s.pp - (first > 0) - (last > 0)
    rest = np.maximum(layers - first - last, 0)
    whole, more = np.divmod(rest, np.maximum(free_stages, 1))
    # `more` stages have one layer more; the last stage is the first to be spared, then the first.
    even_last = whole + (more >= free_stages)
    even_first = whole + (more >= free_stages - (last == 0))
    first_layers = np.where(first > 0, first, even_first)
    last_layers = np.where(last > 0, last, even_last)
    middle = np.where(s.pp > 2, whole + (more > 0), 0)
    # Two stages with one count given: the other takes what remains.
    two = s.pp == 2
    first_layers = np.where(two & (first == 0), layers - last_layers, first_layers)
    last_layers = np.where(two, layers - first_layers, last_layers)
    return {
        "first": np.where(single, layers, first_layers),
        "middle": middle,
        "last": np.where(single, 0, last_layers),
    }


def form_stages(context: CallContext, s: StrategyArrays) -> Stages:
    """Layer kinds of each stage in model order; "middle" is the last one before the last stage.

    (Leading dense layers may reach into the first middle stages, which are lighter then.)
    """
    model = context.model
    split = split_layers(model.num_layers, s)
    moe_before = np.concatenate([[0], np.cumsum(moe_layer_mask(model))])
    end = {
        "first": split["first"],
        "middle": model.num_layers - split["last"],
        "last": np.full(len(s), model.num_layers),
    }
    layers: dict[str, dict[Kind, FloatArray]] = {}
    for stage in STAGES:
        stop = np.clip(end[stage], 0, model.num_layers)
        start = np.clip(stop - split[stage], 0, model.num_layers)
        moe = moe_before[stop] - moe_before[start]
        layers[stage] = {
            "dense": (split[stage] - moe).astype(np.float64),
            "moe": moe.astype(np.float64),
        }
    several = (s.pp > 1).astype(np.float64)
    none = np.zeros(len(s))
    return Stages(
        layers=layers,
        has_embedding={"first": none + 1.0, "middle": none, "last": none},
        has_head={"first": 1.0 - several, "middle": none, "last": several},
    )


@dataclass(frozen=True)
class OtherStages:
    """One microbatch through all stages but the slowest, seconds, arrays of shape [n]."""

    passes: FloatArray
    """Forward and backward."""
    backward: FloatArray
    """Backward with recomputation, weight gradients included."""
    weight_gradient: FloatArray


def fill_and_drain_s(others: OtherStages, s: StrategyArrays) -> FloatArray:
    """Time that the slowest stage waits for the others in one schedule, shape [n].

    A 1F1B schedule of m microbatches lasts m x slowest stage + the other stages once;
    interleaving v chunks divides the waiting by v (arXiv:2104.04473, equation for t_pb, here with
    unequal stages). With F, B and W the forward, backward and weight-gradient time of a stage, p
    stages wait (p - 1)(F + B); zero bubble H1 fills 2 W a stage, H2 3 W (arXiv:2401.10241);
    DualPipe waits (p / 2 - 1)(F + B + B - 3 W) (arXiv:2412.19437, table 2).
    """
    filled = others.weight_gradient
    halves = (s.pp / 2.0 - 1.0) / np.maximum(s.pp - 1.0, 1.0)
    both_ends = halves * (others.passes + others.backward - 3.0 * filled)
    waiting = np.select(
        [s.pipeline_schedule == code for code in (_ZB_H1, _ZB_H2, DUALPIPE)],
        [others.passes - 2.0 * filled, others.passes - 3.0 * filled, both_ends],
        others.passes / s.vpp,
    )
    return np.asarray(np.maximum(waiting, 0.0))
