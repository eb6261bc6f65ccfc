"""Memory: meshes that share a device hold their residents beside the running call's peak."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from planner.search.placement.instance import Instance
from planner.search.placement.relative import Model, floor_units

# Parts that the memory of a device is divided into for the finest result: rounding down loses at
# most one part for each unit's state, and true bytes are checked on every solution.
MEMORY_PARTS = 1 << 16


def add_memory(model: Model, parts: int, stretch: Any = 0) -> None:
    """Device and host memory of every set of meshes that pairwise share devices.

    On a shared device the residents of all units and the largest extra of one unit fit; on a shared
    node the host memory of all. A single mesh is a set too: its units always share. Rows that
    cannot be violated are left out. Capacities are `parts` parts, plus `stretch`.
    """
    instance = model.instance
    meshes = range(len(instance.meshes))
    for count in range(1, len(instance.meshes) + 1):
        for subset in combinations(meshes, count):
            if any(pair in instance.apart for pair in combinations(subset, 2)):
                continue
            sharing = [model.disjoint[pair].negated() for pair in combinations(subset, 2)]
            units = [u for m in subset for u in instance.meshes[m]]
            _device_rows(model, units, sharing, parts, stretch)
            _host_row(model, units, sharing, parts, stretch)


def _device_rows(
    model: Model, units: list[int], sharing: list[Any], parts: int, stretch: Any
) -> None:
    instance = model.instance
    resident = {u: share(instance, u, "resident_bytes", parts) for u in units}
    for running in units:
        extra = share(instance, running, "extra_bytes", parts)
        # Residents alone need one row only.
        if extra.any() or running == units[0]:
            _add(model, {**resident, running: resident[running] + extra}, sharing, parts, stretch)


def _host_row(model: Model, units: list[int], sharing: list[Any], parts: int, stretch: Any) -> None:
    host = {u: share(model.instance, u, "host_bytes_per_node", parts) for u in units}
    _add(model, host, sharing, parts, stretch)


def share(instance: Instance, unit: int, name: str, parts: int) -> Any:
    """Parts of its group's memory that each option takes; rounded down."""
    limits = (
        instance.group_host_bytes if name == "host_bytes_per_node" else instance.group_memory_bytes
    )
    rows = instance.options[unit]
    limit = np.asarray(limits, dtype=np.float64)[rows.group]
    values = np.asarray(getattr(rows, name), dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        fraction = np.where(values > 0, values / limit, 0.0)
    return floor_units(fraction, 1 / parts)


def _add(
    model: Model, coefficients: dict[int, Any], sharing: list[Any], parts: int, stretch: Any
) -> None:
    if sum(int(c.max()) for c in coefficients.values()) <= parts:
        return
    total = sum(model.weighted(u, c) for u, c in coefficients.items())
    row = model.cp.add(total <= parts + stretch)
    if sharing:
        row.only_enforce_if(sharing)
