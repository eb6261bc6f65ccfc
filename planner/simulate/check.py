"""Is an assignment well formed: every call placed, inside the cluster, degrees that multiply up."""

from __future__ import annotations

from collections.abc import Collection

from planner.errors import InputError
from planner.schema import Assignment, Mesh, Plan
from planner.simulate.instance import Instance


def check_assignment(instance: Instance, assignment: Assignment) -> None:
    """Raise InputError for the first thing that is wrong."""
    needed = {call.name for call in instance.calls if call.kind != "environment"}
    for field, given in (("meshes", assignment.meshes), ("strategies", assignment.strategies)):
        if set(given) != needed:
            missing, extra = sorted(needed - set(given)), sorted(set(given) - needed)
            raise InputError(
                f"needs exactly the calls {sorted(needed)}; missing {missing}, unknown {extra}",
                where=f"assignment: {field}",
            )
    for name, mesh in assignment.meshes.items():
        _check_mesh(instance, name, mesh)
        strategy = assignment.strategies[name]
        if strategy.devices != mesh.devices:
            raise InputError(
                f"tp {strategy.tp} x pp {strategy.pp} x cp {strategy.cp} x dp {strategy.dp} = "
                f"{strategy.devices} devices, but its mesh has {mesh.devices}",
                where=f"assignment: strategies.{name}",
                remedy="Change dp or the mesh",
            )
    for unit in instance.units:
        if len({assignment.meshes[name] for name in unit.calls}) > 1:
            raise InputError(
                f"{', '.join(unit.calls)} share one copy of the model and need one mesh",
                where="assignment: meshes",
            )


def check_calls(plan: Plan, needed: Collection[str]) -> None:
    """Raise InputError where a plan's calls are not those `needed`, or not as assigned: a plan that
    was edited by hand."""
    if set(plan.calls) != set(needed):
        raise InputError(
            f"has the calls {sorted(plan.calls)}, the workload needs {sorted(needed)}",
            where="calls",
            remedy="Plan again",
        )
    assigned = plan.assignment
    for name, call in plan.calls.items():
        given = (call.mesh, call.strategy)
        if given != (assigned.meshes.get(name), assigned.strategies.get(name)):
            raise InputError(
                "mesh or strategy differs from the plan's assignment",
                where=f"calls.{name}",
                remedy="Change both, or plan again",
            )


def _check_mesh(instance: Instance, name: str, mesh: Mesh) -> None:
    where = f"assignment: meshes.{name}"
    groups = {group.name: group for group in instance.cluster.groups}
    if mesh.group not in groups:
        raise InputError(
            f"unknown node group {mesh.group!r}",
            where=where,
            remedy=f"The cluster has {sorted(groups)}",
        )
    group = groups[mesh.group]
    if (
        mesh.first_node + mesh.nodes > group.nodes
        or mesh.first_device + mesh.devices_per_node > group.devices_per_node
    ):
        raise InputError(
            f"lies outside group {group.name} of {group.nodes} nodes x {group.devices_per_node} "
            "devices",
            where=where,
        )
    if mesh.nodes > 1 and mesh.devices_per_node != group.devices_per_node:
        raise InputError("a mesh over several nodes needs whole nodes", where=where)
