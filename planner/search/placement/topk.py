"""Distinct good plans besides the best one."""

from __future__ import annotations

import math

import numpy as np

from planner.search.placement.clock import Clock
from planner.search.placement.descent import Descent
from planner.search.placement.driver import Search
from planner.search.placement.evaluate import Evaluator, Plan
from planner.search.placement.instance import Instance

# Plans slower than the best by more than this are no alternatives.
_WORST = 0.15
# Changes of one mesh that are evaluated exactly around each plan.
_TRIES = 40

Signature = tuple[tuple[tuple[int, int, int], ...], int]


def signature(instance: Instance, plan: Plan) -> Signature:
    """What makes two plans alike: each unit's group, size and residency to a factor of two, and
    which meshes are disjoint."""
    units = []
    for rows, row in zip(instance.options, plan.choice, strict=True):
        resident = float(rows.resident_bytes[row])
        units.append(
            (
                int(rows.group[row]),
                round(math.log2(float(rows.devices[row]))),
                round(math.log2(resident)) if resident >= 1 else 0,
            )
        )
    return tuple(units), plan.disjoint


def distinct(
    instance: Instance, evaluator: Evaluator, search: Search, top: int, clock: Clock
) -> list[Plan]:
    """The best plan and up to top - 1 others, one for each signature, best first.

    Candidates are all plans met so far and all changes of one mesh around the best plan, evaluated
    exactly. They are good plans, not proven to be the next best.
    """
    best = search.best
    if best is None:
        return []
    limit = best.value_s * (1 + _WORST)
    plans = [best]
    if top > 1:
        descent = Descent(instance, evaluator)
        plans.extend(_again(instance, evaluator, search, limit, clock))
        plans.extend(_around(descent, best, limit, clock))
    found: dict[Signature, Plan] = {}
    for plan in sorted(plans, key=lambda p: (p.value_s, p.origin, p.first)):
        found.setdefault(signature(instance, plan), plan)
    return list(found.values())[:top]


def _again(
    instance: Instance, evaluator: Evaluator, search: Search, limit: float, clock: Clock
) -> list[Plan]:
    """Plans met by the search within the limit, with rows of this instance's options."""
    row_of = [
        {int(origin): row for row, origin in enumerate(rows.origin)} for rows in instance.options
    ]
    plans = []
    for origin, plan in sorted(search.seen.items(), key=lambda item: (item[1].value_s, item[0])):
        if plan.value_s > limit or clock.stop():
            break
        choice = [rows.get(index) for rows, index in zip(row_of, origin, strict=True)]
        if None not in choice:
            found = evaluator.evaluate([row for row in choice if row is not None])
            if found is not None:
                plans.append(found)
    return plans


def _around(descent: Descent, best: Plan, limit: float, clock: Clock) -> list[Plan]:
    plans = []
    for mesh in range(len(descent.moves)):
        lower = descent.lower_bounds(best.choice, mesh)
        for row in np.argsort(lower, kind="stable")[:_TRIES].tolist():
            if lower[row] >= limit or clock.stop():
                break
            plan = descent.evaluator.evaluate(descent.moved(best.choice, mesh, row), limit)
            if plan is not None:
                plans.append(plan)
    return plans
