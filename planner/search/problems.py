"""From priced options to the exact search's problem, one for each class of plans."""

from __future__ import annotations

from dataclasses import replace

from planner.cost.rule_values import Placement
from planner.schema import SearchSpace
from planner.search.options import UnitOptions
from planner.search.problem import PlacementProblem, Unit, WeightSync
from planner.search.scope import Scope
from planner.simulate.copies import copy_name, forward_calls
from planner.simulate.fusions import fusions_for, offered, with_fusions
from planner.simulate.instance import Instance
from planner.workload.units import ENGINE, TAIL, CallUnit, with_copies

Pairs = tuple[tuple[str, str], ...]


def scopes(instance: Instance, space: SearchSpace, memory_share: float) -> list[Scope]:
    """The classes of plans that the space offers, synchronous ones first.

    Without generation no sample can be stale, and there is nothing to disaggregate.
    """
    most = min(space.max_staleness, instance.workload.max_staleness)
    placements = space.placements
    if not instance.engines:
        most = 0
        if len(placements) > 1:
            placements = tuple(name for name in placements if name != "disaggregated")
    levels = [level for level in range(most + 1) if level <= 2 or level & (level - 1) == 0]
    if most not in levels:
        levels.append(most)
    found: list[Scope] = []
    for staleness in levels:
        for placement in placements:
            if staleness > 0 and placement == "colocated":
                continue  # samples cannot be generated while the same devices train
            apart = [False]
            if placement == "free" and staleness > 0:
                # An engine that flows cannot take turns with a trainer.
                apart = [True]
            elif placement == "free" and _residue_matters(instance):
                apart = [False, True]
            forms: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
            forms += [(copied, ()) for copied in _copied(instance, space, placement)]
            fusions = fusions_for(space.fusions, placement, staleness)
            forms += [((), names) for names in offered(instance, fusions)]
            found += [
                Scope(space, placement, staleness, memory_share, each, copied, names)
                for each in apart
                for copied, names in forms
            ]
    return found


def _copied(instance: Instance, space: SearchSpace, placement: Placement) -> list[tuple[str, ...]]:
    """Trainers whose forward passes leave their devices: none, or one of them.

    Copies on the trainer's own devices are options of its unit and need no class. Classes in which
    several trainers' passes leave cost ten times as long to solve, and gained nothing in trials.
    """
    if not space.reallocation or placement != "free":
        return [()]
    return [(), *((unit.name,) for unit in instance.units if forward_calls(instance, unit))]


def class_instance(instance: Instance, scope: Scope) -> Instance:
    """The instance with the calls and units that the class of plans has."""
    instance = with_fusions(instance, scope.fusions)
    copies = [
        CallUnit(copy_name(unit.name), forward_calls(instance, unit))
        for unit in instance.units
        if unit.name in scope.copied
    ]
    return replace(instance, units=with_copies(instance.units, copies)) if copies else instance


def _residue_matters(instance: Instance) -> bool:
    """Whether an engine has more room on devices that no trainer uses.

    Then engines apart from the trainers are a class of their own: in the other one the residue
    counts whether or not they share devices, which can only make its plans slower than they are.
    """
    residue = instance.engine.value("trainer_residue_bytes")
    return residue > 0 and bool(instance.engines) and bool(instance.trainers)


def placement_problem(
    instance: Instance, scope: Scope, options: dict[str, UnitOptions]
) -> PlacementProblem:
    """The exact search's problem for one class of plans."""
    return problem_of(instance, scope, {name: each.unit for name, each in options.items()})


def problem_of(instance: Instance, scope: Scope, units: dict[str, Unit]) -> PlacementProblem:
    """The problem with these options of each unit."""
    groups = instance.cluster.groups
    share, disjoint = _relations(instance, scope)
    return PlacementProblem(
        units=tuple(units[unit.name] for unit in instance.units),
        edges=instance.edges,
        host_calls_s=instance.host_calls_s,
        syncs=tuple(
            WeightSync(
                trainer=sync.trainer,
                engine=sync.receiver,
                after_call=sync.after_call,
                before_call=sync.before_call,
                shared_s=instance.sync_s(sync, shared=True),
                disjoint_s=instance.sync_s(sync, shared=False),
                same_iteration=sync.same_iteration,
            )
            for sync in instance.syncs
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


def _relations(instance: Instance, scope: Scope) -> tuple[Pairs, Pairs]:
    """Pairs of units that must share all devices, and that must share none."""
    names = [unit.name for unit in instance.units]
    engines = instance.engines
    # Engines of one rollout answer each other turn by turn, so none can sleep; the tail's follows.
    apart = {(first, second) for first in engines for second in engines if first < second}
    apart -= {(ENGINE, TAIL)}
    if scope.placement == "free":
        if not scope.engine_apart:
            return (), tuple(sorted(apart))
        flowing = [(engine, trainer) for engine in engines for trainer in instance.trainers]
        return (), (*flowing, *sorted(apart))
    own = [name for name in scope.space.own_devices.get(scope.placement, ()) if name in names]
    # A model that answers the policy in its turns is served beside it, never in its place.
    own += [name for name in engines if name != ENGINE and name not in own]
    together = [
        name
        for name in names
        if name not in own and (scope.placement == "colocated" or name not in engines)
    ]
    share = tuple((together[0], other) for other in together[1:])
    disjoint = apart | {
        tuple(sorted((name, other))) for name in own for other in names if other != name
    }
    if scope.placement == "disaggregated":
        disjoint |= {
            tuple(sorted((engine, other)))
            for engine in engines
            for other in names
            if other not in engines
        }
    return share, tuple(sorted((a, b) for a, b in disjoint))
