"""Which options can still be part of a plan worth finding. All safe; see each function."""

from __future__ import annotations

from collections.abc import Callable

from planner.search.pareto import pareto_mask
from planner.search.placement.bounds import option_bounds
from planner.search.placement.instance import FloatArray, Instance, Options


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
    if any(len(rows) == 0 for rows in instance.options):
        return instance
    bounds = option_bounds(instance)
    return instance.with_options(
        [rows.take(lower < target_s) for rows, lower in zip(instance.options, bounds, strict=True)]
    )


def by_load(instance: Instance) -> Instance:
    """Drop options that another one dominates when only the total time of a unit's calls counts."""
    return _filtered(instance, lambda rows: rows.time_s.sum(axis=1))


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
