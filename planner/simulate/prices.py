"""Prices of the calls of assignments: each strategy is costed once, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from planner.cost.arrays import CallCosts, StrategyArrays
from planner.cost.calls import call_costs
from planner.schema import Assignment, Call, Strategy
from planner.simulate.instance import Instance

PriceKey = tuple[str, str, int, Strategy]
"""Call, node group, staleness, strategy: all that a call's costs depend on."""
Prices = Mapping[PriceKey, CallCosts]
"""Costs of length one."""


def price_key(assignment: Assignment, call: Call) -> PriceKey:
    """What the costs of a device call of the assignment depend on."""
    name = call.name
    group = assignment.meshes[name].group
    return name, group, assignment.staleness, assignment.strategies[name]


def price_assignments(instance: Instance, assignments: Iterable[Assignment]) -> Prices:
    """The costs of every device call of the assignments, which must be well formed.

    The cost functions take arrays: all strategies of a call on a node group are one array.
    """
    wanted: dict[tuple[str, str, int], dict[Strategy, None]] = {}
    for assignment in assignments:
        for call in instance.calls:
            if call.kind != "environment":
                name, group, staleness, strategy = price_key(assignment, call)
                wanted.setdefault((name, group, staleness), {})[strategy] = None
    prices: dict[PriceKey, CallCosts] = {}
    for (name, group, staleness), strategies in wanted.items():
        context = instance.context(instance.call(name), instance.cluster.group(group), staleness)
        costs = call_costs(context, StrategyArrays.from_strategies(list(strategies)))
        for row, strategy in enumerate(strategies):
            prices[name, group, staleness, strategy] = costs.take([row])
    return prices
