"""Do nodes have the host memory for what their models offload and keep there?"""

from __future__ import annotations

from collections.abc import Mapping

from planner.cost.arrays import CallCosts
from planner.schema import Assignment
from planner.simulate.instance import Instance


def host_shortage(
    instance: Instance, assignment: Assignment, costs: Mapping[str, CallCosts]
) -> tuple[float, dict[str, float]] | None:
    """Bytes missing on the first node that is short, and what each unit needs there; None if none.

    `costs` are those of every device call of the assignment, each of length one.
    """
    needs = []
    for unit in instance.units:
        mesh = assignment.meshes[unit.calls[0]]
        per_device = max(float(costs[name].host_bytes_per_device[0]) for name in unit.calls)
        needs.append((unit.name, mesh, per_device * mesh.devices_per_node))
    for group in instance.cluster.groups:
        for node in range(group.nodes):
            here = {
                name: need
                for name, mesh, need in needs
                if mesh.group == group.name
                and mesh.first_node <= node < mesh.first_node + mesh.nodes
            }
            total = sum(here.values())
            if total > group.host_memory_bytes:
                return total - group.host_memory_bytes, here
    return None
