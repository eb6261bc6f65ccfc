"""`planner.plan`: the search, and which launchers can run what it found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from planner.errors import InfeasibleError, InputError, PlannerError
from planner.launchers import get_launcher, with_launchers
from planner.schema import Cluster, Limits, ParetoFront, PlanSet, Replan, SearchSpace, Workload
from planner.schema.capacity import Capacity
from planner.search import api, front
from planner.search import replan as replanning
from planner.search.capacity import choose
from planner.search.sizes import Size

__all__ = ["pareto", "plan", "plan_for_launcher", "replan"]


def plan(
    workload: Workload,
    cluster: Cluster,
    *,
    space: str | SearchSpace = "any",
    objective: str = "step_time",
    limits: Limits | None = None,
    tokens: float | None = None,
    top: int = 5,
    deadline_s: float | None = None,
    gap: float = api.GAP,
    cancel: Callable[[], bool] | None = None,
) -> PlanSet:
    """The best plans for `workload` on `cluster`, ranked, with a proven bound.

    Parameters: `space` is a search space, its name or file; `objective` one of step_time,
    tokens_per_s, tokens_per_s_per_device, gpu_hours_to_tokens, cost_per_step and cost_to_tokens;
    `limits` what every plan must stay within; `tokens` the budget, in prompt and response tokens,
    of the objectives and limits that count to one; `top` the number of distinct plans at most;
    `deadline_s` the seconds after which the best plans so far are returned with the bound reached;
    `gap` the relative distance to the bound that counts as proven; `cancel` is polled and ends the
    search early when it returns True.

    With limits, or for objectives other than time, the answer may reserve fewer devices than the
    cluster has; its bound is for the numbers of devices in `search.sizes`.

    The answer is the same on every run that ends before the deadline. Thread-safe; prints nothing.

    Raises InputError for inputs that make no sense, InfeasibleError when nothing fits or stays
    within the limits (with what is missing and what would help), PlanningCancelledError when
    cancelled before any plan was found.
    """
    found = api.plan(
        workload,
        cluster,
        space=space,
        objective=objective,
        limits=limits,
        tokens=tokens,
        top=top,
        deadline_s=deadline_s,
        gap=gap,
        cancel=cancel,
    )
    plans = tuple(with_launchers(each, workload, cluster) for each in found.plans)
    return found.model_copy(update={"plans": plans})


def plan_for_launcher(
    launcher: str,
    workload: Workload,
    cluster: Cluster,
    *,
    objective: str = "step_time",
    deadline_s: float | None = None,
    **how: Any,
) -> PlanSet:
    """The best plans that a launcher's spaces hold: those of the space whose best plan is best.

    Every space of the launcher (training backend) is searched, with its share of `deadline_s`; the
    other parameters are those of `plan`. Spaces with a worse best plan, or none, are named among
    the assumptions.

    Raises InputError for an unknown launcher, and what `plan` raises when no space has a plan.
    """
    spaces = get_launcher(launcher).capabilities.spaces
    share = deadline_s and deadline_s / len(spaces)
    found: list[PlanSet] = []
    failed: dict[str, PlannerError] = {}
    for space in spaces:
        try:
            found.append(
                plan(workload, cluster, space=space, objective=objective, deadline_s=share, **how)
            )
        except (InfeasibleError, InputError) as error:
            failed[space] = error
    if not found:
        if len(failed) > 1 and all(isinstance(e, InfeasibleError) for e in failed.values()):
            raise InfeasibleError("\n".join(f"{s}: {e}" for s, e in failed.items()))
        raise failed[spaces[0]]
    # Throughputs are maximised, times and costs minimised.
    sign = -1.0 if objective.startswith("tokens_per_s") else 1.0

    def value(each: PlanSet) -> float:
        first = each.plans[0]
        shown = first.objective_value
        return sign * (first.step_time_s if shown is None or objective == "step_time" else shown)

    best = min(found, key=value)
    notes = [
        f"{each.space}, also {launcher}'s: its best plan takes {each.plans[0].step_time_s:.1f} s"
        + ("" if objective == "step_time" else f", {objective} {abs(value(each)):.4g}")
        for each in found
        if each is not best
    ]
    notes += [f"{space}, also {launcher}'s: {error}" for space, error in failed.items()]
    return best.model_copy(update={"assumptions": (*best.assumptions, *notes)})


def pareto(
    workload: Workload,
    cluster: Cluster,
    *,
    space: str | SearchSpace = "any",
    objective: str = "step_time",
    tokens: float | None = None,
    sizes: Sequence[int | Size] | None = None,
    gap: float = api.GAP,
    deadline_s: float | None = None,
    cancel: Callable[[], bool] | None = None,
) -> ParetoFront:
    """The best plan for each number of devices up to the cluster's: time, bound, cost, efficiency.

    Parameters: `objective`, with its budget of `tokens`, says which point is marked as best;
    `sizes` are numbers of devices (with several node groups, of each group), by default
    every number of nodes up to 16, beyond 2^i and 3 x 2^i; the others as of `plan`. All strategies
    are priced once for all sizes. Thread-safe; prints nothing.

    Raises InputError for inputs that make no sense, InfeasibleError when no size holds a plan,
    PlanningCancelledError when cancelled before any plan was found.
    """
    found = front.pareto(
        workload,
        cluster,
        space=space,
        objective=objective,
        tokens=tokens,
        sizes=sizes,
        gap=gap,
        deadline_s=deadline_s,
        cancel=cancel,
    )
    points = tuple(
        each.model_copy(update={"plan": with_launchers(each.plan, workload, cluster)})
        for each in found.points
    )
    return found.model_copy(update={"points": points})


def replan(
    old: PlanSet,
    cluster: Cluster | None = None,
    *,
    rank: int = 1,
    without: Mapping[str, Sequence[int]] | None = None,
    within: float = 0.0,
    thorough: bool = False,
    space: str | SearchSpace | None = None,
    gap: float = api.GAP,
    deadline_s: float | None = None,
    cancel: Callable[[], bool] | None = None,
) -> Replan:
    """A plan for the workload of `old` on a changed cluster, starting from its plan of rank `rank`.

    Parameters: the new `cluster` (groups are found by name; of a smaller group the last nodes are
    gone), or `without`: node group -> numbers of the nodes that are gone. Of the plans found whose
    step takes at most 1 + `within` times the shortest, the one that moves the least state is
    returned; inf moves as little as possible. Plans near the old one are searched; `thorough`
    searches the whole new cluster as well and proves a bound for it, within `deadline_s`. `space`
    is the search space, by default that of the old plan. Thread-safe; prints nothing.

    The nodes that are left are numbered anew, without holes; a mesh that lost no node stays on its
    devices unless the answer says that it moves.

    Raises InputError for inputs that make no sense, InfeasibleError when nothing fits.
    """
    found = replanning.replan(
        old,
        cluster,
        rank=rank,
        without=without,
        within=within,
        thorough=thorough,
        space=space,
        gap=gap,
        deadline_s=deadline_s,
        cancel=cancel,
    )
    plans = tuple(
        with_launchers(each, found.plans.workload, found.plans.cluster)
        for each in found.plans.plans
    )
    return found.model_copy(update={"plans": found.plans.model_copy(update={"plans": plans})})


def pareto_for_launcher(
    launcher: str,
    workload: Workload,
    cluster: Cluster,
    *,
    tokens: float | None = None,
    deadline_s: float | None = None,
    **how: Any,
) -> ParetoFront:
    """The front of a launcher: of each size the best plan of all its search spaces.

    Parameters are those of `pareto`; every space has its share of `deadline_s`. Raises InputError
    for an unknown launcher, and what `pareto` raises when no space has a plan.
    """
    spaces = get_launcher(launcher).capabilities.spaces
    share = deadline_s and deadline_s / len(spaces)
    found: list[ParetoFront] = []
    failed: list[PlannerError] = []
    for space in spaces:
        try:
            found.append(
                pareto(workload, cluster, space=space, tokens=tokens, deadline_s=share, **how)
            )
        except (InfeasibleError, InputError) as error:
            failed.append(error)
    if not found:
        raise failed[0]
    return front.merged(found, tokens) if len(found) > 1 else found[0]


def capacity(
    workload: Workload,
    clusters: Sequence[Cluster],
    *,
    steps: float,
    within_s: float | None = None,
    budget_usd: float | None = None,
    space: str | SearchSpace = "any",
    launcher: str | None = None,
    gap: float = api.GAP,
    deadline_s: float | None = None,
    cancel: Callable[[], bool] | None = None,
) -> Capacity:
    """How many devices of which cluster do `steps` steps within a time or a budget, cheapest first.

    Parameters: `clusters` are the largest of each kind to consider, every number of nodes of each
    is (as in `pareto`); `within_s` and `budget_usd` limit the whole run; `launcher` searches its
    spaces instead of `space`; `deadline_s` is of the search of each cluster. Clusters that hold no
    plan are named in the answer.

    Raises InputError for inputs that make no sense, InfeasibleError when no cluster holds a plan.
    """
    for name, value in (("steps", steps), ("within_s", within_s), ("budget_usd", budget_usd)):
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"{name} is {value:g}", where=name, remedy="Give more than zero")
    if not clusters:
        raise InputError("no cluster is given", where="clusters", remedy="Give one or more")
    how: dict[str, Any] = {"gap": gap, "deadline_s": deadline_s, "cancel": cancel}
    fronts: list[ParetoFront] = []
    failed: dict[str, InfeasibleError] = {}
    for cluster in clusters:
        try:
            fronts.append(
                pareto(workload, cluster, space=space, **how)
                if launcher is None
                else pareto_for_launcher(launcher, workload, cluster, **how)
            )
        except InfeasibleError as error:
            failed[cluster.name] = error
    if not fronts:
        raise next(iter(failed.values()))
    return choose(
        fronts,
        steps=steps,
        within_s=within_s,
        budget_usd=budget_usd,
        without_plan=[f"{name}: {error}" for name, error in failed.items()],
    )
