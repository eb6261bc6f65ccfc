"""A plan's devices as Ray placement groups: a bundle a device, each on the node that is named.

Calls on devices in common share a group, since Ray gives a device to one bundle only; a call's
bundles are in the order of its ranks (node by node). Which device of its node a bundle gets is
Ray's choice.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

from planner.launchers import ray_groups
from planner.launchers.base import LaunchFiles
from planner.schema import Cluster, Mesh, Plan

PLACEMENT_FILE = "ray_placement.json"
SCRIPT_FILE = "ray_groups.py"
_SLIVER = 0.001
"""Share of a node's own resource that a bundle asks for; Ray counts in steps of 0.0001."""

Device = tuple[str, int, int]
"""Node group, node, device of the node."""


def ray_files(plan: Plan, cluster: Cluster) -> LaunchFiles:
    """The placement as JSON, and the module that makes it with nothing but Ray."""
    text = json.dumps(ray_placement(plan, cluster), indent=1)
    return {PLACEMENT_FILE: f"{text}\n", SCRIPT_FILE: inspect.getsource(ray_groups)}


def ray_placement(plan: Plan, cluster: Cluster) -> dict[str, Any]:
    """Nodes with their resource, groups with their bundles, and calls with their bundles."""
    pools = _pools(plan.assignment.meshes)
    at = {device: (number, i) for number, pool in enumerate(pools) for i, device in enumerate(pool)}
    names = [f"pool_{number}" for number in range(len(pools))]
    nodes: dict[str, Any] = {}
    for group, node, _ in sorted(at):
        nodes[node_name(group, node)] = {
            "resource": node_resource(group, node),
            "gpus": cluster.group(group).devices_per_node,
        }
    calls = {}
    for call, mesh in plan.assignment.meshes.items():
        places = [at[device] for device in _devices(mesh)]
        calls[call] = {"group": names[places[0][0]], "bundles": [index for _, index in places]}
    return {
        "nodes": nodes,
        "groups": {
            name: {"bundles": [_bundle(group, node) for group, node, _ in pool]}
            for name, pool in zip(names, pools, strict=True)
        },
        "calls": calls,
    }


def node_name(group: str, node: int) -> str:
    """The node's name in a placement."""
    return f"{group}-{node}"


def node_resource(group: str, node: int) -> str:
    """The Ray resource that only this node has."""
    return f"rlmplan-{group}-{node}"


def _bundle(group: str, node: int) -> dict[str, Any]:
    resources = {"GPU": 1, "CPU": 1, node_resource(group, node): _SLIVER}
    return {"node": node_name(group, node), "resources": resources}


def _devices(mesh: Mesh) -> list[Device]:
    return [
        (mesh.group, node, device)
        for node in range(mesh.first_node, mesh.first_node + mesh.nodes)
        for device in range(mesh.first_device, mesh.first_device + mesh.devices_per_node)
    ]


def _pools(meshes: dict[str, Mesh]) -> list[list[Device]]:
    """The devices of meshes that overlap, directly or through others; sorted."""
    pools: list[set[Device]] = []
    for mesh in meshes.values():
        joined = set(_devices(mesh))
        apart = []
        for pool in pools:
            if pool & joined:
                joined |= pool
            else:
                apart.append(pool)
        pools = [*apart, joined]
    return sorted(sorted(pool) for pool in pools)
