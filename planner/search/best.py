"""The best plan by any objective: sub-clusters in the order of what they can promise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.search.classes import SizeSearch
from planner.search.infeasible import Attempt
from planner.search.objectives import Goal, used_by
from planner.search.sizes import Size

# Classes whose best score is farther from the best one have no plan worth showing.
_SHOWN_WITHIN = 0.15
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Outcome:
    """What the search over sub-clusters found."""

    attempts: list[Attempt]
    """Classes with plans worth ranking, from all sub-clusters; every class when there is none."""
    bound: float
    """No plan that reserves one of `sizes`, within the limits, has a lower score."""
    sizes: list[Size]
    """The numbers of devices that the bound speaks of."""
    solved: int
    """Sub-clusters that had to be searched."""


def find_best(search: SizeSearch, goal: Goal, sizes: Sequence[Size]) -> Outcome:
    """Search sub-clusters, the most promising first, until no other can hold a better plan.

    A sub-cluster of size s promises rate(s) x floor_s(s), which no plan that reserves it beats.
    Plans found may reserve fewer devices than the sub-cluster they were searched on: such numbers
    of devices are considered as well.
    """
    best = math.inf
    bounds: dict[Size, float] = {}
    scored: list[tuple[float, Attempt]] = []
    pending = list(sizes)
    solved = 0
    several = len(sizes) > 1 or goal.objective.score != "time"
    while pending:
        # A lone sub-cluster is searched in any case: its bound would price all classes first.
        promised = {
            size: goal.rate(size) * (_floor_s(search, goal, size) if several else 0.0)
            for size in pending
        }
        size = min(pending, key=lambda each: (promised[each], sum(each), each))
        stopped = search.clock.stop()
        enough = promised[size] >= best * (1 - search.gap)
        if enough or math.isinf(promised[size]) or (search.clock.cancelled and solved):
            break
        if stopped and math.isfinite(best):
            break
        pending.remove(size)
        rate, most_s = goal.rate(size), goal.most_s(size)
        limit_s = min(most_s, best / rate) * (1 + _ROUNDING)
        found = search.solve(size, at_most_s=limit_s, parts=2 if several else 1)
        solved += 1
        bounds[size] = rate * found.bound_s if found.bound_s <= most_s else math.inf
        for attempt in found.attempts:
            for score, reserved, allowed in _scores(search, goal, attempt):
                if allowed:
                    if several and reserved not in bounds and reserved not in pending:
                        pending.append(reserved)
                    best = min(best, score)
                    scored.append((score, attempt))
    left = [goal.rate(size) * _floor_s(search, goal, size) for size in pending]
    bound = min([*bounds.values(), *left], default=math.inf)
    chosen = [attempt for score, attempt in scored if score <= best * (1 + _SHOWN_WITHIN)]
    attempts = list({id(attempt): attempt for attempt in chosen}.values())
    if not attempts:
        attempts = [each for result in search.results.values() for each in result.attempts]
    considered = sorted({*sizes, *bounds, *pending}, key=_order)
    return Outcome(attempts, min(bound, best), considered, solved)


def _order(size: Size) -> tuple[int, Size]:
    return sum(size), size


def _floor_s(search: SizeSearch, goal: Goal, size: Size) -> float:
    """Least step time of plans that reserve the size; inf when the limits leave none."""
    floor_s = search.floor_s(size)
    return floor_s if floor_s <= goal.most_s(size) else math.inf


def _scores(search: SizeSearch, goal: Goal, attempt: Attempt) -> list[tuple[float, Size, bool]]:
    """Score, devices reserved, and whether the limits allow it, of each solution."""
    found = []
    groups = len(search.instance.cluster.groups)
    for solution in attempt.result.solutions:
        meshes = {
            name: (
                int(attempt.options[name].unit.group[row]),
                int(attempt.options[name].unit.devices[row]),
            )
            for name, row in solution.options.items()
        }
        reserved = used_by(solution.first_device, meshes, groups)
        step_time_s = max(solution.step_time_s, search.least_s)
        found.append(
            (
                goal.rate(reserved) * step_time_s,
                reserved,
                step_time_s <= goal.most_s(reserved) * (1 + _ROUNDING),
            )
        )
    return found
