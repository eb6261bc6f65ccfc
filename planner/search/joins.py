"""Pairs of strategies of the calls of one unit, without those that no plan can want.

A trained model's training and forward calls share one layout but not the microbatch. All pairs of
equal layouts are several times as many as the strategies of either, and nearly all of them are
dominated: most training strategies by a whole pair of another one, whatever forward pass they get.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from planner.cost.arrays import BoolArray, CallCosts, FloatArray, IntArray, StrategyArrays
from planner.cost.distinct import distinct
from planner.search.pareto import dominated_by, pareto_mask

DEGREE_FIELDS = (
    *("tp", "pp", "vpp", "cp", "ulysses", "ep", "etp", "dp", "zero_stage", "shard_ranks"),
    "pipeline_schedule",
)


def useful_pairs(
    strategies: StrategyArrays,
    lead: CallCosts,
    forward: Sequence[CallCosts],
    lead_rows: IntArray,
    forward_rows: IntArray,
    usable: float,
    check: Callable[[], None] | None = None,
) -> BoolArray:
    """Which of n pairs may be part of a best plan, or are the fastest of their degrees; shape [n].

    `strategies` and `lead` are those of the training call; `forward` are the costs of the forward
    calls, which all run in the pair's forward strategy. `lead_rows` is ascending. Pairs that need
    more than `usable` bytes are left out, unless all do. `check` is called now and then; what it
    raises ends it.
    """
    peak = np.max([lead.peak_bytes[lead_rows], *(c.peak_bytes[forward_rows] for c in forward)], 0)
    runs = np.isfinite(lead.time_s)[lead_rows]
    for cost in forward:
        runs &= np.isfinite(cost.time_s)[forward_rows]
    fits = np.flatnonzero(runs & (peak <= usable))
    keep = np.zeros(len(lead_rows), dtype=np.bool_)
    if len(fits) == 0:
        return ~keep
    pair_lead, pair_forward = lead_rows[fits], forward_rows[fits]
    starts = np.flatnonzero(np.concatenate([[True], pair_lead[1:] != pair_lead[:-1]]))
    counts = np.diff(np.concatenate([starts, [len(pair_lead)]]))
    of = pair_lead[starts]
    times = [cost.time_s[pair_forward] for cost in forward]
    first = _first_least(np.sum(times, axis=0), starts, counts)
    quick, quick_forward = fits[first], pair_forward[first]
    times_of_quick = [lead.time_s[of], *(cost.time_s[quick_forward] for cost in forward)]
    resident = np.max(
        [lead.resident_bytes[of], *(c.resident_bytes[quick_forward] for c in forward)], 0
    )
    host = np.max(
        [lead.host_bytes_per_device[of]]
        + [cost.host_bytes_per_device[quick_forward] for cost in forward],
        axis=0,
    )
    devices = strategies.devices[of]
    real = np.column_stack([*times_of_quick, resident, peak[quick], host])
    width = len(times_of_quick)
    front = pareto_mask(
        devices,
        real[:, :width],
        real[:, width],
        real[:, width + 1],
        real[:, width + 2],
        check=check,
    )
    # No pair of a training strategy is better than this in anything.
    floor = np.column_stack(
        [
            lead.time_s[of],
            *(np.minimum.reduceat(time, starts) for time in times),
            *(lead.resident_bytes[of], lead.peak_bytes[of], lead.host_bytes_per_device[of]),
        ]
    )
    alive = ~dominated_by(floor, devices, real[front], devices[front], check)
    keep[fits[np.repeat(alive, counts)]] = True
    order = np.argsort(np.sum(times_of_quick, axis=0), kind="stable")
    leads = strategies.take(of[order])
    fastest, _ = distinct(*(getattr(leads, name) for name in DEGREE_FIELDS))
    keep[quick[order[fastest]]] = True
    return keep


def _first_least(values: FloatArray, starts: IntArray, counts: IntArray) -> IntArray:
    """Index of the first least value of each segment."""
    least = np.repeat(np.minimum.reduceat(values, starts), counts)
    found: IntArray = np.flatnonzero(values == least)
    segment = np.repeat(np.arange(len(starts)), counts)[found]
    first: IntArray = found[np.concatenate([[True], segment[1:] != segment[:-1]])]
    return first
