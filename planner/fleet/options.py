"""The shares that a phase can have, with the step time of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.errors import InfeasibleError, PlanningCancelledError
from planner.schema import Cluster, FleetPhase, NodeGroup
from planner.search import api
from planner.search.front import step_times

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
    """Step times of workloads on parts of a cluster; each is found once."""

    def __init__(self, cancel: Callable[[], bool] | None = None):
        self._known: dict[tuple[str, str, str, tuple[int, ...]], dict[int, float]] = {}
        self._cancel = cancel

    def job_options(self, phase: FleetPhase, cluster: Cluster) -> JobOptions:
        """All shares of a phase on the cluster that are worth having.

        Left out are those on which it does not fit, and those that are no faster than a smaller
        one of the same group. Raises InfeasibleError when none is left, PlanningCancelledError
        when cancelled.
        """
        found: list[tuple[int, int, float]] = []
        for index, group in enumerate(cluster.groups):
            if phase.groups and group.name not in phase.groups:
                continue
            least = float("inf")
            for nodes, step_s in sorted(self._step_times(phase, group).items()):
                if step_s < least:
                    least = step_s
                    found.append((index, nodes, step_s))
        if not found:
            raise self._why_none(phase, cluster)
        groups, sizes, times = zip(*found, strict=True)
        return JobOptions(tuple(groups), tuple(sizes), tuple(times))

    def _step_times(self, phase: FleetPhase, group: NodeGroup) -> dict[int, float]:
        """Nodes -> seconds of a step; inf where the phase does not fit."""
        sizes = _sizes(phase, group)
        if phase.workload is None:
            given = {t.nodes: t.step_time_s for t in phase.step_times if t.group == group.name}
            return {nodes: given[nodes] for nodes in sizes}
        if not sizes:
            return {}
        key = (
            phase.workload.model_dump_json(),
            phase.space,
            group.model_dump_json(),
            tuple(sizes),
        )
        if key not in self._known:
            devices = {nodes * group.devices_per_node: nodes for nodes in sizes}
            times = step_times(
                phase.workload,
                Cluster(name=group.name, groups=(group,)),
                space=phase.space,
                sizes=list(devices),
                gap=_GAP,
                cancel=self._cancel,
            )
            if self._cancel is not None and self._cancel():
                raise PlanningCancelledError("cancelled before the shares were priced")
            self._known[key] = {
                devices[sum(size)]: time.step_time_s for size, time in times.items()
            }
        return self._known[key]

    def _why_none(self, phase: FleetPhase, cluster: Cluster) -> InfeasibleError:
        """What keeps the phase from the largest share that it may have."""
        if phase.workload is not None:
            groups = [g for g in cluster.groups if not phase.groups or g.name in phase.groups]
            largest = max(groups, key=lambda group: max(_sizes(phase, group), default=0))
            nodes = max(_sizes(phase, largest))
            part = Cluster(name=largest.name, groups=(largest.model_copy(update={"nodes": nodes}),))
            try:
                api.plan(phase.workload, part, space=phase.space, top=1, cancel=self._cancel)
            except InfeasibleError as error:
                return error
        return InfeasibleError("no share of the cluster will do")


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
