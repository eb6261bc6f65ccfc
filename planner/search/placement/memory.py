"""Memory: meshes that share a device hold their residents beside the running call's peak."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from planner.search.placement.relative import Model, floor_units

# Parts that the memory of a device (or of a node's host) is divided into: rounding down loses at
# most one part in this many for each unit's state, and true bytes are checked on every solution.
MEMORY_PARTS = 1 << 16


def add_memory(model: Model, stretch: Any = 0) -> None:
    """Device and host memory of every set of meshes that pairwise share devices.

    On a shared device the residents of all units and the largest extra of one unit fit; on a shared
    node the host memory of all. A single mesh is a set too: its units always share. Rows that
    cannot be violated are left out. `stretch` adds that many parts to every capacity.
    """
    instance = model.instance
    meshes = range(len(instance.meshes))
    for count in range(1, len(instance.meshes) + 1):
        for subset in combinations(meshes, count):
            if any(pair in instance.apart for pair in combinations(subset, 2)):
                continue
            sharing = [model.disjoint[pair].negated() for pair in combinations(subset, 2)]
            units = [u for m in subset for u in instance.meshes[m]]
            _device_rows(model, units, sharing, stretch)
            _host_row(model, units, sharing, stretch)


def _device_rows(model: Model, units: list[int], sharing: list[Any], stretch: Any) -> None:
    resident = {u: _share(model, u, "resident_bytes") for u in units}
    for running in units:
        extra = _share(model, running, "extra_bytes")
        # Residents alone need one row only.
        if extra.any() or running == units[0]:
            _add(model, {**resident, running: resident[running] + extra}, sharing, stretch)


def _host_row(model: Model, units: list[int], sharing: list[Any], stretch: Any) -> None:
    host = {u: _share(model, u, "host_bytes_per_node") for u in units}
    _add(model, host, sharing, stretch)


def _share(model: Model, unit: int, name: str) -> Any:
    """Parts of its group's memory that each option takes; rounded down."""
    instance = model.instance
    limits = (
        instance.group_host_bytes if name == "host_bytes_per_node" else instance.group_memory_bytes
    )
    rows = instance.options[unit]
    limit = np.asarray(limits, dtype=np.float64)[rows.group]
    values = np.asarray(getattr(rows, name), dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = np.where(values > 0, values / limit, 0.0)
    return floor_units(parts, 1 / MEMORY_PARTS)


def _add(model: Model, coefficients: dict[int, Any], sharing: list[Any], stretch: Any) -> None:
    if sum(int(c.max()) for c in coefficients.values()) <= MEMORY_PARTS:
        return
    total = sum(model.weighted(u, c) for u, c in coefficients.items())
    row = model.cp.add(total <= MEMORY_PARTS + stretch)
    if sharing:
        row.only_enforce_if(sharing)
