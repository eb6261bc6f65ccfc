"""Prices a workload with every call laid out by hand, without a search."""

from __future__ import annotations

from planner.catalog.hardware import parse_cluster
from planner.schema import Assignment, Cluster, Mesh, Prediction, Strategy, Workload
from planner.simulate.evaluate import evaluate
from planner.workload.algorithms import build_graph
from planner.workload.graph import calls_in_order

Given = tuple[int, int, Strategy]
"""First node, nodes, strategy."""


def price(
    workload: Workload, cluster: str | Cluster, layouts: dict[str, Given], *, staleness: int = 0
) -> Prediction:
    """The workload with every call laid out as its name, role or kind says, in this order."""
    machine = parse_cluster(cluster) if isinstance(cluster, str) else cluster
    group = machine.groups[0]
    meshes, strategies = {}, {}
    for call in calls_in_order(build_graph(workload)):
        if call.kind == "environment":
            continue
        key = next(key for key in (call.name, call.role, call.kind, "") if key in layouts)
        first, nodes, strategy = layouts[key]
        meshes[call.name] = Mesh(
            group=group.name,
            first_node=first,
            nodes=nodes,
            devices_per_node=min(group.devices_per_node, strategy.devices),
        )
        strategies[call.name] = strategy
    assignment = Assignment(
        meshes=meshes,
        strategies=strategies,
        staleness=staleness,
        framework="generic",
        engine="vllm",
    )
    return evaluate(assignment, workload, machine)
