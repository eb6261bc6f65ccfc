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
    "priced_by",
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
    return with_launchers(plan, workload, cluster).launchers


def with_launchers(plan: Plan, workload: Workload, cluster: Cluster) -> Plan:
    """The plan with the launchers that can run it, and what each of the others lacks."""
    reasons = {
        name: tuple(launcher.supports(plan, workload, cluster))
        or _does_not_fit(launcher, plan, workload, cluster)
        for name, launcher in sorted(_launchers().items())
    }
    return plan.model_copy(
        update={
            "launchers": tuple(name for name, each in reasons.items() if not each),
            "lacking": {name: each for name, each in reasons.items() if each},
        }
    )


def priced_by(launcher: Launcher, plan: Plan, workload: Workload, cluster: Cluster) -> Plan:
    """The plan with the launcher's own overheads, in the first of its spaces that allows it.

    A plan of one of its spaces comes back as it is, and so does one that none of them can price.
    """
    from planner.launchers.spaces import own_assignment
    from planner.simulate.evaluate import evaluate

    assignment = own_assignment(launcher, plan, workload, cluster)
    if assignment is None:
        return plan
    try:
        found = evaluate(assignment, workload, cluster)
    except InputError:
        return plan
    if not found.fits:
        return plan
    priced = {field: getattr(found, field) for field in type(found).model_fields}
    return plan.model_copy(update={**priced, "assignment": assignment})


def _does_not_fit(
    launcher: Launcher, plan: Plan, workload: Workload, cluster: Cluster
) -> tuple[str, ...]:
    """Why a plan made for another launcher runs out of memory with this one's own overheads;
    nothing when it fits in one of its spaces."""
    from planner.catalog.spaces import load_space
    from planner.simulate.evaluate import evaluate

    spaces = launcher.capabilities.spaces
    if plan.assignment.space in spaces:
        return ()
    full: list[str] = []
    for name in spaces:
        space = load_space(name)
        own = {"space": name, "framework": space.framework, "engine": space.engine}
        try:
            found = evaluate(plan.assignment.model_copy(update=own), workload, cluster)
        except InputError:
            continue  # A plan that this space could not hold anyway.
        if found.fits:
            return ()
        full = [n for n, call in found.calls.items() if call.memory_verdict == "does not fit"]
    return (f"with its own overheads there is no memory for {', '.join(full) or 'this plan'}",)


def _launchers() -> dict[str, Launcher]:
    from planner.launchers.areal import Areal
    from planner.launchers.nemo_rl import NemoRl
    from planner.launchers.openrlhf import OpenRlhf
    from planner.launchers.prime_rl import PrimeRl
    from planner.launchers.roll import Roll
    from planner.launchers.slime import Slime
    from planner.launchers.trl import Trl
    from planner.launchers.verl import Verl

    found: tuple[Launcher, ...] = (
        Areal(),
        NemoRl(),
        OpenRlhf(),
        PrimeRl(),
        Roll(),
        Slime(),
        Trl(),
        Verl(),
    )
    return {launcher.name: launcher for launcher in found}
