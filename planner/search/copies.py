"""Options of a trained model whose forward passes run on a copy in another layout.

On the trainer's devices a copy is an option of the trainer's own unit (`relaid_rows`): a pair of
layouts, with the weights reallocated between the calls. On devices of its own it is a unit of its
own (`copy_rows` with `arriving`), which the search places like any other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import OFFLOAD, BoolArray, CallCosts, IntArray, StrategyArrays
from planner.cost.calls import call_costs
from planner.cost.context import CallContext
from planner.cost.distinct import distinct
from planner.cost.reallocation import LAYOUT_FIELDS, reallocation_s, shard_keys
from planner.schema import Call, NodeGroup
from planner.search.candidates import enumerate_candidates
from planner.search.pareto import pareto_mask
from planner.search.rows import Rows
from planner.search.scope import Scope
from planner.simulate.instance import Instance


def copy_rows(
    instance: Instance, scope: Scope, calls: list[Call], group: NodeGroup, *, arriving: bool
) -> Rows:
    """Every layout that forward calls of one copy can have; all calls have the same strategy.

    With `arriving` the first call receives the weights from other devices before it starts.
    """
    contexts = [copy_context(instance, scope, call, group) for call in calls]
    strategies = enumerate_candidates(
        calls[0],
        contexts[0].model,
        instance.workload,
        group,
        scope.space,
        scope.device_counts(group),
        trained=False,
        cluster_devices=instance.cluster.devices,
        placement=scope.placement,
        staleness=scope.staleness,
    )
    strategies = strategies.take(_considered(strategies))
    costs = [call_costs(context, strategies) for context in contexts]
    time_s = np.stack([cost.time_s for cost in costs], axis=1)
    if arriving and len(strategies):
        time_s[:, 0] += reallocation_s(contexts[0], strategies)
    return Rows(
        strategies={call.name: strategies for call in calls},
        time_s=time_s,
        peak_bytes=np.stack([cost.peak_bytes for cost in costs], axis=1),
        resident_bytes=np.zeros(len(strategies)),
        host_bytes=np.zeros(len(strategies)),
        costed=len(calls) * len(strategies),
    )


def _considered(s: StrategyArrays) -> BoolArray:
    """Strategies of copies that the search looks at, shape [n].

    A copy lives for its passes only, so there is nothing to keep in host memory. Its stages are
    even and not interleaved: a forward pass gains little by either, and the pairs of layouts would
    be seven times as many.
    """
    even = (s.first_stage_layers + s.last_stage_layers == 0) & (s.vpp == 1)
    return np.asarray((s.offload == OFFLOAD.index("none")) & even)


def copy_context(instance: Instance, scope: Scope, call: Call, group: NodeGroup) -> CallContext:
    """The context of a forward call on a copy: weights alone, no training state beside them."""
    return replace(instance.context(call, group, scope.staleness), trained=False)


def relaid_rows(
    instance: Instance,
    scope: Scope,
    lead: Call,
    strategies: StrategyArrays,
    costs: CallCosts,
    forward: list[Call],
    group: NodeGroup,
) -> Rows:
    """Training in one layout and all forward calls in another on the same devices.

    `strategies` and `costs` are those of the training call, n of them. The pairs that are left out
    cannot be part of a best plan: see `_useful_trainers` and `_useful_copies`.
    """
    usable = scope.capacity_bytes(group.device, instance.framework)
    copies = copy_rows(instance, scope, forward, group, arriving=False)
    context = copy_context(instance, scope, forward[0], group)
    copies = _useful_copies(context, copies, usable)
    trainers = _useful_trainers(strategies, costs)
    strategies, costs = strategies.take(trainers), costs.take(trainers)
    left, right = _pairs(strategies.devices, copies.devices)
    peak = costs.resident_bytes[left] + copies.peak_bytes.max(axis=1)[right]
    copied = next(iter(copies.strategies.values()))
    differ = np.zeros(len(left), dtype=np.bool_)
    for name in LAYOUT_FIELDS:
        differ |= getattr(strategies, name)[left] != getattr(copied, name)[right]
    keep = differ & (peak <= usable)
    left, right = left[keep], right[keep]
    time_s = np.concatenate([costs.time_s[left, None], copies.time_s[right]], axis=1)
    if len(left):
        time_s[:, 1] += reallocation_s(context, copied.take(right), strategies.take(left))
    peaks = np.concatenate(
        [
            costs.peak_bytes[left, None],
            costs.resident_bytes[left, None] + copies.peak_bytes[right],
        ],
        axis=1,
    )
    return Rows(
        strategies={lead.name: strategies.take(left)}
        | {name: rows.take(right) for name, rows in copies.strategies.items()},
        time_s=time_s,
        peak_bytes=peaks,
        resident_bytes=costs.resident_bytes[left],
        host_bytes=costs.host_bytes_per_device[left],
        costed=copies.costed,
    )


def _useful_trainers(s: StrategyArrays, costs: CallCosts) -> IntArray:
    """Of the strategies of equal layout (and offload), those that none other dominates.

    The reallocation depends on the trainer through these alone.
    """
    _, label = distinct(*shard_keys(s), s.offload == OFFLOAD.index("all"))
    return np.flatnonzero(
        pareto_mask(
            label,
            costs.time_s,
            costs.resident_bytes,
            costs.peak_bytes,
            costs.host_bytes_per_device,
        )
    )


def _useful_copies(context: CallContext, rows: Rows, usable: float) -> Rows:
    """Copies that may be best for some trainer on the same devices.

    One is useless if another, whose weights all have to travel, is as fast as this one with
    weights that are there already, and needs no more memory.
    """
    fits = np.isfinite(rows.time_s).all(axis=1) & (rows.peak_bytes.max(axis=1) <= usable)
    rows = rows.take(np.flatnonzero(fits))
    if len(rows.devices) == 0:
        return rows
    strategies = next(iter(rows.strategies.values()))
    # Loading an offloaded source counts for both alike.
    all_travels = reallocation_s(context, strategies)
    peak = rows.peak_bytes.max(axis=1)
    keep = np.ones(len(strategies), dtype=np.bool_)
    for count in np.unique(rows.devices):
        index = np.flatnonzero(rows.devices == count)
        slow = rows.time_s[index].copy()
        slow[:, 0] += all_travels[index]
        better = (peak[index][:, None] <= peak[index][None, :]) & (
            slow[:, None, :] <= rows.time_s[index][None, :, :]
        ).all(axis=2)
        keep[index] = ~better.any(axis=0)
    return rows.take(np.flatnonzero(keep))


def _pairs(left: IntArray, right: IntArray) -> tuple[IntArray, IntArray]:
    """Indices of all pairs with equal values."""
    pairs: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    for value in np.intersect1d(left, right):
        a, b = np.flatnonzero(left == value), np.flatnonzero(right == value)
        pairs.append((np.repeat(a, len(b)), np.tile(b, len(a))))
    if not pairs:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])
