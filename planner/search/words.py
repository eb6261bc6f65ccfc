"""A plan's placement, and what differs between two strategies, in words."""

from __future__ import annotations

from planner.schema import Assignment, Mesh, Strategy
from planner.simulate.instance import Instance


def placement_words(instance: Instance, assignment: Assignment) -> str:
    """For example "colocated on 32 devices", or "disaggregated: engine 16 | actor 16; 1 off"."""
    meshes = {unit.name: assignment.meshes[unit.calls[0]] for unit in instance.units}
    pools: dict[Mesh, list[str]] = {}
    for name, mesh in meshes.items():
        pools.setdefault(mesh, []).append(name)
    timing = "synchronous" if assignment.staleness == 0 else f"{assignment.staleness}-off async"
    timing += "".join(f", {name.replace('_', ' ')}" for name in assignment.fusions)
    if len(pools) == 1:
        return f"colocated on {next(iter(pools)).devices} devices, {timing}"
    engines = set(instance.engines)
    # Without an engine there is nothing to disaggregate: the models themselves are apart or not.
    some = engines or set(meshes)
    overlapping = any(
        meshes[a].overlaps(meshes[b])
        for a in some
        for b in meshes
        if a != b and not (a in engines and b in engines)
    )
    kind = "mixed" if overlapping else "disaggregated" if engines else "split"
    parts = " | ".join(f"{'+'.join(names)} {mesh.devices}" for mesh, names in pools.items())
    return f"{kind}: {parts}, {timing}"


def differences(old: Strategy, new: Strategy, meshes: tuple[Mesh, Mesh]) -> list[str]:
    """What changes from one strategy and mesh of a call to another, field by field."""
    words = [
        f"{field} {getattr(old, field)} -> {getattr(new, field)}"
        for field in type(new).model_fields
        if getattr(old, field) != getattr(new, field)
    ]
    before, after = meshes
    if before.devices != after.devices:
        words.insert(0, f"{before.devices} -> {after.devices} devices")
    return words
