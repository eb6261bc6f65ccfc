"""Closed-form lower bounds of the step time, for many rows of durations at once.

Synchronous: the earliest start of each event is at least the end of any ancestor plus the area
(devices x time) of the calls between them over the devices of the group, and plus the time of the
calls between them that run on one mesh. Asynchronous: the period is at least each group's area
over its devices, each mesh's load, and the longest path over (1 + staleness).

These are the 'window energies' of energetic reasoning in cumulative scheduling (Erschler and Lopez,
1990), with the windows given by the data dependencies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.search.placement.instance import FloatArray, Instance, IntArray, Options


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


@dataclass(frozen=True)
class Rest:
    """What a mesh of a given size leaves to the meshes that must be apart from it."""

    group: int
    devices: int
    events: FloatArray
    """1 for each call on one of these meshes, else 0; shape [events]."""


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

    def evaluate(
        self, duration_s: FloatArray, area: FloatArray, rest: Rest | None = None
    ) -> FloatArray:
        """Lower bounds [r] for rows of durations [r, events] and areas [groups, r, events].

        Areas are device-seconds. `rest` is what a mesh leaves to those apart from it. Values
        exclude the fixed seconds.
        """
        if self.instance.staleness:
            return self._period(duration_s, area, rest)
        filled = self._filled(duration_s, area, rest)
        rows = duration_s.shape[0]
        end: dict[int | None, FloatArray] = {None: np.zeros(rows)}
        for e in self._order:
            end[e] = self._earliest(e, end, filled) + duration_s[:, e]
        result = self._earliest(None, end, filled)
        for e in self._order:
            result = np.maximum(result, end[e])
        return result

    def _filled(self, duration_s: FloatArray, area: FloatArray, rest: Rest | None) -> FloatArray:
        """Least time that the events of each window take, shape [r, windows]."""
        filled = np.zeros((duration_s.shape[0], len(self.windows)))
        for group, devices in enumerate(self.instance.group_devices):
            np.maximum(filled, area[group] @ self._inside / devices, out=filled)
        if rest is not None and rest.devices > 0:
            inside = self._inside * rest.events[:, None]
            np.maximum(filled, area[rest.group] @ inside / rest.devices, out=filled)
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

    def _period(self, duration_s: FloatArray, area: FloatArray, rest: Rest | None) -> FloatArray:
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
        if rest is not None and rest.devices > 0:
            result = np.maximum(result, area[rest.group] @ rest.events / rest.devices)
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

    inf if a unit has no option, or no options of meshes that must be apart fit beside each other.
    """
    return min((bound for bound, _ in bounded_parts(instance)), default=float("inf"))


def plain_bound(instance: Instance) -> float:
    """A weaker lower bound, blind to what meshes that must be apart leave to each other."""
    if any(len(rows) == 0 for rows in instance.options):
        return float("inf")
    duration_s, area = EventTables(instance).rows(1)
    return float(Bounds(instance).evaluate(duration_s, area)[0])


def bounded_parts(instance: Instance) -> list[tuple[float, Instance]]:
    """Parts whose plans are all of the instance's, each with their lower bound, lowest first.

    In each, the mesh from which most others must be apart has one size. No part: there is no plan.
    """
    if any(len(rows) == 0 for rows in instance.options):
        return []
    bounds = Bounds(instance)
    found = []
    for part in _parts(instance):
        duration_s, area = EventTables(part.instance).rows(1)
        found.append((float(bounds.evaluate(duration_s, area, part.rest)[0]), part.instance))
    return sorted(found, key=lambda each: each[0])


def option_bounds(instance: Instance) -> list[FloatArray]:
    """For each unit, the lower bound of plans that use each of its options; shapes [n].

    inf for an option that leaves no room for a mesh that must be apart from its own.
    """
    bounds = Bounds(instance)
    result = [np.full(len(rows), np.inf) for rows in instance.options]
    for part in _parts(instance):
        tables = EventTables(part.instance)
        for unit, rows in enumerate(part.instance.options):
            duration_s, area = tables.rows(len(rows))
            tables.fill(unit, rows, duration_s, area)
            lower = bounds.evaluate(duration_s, area, part.rest)
            kept = part.kept[unit]
            result[unit][kept] = np.minimum(result[unit][kept], lower)
    return result


@dataclass(frozen=True)
class _Part:
    """Plans in which one mesh has one size, and the options that these may use."""

    instance: Instance
    kept: tuple[IntArray, ...]
    """Rows of each unit's options that are left."""
    rest: Rest | None


def _parts(instance: Instance) -> Iterator[_Part]:
    """All plans, by the size of the mesh from which most others must be apart.

    Meshes apart from it have only the devices that it leaves: their options are smaller, and their
    area fits in fewer devices. Without such rules all plans are one part. Parts in which some unit
    has no option are left out.
    """
    everything = tuple(np.arange(len(rows)) for rows in instance.options)
    partners = [
        {b if a == mesh else a for a, b in instance.apart if a != b and mesh in (a, b)}
        for mesh in range(len(instance.meshes))
    ]
    if not any(partners):
        yield _Part(instance, everything, None)
        return
    pivot = max(range(len(partners)), key=lambda m: (len(partners[m]), -m))
    apart = [u for m in partners[pivot] for u in instance.meshes[m]]
    events = np.array([float(bool(m & partners[pivot])) for m in instance.event_meshes])
    for group, devices in sorted(instance.keys(instance.meshes[pivot][0])):
        left = instance.group_devices[group] - devices
        kept = list(everything)
        for unit in instance.meshes[pivot]:
            rows = instance.options[unit]
            kept[unit] = np.flatnonzero((rows.group == group) & (rows.devices == devices))
        for unit in apart:
            rows = instance.options[unit]
            kept[unit] = np.flatnonzero((rows.group != group) | (rows.devices <= left))
        if all(len(index) for index in kept):
            options = [
                rows if index is all_rows else rows.take(index)
                for rows, index, all_rows in zip(instance.options, kept, everything, strict=True)
            ]
            yield _Part(instance.with_options(options), tuple(kept), Rest(group, left, events))
