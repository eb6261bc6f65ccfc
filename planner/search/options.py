"""Options of a unit: every legal strategy, priced, joined over the unit's calls, filtered."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import CallCosts, IntArray, StrategyArrays
from planner.cost.calls import call_costs
from planner.cost.distinct import distinct
from planner.cost.memory import usable_bytes
from planner.cost.rule_values import Placement
from planner.schema import Call, DeviceProfile, FrameworkProfile, NodeGroup, SearchSpace
from planner.search.candidates import enumerate_candidates, forward_variants
from planner.search.legality import all_rules, equal_micro_batch_mask
from planner.search.pareto import pareto_mask
from planner.search.problem import Unit
from planner.simulate.instance import Instance
from planner.workload.units import CallUnit

# Fields that may differ between the calls of one unit: everything else is the unit's layout.
PER_CALL_FIELDS = ("micro_batch_sequences", "recompute")
LAYOUT_FIELDS = tuple(
    field.name for field in fields(StrategyArrays) if field.name not in PER_CALL_FIELDS
)


@dataclass(frozen=True)
class Scope:
    """The class of plans under consideration; launchers' rules may depend on it."""

    space: SearchSpace
    placement: Placement
    staleness: int
    memory_share: float = 1.0
    """Share of a device's usable memory that plans may fill."""
    few_sizes: bool = False
    """Only meshes of some fractions and a power of two of a node group: enough to see if
    something fits, at a fraction of the time."""

    def device_counts(self, group: NodeGroup) -> tuple[int, ...] | None:
        """Mesh sizes to consider; None for all that the space allows."""
        if not self.few_sizes:
            return None
        power = 1 << (group.nodes.bit_length() - 1)
        quarters = {quarter * group.nodes // 4 for quarter in (1, 2, 3, 4)}
        nodes = (quarters | {power, power // 2}) - {0}
        return tuple(sorted(count * group.devices_per_node for count in nodes))

    def capacity_bytes(self, device: DeviceProfile, framework: FrameworkProfile) -> float:
        """Bytes of a device that the models of a plan may fill together."""
        return self.memory_share * usable_bytes(device, framework)


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


@dataclass(frozen=True)
class _Rows:
    """Joined options on one node group, not yet filtered."""

    strategies: dict[str, StrategyArrays]
    time_s: npt.NDArray[np.float64]
    peak_bytes: npt.NDArray[np.float64]
    resident_bytes: npt.NDArray[np.float64]
    host_bytes: npt.NDArray[np.float64]
    costed: int

    @property
    def devices(self) -> IntArray:
        return next(iter(self.strategies.values())).devices


def unit_options(instance: Instance, scope: Scope, unit: CallUnit) -> UnitOptions:
    """All Pareto options of a unit on all node groups of the cluster."""
    calls = [instance.call(name) for name in unit.calls]
    parts: list[tuple[int, _Rows, npt.NDArray[np.bool_]]] = []
    layouts: list[tuple[int, _Rows, IntArray]] = []
    costed = 0
    for index, group in enumerate(instance.cluster.groups):
        rows = _group_rows(instance, scope, calls, group)
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
                )
            ]
        ] = True
        parts.append((index, rows, keep))
        layouts.append((index, rows, _fastest_of_layout(rows, chosen)))
    return _assemble(unit, parts, costed, _variants(unit, layouts))


DEGREE_FIELDS = (
    *("tp", "pp", "vpp", "cp", "ulysses", "ep", "etp", "dp", "zero_stage", "shard_ranks"),
    "pipeline_schedule",
)


def _fastest_of_layout(rows: _Rows, chosen: IntArray) -> IntArray:
    """Of the chosen rows the fastest of each set of degrees, fastest first."""
    order = chosen[np.argsort(rows.time_s[chosen].sum(axis=1), kind="stable")]
    lead = next(iter(rows.strategies.values())).take(order)
    first, _ = distinct(*(getattr(lead, name) for name in DEGREE_FIELDS))
    return order[np.sort(first)]


def _variants(unit: CallUnit, layouts: list[tuple[int, _Rows, IntArray]]) -> Variants:
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
    parts: list[tuple[int, _Rows, npt.NDArray[np.bool_]]],
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


def concatenate(parts: list[StrategyArrays]) -> StrategyArrays:
    """Rows of all parts one after another; no parts give no rows."""
    if not parts:
        return StrategyArrays.from_columns({}, 0)
    return StrategyArrays(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(StrategyArrays)
        }
    )


def _group_rows(instance: Instance, scope: Scope, calls: list[Call], group: NodeGroup) -> _Rows:
    """Join the calls of a unit over equal layouts on one node group."""
    lead = next((call for call in calls if call.kind == "train"), calls[0])
    context = instance.context(lead, group, scope.staleness)
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
    costs = call_costs(context, strategies)
    others = [call for call in calls if call is not lead]
    if not others:
        return _rows([lead], [strategies], [costs], calls, len(strategies))
    # What cannot run at all, or never fits, is not worth joining.
    usable = scope.capacity_bytes(group.device, instance.framework)
    runs = np.isfinite(costs.time_s)
    keep = runs & (costs.peak_bytes <= usable) if (costs.peak_bytes[runs] <= usable).any() else runs
    strategies, priced = strategies.take(keep), len(strategies)
    costs = costs.take(keep)
    lead_rows, forward_rows, forward = _join(instance, scope, lead, others[0], group, strategies)
    columns = [strategies.take(lead_rows)]
    parts = [costs.take(lead_rows)]
    for call in others:
        other = call_costs(instance.context(call, group, scope.staleness), forward)
        columns.append(forward.take(forward_rows))
        parts.append(other.take(forward_rows))
    return _rows([lead, *others], columns, parts, calls, priced + len(others) * len(forward))


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


def _rows(
    names: list[Call],
    strategies: list[StrategyArrays],
    costs: list[CallCosts],
    calls: list[Call],
    costed: int,
) -> _Rows:
    by_name = {
        call.name: (rows, cost) for call, rows, cost in zip(names, strategies, costs, strict=True)
    }
    ordered = [by_name[call.name] for call in calls]
    return _Rows(
        strategies={call.name: rows for call, (rows, _) in zip(calls, ordered, strict=True)},
        time_s=np.stack([cost.time_s for _, cost in ordered], axis=1),
        peak_bytes=np.stack([cost.peak_bytes for _, cost in ordered], axis=1),
        resident_bytes=np.max([cost.resident_bytes for _, cost in ordered], axis=0),
        host_bytes=np.max([cost.host_bytes_per_device for _, cost in ordered], axis=0),
        costed=costed,
    )
