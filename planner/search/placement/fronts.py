"""Useful combinations of options of units that meet on the same devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.search.pareto import non_dominated
from planner.search.placement.instance import FloatArray, Instance, IntArray, Key

Value = Callable[[FloatArray], FloatArray]
"""Totals of the event sets [..., sets] -> values [...]; monotone in each total."""

# Prices of the whole of a device's (or host's) memory, in multiples of the step's least time, and
# how many limits on the extra of the running call are tried with each.
_PRICES = (0.0, *np.geomspace(1e-3, 1e2, 20).tolist())
_EXTRA_LIMITS = 16


@dataclass(frozen=True)
class Front:
    """Combinations of options of some units, k of them."""

    rows: IntArray
    """Row of each unit's option; shape [k, units]."""
    time_s: FloatArray
    """Total time of each set of events asked for; shape [k, sets]."""
    resident_bytes: FloatArray
    extra_bytes: FloatArray
    host_bytes: FloatArray

    def __len__(self) -> int:
        return len(self.resident_bytes)

    def take(self, index: npt.ArrayLike) -> Front:
        """The combinations that an index array or a mask selects."""
        chosen = np.asarray(index)
        return Front(**{name: value[chosen] for name, value in vars(self).items()})


def unit_fronts(
    instance: Instance, mesh: int, event_sets: Sequence[frozenset[int]]
) -> dict[Key, list[Front]]:
    """For every group and size that the mesh may have, the useful options of each of its units.

    Criteria: the total time of the unit's calls in each of `event_sets`, resident bytes, bytes at
    the peak, and host bytes. (Beside others that hold R and need at most X more, residents r and
    extra x need R + r + max(x, X), which is monotone in r and r + x.)
    """
    members = instance.meshes[mesh]
    common = set.intersection(*(instance.keys(u) for u in members))
    fronts = {
        key: [
            _reduced(instance, key[0], _single(instance, unit, key, event_sets)) for unit in members
        ]
        for key in sorted(common)
    }
    return {key: parts for key, parts in fronts.items() if all(len(part) for part in parts)}


def least_times(parts: Sequence[Front]) -> FloatArray:
    """Smallest total of each event set for each unit; shape [units, sets]."""
    return np.stack([part.time_s.min(axis=0) for part in parts])


def grow(
    instance: Instance, group: int, parts: Sequence[Front], value: Value, limit: float
) -> Front | None:
    """The non-dominated combinations of all units whose `value` is below `limit`, or None.

    They fit together on one device of the group. Exact: a partial combination is dropped only if
    the least times of the units to come cannot bring it below the limit.
    """
    least = least_times(parts)
    front: Front | None = None
    for k, part in enumerate(parts):
        others = np.delete(least, k, axis=0).sum(axis=0)
        part = part.take(value(part.time_s + others) < limit)
        front = part if front is None else _merged(front, part)
        rest = least[k + 1 :].sum(axis=0)
        front = _reduced(instance, group, front.take(value(front.time_s + rest) < limit))
        if len(front) == 0:
            return None
    return front


def priced(
    instance: Instance, group: int, parts: Sequence[Front], value: Value
) -> tuple[float, IntArray, FloatArray] | None:
    """A good combination that fits: its value, rows, and totals [sets]; None if none was found.

    Every unit takes its cheapest option under prices of resident and host memory, for a range of
    prices and of limits on the largest extra (Lagrangian relaxation without the search for prices).
    """
    # Options that do not fit are gone, so without memory nothing needs any: no division by zero.
    memory = instance.group_memory_bytes[group] or 1.0
    host = instance.group_host_bytes[group] or 1.0
    seconds = sum(float(part.time_s.sum(axis=1).min()) for part in parts)
    prices = np.array([(a, b) for a in _PRICES for b in _PRICES[::3]]) * max(seconds, 1e-12)
    extras = np.unique(np.concatenate([part.extra_bytes for part in parts]))
    needed = max(float(part.extra_bytes.min()) for part in parts)
    costs = [
        part.time_s.sum(axis=1)
        + prices @ np.stack([part.resident_bytes / memory, part.host_bytes / host])
        for part in parts
    ]
    best: tuple[float, IntArray, FloatArray] | None = None
    for limit in extras[extras >= needed][:: -max(1, len(extras) // _EXTRA_LIMITS)]:
        picked = [
            part.take(np.where(part.extra_bytes <= limit, cost, np.inf).argmin(axis=1))
            for part, cost in zip(parts, costs, strict=True)
        ]
        totals = np.sum([part.time_s for part in picked], axis=0)
        held = np.sum([part.resident_bytes for part in picked], axis=0)
        extra = np.max([part.extra_bytes for part in picked], axis=0)
        on_host = np.sum([part.host_bytes for part in picked], axis=0)
        values = np.where((held + extra <= memory) & (on_host <= host), value(totals), np.inf)
        k = int(values.argmin())
        if math.isfinite(values[k]) and (best is None or values[k] < best[0]):
            rows = np.concatenate([part.rows[k] for part in picked])
            best = float(values[k]), rows, totals[k]
    return best


def fastest_mix(
    instance: Instance,
    mesh: int,
    event_sets: Sequence[frozenset[int]],
    value: Value,
    *,
    exact: bool,
) -> tuple[float, list[int]] | None:
    """The combination of options of one mesh's units that fits and has the smallest `value`.

    Returns the value and the row of each unit of the mesh, or None if nothing fits. Without
    `exact` a good combination is enough, if one is found at once.
    """
    fronts = unit_fronts(instance, mesh, event_sets)
    promise = {key: float(value(least_times(parts).sum(axis=0))) for key, parts in fronts.items()}
    order = sorted(fronts, key=lambda key: (promise[key], key))
    best: tuple[float, list[int]] | None = None
    for key in order:
        if best is not None and promise[key] >= best[0]:
            break
        found = priced(instance, key[0], fronts[key], value)
        if found is not None and (best is None or found[0] < best[0]):
            best = found[0], found[1].tolist()
    if best is not None and not exact:
        return best
    for key in order:
        limit = math.inf if best is None else best[0]
        if promise[key] >= limit:
            break
        front = grow(instance, key[0], fronts[key], value, limit)
        if front is not None:
            values = value(front.time_s)
            k = int(values.argmin())
            best = float(values[k]), front.rows[k].tolist()
    return best


def _single(instance: Instance, unit: int, key: Key, event_sets: Sequence[frozenset[int]]) -> Front:
    options = instance.options[unit]
    index = np.flatnonzero((options.group == key[0]) & (options.devices == key[1]))
    rows = options.take(index)
    counts = np.zeros((rows.time_s.shape[1], len(event_sets)))
    for event, (owner, column) in enumerate(
        zip(instance.call_unit, instance.call_column, strict=True)
    ):
        if owner == unit:
            counts[column] = [float(event in events) for events in event_sets]
    return Front(
        index[:, None],
        rows.time_s @ counts,
        rows.resident_bytes,
        rows.extra_bytes,
        rows.host_bytes_per_node,
    )


def _merged(left: Front, right: Front) -> Front:
    i, j = (x.ravel() for x in np.indices((len(left), len(right))))
    return Front(
        np.concatenate([left.rows[i], right.rows[j]], axis=1),
        left.time_s[i] + right.time_s[j],
        left.resident_bytes[i] + right.resident_bytes[j],
        np.maximum(left.extra_bytes[i], right.extra_bytes[j]),
        left.host_bytes[i] + right.host_bytes[j],
    )


def _reduced(instance: Instance, group: int, front: Front) -> Front:
    """Those that fit and that no other dominates."""
    peak = front.resident_bytes + front.extra_bytes
    front = front.take(
        (peak <= instance.group_memory_bytes[group])
        & (front.host_bytes <= instance.group_host_bytes[group])
    )
    peak = front.resident_bytes + front.extra_bytes
    criteria = np.column_stack([front.time_s, front.resident_bytes, peak, front.host_bytes])
    return front.take(non_dominated(criteria))
