"""Plans near a given one: its units on what is left of their meshes, in similar layouts.

A full search prices every layout on every mesh size. After a small change of the cluster a good
plan is nearly always near the old one: the same class of placement, degrees within a factor of two,
and meshes of the old sizes, or for broken ones of what is left of them, also rounded down to
multiples of 2, 4, ... nodes, which divide batches better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

import numpy as np

from planner.cost.arrays import IntArray, StrategyArrays, encode
from planner.cost.calls import call_costs
from planner.schema import Assignment, CallKind, CallSpace, Mesh, SearchSpace, Strategy
from planner.search.moves import STATE_FIELDS
from planner.search.options import UnitOptions, Variants, unit_options
from planner.search.problem import Unit
from planner.search.problems import scopes
from planner.search.scope import Scope
from planner.search.survivors import Survivors
from planner.simulate.copies import forward_calls, layout
from planner.simulate.fusions import with_fusions
from planner.simulate.instance import Instance
from planner.workload.units import CallUnit

_ROUNDED_TO = (1, 2, 4, 8, 16, 32)
_DEGREES = ("tp", "pp", "vpp", "cp", "ulysses", "ep", "etp")
_MOST_PLACES = 3_000
"""Combinations of places that are tried for the meshes of a plan."""


def mesh_counts(assignment: Assignment, survivors: Survivors) -> tuple[int, ...]:
    """Mesh sizes to consider, devices."""
    found: set[int] = set()
    for mesh in set(assignment.meshes.values()):
        group = next((g for g in survivors.new.groups if g.name == mesh.group), None)
        if group is None:
            # The whole group is gone: as many devices elsewhere, or all there are.
            found |= {min(mesh.devices, other.devices) for other in survivors.new.groups}
            continue
        if mesh.devices <= group.devices:
            found.add(mesh.devices)  # where it is, on spare nodes, or beside others
        lost = survivors.lost.get(mesh.group, ())
        gone = sum(mesh.first_node <= node < mesh.first_node + mesh.nodes for node in lost)
        # A mesh that lost nothing may give nodes to one that did.
        left = mesh.nodes - (gone or len(lost))
        steps = _ROUNDED_TO if gone else _ROUNDED_TO[:2]
        counts = {left // step * step for step in steps if left > 0} - {0}
        found |= {count * group.devices_per_node for count in counts}
    return tuple(sorted(found))


def near_scopes(
    instance: Instance, space: SearchSpace, assignment: Assignment, share: float
) -> list[Scope]:
    """The classes of plans that the assignment may belong to."""
    meshes = assignment.meshes
    together = len(set(meshes.values())) == 1
    wanted = "colocated" if together else "disaggregated"
    if "free" in space.placements:
        wanted = "free"
    fused = with_fusions(instance, assignment.fusions)
    copied = tuple(
        unit.name
        for unit in fused.units
        if forward_calls(fused, unit) and len({meshes[name] for name in unit.calls}) > 1
    )
    return [
        scope
        for scope in scopes(instance, space, share)
        if scope.placement == wanted
        and scope.staleness == assignment.staleness
        and scope.copied == copied
        and scope.fusions == assignment.fusions
    ]


def near_options(
    instance: Instance,
    scope: Scope,
    unit: CallUnit,
    old: Mapping[str, Strategy],
    counts: tuple[int, ...],
    factor: int,
) -> UnitOptions:
    """Options of a unit on meshes of some sizes, with degrees within `factor` of the old ones."""
    calls: dict[CallKind, CallSpace] = dict(scope.space.calls)
    for name in unit.calls:
        kind = instance.call(name).kind
        strategy = old[name]
        changes = {}
        for field in _DEGREES:
            value = getattr(strategy, field)
            near = tuple(
                v
                for v in getattr(calls[kind], field)
                if value <= v * factor and v <= value * factor
            )
            changes[field] = near or getattr(calls[kind], field)
        calls[kind] = calls[kind].model_copy(update=changes)
    space = scope.space.model_copy(update={"calls": calls})
    return unit_options(instance, replace(scope, space=space, only_devices=counts), unit)


def pinned(
    instance: Instance,
    scope: Scope,
    unit: CallUnit,
    old: Mapping[str, Strategy],
    mesh: Mesh,
    options: UnitOptions,
) -> UnitOptions:
    """The options that leave a unit's state where it is: on its mesh, in its layout.

    Knobs that move nothing (microbatches, say) may change. Where a better layout dominates all of
    them, the present strategies are the only option. A unit with copies in other layouts keeps all
    its options then: what it costs depends on more than its calls.
    """
    index = [group.name for group in instance.cluster.groups].index(mesh.group)
    rows = options.unit
    stays = (rows.group == index) & (rows.devices == mesh.devices)
    for name in unit.calls:
        for field in STATE_FIELDS:
            column = getattr(options.strategies[name], field)
            stays &= column == encode(field, getattr(old[name], field))
    if stays.any():
        return _taken(options, np.flatnonzero(stays))
    if len({layout(old[name]) for name in unit.calls}) > 1 or unit.calls[0] in instance.copies:
        return options
    return _only(instance, scope, unit, old, index, mesh.devices)


def within_remains(options: UnitOptions, mesh: Mesh, survivors: Survivors) -> UnitOptions:
    """The options that fit on what is left of a broken mesh, so that its neighbours can stay.

    All of them where none fits, or the mesh's whole group is gone.
    """
    if all(group.name != mesh.group for group in survivors.new.groups):
        return options
    index = [group.name for group in survivors.new.groups].index(mesh.group)
    lost = survivors.lost.get(mesh.group, ())
    left = mesh.nodes - sum(mesh.first_node <= n < mesh.first_node + mesh.nodes for n in lost)
    rows = options.unit
    fits = (rows.group == index) & (rows.devices <= left * mesh.devices_per_node)
    return _taken(options, np.flatnonzero(fits)) if fits.any() else options


def _taken(options: UnitOptions, rows: IntArray) -> UnitOptions:
    unit = options.unit
    changes = {
        name: getattr(unit, name)[rows]
        for name in ("group", "devices", "time_s", "resident_bytes", "peak_bytes")
    }
    host = unit.host_bytes_per_device[rows]
    return replace(
        options,
        unit=replace(unit, **changes, host_bytes_per_device=host),
        strategies={name: table.take(rows) for name, table in options.strategies.items()},
    )


def _only(
    instance: Instance,
    scope: Scope,
    unit: CallUnit,
    strategies: Mapping[str, Strategy],
    group: int,
    devices: int,
) -> UnitOptions:
    """A unit's present strategies as its only option."""
    arrays = {name: StrategyArrays.from_strategies([strategies[name]]) for name in unit.calls}
    costs = []
    for name in unit.calls:
        call = instance.call(name)
        context = instance.context(
            call,
            instance.cluster.groups[group],
            scope.staleness,
            beside_trainer=call.kind == "generate" and scope.beside_trainer,
        )
        costs.append(call_costs(context, arrays[name]))
    none: IntArray = np.zeros(0, dtype=np.int64)
    return UnitOptions(
        unit=Unit(
            name=unit.name,
            calls=unit.calls,
            group=np.array([group]),
            devices=np.array([devices]),
            time_s=np.stack([each.time_s for each in costs], axis=1),
            resident_bytes=np.max([each.resident_bytes for each in costs], axis=0),
            peak_bytes=np.stack([each.peak_bytes for each in costs], axis=1),
            host_bytes_per_device=np.max([each.host_bytes_per_device for each in costs], axis=0),
        ),
        strategies=arrays,
        costed=len(costs),
        variants=Variants(none, none, {}),
    )


def other_places(
    assignment: Assignment, old: Assignment, survivors: Survivors
) -> Iterator[Assignment]:
    """The same plan with its meshes elsewhere, such that the same meshes share devices.

    Meshes are tried where old ones survived, at the beginning and the end of the group, and next to
    each other. Which meshes share devices decides the schedule and the memory, so all places are
    worth the same.
    """
    meshes = sorted(set(assignment.meshes.values()), key=repr)
    homes = {name: survivors.mesh(mesh) for name, mesh in old.meshes.items()}
    anchors: dict[str, set[int]] = {}
    for mesh in [m for m in homes.values() if m] + meshes:
        ends = anchors.setdefault(mesh.group, {0})
        ends |= {mesh.first_node, mesh.first_node + mesh.nodes}
    far: list[list[Mesh]] = []
    near: list[list[Mesh]] = []
    for mesh in meshes:
        nodes = survivors.new.group(mesh.group).nodes
        starts = {mesh.first_node, nodes - mesh.nodes}
        for anchor in anchors.get(mesh.group, set()):
            starts |= {anchor, anchor - mesh.nodes}
        own = [homes.get(name) for name, at in assignment.meshes.items() if at == mesh]
        home = [
            m
            for m in own
            if m
            and (m.group, m.nodes, m.devices_per_node)
            == (mesh.group, mesh.nodes, mesh.devices_per_node)
        ]
        # A part of a node keeps its place inside the node, or goes home.
        elsewhere = [
            mesh.model_copy(update={"first_node": start})
            for start in sorted(starts)
            if 0 <= start <= nodes - mesh.nodes
        ]
        far.append(list(dict.fromkeys([*home, *elsewhere])))
        near.append(list(dict.fromkeys([*home, mesh])) if home else far[-1])
    # With many meshes, those that have a home go there or stay where the search put them.
    choices = next((each for each in (far, near) if _combinations(each) <= _MOST_PLACES), None)
    if choices is None:
        return
    pairs = [(i, j) for i in range(len(meshes)) for j in range(i)]
    shared = [meshes[i].overlaps(meshes[j]) for i, j in pairs]
    for places in product(*choices):
        if [places[i].overlaps(places[j]) for i, j in pairs] != shared:
            continue
        where = dict(zip(meshes, places, strict=True))
        yield assignment.model_copy(
            update={"meshes": {name: where[mesh] for name, mesh in assignment.meshes.items()}}
        )


def _combinations(choices: list[list[Mesh]]) -> int:
    return math.prod(len(each) for each in choices)
