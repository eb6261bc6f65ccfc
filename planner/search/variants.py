"""Classes that only matter if they beat a plan that is known: refuted or solved."""

from __future__ import annotations

from collections.abc import Callable

from planner.search.placement import PlacementResult, solve_placement
from planner.search.placement.bounds import step_bound
from planner.search.placement.instance import compile_instance
from planner.search.placement.reduce import below
from planner.search.problem import PlacementProblem


def solve_variant(
    problem: PlacementProblem,
    *,
    top: int,
    deadline_s: float | None,
    gap: float,
    cancel: Callable[[], bool] | None,
    upper_bound_s: float | None,
) -> PlacementResult:
    """Plans of a class below `upper_bound_s`, or the proof that there is none.

    The closed-form bounds go first: they refute most classes in milliseconds. The result's bound
    holds for the whole class either way.
    """
    instance = compile_instance(problem)
    bound_s = step_bound(instance) + problem.fixed_s
    if upper_bound_s is not None and bound_s < upper_bound_s:
        left = below(instance, upper_bound_s - problem.fixed_s)
        if any(len(rows) == 0 for rows in left.options):
            bound_s = upper_bound_s
    if upper_bound_s is not None and bound_s >= upper_bound_s:
        return PlacementResult(
            solutions=(),
            bound_s=bound_s,
            optimal=False,
            status="unknown",
            wall_s=0.0,
            message="no plan is better than the given upper bound",
            method="bound",
        )
    return solve_placement(
        problem,
        top=top,
        deadline_s=deadline_s,
        gap=gap,
        cancel=cancel,
        upper_bound_s=upper_bound_s,
    )
