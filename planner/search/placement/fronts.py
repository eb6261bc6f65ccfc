"""The useful combinations of options of the units that share one mesh."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.search.pareto import non_dominated
from planner.search.placement.instance import Instance, Key, Options

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Front:
    """Combinations that fit together on a mesh of one group and size, k of them."""

    rows: IntArray
    """Row of each member's option; shape [k, members]."""
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


def mesh_fronts(
    instance: Instance, mesh: int, event_sets: Sequence[frozenset[int]]
) -> dict[Key, Front]:
    """Non-dominated combinations for every group and size that the mesh's units have options for.

    Criteria: the total time of the unit's calls in each of `event_sets` (any objective that is
    monotone in these totals is safe), resident bytes, bytes at the peak, and host bytes. (Beside
    others that hold R and need at most X more, a mesh with residents r and extra x needs
    R + r + max(x, X), which is monotone in r and r + x.)
    """
    members = instance.meshes[mesh]
    common = set.intersection(*(instance.keys(u) for u in members))
    fronts: dict[Key, Front] = {}
    for key in sorted(common):
        front: Front | None = None
        for unit in members:
            other = _single(instance, unit, key, event_sets)
            front = other if front is None else _merged(front, other)
            front = _reduced(instance, key, front)
            if len(front) == 0:
                break
        if front is not None and len(front):
            fronts[key] = front
    return fronts


def _single(instance: Instance, unit: int, key: Key, event_sets: Sequence[frozenset[int]]) -> Front:
    options: Options = instance.options[unit]
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


def _reduced(instance: Instance, key: Key, front: Front) -> Front:
    fits = (front.resident_bytes + front.extra_bytes <= instance.group_memory_bytes[key[0]]) & (
        front.host_bytes <= instance.group_host_bytes[key[0]]
    )
    front = front.take(fits)
    peak = front.resident_bytes + front.extra_bytes
    criteria = np.column_stack([front.time_s, front.resident_bytes, peak, front.host_bytes])
    front = front.take(non_dominated(criteria))
    # Fastest first, so that the first one that fits beside others is the best for a single set.
    return front.take(np.argsort(front.time_s.sum(axis=1), kind="stable"))


def fastest_mix(
    instance: Instance,
    mesh: int,
    event_sets: Sequence[frozenset[int]],
    value: Callable[[FloatArray], FloatArray],
) -> tuple[float, list[int]] | None:
    """The combination of options of one mesh's units that fits and has the smallest `value`.

    `value` maps totals of the event sets [k, sets] to [k] and is monotone. Returns the value and
    the row of each unit of the mesh, or None if nothing fits. Exact; far cheaper than all fronts,
    since combinations that cannot beat the best one are dropped as they grow.
    """
    members = instance.meshes[mesh]
    common = set.intersection(*(instance.keys(u) for u in members))
    parts = {key: [_single(instance, unit, key, event_sets) for unit in members] for key in common}
    least = {
        key: np.stack([part.time_s.min(axis=0) for part in fronts]) for key, fronts in parts.items()
    }
    promise = {key: float(value(rows.sum(axis=0)[None, :])[0]) for key, rows in least.items()}
    best: tuple[float, list[int]] | None = None
    for key in sorted(common, key=lambda k: (promise[k], k)):
        limit = math.inf if best is None else best[0]
        if promise[key] >= limit:
            break
        front: Front | None = None
        for k, part in enumerate(parts[key]):
            front = part if front is None else _merged(front, part)
            rest = least[key][k + 1 :].sum(axis=0)
            front = front.take(value(front.time_s + rest) < limit)
            front = _reduced(instance, key, front)
            if len(front) == 0:
                break
        if front is not None and len(front):
            values = value(front.time_s)
            k = int(values.argmin())
            if values[k] < limit:
                best = float(values[k]), front.rows[k].tolist()
    return best
