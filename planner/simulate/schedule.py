"""The best order of one step's calls, exactly, once their durations and devices are fixed.

Synchronous steps (staleness 0) minimise the makespan (`planner.simulate.makespan`), asynchronous
ones the period of a cyclic schedule (`planner.simulate.period`). A step has about ten calls, so
either takes a millisecond or so.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.simulate.makespan import best_makespan
from planner.simulate.period import best_period


@dataclass(frozen=True)
class DeviceRange:
    """A contiguous range of devices of one node group."""

    group: int
    first: int
    count: int

    def overlaps(self, other: DeviceRange) -> bool:
        """Whether the two ranges have a device in common."""
        return (
            self.group == other.group
            and self.first < other.first + other.count
            and other.first < self.first + self.count
        )


@dataclass(frozen=True)
class Schedule:
    """When each call starts, and how long a step takes."""

    start_s: dict[str, float]
    """Start of each call. Asynchronous: of one iteration, which may last several periods."""
    step_time_s: float
    """Makespan of the step, or period of the cyclic schedule."""


def best_schedule(
    duration_s: Mapping[str, float],
    edges: Iterable[tuple[str, str]],
    conflicts: Iterable[tuple[str, str]],
    *,
    staleness: int = 0,
    host_calls: Collection[str] = (),
    at_most_s: float = math.inf,
) -> Schedule | None:
    """The optimal schedule of calls with fixed durations.

    `edges` (a, b): b starts after a ends, within one iteration; acyclic. `conflicts` (a, b): the
    two calls share a device, so they never run at the same time (in any iteration). A weight sync
    is a call like the others, in conflict with all calls on the devices of both its units.
    `host_calls` use no device.

    With `staleness` 0 the makespan is minimal. With k >= 1 the period P is minimal such that
    the same schedule repeats every P, every call on devices fits in one period, and an iteration
    lasts at most (1 + k) P from its first start to its last end.

    Returns None when no schedule takes less than `at_most_s`.
    """
    names = list(duration_s)
    index = {name: i for i, name in enumerate(names)}
    durations = [float(duration_s[name]) for name in names]
    arcs = [(index[a], index[b]) for a, b in edges]
    pairs = sorted({(min(p), max(p)) for p in ((index[a], index[b]) for a, b in conflicts)})
    if any(a == b for a, b in pairs):
        raise ValueError("a call cannot be in conflict with itself")
    if staleness == 0:
        found = best_makespan(durations, arcs, pairs, at_most_s)
    else:
        on_devices = [name not in host_calls for name in names]
        found = best_period(durations, arcs, pairs, staleness, on_devices, at_most_s)
    if found is None:
        return None
    value, starts = found
    return Schedule(dict(zip(names, starts, strict=True)), value)


def schedule_on_meshes(
    duration_s: Mapping[str, float],
    edges: Iterable[tuple[str, str]],
    meshes: Mapping[str, Sequence[DeviceRange]],
    *,
    staleness: int = 0,
) -> Schedule:
    """The optimal schedule of an assignment: calls conflict where their meshes overlap.

    `meshes` gives the device ranges of each call (a weight sync has those of both its units); a
    call without ranges uses no device and may overlap anything.
    """
    found = best_schedule(
        duration_s,
        edges,
        mesh_conflicts(meshes),
        staleness=staleness,
        host_calls=[name for name in duration_s if not meshes.get(name)],
    )
    if found is None:
        raise ValueError("a call has no finite duration")
    return found


def mesh_conflicts(meshes: Mapping[str, Sequence[DeviceRange]]) -> list[tuple[str, str]]:
    """Pairs of calls whose meshes have a device in common."""
    names = list(meshes)
    return [
        (a, b)
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if any(x.overlaps(y) for x in meshes[a] for y in meshes[b])
    ]
