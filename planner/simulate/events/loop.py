"""The calls of consecutive iterations on their meshes, one event after the other.

Devices run their calls in the order of the plan's analytic schedule. A call starts when what it
reads is there, its devices are free, and the iteration that its staleness allows is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.simulate.schedule import DeviceRange, Schedule, mesh_conflicts


@dataclass(frozen=True)
class Event:
    """One call of one iteration."""

    iteration: int
    call: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Calls:
    """The calls of one iteration, weight syncs included, and what orders them."""

    names: Sequence[str]
    """In a topological order of `edges`."""
    edges: Sequence[tuple[str, str]]
    """Data dependencies within one iteration."""
    ranges: Mapping[str, Sequence[DeviceRange]]
    """Devices of each call; none for CPU work."""
    schedule: Schedule
    staleness: int


def run_calls(
    calls: Calls, iterations: int, end_s: Callable[[int, str, float], float]
) -> Iterator[Event]:
    """Events in the order of the plan; `end_s(iteration, call, start)` says when a call ends.

    With staleness k an iteration starts no earlier than the end of the one 1 + k before it.
    """
    conflicts: dict[str, set[str]] = {name: {name} for name in calls.names}
    for a, b in mesh_conflicts(calls.ranges):
        conflicts[a].add(b)
        conflicts[b].add(a)
    before: dict[str, list[str]] = {name: [] for name in calls.names}
    for a, b in calls.edges:
        before[b].append(a)
    period_s = calls.schedule.step_time_s
    order = sorted(
        (calls.schedule.start_s[name] + iteration * period_s, iteration, place, name)
        for iteration in range(iterations)
        for place, name in enumerate(calls.names)
    )
    ends: dict[tuple[int, str], float] = {}
    last: dict[str, float] = {}
    """End of the last event of each call."""
    for _, iteration, _, name in order:
        start_s = max((last.get(other, 0.0) for other in conflicts[name]), default=0.0)
        start_s = max([start_s, *(ends[iteration, other] for other in before[name])])
        oldest = iteration - 1 - calls.staleness
        if oldest >= 0:
            start_s = max([start_s, *(ends[oldest, other] for other in calls.names)])
        finish_s = end_s(iteration, name, start_s)
        ends[iteration, name] = last[name] = finish_s
        yield Event(iteration, name, start_s, finish_s)
