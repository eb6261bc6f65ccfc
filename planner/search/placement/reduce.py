"""Which options can still be part of a plan worth finding. All safe; see each function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.search.pareto import pareto_mask
from planner.search.placement.bounds import option_bounds
from planner.search.placement.instance import FloatArray, Instance, IntArray, Options
from planner.search.placement.memory import share
from planner.search.placement.relative import floor_units

# Another look at the options is worth its time if the last one dropped so many of them.
_ENOUGH_LEFT = 0.9
# Parts of a device's memory that representative options keep when idle, or need at the peak.
_PARTS_KEPT = (0.0, 0.05, 0.15, 0.3)
_PARTS_AT_PEAK = (0.5, 0.75)


def undominated(instance: Instance) -> Instance:
    """Drop options that another one of the unit dominates, across sizes where that is safe.

    A unit with a mesh of its own may use any part of a larger mesh (and the part can be chosen to
    still touch a weight sync's other mesh), so a smaller option at least as good in everything
    replaces a larger one. A unit that shares its mesh is compared on the same size only.
    """
    return _filtered(instance, lambda rows: rows.time_s)


def below(instance: Instance, target_s: float) -> Instance:
    """Drop options whose plans all take at least `target_s` (without the fixed seconds).

    A unit may be left without options: then no plan takes less.
    """
    while all(len(rows) for rows in instance.options):
        bounds = option_bounds(instance)
        options = [
            rows.take(lower < target_s)
            for rows, lower in zip(instance.options, bounds, strict=True)
        ]
        before = sum(len(rows) for rows in instance.options)
        instance = instance.with_options(options)
        # What is left may be worse at its best, which rules out more.
        if sum(len(rows) for rows in options) > _ENOUGH_LEFT * before:
            break
    return instance


def by_load(instance: Instance) -> Instance:
    """Drop options that another one dominates when only the total time of a unit's calls counts."""
    return _filtered(instance, lambda rows: rows.time_s.sum(axis=1))


def floored(instance: Instance, tick_s: float, memory_parts: int, loads_only: bool) -> Instance:
    """Drop options that another one dominates once rounded down as the model rounds them.

    The model cannot tell them apart, so its bound stays what it was; the options kept may be a
    little worse in truth. With `loads_only` a unit's calls count by their total.
    """
    options = list(instance.options)
    for members in instance.meshes:
        for unit in members:
            rows = options[unit]
            ticks = floor_units(rows.time_s, tick_s)
            resident = share(instance, unit, "resident_bytes", memory_parts)
            mask = pareto_mask(
                rows.devices,
                ticks.sum(axis=1) if loads_only else ticks,
                resident,
                # Not the rounded sum: the model adds up rounded parts.
                resident + share(instance, unit, "extra_bytes", memory_parts),
                share(instance, unit, "host_bytes_per_node", memory_parts),
                group=rows.group,
                across_sizes=len(members) == 1,
            )
            options[unit] = rows.take(mask)
    return instance.with_options(options)


def representatives(instance: Instance) -> Instance:
    """A few options of each unit and mesh size that good plans are made of.

    The fastest in all, the fastest for each call, the one with the smallest peak, and the fastest
    of those that keep at most a given part of the device's memory when idle, and at the peak.
    """
    options = []
    for rows in instance.options:
        memory = np.asarray(instance.group_memory_bytes, dtype=np.float64)[rows.group]
        total = rows.time_s.sum(axis=1)
        resident = rows.resident_bytes / memory
        peak = resident + rows.extra_bytes / memory
        costs = [total, peak, *rows.time_s.T]
        costs += [np.where(resident <= part, total, np.inf) for part in _PARTS_KEPT]
        costs += [np.where(peak <= part, total, np.inf) for part in _PARTS_AT_PEAK]
        keep = {
            int(index[np.argmin(cost[index])])
            for index in by_mesh(rows)
            for cost in costs
            if np.isfinite(cost[index]).any()
        }
        # A unit may have lost all its options, and an empty list is no index.
        options.append(rows.take(np.asarray(sorted(keep), dtype=np.int64)))
    return instance.with_options(options)


def by_mesh(rows: Options) -> list[IntArray]:
    """Indices of the options of each group and size."""
    keys = np.stack([rows.group, rows.devices], axis=1)
    _, label = np.unique(keys, axis=0, return_inverse=True)
    label = label.reshape(-1)
    order = np.argsort(label, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(label[order])) + 1) if len(order) else []


def by_memory(instance: Instance) -> Instance:
    """Drop options that another one dominates when times do not count."""
    return _filtered(instance, lambda rows: 0 * rows.time_s.sum(axis=1))


def _filtered(instance: Instance, times: Callable[[Options], FloatArray]) -> Instance:
    options = list(instance.options)
    for members in instance.meshes:
        for unit in members:
            rows = options[unit]
            mask = pareto_mask(
                rows.devices,
                times(rows),
                rows.resident_bytes,
                rows.resident_bytes + rows.extra_bytes,
                rows.host_bytes_per_node,
                group=rows.group,
                across_sizes=len(members) == 1,
            )
            options[unit] = rows.take(mask)
    return instance.with_options(options)
