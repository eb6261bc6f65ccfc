"""From priced options to the exact search's problem, one for each class of plans."""

from __future__ import annotations

from planner.schema import SearchSpace, Workload
from planner.search.options import Scope, UnitOptions
from planner.search.problem import PlacementProblem, WeightSync
from planner.simulate.instance import SYNC_AFTER, SYNC_BEFORE, Instance

Pairs = tuple[tuple[str, str], ...]


def scopes(space: SearchSpace, workload: Workload, memory_share: float) -> list[Scope]:
    """The classes of plans that the space offers, synchronous ones first."""
    most = min(space.max_staleness, workload.max_staleness)
    levels = [level for level in range(most + 1) if level <= 2 or level & (level - 1) == 0]
    if most not in levels:
        levels.append(most)
    found: list[Scope] = []
    for staleness in levels:
        for placement in space.placements:
            if staleness > 0 and placement == "colocated":
                continue  # samples cannot be generated while the same devices train
            found.append(Scope(space, placement, staleness, memory_share))
    return found


def placement_problem(
    instance: Instance, scope: Scope, options: dict[str, UnitOptions]
) -> PlacementProblem:
    """The exact search's problem for one class of plans."""
    groups = instance.cluster.groups
    share, disjoint = _relations(instance, scope)
    return PlacementProblem(
        units=tuple(options[unit.name].unit for unit in instance.units),
        edges=instance.edges,
        host_calls_s=instance.host_calls_s,
        syncs=(
            WeightSync(
                trainer=_unit_name(instance, SYNC_AFTER),
                engine=_unit_name(instance, SYNC_BEFORE),
                after_call=SYNC_AFTER,
                before_call=SYNC_BEFORE,
                shared_s=instance.sync_s(shared=True),
                disjoint_s=instance.sync_s(shared=False),
            ),
        ),
        group_devices=tuple(group.devices for group in groups),
        group_devices_per_node=tuple(group.devices_per_node for group in groups),
        group_memory_bytes=tuple(
            scope.capacity_bytes(group.device, instance.framework) for group in groups
        ),
        group_host_memory_bytes=tuple(float(group.host_memory_bytes) for group in groups),
        fixed_s=instance.fixed_s,
        staleness=scope.staleness,
        must_share=share,
        must_be_disjoint=disjoint,
    )


def _unit_name(instance: Instance, call: str) -> str:
    unit = instance.unit_of(call)
    assert unit is not None, f"{call} runs on no device"
    return unit.name


def _relations(instance: Instance, scope: Scope) -> tuple[Pairs, Pairs]:
    """Pairs of units that must share all devices, and that must share none."""
    names = [unit.name for unit in instance.units]
    engine = _unit_name(instance, SYNC_BEFORE)
    if scope.placement == "free":
        if scope.staleness == 0:
            return (), ()
        return (), ((engine, _unit_name(instance, SYNC_AFTER)),)
    own = [name for name in scope.space.own_devices.get(scope.placement, ()) if name in names]
    together = [
        name
        for name in names
        if name not in own and (scope.placement == "colocated" or name != engine)
    ]
    share = tuple((together[0], other) for other in together[1:])
    apart = [*own, *([engine] if scope.placement == "disaggregated" else [])]
    disjoint = {tuple(sorted((name, other))) for name in apart for other in names if other != name}
    return share, tuple(sorted((a, b) for a, b in disjoint))
