"""Cost of any call: dispatches on its kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from planner.cost.arrays import CallCosts, StrategyArrays
from planner.cost.context import CallContext
from planner.cost.forward import forward_cost
from planner.cost.generate import generate_cost
from planner.cost.rounds import over_rounds
from planner.cost.train import train_cost

_BLOCK_STRATEGIES = 65_536
"""Strategies costed at once: larger temporaries leave the cache and halve the speed (measured),
smaller blocks repeat the sub-problems that strategies share. Generation makes its own blocks."""

_COSTS: dict[str, Callable[[CallContext, StrategyArrays], CallCosts]] = {
    "generate": over_rounds(generate_cost),
    "forward": forward_cost,
    "train": train_cost,
}


def call_costs(
    context: CallContext, strategies: StrategyArrays, check: Callable[[], None] | None = None
) -> CallCosts:
    """Time, work, depth, bounds and memory of the context's call under each of n strategies.

    Fused forms of calls (`context.adjustments`) are taken into account.
    `check` is called between blocks of strategies; what it raises ends the costing.
    Pure and vectorised: no loop over strategies, and no strategy's costs depend on another's.
    Raises ValueError for environment calls, which use no device.
    """
    cost = _COSTS.get(context.call.kind)
    if cost is None:
        raise ValueError(f"a call of kind {context.call.kind} has no strategies to cost")
    costs = _in_blocks(cost, context, strategies, check)
    for adjustment in context.adjustments:
        costs = adjustment(context, strategies, costs)
    return costs


def _in_blocks(
    cost: Callable[[CallContext, StrategyArrays], CallCosts],
    context: CallContext,
    strategies: StrategyArrays,
    check: Callable[[], None] | None,
) -> CallCosts:
    n = len(strategies)
    if n <= _BLOCK_STRATEGIES or context.call.kind == "generate":
        return cost(context, strategies)
    starts = range(0, n, _BLOCK_STRATEGIES)
    blocks = []
    for i in starts:
        if check is not None:
            check()
        blocks.append(cost(context, strategies.take(np.arange(i, min(i + _BLOCK_STRATEGIES, n)))))
    return _joined(blocks)


def _joined(blocks: list[CallCosts]) -> CallCosts:
    """The blocks' rows one after another; a part that a block lacks is zero there."""

    def join(name: str) -> Any:
        values = [getattr(block, name) for block in blocks]
        if not isinstance(values[0], dict):
            return np.concatenate(values)
        keys = list(dict.fromkeys(key for value in values for key in value))
        return {
            key: np.concatenate(
                [
                    value.get(key, np.zeros(len(block.time_s)))
                    for value, block in zip(values, blocks, strict=True)
                ]
            )
            for key in keys
        }

    return CallCosts(**{item.name: join(item.name) for item in fields(CallCosts)})
