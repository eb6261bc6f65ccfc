"""Which of a launcher's spaces a plan made elsewhere belongs to."""

from __future__ import annotations

from planner.catalog.spaces import load_space
from planner.launchers.base import Launcher, layout_of
from planner.schema import Assignment, Cluster, Plan, SearchSpace, Workload
from planner.search.legality import explain_illegal
from planner.workload.algorithms import build_graph
from planner.workload.graph import calls_in_order


def own_assignment(
    launcher: Launcher, plan: Plan, workload: Workload, cluster: Cluster
) -> Assignment | None:
    """The plan's assignment with the profiles of the launcher's first space whose rules it keeps;
    None for a plan of its own spaces, and where no space allows it."""
    if plan.assignment.space in launcher.capabilities.spaces:
        return None
    for name in launcher.capabilities.spaces:
        space = load_space(name)
        if _is_legal(plan, workload, cluster, space):
            own = {"space": name, "framework": space.framework, "engine": space.engine}
            return plan.assignment.model_copy(update=own)
    return None


def _is_legal(plan: Plan, workload: Workload, cluster: Cluster, space: SearchSpace) -> bool:
    layout = layout_of(plan)
    for call in calls_in_order(build_graph(workload)):
        if call.kind != "environment" and explain_illegal(
            layout.strategies[call.name],
            call,
            workload.models[call.role],
            workload,
            cluster.group(layout.meshes[call.name].group),
            space,
            cluster_devices=cluster.devices,
            placement=layout.placement or "free",
            staleness=layout.staleness,
        ):
            return False
    return True
