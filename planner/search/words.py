"""A plan's placement in words."""

from __future__ import annotations

from planner.schema import Assignment, Mesh
from planner.simulate.instance import SYNC_BEFORE, Instance


def placement_words(instance: Instance, assignment: Assignment) -> str:
    """For example "colocated on 32 devices", or "disaggregated: engine 16 | actor 16; 1 off"."""
    meshes = {unit.name: assignment.meshes[unit.calls[0]] for unit in instance.units}
    engine = next(unit.name for unit in instance.units if SYNC_BEFORE in unit.calls)
    pools: dict[Mesh, list[str]] = {}
    for name, mesh in meshes.items():
        pools.setdefault(mesh, []).append(name)
    timing = "synchronous" if assignment.staleness == 0 else f"{assignment.staleness}-off async"
    if len(pools) == 1:
        return f"colocated on {next(iter(pools)).devices} devices, {timing}"
    overlapping = [
        name for name, mesh in meshes.items() if name != engine and mesh.overlaps(meshes[engine])
    ]
    kind = "mixed" if overlapping else "disaggregated"
    parts = " | ".join(f"{'+'.join(names)} {mesh.devices}" for mesh, names in pools.items())
    return f"{kind}: {parts}, {timing}"
