"""Rules of thumb: families of plans that people take, each with the best member on the cost tables.

All are synchronous. A rule narrows the options of each unit; within them the fastest combination
that fits is taken, so a rule is never blamed for a bad choice of what it leaves open.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import StrategyArrays
from planner.search.placement.descent import all_together
from planner.search.placement.evaluate import Evaluator
from planner.search.placement.instance import Instance

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Tables:
    """An instance with the strategy behind every option of it."""

    instance: Instance
    strategies: tuple[StrategyArrays, ...]
    """Of each unit's first call; row i belongs to option i of the instance."""
    engines: tuple[bool, ...]
    """Whether the unit generates."""
    parameters: tuple[float, ...]
    """Of each unit's model."""


def _narrowed(tables: Tables, masks: list[Mask]) -> Instance | None:
    options = [rows.take(mask) for rows, mask in zip(tables.instance.options, masks, strict=True)]
    if any(len(rows) == 0 for rows in options):
        return None
    return tables.instance.with_options(options)


def _colocated(tables: Tables, masks: list[Mask]) -> float:
    """Best value with all units on all devices in turn, inf if none fits."""
    whole = max(tables.instance.group_devices)
    masks = [
        mask & (rows.devices == whole)
        for rows, mask in zip(tables.instance.options, masks, strict=True)
    ]
    narrowed = _narrowed(tables, masks)
    if narrowed is None:
        return math.inf
    plans = [Evaluator(narrowed).evaluate(choice) for choice in all_together(narrowed)]
    return min((plan.value_s for plan in plans if plan is not None), default=math.inf)


def one_layout(tables: Tables) -> float:
    """Every call on all devices with the same tensor and pipeline degrees."""
    best = math.inf
    lead = tables.strategies[0]
    for tp, pp in sorted(set(zip(lead.tp.tolist(), lead.pp.tolist(), strict=True))):
        masks = [(s.tp == tp) & (s.pp == pp) for s in tables.strategies]
        best = min(best, _colocated(tables, masks))
    return best


def megatron(tables: Tables) -> float:
    """Tensor parallelism in the node, the fewest pipeline stages that fit, data parallel beyond."""
    return _by_degrees(tables, [(8, 1)] * len(tables.strategies))


# Published habits by model size: below so many parameters, (tp, pp) of trainers, tp of engines.
_HABITS = ((4e9, (1, 1), 1), (15e9, (2, 1), 2), (40e9, (4, 4), 4), (math.inf, (8, 4), 8))


def guideline(tables: Tables) -> float:
    """Colocated, degrees by model size as in published configurations."""
    degrees = []
    for engine, parameters in zip(tables.engines, tables.parameters, strict=True):
        trainer, engine_tp = next((a, b) for most, a, b in _HABITS if parameters <= most)
        degrees.append((engine_tp, 1) if engine else trainer)
    return _by_degrees(tables, degrees)


def _by_degrees(tables: Tables, degrees: list[tuple[int, int]]) -> float:
    """Colocated with each unit's tp and pp, or the next larger pp that fits with the rest."""
    for more in (1, 2, 4, 8, 16):
        masks = []
        for s, (tp, pp) in zip(tables.strategies, degrees, strict=True):
            tp = int(s.tp[s.tp <= tp].max(initial=1))
            masks.append((s.tp == tp) & (s.pp >= pp) & (s.pp <= pp * more))
        value = _colocated(tables, masks)
        if math.isfinite(value):
            return value
    return math.inf


def split_by_model(tables: Tables) -> float:
    """Each unit on devices of its own, as many as its part of the work, fastest option there."""
    instance = tables.instance
    work = [float((rows.time_s.sum(axis=1) * rows.devices).min()) for rows in instance.options]
    whole = max(instance.group_devices)
    choice = []
    for rows, part in zip(instance.options, work, strict=True):
        fits = rows.devices <= max(1.0, whole * part / sum(work))
        if not fits.any():
            fits = rows.devices == rows.devices.min()
        size = rows.devices[fits].max()
        time_s = np.where(rows.devices == size, rows.time_s.sum(axis=1), np.inf)
        choice.append(int(np.argmin(time_s)))
    evaluator = Evaluator(instance)
    sizes = sum(int(rows.devices[row]) for rows, row in zip(instance.options, choice, strict=True))
    if sizes > whole:
        return math.inf
    plan = evaluator.evaluate(choice)
    return math.inf if plan is None else plan.value_s


RULES: dict[str, Callable[[Tables], float]] = {
    "one layout": one_layout,
    "split": split_by_model,
    "megatron": megatron,
    "guideline": guideline,
}
