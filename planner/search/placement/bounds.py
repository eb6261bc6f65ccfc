"""Closed-form lower bounds of the step time, for many rows of durations at once.

Synchronous: the earliest start of each event is at least the end of any ancestor plus the area
(devices x time) of the calls between them over the devices of the group, and plus the time of the
calls between them that run on one mesh. Asynchronous: the period is at least each group's area
over its devices, each mesh's load, and the longest path over (1 + staleness).

These are the 'window energies' of energetic reasoning in cumulative scheduling (Erschler and Lopez,
1990), with the windows given by the data dependencies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.search.placement.instance import Instance, Options

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """Events that lie between the end of `begin` and the start of `end` (None: of the step)."""

    begin: int | None
    end: int | None
    events: tuple[int, ...]


def windows(instance: Instance) -> list[Window]:
    """All windows that hold at least two events which occupy devices; one for each set of events
    and end, with the latest possible beginning left to the caller."""
    n = len(instance.events)
    on_devices = [bool(meshes) for meshes in instance.event_meshes]
    found = []
    for begin in [None, *range(n)]:
        for end in [None, *range(n)]:
            inside = tuple(
                e
                for e in range(n)
                if on_devices[e]
                and (begin is None or instance.after[begin] >> e & 1)
                and (end is None or instance.after[e] >> end & 1)
            )
            if len(inside) > 1:
                found.append(Window(begin, end, inside))
    return found


class Bounds:
    """Evaluates lower bounds on rows of durations and areas of one instance's events."""

    def __init__(self, instance: Instance):
        self.instance = instance
        n = len(instance.events)
        self.windows = windows(instance)
        self._order = sorted(range(n), key=lambda e: -instance.after[e].bit_count())
        self._before = [[a for a, b in instance.arcs if b == e] for e in range(n)]
        self._ends: dict[int | None, list[int]] = {}
        for k, window in enumerate(self.windows):
            self._ends.setdefault(window.end, []).append(k)
        self._inside = np.zeros((n, len(self.windows)))
        self._on_mesh = np.zeros((len(instance.meshes), n, len(self.windows)))
        for k, window in enumerate(self.windows):
            for e in window.events:
                self._inside[e, k] = 1.0
                for mesh in instance.event_meshes[e]:
                    self._on_mesh[mesh, e, k] = 1.0
        self._shared = [
            m for m in range(len(instance.meshes)) if (self._on_mesh[m].sum(axis=0) > 1).any()
        ]
        self._load = np.array(
            [
                [float(m in meshes) for m in range(len(instance.meshes))]
                for meshes in instance.event_meshes
            ]
        ).reshape(n, len(instance.meshes))

    def evaluate(self, duration_s: FloatArray, area: FloatArray) -> FloatArray:
        """Lower bounds [r] for rows of durations [r, events] and areas [groups, r, events].

        Areas are device-seconds. Values exclude the fixed seconds.
        """
        if self.instance.staleness:
            return self._period(duration_s, area)
        filled = self._filled(duration_s, area)
        rows = duration_s.shape[0]
        end: dict[int | None, FloatArray] = {None: np.zeros(rows)}
        for e in self._order:
            end[e] = self._earliest(e, end, filled) + duration_s[:, e]
        result = self._earliest(None, end, filled)
        for e in self._order:
            result = np.maximum(result, end[e])
        return result

    def _filled(self, duration_s: FloatArray, area: FloatArray) -> FloatArray:
        """Least time that the events of each window take, shape [r, windows]."""
        filled = np.zeros((duration_s.shape[0], len(self.windows)))
        for group, devices in enumerate(self.instance.group_devices):
            np.maximum(filled, area[group] @ self._inside / devices, out=filled)
        for mesh in self._shared:
            np.maximum(filled, duration_s @ self._on_mesh[mesh], out=filled)
        return filled

    def _earliest(
        self, event: int | None, end: dict[int | None, FloatArray], filled: FloatArray
    ) -> FloatArray:
        earliest = end[None]
        for a in self._before[event] if event is not None else ():
            earliest = np.maximum(earliest, end[a])
        for k in self._ends.get(event, ()):
            earliest = np.maximum(earliest, end[self.windows[k].begin] + filled[:, k])
        return earliest

    def _period(self, duration_s: FloatArray, area: FloatArray) -> FloatArray:
        rows = duration_s.shape[0]
        end: dict[int, FloatArray] = {}
        result = np.zeros(rows)
        for e in self._order:
            start = np.zeros(rows)
            for a in self._before[e]:
                start = np.maximum(start, end[a])
            end[e] = start + duration_s[:, e]
            result = np.maximum(result, end[e] / (1 + self.instance.staleness))
        for group, devices in enumerate(self.instance.group_devices):
            result = np.maximum(result, area[group].sum(axis=1) / devices)
        if self._load.shape[1]:
            result = np.maximum(result, (duration_s @ self._load).max(axis=1))
        return result


class EventTables:
    """Durations and areas of the events for options, and their least values over options."""

    def __init__(self, instance: Instance):
        self.instance = instance
        groups, n = len(instance.group_devices), len(instance.events)
        self.least_s = np.zeros(n)
        self.least_area = np.zeros((groups, n))
        for event, (unit, column) in enumerate(
            zip(instance.call_unit, instance.call_column, strict=True)
        ):
            rows = instance.options[unit]
            times = rows.time_s[:, column]
            self.least_s[event] = times.min(initial=np.inf)
            self.least_area[:, event] = self.area(rows, times).min(axis=1, initial=np.inf)
        first = instance.n_calls
        self.least_s[first : first + len(instance.host_s)] = instance.host_s
        first += len(instance.host_s)
        for k, sync in enumerate(instance.syncs):
            least = sync.shared_s
            if sync.trainer != sync.engine:
                least = min(least, sync.disjoint_s)
            self.least_s[first + k] = least

    def area(self, rows: Options, times: FloatArray) -> FloatArray:
        """Device-seconds [groups, n] of one call under the options."""
        result = np.zeros((len(self.instance.group_devices), len(rows)))
        result[rows.group, np.arange(len(rows))] = rows.devices * times
        return result

    def rows(self, n: int) -> tuple[FloatArray, FloatArray]:
        """n rows of least durations [n, events] and areas [groups, n, events], to fill in."""
        duration_s = np.tile(self.least_s, (n, 1))
        area = np.tile(self.least_area[:, None, :], (1, n, 1))
        return duration_s, area

    def fill(self, unit: int, rows: Options, duration_s: FloatArray, area: FloatArray) -> None:
        """Put the times and areas of a unit's options (n, or one for all rows) in place."""
        instance = self.instance
        for event, (owner, column) in enumerate(
            zip(instance.call_unit, instance.call_column, strict=True)
        ):
            if owner == unit:
                times = rows.time_s[:, column]
                duration_s[:, event] = times
                area[:, :, event] = self.area(rows, times)


def step_bound(instance: Instance) -> float:
    """Lower bound of the makespan or period of every plan, fixed seconds excluded.

    inf if a unit has no option.
    """
    if any(len(rows) == 0 for rows in instance.options):
        return float("inf")
    tables = EventTables(instance)
    duration_s, area = tables.rows(1)
    return float(Bounds(instance).evaluate(duration_s, area)[0])


def option_bounds(instance: Instance) -> list[FloatArray]:
    """For each unit, the lower bound of plans that use each of its options; shapes [n]."""
    tables, bounds = EventTables(instance), Bounds(instance)
    result = []
    for unit, rows in enumerate(instance.options):
        duration_s, area = tables.rows(len(rows))
        tables.fill(unit, rows, duration_s, area)
        result.append(bounds.evaluate(duration_s, area))
    return result
