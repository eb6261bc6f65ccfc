"""Distinct good plans besides the best one."""

from __future__ import annotations

import math

import numpy as np

from planner.search.placement.clock import Clock
from planner.search.placement.descent import Descent
from planner.search.placement.evaluate import Evaluator, Plan
from planner.search.placement.instance import Instance
from planner.search.placement.state import Search

# Plans slower than the best by more than this are no alternatives.
_WORST = 0.15
# Changes of one mesh that are evaluated exactly around each plan.
_TRIES = 20

Signature = tuple[tuple[tuple[int, int, int], ...], int]


def signature(instance: Instance, plan: Plan) -> Signature:
    """What makes two plans alike: each unit's group, size and residency to a factor of two, and
    which meshes are disjoint."""
    units = []
    for rows, row in zip(instance.options, instance.rows(plan.origin), strict=True):
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
        plans.extend(plan for plan in search.seen.values() if plan.value_s <= limit)
        plans.extend(_around(Descent(instance, evaluator), best, limit, clock))
    found: dict[Signature, Plan] = {}
    for plan in sorted(plans, key=lambda p: (p.value_s, p.origin, p.first)):
        found.setdefault(signature(instance, plan), plan)
    return list(found.values())[:top]


def _around(descent: Descent, best: Plan, limit: float, clock: Clock) -> list[Plan]:
    plans = []
    choice = descent.instance.rows(best.origin)
    for mesh in range(len(descent.instance.meshes)):
        moves = descent.moves(choice, mesh)
        lower = descent.lower_bounds(choice, mesh, moves)
        for k in np.argsort(lower, kind="stable")[:_TRIES].tolist():
            if lower[k] >= limit or clock.stop():
                break
            plan = descent.evaluator.evaluate(descent.moved(choice, mesh, moves[k]), limit)
            if plan is not None:
                plans.append(plan)
    return plans
