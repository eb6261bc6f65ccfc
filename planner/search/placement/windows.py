"""Window energies: what lies between two events fits in the devices and time between them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from planner.search.placement.bounds import windows
from planner.search.placement.relative import Model, floor_units


def add_windows(model: Model, finish: Any) -> None:
    """Rows for each window of a synchronous step; `finish` is the end of the step.

    The window's area fits in each group's devices times its length: without these rows the solver
    does not close, since nothing else says that meshes of any arrangement share one supply of
    device-seconds. And what runs on meshes that pairwise share devices runs one at a time, so it
    fits in the window's length: that closes the large instances.
    """
    instance = model.instance
    for window in windows(instance):
        begin = 0 if window.begin is None else model.end[window.begin]
        end = finish if window.end is None else model.start[window.end]
        for group, devices in enumerate(instance.group_devices):
            model.cp.add(area(model, window.events, group) <= devices * (end - begin))
        add_serial(model, window.events, end - begin)


def add_serial(model: Model, events: tuple[int, ...], length: Any) -> None:
    """Events on meshes that pairwise share devices take their total time within `length`.

    Any two events on such meshes share a device, weight syncs (which occupy two meshes) included.
    """
    instance = model.instance
    meshes = sorted({mesh for e in events for mesh in instance.event_meshes[e]})
    for count in range(1, len(meshes) + 1):
        for subset in combinations(meshes, count):
            if any(pair in instance.apart for pair in combinations(subset, 2)):
                continue
            inside = [e for e in events if not instance.event_meshes[e].isdisjoint(subset)]
            if _adds_nothing(model, inside, subset):
                continue
            row = model.cp.add(sum(model.duration[e] for e in inside) <= length)
            sharing = [model.disjoint[pair].negated() for pair in combinations(subset, 2)]
            if sharing:
                row.only_enforce_if(sharing)


def _adds_nothing(model: Model, events: list[int], meshes: tuple[int, ...]) -> bool:
    """Whether precedences imply the row: all events ordered by the data (synchronous steps), or
    some mesh of the set has none of them."""
    instance = model.instance
    if any(all(m not in instance.event_meshes[e] for e in events) for m in meshes):
        return True
    if len(meshes) == 1 and len(events) == 1:
        return True
    return instance.staleness == 0 and all(
        instance.ordered(a, b) for a, b in combinations(events, 2)
    )


def area(model: Model, events: tuple[int, ...], group: int) -> Any:
    """Device-ticks of the device calls among `events` in a group, a linear expression."""
    instance = model.instance
    total: Any = 0
    for unit, rows in enumerate(instance.options):
        columns = [
            instance.call_column[e]
            for e in events
            if e < instance.n_calls and instance.call_unit[e] == unit
        ]
        if columns:
            ticks = floor_units(rows.time_s[:, columns], model.tick_s).sum(axis=1)
            total += model.weighted(unit, np.where(rows.group == group, rows.devices * ticks, 0))
    return total
