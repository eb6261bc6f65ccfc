"""Do a fleet's jobs fit together and name what the cluster has? Says what is wrong, and where."""

from __future__ import annotations

from collections.abc import Sequence

from planner.catalog.data import did_you_mean
from planner.errors import InputError
from planner.schema import Cluster, FleetJob, FleetPhase

MAX_PHASES = 500
"""More in one fleet is taken for a mistake."""


def check_fleet(
    jobs: Sequence[FleetJob], cluster: Cluster, slots: int | None, source: str | None = None
) -> None:
    """Raise InputError for the first thing wrong, at ``source: jobs[i].phases[j].field``."""
    prefix = f"{source}: " if source else ""
    if not jobs:
        raise InputError("there is no job", where=f"{prefix}jobs", remedy="Give one or more.")
    names: set[str] = set()
    for i, job in enumerate(jobs):
        if job.name in names:
            raise InputError(
                f"the job name {job.name!r} occurs twice",
                where=f"{prefix}jobs[{i}].name",
                remedy="Give each job its own name.",
            )
        names.add(job.name)
        for j, phase in enumerate(job.phases):
            _check_phase(phase, cluster, slots, f"{prefix}jobs[{i}].phases[{j}]")
    phases = sum(len(job.phases) for job in jobs)
    if phases > MAX_PHASES:
        raise InputError(
            f"{phases:,} phases in all",
            where=f"{prefix}jobs",
            remedy=f"At most {MAX_PHASES} are planned at once.",
        )


def _check_phase(phase: FleetPhase, cluster: Cluster, slots: int | None, where: str) -> None:
    size = {group.name: group.nodes for group in cluster.groups}
    named = [(f"{where}.groups", name) for name in phase.groups]
    named += [(f"{where}.step_times", time.group) for time in phase.step_times]
    for place, name in named:
        if name not in size:
            raise InputError(
                f"the cluster has no node group {name!r}",
                where=place,
                remedy=did_you_mean(name, size),
            )
    given: set[tuple[str, int]] = set()
    for time in phase.step_times:
        if time.nodes > size[time.group]:
            raise InputError(
                f"{time.nodes} nodes of {time.group}, which has {size[time.group]}",
                where=f"{where}.step_times",
                remedy="Remove that entry, or correct the cluster.",
            )
        if (time.group, time.nodes) in given:
            raise InputError(
                f"two step times for {time.nodes} nodes of {time.group}",
                where=f"{where}.step_times",
                remedy="Give one.",
            )
        given.add((time.group, time.nodes))
    groups = phase.groups or tuple(size)
    most = max(size[name] for name in groups)
    shares = [t for t in phase.step_times if t.group in groups] if phase.step_times else None
    if shares is not None and phase.nodes:
        shares = [t for t in shares if t.nodes in phase.nodes]
    if shares == []:
        raise InputError(
            "no step time is given for the groups and nodes that it may use",
            where=f"{where}.step_times",
            remedy="Add one, or leave out `groups` and `nodes`.",
        )
    if phase.nodes and min(phase.nodes) > most:
        raise InputError(
            f"at least {min(phase.nodes)} nodes, but its largest node group has {most}",
            where=f"{where}.nodes",
            remedy=f"Give at most {most}.",
        )
    least = min(t.nodes for t in shares) if shares else min(phase.nodes, default=1)
    need = phase.slots + phase.slots_per_node * least
    if slots is not None and need > slots:
        raise InputError(
            f"needs {need:,} slots at least, the cluster has {slots:,}",
            where=f"{where}.slots",
            remedy="Lower the need, or raise `slots`.",
        )
