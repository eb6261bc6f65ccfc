"""Prices of the calls of assignments: each strategy is costed once, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from planner.cost.arrays import CallCosts, StrategyArrays
from planner.cost.calls import call_costs
from planner.schema import Assignment, Call, Mesh, Strategy
from planner.simulate.copies import of_assignment
from planner.simulate.instance import Instance


class PriceContext(NamedTuple):
    """All that a call's costs depend on beside its strategy."""

    call: str
    group: str
    staleness: int
    copy: bool
    """On a copy of the trainer's model (`planner.simulate.copies`)."""
    beside_trainer: bool
    fusions: tuple[str, ...]


PriceKey = tuple[PriceContext, Strategy]
Prices = Mapping[PriceKey, CallCosts]
"""Costs of length one, without the reallocation of copies."""


def price_key(instance: Instance, assignment: Assignment, call: Call) -> PriceKey:
    """What the costs of a device call of the assignment depend on; `instance` is that of the
    assignment (`copies.of_assignment`)."""
    name = call.name
    mesh = assignment.meshes[name]
    context = PriceContext(
        call=name,
        group=mesh.group,
        staleness=assignment.staleness,
        copy=name in instance.copies,
        beside_trainer=call.kind == "generate" and beside_trainer(instance, assignment, mesh),
        fusions=assignment.fusions,
    )
    return context, assignment.strategies[name]


def beside_trainer(instance: Instance, assignment: Assignment, mesh: Mesh) -> bool:
    """Whether a trainer has devices of the mesh."""
    return any(
        mesh.overlaps(assignment.meshes[call.name])
        for call in instance.calls
        if call.kind == "train"
    )


def price_assignments(instance: Instance, assignments: Iterable[Assignment]) -> Prices:
    """The costs of every device call of the assignments, which must be well formed.

    The cost functions take arrays: all strategies of a call in one context are one array.
    """
    wanted: dict[PriceContext, dict[Strategy, Instance]] = {}
    for assignment in assignments:
        own = of_assignment(instance, assignment)
        for call in own.calls:
            if call.kind != "environment":
                context, strategy = price_key(own, assignment, call)
                wanted.setdefault(context, {})[strategy] = own
    prices: dict[PriceKey, CallCosts] = {}
    for key, strategies in wanted.items():
        own = next(iter(strategies.values()))
        costs = call_costs(
            own.context(
                own.call(key.call),
                own.cluster.group(key.group),
                key.staleness,
                beside_trainer=key.beside_trainer,
            ),
            StrategyArrays.from_strategies(list(strategies)),
        )
        for row, strategy in enumerate(strategies):
            prices[key, strategy] = costs.take([row])
    return prices
