"""Cost of any call: dispatches on its kind."""

from __future__ import annotations

from planner.cost.arrays import CallCosts, StrategyArrays
from planner.cost.context import CallContext
from planner.cost.forward import forward_cost
from planner.cost.generate import generate_cost
from planner.cost.train import train_cost


def call_costs(context: CallContext, strategies: StrategyArrays) -> CallCosts:
    """Time, work, depth, bounds and memory of the context's call under each of n strategies.

    Pure and vectorised: no loop over strategies. Raises ValueError for environment calls, which
    use no device.
    """
    match context.call.kind:
        case "generate":
            return generate_cost(context, strategies)
        case "forward":
            return forward_cost(context, strategies)
        case "train":
            return train_cost(context, strategies)
        case kind:
            raise ValueError(f"a call of kind {kind} has no strategies to cost")
