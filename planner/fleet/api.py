"""`plan_fleet`: shares, places and start times of several jobs on one cluster."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from planner.catalog.fleet_check import check_fleet
from planner.errors import InputError
from planner.fleet import memetic
from planner.fleet.bounds import lower_bounds
from planner.fleet.check import violations
from planner.fleet.exact import cp_sat
from planner.fleet.jobs import describe, make_fleet
from planner.fleet.optimizer import OBJECTIVES, Optimizer, Outcome, Progress, Search
from planner.fleet.options import Prices
from planner.schema import Cluster, FleetJob, FleetPlan, FleetProgress
from planner.search.placement.clock import Clock
from planner.version import __version__

OPTIMIZERS: dict[str, Optimizer] = {
    "cp-sat": cp_sat,
    "memetic": memetic.memetic,
    "ga": memetic.ga,
    "anneal": memetic.anneal,
    "random": memetic.random_search,
}
GAP = 0.005
"""A schedule counts as proven best when the bound is this close, relative."""
EVALUATIONS = 5000
"""Schedules that the optimizers other than cp-sat evaluate when no budget and no deadline say."""


def plan_fleet(
    jobs: Sequence[FleetJob],
    cluster: Cluster,
    *,
    slots: int | None = None,
    storage_bytes_per_s: float | None = None,
    objective: str = "makespan",
    optimizer: str = "cp-sat",
    budget: int | None = None,
    deadline_s: float | None = None,
    gap: float = GAP,
    seed: int = 0,
    callback: Callable[[Progress], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> FleetPlan:
    """A share, a place and a start time for every phase of every job, with a bound.

    Parameters: `slots` CPU or environment slots of the cluster (None: unlimited);
    `storage_bytes_per_s` at which one node reads weights (None: from host memory); `objective`
    "makespan", "tardiness" (total weighted) or "pareto" (the front of both); `optimizer` "cp-sat"
    (exact), "memetic", or for comparison "ga", "anneal", "random"; `budget` schedules evaluated at
    most; `deadline_s` seconds of the search, pricing of the shares not included; `gap` the
    relative distance to the bound that counts as proven; `seed` of the optimizer; `callback` hears
    of every improvement; `cancel` is polled and ends the search when it returns True.

    The answer is the same on every run that ends before the deadline. Every schedule is evaluated
    exactly and checked against the definition of the problem.

    Raises InputError for inputs that make no sense, InfeasibleError when a phase fits no share,
    PlanningCancelledError when cancelled before the shares are priced.
    """
    started = time.monotonic()
    _check(objective, optimizer, budget, deadline_s, gap, seed, slots, storage_bytes_per_s)
    check_fleet(jobs, cluster, slots)
    fleet = make_fleet(jobs, cluster, slots, storage_bytes_per_s, Prices(cancel))
    if budget is None and deadline_s is None and optimizer != "cp-sat":
        budget = EVALUATIONS
    search = Search(
        fleet.problem,
        objective,  # type: ignore[arg-type]
        budget=budget,
        clock=Clock(deadline_s, cancel),
        seed=seed,
        bounds=lower_bounds(fleet.problem),
        gap=gap,
        callback=callback,
    )
    OPTIMIZERS[optimizer](search)
    outcome = search.outcome()
    for schedule in outcome.schedules:
        wrong = violations(fleet.problem, schedule)
        if wrong:
            raise RuntimeError(f"{optimizer} made an infeasible schedule: {wrong[0]}")
    reached = _gap(outcome, objective)
    optimal = reached <= gap * (1 + 1e-6) and (objective != "pareto" or outcome.front_proven)
    return FleetPlan(
        planner_version=__version__,
        objective=objective,
        optimizer=optimizer,
        seed=seed,
        schedules=tuple(describe(fleet, schedule) for schedule in outcome.schedules),
        makespan_bound_s=outcome.makespan_bound_s,
        weighted_tardiness_bound_s=outcome.tardiness_bound_s,
        gap=reached,
        optimal=optimal,
        status=_status(outcome, optimal),
        evaluations=outcome.evaluations,
        wall_s=time.monotonic() - started,
        trace=tuple(
            FleetProgress(
                evaluations=point.evaluations,
                makespan_s=point.makespan_s,
                weighted_tardiness_s=point.weighted_tardiness_s,
            )
            for point in outcome.trace
        ),
        assumptions=fleet.assumptions,
        slots=slots,
        cluster=cluster,
    )


def _gap(outcome: Outcome, objective: str) -> float:
    """1 - bound / best; for "pareto" the larger one of the two ends of the front."""
    first, last = outcome.schedules[0], outcome.schedules[-1]
    pairs = {
        "makespan": (first.makespan_s, outcome.makespan_bound_s),
        "tardiness": (last.weighted_tardiness_s, outcome.tardiness_bound_s),
    }
    wanted = pairs.values() if objective == "pareto" else [pairs[objective]]
    return max(max(0.0, 1 - bound / best) if best > 0 else 0.0 for best, bound in wanted)


def _status(outcome: Outcome, optimal: bool) -> str:
    if optimal:
        return "proven"
    words = {
        "budget": "stopped by the budget before the proof closed",
        "deadline": "stopped by the deadline before the proof closed",
        "cancelled": "cancelled before the proof closed",
    }
    return words.get(outcome.stopped, "ended before the proof closed")


def _check(
    objective: str,
    optimizer: str,
    budget: int | None,
    deadline_s: float | None,
    gap: float,
    seed: int,
    slots: int | None,
    storage_bytes_per_s: float | None,
) -> None:
    for name, given, known in (
        ("objective", objective, OBJECTIVES),
        ("optimizer", optimizer, tuple(OPTIMIZERS)),
    ):
        if given not in known:
            raise InputError(
                f"unknown {name} {given!r}", where=name, remedy=f"Known: {', '.join(known)}"
            )
    if budget is not None and budget < 1:
        raise InputError(f"budget is {budget}", where="budget", remedy="Give 1 or more")
    for name, value in (("deadline_s", deadline_s), ("storage_bytes_per_s", storage_bytes_per_s)):
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"{name} is {value:g}", where=name, remedy="Give more than zero")
    if not 0 <= gap < 1:
        raise InputError(f"gap is {gap:g}", where="gap", remedy="Give a fraction from 0 to 1")
    for name, count in (("seed", seed), ("slots", slots)):
        if count is not None and not 0 <= count < 2**53:
            raise InputError(f"{name} is {count}", where=name, remedy="Give zero or more")
