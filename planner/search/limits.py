"""Why no plan stays within the limits, and which value of the limit would do."""

from __future__ import annotations

import math

from planner.errors import InfeasibleError
from planner.schema import Limits, SearchSpace
from planner.search.best import find_best
from planner.search.classes import SizeSearch
from planner.search.infeasible import explain_infeasible
from planner.search.objectives import Goal
from planner.search.ranking import rank_plans
from planner.search.sizes import usual_sizes


def explain_limits(search: SizeSearch, goal: Goal, space: SearchSpace) -> InfeasibleError:
    """The error when plans exist but none within the limits.

    The limit that can be relaxed least is found by searching for the plan that is best in what it
    limits: so the value named is one that a plan reaches, under the other limits.
    """
    said: list[str] = []
    for objective, field, words in (
        ("step_time", "step_time_s", "the shortest step takes {:,.4g} s"),
        ("cost_per_step", "cost_per_step_usd", "the cheapest step costs ${:,.4g}"),
        ("cost_to_tokens", "cost_usd", "the cheapest run to the tokens costs ${:,.4g}"),
    ):
        limit = getattr(goal.limits, field)
        if limit is None:
            continue
        value = _reached(search, goal, space, objective, field)
        if value is not None and value > limit:
            said.append(f"{words.format(value)}, the limit is {limit:,.6g}")
    if not said:
        return _without_limits(search, goal, space)
    return InfeasibleError(
        f"no plan stays within the limits: {'; '.join(said)}. Raise the limit above that value."
    )


def _reached(
    search: SizeSearch, goal: Goal, space: SearchSpace, objective: str, field: str
) -> float | None:
    """The best value of what one limit limits, without that limit; None when there is no plan."""
    limits = goal.limits.model_copy(update={field: None})
    tokens = None if goal.steps is None else goal.steps * goal.tokens_per_step
    other = Goal(objective, limits, tokens, search.instance.workload, goal.cluster)
    sizes = usual_sizes(goal.cluster, space, limits.devices)
    outcome = find_best(search, other, sizes)
    plans = rank_plans(
        search.instance, space, outcome.attempts, other, outcome.bound, 1, search.gap
    )
    return other.value(other.score(plans[0])) if plans else None


def _without_limits(search: SizeSearch, goal: Goal, space: SearchSpace) -> InfeasibleError:
    """No plan even without the limits on time and money, or only all limits together exclude it."""
    other = Goal(
        "step_time",
        Limits(devices=goal.limits.devices),
        None,
        search.instance.workload,
        goal.cluster,
    )
    sizes = usual_sizes(goal.cluster, space, goal.limits.devices)
    outcome = find_best(search, other, sizes)
    if any(each.result.solutions for each in outcome.attempts):
        return InfeasibleError("no plan stays within all limits at once. Raise one of them.")
    if goal.limits.devices is not None:
        needed = _fewest_devices(search, goal, space)
        if needed is not None:
            return InfeasibleError(
                f"no plan stays within the limits: at most {goal.limits.devices} devices are "
                f"allowed, and the fewest that hold a plan are {needed}. Raise the limit on "
                "devices."
            )
    return explain_infeasible(search.instance, outcome.attempts)


def _fewest_devices(search: SizeSearch, goal: Goal, space: SearchSpace) -> int | None:
    """The smallest usual sub-cluster with a plan."""
    for size in usual_sizes(goal.cluster, space):
        if sum(size) <= (goal.limits.devices or 0) or not math.isfinite(search.floor_s(size)):
            continue
        if any(each.result.solutions for each in search.solve(size, solutions=1).attempts):
            return sum(size)
    return None
