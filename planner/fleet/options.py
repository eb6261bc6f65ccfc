"""The shares that a phase can have, with the step time of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.errors import InfeasibleError
from planner.schema import Cluster, FleetPhase, NodeGroup
from planner.search import api

_GAP = 0.02
"""Proof that is enough for a share's step time: prices are compared between shares, and the cost
model's own error is several times larger."""


@dataclass(frozen=True)
class JobOptions:
    """The shares of one phase: n of them, in order of group and nodes."""

    groups: tuple[int, ...]
    """Node group of each share, index into the cluster's groups."""
    sizes: tuple[int, ...]
    """Nodes of each share."""
    step_time_s: tuple[float, ...]
    """Seconds of one step on each share."""


class Prices:
    """Step times of workloads on parts of a cluster; each is planned once."""

    def __init__(self, cancel: Callable[[], bool] | None = None):
        self._known: dict[tuple[str, str, str, int], float | InfeasibleError] = {}
        self._cancel = cancel

    def job_options(self, phase: FleetPhase, cluster: Cluster) -> JobOptions:
        """All shares of a phase on the cluster that are worth having.

        Left out are those on which it does not fit, and those that are no faster than a smaller
        one of the same group. Raises InfeasibleError when none is left, PlanningCancelledError
        when cancelled.
        """
        found: list[tuple[int, int, float]] = []
        reasons: list[InfeasibleError] = []
        for index, group in enumerate(cluster.groups):
            if phase.groups and group.name not in phase.groups:
                continue
            least = float("inf")
            for nodes in _sizes(phase, group):
                step_s = self._step_time_s(phase, group, nodes)
                if isinstance(step_s, InfeasibleError):
                    reasons.append(step_s)
                elif step_s < least:
                    least = step_s
                    found.append((index, nodes, step_s))
        if not found:
            why = f": {reasons[-1]}" if reasons else ""
            raise InfeasibleError(f"no share of the cluster will do{why}")
        groups, sizes, times = zip(*found, strict=True)
        return JobOptions(tuple(groups), tuple(sizes), tuple(times))

    def _step_time_s(
        self, phase: FleetPhase, group: NodeGroup, nodes: int
    ) -> float | InfeasibleError:
        if phase.workload is None:
            given = [t for t in phase.step_times if (t.group, t.nodes) == (group.name, nodes)]
            return given[0].step_time_s
        key = (phase.workload.model_dump_json(), phase.space, group.model_dump_json(), nodes)
        if key not in self._known:
            part = Cluster(name=group.name, groups=(group.model_copy(update={"nodes": nodes}),))
            try:
                answer = api.plan(
                    phase.workload, part, space=phase.space, top=1, gap=_GAP, cancel=self._cancel
                )
                self._known[key] = answer.plans[0].step_time_s
            except InfeasibleError as error:
                self._known[key] = error
        return self._known[key]


def _sizes(phase: FleetPhase, group: NodeGroup) -> list[int]:
    """Numbers of nodes to consider in a group, ascending."""
    if phase.step_times:
        sizes = {t.nodes for t in phase.step_times if t.group == group.name}
    else:
        powers = [2**i for i in range(group.nodes.bit_length())]
        sizes = {*powers, *(3 * power for power in powers), group.nodes}
    if phase.nodes:
        sizes = sizes & set(phase.nodes) if phase.step_times else set(phase.nodes)
    return sorted(nodes for nodes in sizes if nodes <= group.nodes)
