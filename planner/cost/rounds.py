"""Generation in rounds of two kinds (tail batching): the mean step of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from planner.cost.arrays import CallCosts, FloatArray, StrategyArrays
from planner.cost.context import CallContext
from planner.workload.tail_batching import rounds_of

Cost = Callable[[CallContext, StrategyArrays], CallCosts]


def round_contexts(context: CallContext) -> list[tuple[float, CallContext]]:
    """(share of the steps, context) of each kind of round; one without tail batching.

    Rounds drain: what a short one does not finish is dropped, so nothing flows from step to step.
    """
    if context.workload.tail_batching is None or context.call.role != "actor":
        return [(1.0, context)]
    return [
        (
            one.share,
            replace(
                context,
                workload=one.workload,
                call=context.call.model_copy(update={"sequences": one.sequences}),
                staleness=0,
            ),
        )
        for one in rounds_of(context.workload)
    ]


def over_rounds(cost: Cost) -> Cost:
    """`cost` of a generate call averaged over its rounds; memory is that of a long one, which must
    hold the longest response."""

    def averaged(context: CallContext, s: StrategyArrays) -> CallCosts:
        rounds = round_contexts(context)
        if len(rounds) == 1:
            return cost(context, s)
        shares = [share for share, _ in rounds]
        costs = [cost(each, s) for _, each in rounds]
        parts = {
            name: sum(
                (share * one.time_parts_s[name] for share, one in zip(shares, costs, strict=True)),
                start=np.zeros(len(s)),
            )
            for name in costs[0].time_parts_s
        }

        def mean(name: str) -> FloatArray:
            values = [getattr(one, name) for one in costs]
            return np.asarray(np.average(values, axis=0, weights=shares))

        return replace(
            costs[-1],
            time_s=np.sum(list(parts.values()), axis=0),
            time_parts_s=parts,
            work_flop=mean("work_flop"),
            useful_flop=mean("useful_flop"),
            traffic_bytes=mean("traffic_bytes"),
            depth=mean("depth").astype(np.int64),
            bound_s=mean("bound_s"),
        )

    return averaged
