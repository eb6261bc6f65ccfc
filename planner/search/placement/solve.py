"""The placement search from problem to result."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from planner.search.placement import infeasible
from planner.search.placement.bounds import bounded_parts, step_bound
from planner.search.placement.chain import MOST_MESHES, solve_chain
from planner.search.placement.clock import Clock
from planner.search.placement.descent import Descent, all_together
from planner.search.placement.driver import prove
from planner.search.placement.evaluate import Evaluator, Plan
from planner.search.placement.instance import Instance, compile_instance
from planner.search.placement.reduce import below, representatives, undominated
from planner.search.placement.result import PlacementResult, PlacementSolution, Status
from planner.search.placement.state import Search
from planner.search.placement.topk import distinct
from planner.search.problem import PlacementProblem

# Rounding of durations to ticks cannot prove less.
_LEAST_GAP = 1e-4
# Sizes of the mesh that others must be apart from, with each of which plans are looked for.
_PARTS = 3


def solve_placement(
    problem: PlacementProblem,
    *,
    top: int = 5,
    deadline_s: float | None = None,
    gap: float = 0.005,
    seed: int = 0,
    cancel: Callable[[], bool] | None = None,
    upper_bound_s: float | None = None,
) -> PlacementResult:
    """The best plans of a placement problem, with a proven bound.

    Parameters: `top` distinct plans at most; `deadline_s` seconds from now after which the best so
    far is returned (None: until proven); `gap` relative distance of best and bound at which the
    search ends (at least 1e-4); `seed` of the solver; `cancel` is asked now and then and ends the
    search when it returns True (it may be called from another thread); `upper_bound_s` a step time
    already reached elsewhere: the search ends when nothing better is left, with a plan that is not
    better if it has met one.

    The same problem and arguments give the same result on every run that ends before the deadline.
    Raises ValueError for a problem that contradicts itself (unknown names, cyclic precedence).
    """
    clock = Clock(deadline_s, cancel)
    instance = compile_instance(problem)
    limit = math.inf if upper_bound_s is None else upper_bound_s - instance.fixed_s
    search = Search(max(gap, _LEAST_GAP), limit, instance.fixed_s, clock, seed)
    shortage = infeasible.alone(problem)
    if shortage is None and all(len(rows) for rows in instance.options):
        method, evaluator = _solve(instance, search)
        if search.best is not None:
            plans = distinct(evaluator.instance, evaluator, search, top, clock)
            return _found(evaluator.instance, search, plans, method)
        if search.bound_s < math.inf:
            return _nothing(instance, search)
    if shortage is None:
        shortage = infeasible.together(problem, instance, clock)
    return PlacementResult(
        solutions=(),
        bound_s=math.inf,
        optimal=False,
        status="infeasible",
        wall_s=clock.wall_s,
        message="no plan exists" + (f": {infeasible.text(shortage)}" if shortage else ""),
        shortage=shortage,
    )


def _solve(instance: Instance, search: Search) -> tuple[str, Evaluator]:
    """Fill in the search's best plan and bound.

    Returns what the proof rests on, and an evaluator of an instance with the options of all plans
    met.
    """
    if any(a == b for a, b in instance.apart):
        search.raise_bound(math.inf)
        return "bound", Evaluator(instance)
    search.raise_bound(step_bound(instance))
    chain = None
    if len(instance.meshes) <= MOST_MESHES:
        evaluator = Evaluator(undominated(instance))
        chain = solve_chain(evaluator.instance, evaluator)
    if chain is not None:
        search.offer(chain.plan)
        search.raise_bound(chain.bound_s)
        if search.done:
            return chain.method, evaluator
        if _heuristics(evaluator, search):
            return "bound", evaluator
    else:
        # Good plans are made of few options, and a good plan rules out most of the others, at a
        # small part of what it takes to compare all with each other.
        few = representatives(instance)
        evaluator = Evaluator(few)
        if _heuristics(evaluator, search):
            return "bound", evaluator
        evaluator = Evaluator(_worth_a_look(instance, few, search))
    descent = Descent(evaluator.instance, evaluator)
    if any(len(known.rows) == 0 for known in descent.alternatives):
        search.raise_bound(search.target_s)
        return "bound", evaluator
    if search.best is None:
        descent.run(search)
    if search.done or search.clock.stop():
        return "bound", evaluator
    prove(evaluator.instance, search, descent)
    descent.improve_best(search)
    return "cp-sat", evaluator


def _heuristics(evaluator: Evaluator, search: Search) -> bool:
    """Offer good plans of an instance; whether the search is over."""
    instance = evaluator.instance
    for choice in all_together(instance):
        search.offer(evaluator.evaluate(choice))
    parts = [instance]
    if instance.apart:
        # Sizes that must fit side by side are hard to change one by one.
        parts = [part for _, part in bounded_parts(instance)[:_PARTS]]
    for part in parts:
        descent = Descent(part, evaluator if part is instance else Evaluator(part))
        if all(len(known.rows) for known in descent.alternatives):
            descent.run(search)
        if search.done or (search.clock.stop() and search.best is not None):
            return True
    return False


def _worth_a_look(instance: Instance, few: Instance, search: Search) -> Instance:
    """The few options, and those that may be in a plan worth finding."""
    left = below(instance, search.target_s)
    if all(len(rows) for rows in left.options):
        left = undominated(left)
    return instance.with_options(
        [
            rows.take(np.isin(rows.origin, np.union1d(some.origin, more.origin)))
            for rows, some, more in zip(instance.options, few.options, left.options, strict=True)
        ]
    )


def _found(instance: Instance, search: Search, plans: list[Plan], method: str) -> PlacementResult:
    best = plans[0].value_s
    bound = min(search.bound_s, best)
    optimal = search.proven
    gap = (best - bound) / (best + instance.fixed_s) if best + instance.fixed_s > 0 else 0.0
    status: Status = "optimal" if optimal else "feasible"
    message = f"proven within {100 * gap:.2f} %"
    if not optimal and search.done:
        message = "no plan is better than the given upper bound"
    elif not optimal:
        status = "cancelled" if search.clock.cancelled else status
        reason = "cancelled" if search.clock.cancelled else "stopped by the deadline"
        message = f"{reason}: {message}"
    return PlacementResult(
        solutions=tuple(_solution(instance, plan) for plan in plans),
        bound_s=bound + instance.fixed_s,
        optimal=optimal,
        status=status,
        wall_s=search.clock.wall_s,
        message=message,
        method=method,
    )


def _nothing(instance: Instance, search: Search) -> PlacementResult:
    if search.done:
        message = "no plan is better than the given upper bound"
    elif search.clock.cancelled:
        message = "cancelled before a plan was found"
    else:
        message = "stopped by the deadline before a plan was found"
    return PlacementResult(
        solutions=(),
        bound_s=search.bound_s + instance.fixed_s,
        optimal=False,
        status="cancelled" if search.clock.cancelled else "unknown",
        wall_s=search.clock.wall_s,
        message=message,
    )


def _solution(instance: Instance, plan: Plan) -> PlacementSolution:
    first_sync = len(instance.events) - len(instance.syncs)
    return PlacementSolution(
        options=dict(zip(instance.units, plan.origin, strict=True)),
        first_device={
            unit: plan.first[mesh]
            for unit, mesh in zip(instance.units, instance.mesh_of, strict=True)
        },
        start_s=dict(zip(instance.events[:first_sync], plan.starts_s[:first_sync], strict=True)),
        sync_start_s=plan.starts_s[first_sync:],
        step_time_s=plan.value_s + instance.fixed_s,
    )
