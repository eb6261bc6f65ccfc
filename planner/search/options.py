"""Options of a unit: every legal strategy, priced, joined over the unit's calls, filtered."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import CallCosts, IntArray, StrategyArrays
from planner.cost.calls import call_costs
from planner.cost.distinct import distinct
from planner.schema import Call, NodeGroup
from planner.search.candidates import enumerate_candidates, forward_variants
from planner.search.copies import copy_rows, relaid_rows
from planner.search.joins import DEGREE_FIELDS, useful_pairs
from planner.search.legality import all_rules, equal_micro_batch_mask
from planner.search.pareto import pareto_mask
from planner.search.problem import Unit
from planner.search.rows import Rows, concatenate, merged, rows_of
from planner.search.scope import Scope
from planner.simulate.instance import Instance
from planner.workload.units import CallUnit

# Fields that may differ between the calls of one unit: everything else is the unit's layout.
PER_CALL_FIELDS = ("micro_batch_sequences", "recompute")
LAYOUT_FIELDS = tuple(
    field.name for field in fields(StrategyArrays) if field.name not in PER_CALL_FIELDS
)


@dataclass(frozen=True)
class UnitOptions:
    """The options of one unit with the strategies behind them."""

    unit: Unit
    strategies: dict[str, StrategyArrays]
    """Call -> strategies; row i belongs to option i."""
    costed: int
    """Strategies that were priced."""
    variants: Variants
    """The fastest strategy that fits of every layout, whether or not a faster or leaner layout
    dominates it: for people who compare layouts, not for the search."""


@dataclass(frozen=True)
class Variants:
    """One strategy for each node group, number of devices and set of degrees; fastest first."""

    group: IntArray
    devices: IntArray
    strategies: dict[str, StrategyArrays]


def unit_options(
    instance: Instance,
    scope: Scope,
    unit: CallUnit,
    check: Callable[[], None] | None = None,
) -> UnitOptions:
    """All Pareto options of a unit on all node groups of the cluster.

    `check` is called every now and then; what it raises ends the pricing.
    """
    check = check or _no_check
    calls = [instance.call(name) for name in unit.calls]
    parts: list[tuple[int, Rows, npt.NDArray[np.bool_]]] = []
    layouts: list[tuple[int, Rows, IntArray]] = []
    costed = 0
    for index, group in enumerate(instance.cluster.groups):
        check()
        rows = _group_rows(instance, scope, calls, group, check)
        costed += rows.costed
        if rows.costed == 0:
            continue
        usable = scope.capacity_bytes(group.device, instance.framework)
        peak = rows.peak_bytes.max(axis=1)
        runs = np.isfinite(rows.time_s).all(axis=1)
        fits = runs & (peak <= usable)
        if not fits.any():
            continue
        keep = np.zeros(len(peak), dtype=np.bool_)
        chosen = np.flatnonzero(fits)
        keep[
            chosen[
                pareto_mask(
                    rows.devices[chosen],
                    rows.time_s[chosen],
                    rows.resident_bytes[chosen],
                    rows.peak_bytes[chosen],
                    rows.host_bytes[chosen],
                    check=check,
                )
            ]
        ] = True
        parts.append((index, rows, keep))
        layouts.append((index, rows, _fastest_of_layout(rows, chosen)))
    return _assemble(unit, parts, costed, _variants(unit, layouts))


def _fastest_of_layout(rows: Rows, chosen: IntArray) -> IntArray:
    """Of the chosen rows the fastest of each set of degrees, fastest first."""
    order = chosen[np.argsort(rows.time_s[chosen].sum(axis=1), kind="stable")]
    lead = next(iter(rows.strategies.values())).take(order)
    first, _ = distinct(*(getattr(lead, name) for name in DEGREE_FIELDS))
    return order[np.sort(first)]


def _variants(unit: CallUnit, layouts: list[tuple[int, Rows, IntArray]]) -> Variants:
    strategies = {
        name: concatenate([rows.strategies[name].take(index) for _, rows, index in layouts])
        for name in unit.calls
    }
    return Variants(
        group=np.concatenate(
            [np.full(len(index), group, dtype=np.int64) for group, _, index in layouts]
            or [np.zeros(0, dtype=np.int64)]
        ),
        devices=strategies[unit.calls[0]].devices,
        strategies=strategies,
    )


def options_key(instance: Instance, scope: Scope, unit: CallUnit) -> Hashable:
    """Equal for classes of plans in which the unit has the same options.

    A trainer's are the same at every staleness as a rule.
    """
    staleness = scope.staleness if depends_on_staleness(instance, scope, unit) else None
    beside = scope.beside_trainer and unit.name in instance.engines
    limits = scope.memory_share, scope.few_sizes, scope.only_devices
    # A fused form may change a call's costs, or the call.
    fused = tuple((instance.call(name), instance.adjustments.get(name, ())) for name in unit.calls)
    return scope.space.name, unit, scope.placement, staleness, beside, fused, *limits


def depends_on_staleness(instance: Instance, scope: Scope, unit: CallUnit) -> bool:
    """True when the unit's options may differ between plans of different staleness."""
    kinds = {instance.call(name).kind for name in unit.calls}
    if "generate" in kinds:
        return True
    return any(
        "staleness" in rule.check.names for kind in kinds for rule in all_rules(scope.space, kind)
    )


def _assemble(
    unit: CallUnit,
    parts: list[tuple[int, Rows, npt.NDArray[np.bool_]]],
    costed: int,
    variants: Variants,
) -> UnitOptions:
    width = len(unit.calls)

    def stack(values: list[npt.NDArray[np.float64]], shape: tuple[int, ...]) -> npt.NDArray:  # type: ignore[type-arg]
        return np.concatenate(values) if values else np.zeros(shape)

    strategies = {
        name: concatenate([rows.strategies[name].take(keep) for _, rows, keep in parts])
        for name in unit.calls
    }
    devices = strategies[unit.calls[0]].devices
    return UnitOptions(
        unit=Unit(
            name=unit.name,
            calls=unit.calls,
            group=np.repeat(
                np.array([index for index, _, _ in parts], dtype=np.int64),
                [int(keep.sum()) for _, _, keep in parts],
            ),
            devices=devices,
            time_s=stack([rows.time_s[keep] for _, rows, keep in parts], (0, width)),
            resident_bytes=stack([rows.resident_bytes[keep] for _, rows, keep in parts], (0,)),
            peak_bytes=stack([rows.peak_bytes[keep] for _, rows, keep in parts], (0, width)),
            host_bytes_per_device=stack([rows.host_bytes[keep] for _, rows, keep in parts], (0,)),
        ),
        strategies=strategies,
        costed=costed,
        variants=variants,
    )


def _no_check() -> None:
    """Nothing ends the pricing."""


def _group_rows(
    instance: Instance,
    scope: Scope,
    calls: list[Call],
    group: NodeGroup,
    check: Callable[[], None],
) -> Rows:
    """Join the calls of a unit over equal layouts on one node group."""
    if calls[0].name in instance.copies:
        return copy_rows(instance, scope, calls, group, arriving=True)
    lead = next((call for call in calls if call.kind == "train"), calls[0])
    context = instance.context(
        lead,
        group,
        scope.staleness,
        beside_trainer=lead.kind == "generate" and scope.beside_trainer,
    )
    strategies = enumerate_candidates(
        lead,
        context.model,
        instance.workload,
        group,
        scope.space,
        scope.device_counts(group),
        trained=context.trained,
        cluster_devices=instance.cluster.devices,
        placement=scope.placement,
        staleness=scope.staleness,
    )
    check()
    costs = call_costs(context, strategies, check)
    others = [call for call in calls if call is not lead]
    if not others:
        return rows_of([lead], [strategies], [costs], calls, len(strategies))
    check()
    # What cannot run at all, or never fits, is not worth joining.
    usable = scope.capacity_bytes(group.device, instance.framework)
    runs = np.isfinite(costs.time_s)
    keep = runs & (costs.peak_bytes <= usable) if (costs.peak_bytes[runs] <= usable).any() else runs
    strategies, priced = strategies.take(keep), len(strategies)
    costs = _in_all(costs).take(keep)
    lead_rows, forward_rows, forward = _join(instance, scope, lead, others[0], group, strategies)
    other_costs = []
    for call in others:
        check()
        context = instance.context(call, group, scope.staleness)
        other_costs.append(_in_all(call_costs(context, forward, check)))
    check()
    useful = useful_pairs(strategies, costs, other_costs, lead_rows, forward_rows, usable, check)
    lead_rows, forward_rows = lead_rows[useful], forward_rows[useful]
    columns = [strategies.take(lead_rows), *(forward.take(forward_rows) for _ in others)]
    parts = [costs.take(lead_rows), *(each.take(forward_rows) for each in other_costs)]
    rows = rows_of([lead, *others], columns, parts, calls, priced + len(others) * len(forward))
    movable = [call for call in others if call.role == lead.role]
    movable = [call for call in movable if call.name not in instance.adjustments]
    if not scope.space.reallocation or movable != others or lead.kind != "train":
        return rows
    check()
    return merged(rows, relaid_rows(instance, scope, lead, strategies, costs, others, group))


def _in_all(costs: CallCosts) -> CallCosts:
    """The costs without their parts: nothing here reads them, and gathering them takes longest."""
    return replace(costs, time_parts_s={}, memory_parts_bytes={})


def _join(
    instance: Instance,
    scope: Scope,
    lead_call: Call,
    forward_call: Call,
    group: NodeGroup,
    lead: StrategyArrays,
) -> tuple[IntArray, IntArray, StrategyArrays]:
    """Pair every lead strategy with every forward strategy of the same layout.

    Returns (lead row of each pair, forward row of each pair, forward strategies).
    """
    first, layout = distinct(*(getattr(lead, name) for name in LAYOUT_FIELDS))
    forward, source = forward_variants(
        forward_call,
        instance.model(forward_call),
        instance.workload,
        group,
        scope.space,
        lead.take(first),
        cluster_devices=instance.cluster.devices,
        placement=scope.placement,
        staleness=scope.staleness,
    )
    order = np.argsort(source, kind="stable")
    counts = np.bincount(source, minlength=len(first))
    starts = np.cumsum(counts) - counts
    repeats = counts[layout]
    lead_rows = np.repeat(np.arange(len(lead)), repeats)
    within = np.arange(len(lead_rows)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    forward_rows = order[np.repeat(starts[layout], repeats) + within]
    equal = equal_micro_batch_mask(
        lead, lead_call, instance.model(lead_call), instance.workload, group, scope.space
    )
    legal = ~equal[lead_rows] | (
        lead.micro_batch_sequences[lead_rows] == forward.micro_batch_sequences[forward_rows]
    )
    return lead_rows[legal], forward_rows[legal], forward
