"""Launchers: plans as files that a training system runs."""

from __future__ import annotations

from planner.errors import InputError
from planner.launchers.base import Launcher, LaunchFiles
from planner.schema import Cluster, Plan, Workload

__all__ = [
    "LaunchFiles",
    "Launcher",
    "get_launcher",
    "launcher_names",
    "launchers_for",
    "with_launchers",
]


def launcher_names() -> tuple[str, ...]:
    """Names of all launchers, sorted."""
    return tuple(sorted(_launchers()))


def get_launcher(name: str) -> Launcher:
    """The launcher called `name`; InputError if there is none."""
    found = _launchers().get(name)
    if found is None:
        raise InputError(
            f"unknown launcher {name!r}", remedy=f"Known: {', '.join(launcher_names())}"
        )
    return found


def launchers_for(plan: Plan, workload: Workload, cluster: Cluster) -> tuple[str, ...]:
    """Names of the launchers that can run the plan, sorted."""
    return tuple(
        name
        for name, launcher in sorted(_launchers().items())
        if not launcher.supports(plan, workload, cluster)
    )


def with_launchers(plan: Plan, workload: Workload, cluster: Cluster) -> Plan:
    """The plan with the launchers that can run it, and what each of the others lacks."""
    reasons = {
        name: tuple(launcher.supports(plan, workload, cluster))
        for name, launcher in sorted(_launchers().items())
    }
    return plan.model_copy(
        update={
            "launchers": tuple(name for name, each in reasons.items() if not each),
            "lacking": {name: each for name, each in reasons.items() if each},
        }
    )


def _launchers() -> dict[str, Launcher]:
    from planner.launchers.nemo_rl import NemoRl
    from planner.launchers.openrlhf import OpenRlhf
    from planner.launchers.slime import Slime
    from planner.launchers.trl import Trl
    from planner.launchers.verl import Verl

    found: tuple[Launcher, ...] = (NemoRl(), OpenRlhf(), Slime(), Trl(), Verl())
    return {launcher.name: launcher for launcher in found}
