"""Step time against devices: every sub-cluster solved with options that are priced once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.catalog.spaces import load_space
from planner.cost.memory import FITS_SHARE
from planner.errors import InputError, PlanningCancelledError
from planner.schema import (
    Cluster,
    FrontPoint,
    Limits,
    ParetoFront,
    Plan,
    SearchSpace,
    Workload,
)
from planner.search.api import GAP, assumptions_of, check_options, instance_of
from planner.search.classes import SizeSearch
from planner.search.hashes import input_hashes
from planner.search.infeasible import explain_infeasible
from planner.search.objectives import Goal
from planner.search.placement.clock import Clock
from planner.search.problems import scopes
from planner.search.ranking import rank_plans
from planner.search.sizes import Size, check_sizes, contains, usual_sizes
from planner.version import __version__

_BILLION = 1e9
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class StepTime:
    """The best step time on a sub-cluster, as the exact search values it."""

    step_time_s: float
    """inf when no plan was found."""
    bound_s: float
    """No plan is faster; inf when there is none."""


def step_times(
    workload: Workload,
    cluster: Cluster,
    *,
    space: str | SearchSpace = "any",
    sizes: Sequence[int | Size] | None = None,
    gap: float = GAP,
    deadline_s: float | None = None,
    cancel: Callable[[], bool] | None = None,
) -> dict[Size, StepTime]:
    """The best step time on each sub-cluster, without the plans behind it.

    `sizes` are numbers of devices (of each node group when there are several), by default the usual
    ones; whole nodes, or parts of one. Options are priced once for all sizes, with the mesh sizes
    of the whole cluster, so a sub-cluster of a larger one may lack a few mesh sizes that a cluster
    of its size would have. Raises InputError for a size that is not one of the cluster's.
    """
    check_options(1, deadline_s, gap)
    clock = Clock(deadline_s, cancel)
    chosen = load_space(space) if isinstance(space, str) else space
    wanted = _wanted(cluster, chosen, sizes)
    search = _searched(workload, cluster, chosen, wanted, gap, 1, clock, cancel)
    return {
        size: StepTime(*_best(search, size)) if size in search.results else _unknown(search, size)
        for size in wanted
    }


def pareto(
    workload: Workload,
    cluster: Cluster,
    *,
    space: str | SearchSpace = "any",
    objective: str = "step_time",
    tokens: float | None = None,
    sizes: Sequence[int | Size] | None = None,
    gap: float = GAP,
    deadline_s: float | None = None,
    cancel: Callable[[], bool] | None = None,
) -> ParetoFront:
    """The best plan for each number of devices, with its bound, cost and scaling efficiency.

    `objective` (with its budget of `tokens`) marks the best point. Other parameters and errors are
    those of `step_times`; InfeasibleError when no size holds a plan, PlanningCancelledError when
    cancelled before any plan was found.
    """
    started = time.monotonic()
    check_options(1, deadline_s, gap)
    clock = Clock(deadline_s, cancel)
    marks = Goal(objective, Limits(), tokens, workload, cluster)
    chosen = load_space(space) if isinstance(space, str) else space
    wanted = _wanted(cluster, chosen, sizes)
    search = _searched(workload, cluster, chosen, wanted, gap, 1, clock, cancel)
    goal = Goal("step_time", Limits(), None, workload, cluster)
    plans: dict[Size, Plan] = {}
    for size, result in search.results.items():
        attempts = list(result.attempts)
        found = rank_plans(search.instance, chosen, attempts, goal, result.bound_s, 1, gap)
        if found:
            bound_s = min(result.bound_s, found[0].step_time_s)
            plans[size] = found[0].model_copy(update={"bound_s": bound_s})
    if not plans:
        if clock.cancelled:
            raise PlanningCancelledError("cancelled before any plan was found")
        largest = search.results[max(search.results, key=sum)]
        raise explain_infeasible(search.instance, list(largest.attempts))
    points = _points(plans, marks)
    return ParetoFront(
        planner_version=__version__,
        space=chosen.name,
        objective=objective,
        points=points,
        without_plan=tuple(size for size in wanted if size not in plans),
        optimal=len(search.results) == len(wanted)
        and all(p.bound_s >= p.step_time_s * (1 - gap) * (1 - 1e-6) for p in points),
        wall_s=time.monotonic() - started,
        candidates=sum(unit.costed for unit in search.priced),
        assumptions=assumptions_of(search.instance, search.wanted[0].memory_share, True),
        input_hashes=input_hashes(search.instance, chosen),
        workload=workload,
        cluster=cluster,
    )


def merged(fronts: Sequence[ParetoFront], tokens: float | None = None) -> ParetoFront:
    """One front of several for the same workload, cluster and objective in different spaces: of
    each size the fastest plan.

    Bounds are the weakest of the spaces, so they hold for all of them.
    """
    first = fronts[0]
    goal = Goal(first.objective, Limits(), tokens, first.workload, first.cluster)
    plans: dict[Size, Plan] = {}
    for each in fronts:
        for point in each.points:
            known = plans.get(point.size, point.plan)
            fastest = min(known, point.plan, key=lambda plan: plan.step_time_s)
            bound_s = min(known.bound_s, point.bound_s)
            plans[point.size] = fastest.model_copy(update={"bound_s": bound_s})
    missing = {size for each in fronts for size in each.without_plan}
    return first.model_copy(
        update={
            "space": " + ".join(each.space for each in fronts)[:200],
            "points": _points(plans, goal),
            "without_plan": tuple(sorted(missing - set(plans))),
            "optimal": all(each.optimal for each in fronts),
            "wall_s": sum(each.wall_s for each in fronts),
            "candidates": sum(each.candidates for each in fronts),
            "assumptions": tuple(
                dict.fromkeys(line for each in fronts for line in each.assumptions)
            ),
            "input_hashes": {
                f"{each.space}: {name}"[:200]: value
                for each in fronts
                for name, value in each.input_hashes.items()
            },
        }
    )


def _wanted(cluster: Cluster, space: SearchSpace, sizes: Sequence[int | Size] | None) -> list[Size]:
    if sizes is None:
        return usual_sizes(cluster, space)
    try:
        found = check_sizes(cluster, sizes)
    except ValueError as error:
        raise InputError(str(error), where="sizes", remedy="Give whole nodes' devices") from None
    if not found:
        raise InputError("no size is given", where="sizes", remedy="Give one or more")
    return found


def _searched(
    workload: Workload,
    cluster: Cluster,
    space: SearchSpace,
    sizes: Sequence[Size],
    gap: float,
    solutions: int,
    clock: Clock,
    cancel: Callable[[], bool] | None,
) -> SizeSearch:
    """All sizes solved, with the margin of memory if any size has a plan that leaves it.

    The largest comes first: its bound holds for all it contains, which often proves them at once.
    """
    instance = instance_of(workload, cluster, space)
    for memory_share in (FITS_SHARE, 1.0):
        search = SizeSearch(
            instance,
            scopes(instance, space, memory_share),
            gap=gap,
            solutions=solutions,
            clock=clock,
            cancel=cancel,
        )
        order = sorted(sizes, key=lambda size: (sum(size), size), reverse=True)
        for index, size in enumerate(order):
            found = any(math.isfinite(_best(search, each)[0]) for each in search.results)
            if clock.cancelled or (clock.stop() and found):
                break
            search.solve(size, parts=len(order) - index)
        if clock.cancelled or any(math.isfinite(_best(search, s)[0]) for s in search.results):
            break
    return search


def _best(search: SizeSearch, size: Size) -> tuple[float, float]:
    """Best step time and bound of a solved size; a plan of a smaller solved size counts, too."""
    times = [
        max(each.result.solutions[0].step_time_s, search.least_s)
        for known, result in search.results.items()
        if contains(size, known)
        for each in result.attempts
        if each.result.solutions
    ]
    best_s = min(times, default=math.inf)
    return best_s, min(max(search.results[size].bound_s, 0.0), best_s)


def _unknown(search: SizeSearch, size: Size) -> StepTime:
    """A size that the clock left out: what the larger ones prove, and the smaller ones reach."""
    proven = [r.bound_s for known, r in search.results.items() if contains(known, size)]
    reached = [_best(search, known)[0] for known in search.results if contains(size, known)]
    return StepTime(min(reached, default=math.inf), max([search.least_s, *proven]))


def _points(plans: dict[Size, Plan], goal: Goal) -> tuple[FrontPoint, ...]:
    """Points in the order of devices, with what each is worth beside the others."""
    order = sorted(plans, key=lambda size: (sum(size), size))
    best: dict[Size, Plan] = {}
    for size in order:
        # What fits on fewer devices fits on more: a smaller size's plan may be the better one.
        known = [plans[size], *(best[other] for other in best if contains(size, other))]
        fastest = min(known, key=lambda plan: (plan.step_time_s, plan.devices))
        bound_s = min(plans[size].bound_s, fastest.step_time_s)
        best[size] = fastest.model_copy(update={"bound_s": bound_s})
    smallest = best[order[0]]
    dominated = {size: _dominated(best[size], size, best) for size in order}
    front = [size for size in order if not dominated[size]]
    knee = min(front, key=lambda size: (best[size].step_time_s * _cost(best[size]), sum(size)))
    first = min(order, key=lambda size: (goal.score(best[size]), sum(size), size))
    steps = _BILLION / goal.tokens_per_step
    points = []
    for size in order:
        plan = best[size]
        usd = plan.cost_per_step_usd
        points.append(
            FrontPoint(
                size=size,
                devices=plan.devices,
                step_time_s=plan.step_time_s,
                bound_s=plan.bound_s,
                tokens_per_s=goal.tokens_per_step / plan.step_time_s,
                cost_per_step_usd=usd,
                device_hours_per_billion_tokens=plan.devices
                * plan.step_time_s
                * steps
                / _SECONDS_PER_HOUR,
                cost_per_billion_tokens_usd=None if usd is None else usd * steps,
                scaling_efficiency=plan.tokens_per_s_per_device / smallest.tokens_per_s_per_device,
                dominated=dominated[size],
                knee=size == knee and len(front) > 1,
                best=size == first,
                plan=plan,
            )
        )
    return tuple(points)


def _cost(plan: Plan) -> float:
    usd = plan.cost_per_step_usd
    return plan.devices * plan.step_time_s if usd is None else usd


def _dominated(plan: Plan, size: Size, others: dict[Size, Plan]) -> bool:
    """Another point is at least as good in devices, time and cost, and better in one; or the same
    on a smaller sub-cluster."""
    mine = (plan.devices, plan.step_time_s, _cost(plan))
    for other_size, other in others.items():
        if other_size == size:
            continue
        theirs = (other.devices, other.step_time_s, _cost(other))
        if all(a <= b for a, b in zip(theirs, mine, strict=True)) and (
            theirs != mine or (sum(other_size), other_size) < (sum(size), size)
        ):
            return True
    return False
