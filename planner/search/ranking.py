"""From solutions of the exact search to ranked, distinct plans."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator

import numpy as np

from planner.schema import Assignment, Mesh, Plan, Prediction, SearchSpace
from planner.search.infeasible import Attempt
from planner.search.objectives import Goal
from planner.search.options import UnitOptions
from planner.search.placement import PlacementSolution
from planner.search.scope import Scope
from planner.search.words import placement_words
from planner.simulate.bounds import work_depth_bound_s
from planner.simulate.copies import of_assignment
from planner.simulate.evaluate import evaluate_instance, used_devices
from planner.simulate.instance import Instance
from planner.simulate.prices import price_assignments

TIE_ERROR_SHARE = 0.5
"""Plans of one workload and framework share most of the model's error: they count as ties within
this share of its relative error."""
_VARIANTS_OF_UNIT = 8
"""Other layouts of each unit that are tried around the best plan of a class."""
_ROUNDING = 1e-9
_SIMPLER_WITHIN = 0.004
"""Of plans this close, relative, the one with the fewest kinds of parallelism comes first."""


def _with_variants(instance: Instance, each: Attempt, best: Assignment) -> Iterator[Assignment]:
    """The class's best plan with one unit in another layout on the same devices."""
    for unit in instance.units:
        variants = each.options[unit.name].variants
        mesh = best.meshes[unit.calls[0]]
        group = [one.name for one in instance.cluster.groups].index(mesh.group)
        rows = np.flatnonzero((variants.group == group) & (variants.devices == mesh.devices))
        for row in rows[:_VARIANTS_OF_UNIT]:
            changed = {name: variants.strategies[name].strategy(int(row)) for name in unit.calls}
            yield best.model_copy(update={"strategies": best.strategies | changed})


def rank_plans(
    instance: Instance,
    space: SearchSpace,
    classes: list[Attempt],
    goal: Goal,
    bound: float,
    top: int,
    gap: float,
    *,
    variants: bool = True,
) -> list[Plan]:
    """Price, sort and choose: the best first, at most `top`, none alike, all within the limits.

    `bound` is what is proven of the goal's score. With `variants` the best plan of each class is
    also tried with each unit in other layouts.
    """
    found: dict[str, tuple[tuple[float, str], Plan]] = {}
    for each in classes:
        if not each.result.solutions:
            continue
        bound_s = work_depth_bound_s(each.instance, each.scope.staleness)
        solved = [
            to_assignment(each.instance, each.scope, each.options, solution)
            for solution in each.result.solutions
        ]
        others = _with_variants(each.instance, each, solved[0]) if variants else ()
        assignments = (*solved, *others)
        prices = price_assignments(instance, assignments)
        for assignment in assignments:
            prediction = evaluate_instance(instance, assignment, bound_s=bound_s, prices=prices)
            if assignment not in solved and not _leaves_margin(prediction):
                continue
            ranked = to_plan(instance, space, assignment, prediction)
            if not goal.allows(ranked):
                continue
            key = assignment.model_dump_json()
            found.setdefault(key, ((goal.score(ranked), key), ranked))
    ordered = [item for _, item in sorted(found.values(), key=lambda pair: pair[0])]
    if not ordered:
        return []
    simplest = _simplest_first(ordered, goal, bound, gap)
    best = goal.score(simplest[0])
    tie = best * math.exp(TIE_ERROR_SHARE * instance.framework.relative_error)
    return [
        each.model_copy(
            update={
                "rank": index + 1,
                "tie_with_best": goal.score(each) <= tie,
                "objective_value": goal.value(goal.score(each)),
            }
        )
        for index, each in enumerate(_distinct(simplest, goal, top))
    ]


def to_plan(
    instance: Instance, space: SearchSpace, assignment: Assignment, prediction: Prediction
) -> Plan:
    """A plan of rank 1 from an assignment and its prediction."""
    return Plan(
        **{name: getattr(prediction, name) for name in type(prediction).model_fields},
        rank=1,
        tie_with_best=True,
        placement=placement_words(of_assignment(instance, assignment), assignment),
        assignment=assignment,
        devices=used_devices(assignment),
        bound_s=0.0,
        launchers=(space.launcher,) if space.launcher else (),
    )


def _leaves_margin(prediction: Prediction) -> bool:
    return all(call.memory_verdict == "fits" for call in prediction.calls.values())


def _simplest_first(ordered: list[Plan], goal: Goal, bound: float, gap: float) -> list[Plan]:
    """The order by score, but the simplest of the plans that nearly tie with the best leads.

    Its score must still be proven within the gap if the best one's is.
    """
    best = goal.score(ordered[0])
    limit = best * (1 + _SIMPLER_WITHIN)
    # The bound may be exactly this far from the best, and rounding must not undo the proof.
    if bound >= best * (1 - gap) * (1 - _ROUNDING):
        limit = min(limit, bound / (1 - gap))
    near = [each for each in ordered if goal.score(each) <= max(limit, best)]
    leader = min(near, key=lambda each: (_complexity(each), goal.score(each)))
    return [leader, *(each for each in ordered if each is not leader)]


def _complexity(plan: Plan) -> int:
    """How many kinds of parallelism and offloading the plan's calls use together."""
    return sum(
        (s.tp > 1)
        + (s.pp > 1)
        + (s.vpp > 1)
        + (s.cp > 1)
        + (1 < s.ulysses < s.cp)
        + (s.shard_ranks > 0)
        + (s.pipeline_schedule != "1f1b")
        + (s.first_stage_layers > 0)
        + (s.offload != "none")
        + s.optimizer_on_cpu
        for s in plan.assignment.strategies.values()
    )


def _distinct(ordered: list[Plan], goal: Goal, top: int) -> list[Plan]:
    """The best plans that differ in more than a knob: first in the devices of the engine and the
    trainers, in what overlaps or in staleness, then, if there are too few, in parallel degrees.

    In the order of the score after the leader; fewer than `top` when all others look alike.
    """
    chosen: list[int] = []
    for signature in (_structure, _degrees):
        seen = {signature(ordered[index]) for index in chosen}
        for index, each in enumerate(ordered):
            if len(chosen) == top:
                break
            if index not in chosen and signature(each) not in seen:
                seen.add(signature(each))
                chosen.append(index)
    leader, *others = (ordered[index] for index in sorted(chosen))
    return [leader, *sorted(others, key=goal.score)]


def _structure(plan: Plan) -> Hashable:
    meshes = plan.assignment.meshes
    working = {
        call.role if call.kind == "train" else "engine"
        for call in plan.calls.values()
        if call.kind in ("train", "generate")
    }
    sizes = tuple(
        (name, mesh.group, mesh.devices)
        for name, mesh in sorted(meshes.items())
        if plan.calls[name].kind == "generate" or plan.calls[name].role in working
    )
    shared = tuple(
        (a, b) for a in sorted(meshes) for b in sorted(meshes) if meshes[a].overlaps(meshes[b])
    )
    return plan.staleness, sizes, shared


def _degrees(plan: Plan) -> Hashable:
    return _structure(plan), tuple(
        (name, s.tp, s.pp, s.vpp, s.cp, s.ep, s.etp, s.zero_stage)
        for name, s in sorted(plan.assignment.strategies.items())
        if plan.calls[name].kind in ("train", "generate")
    )


def to_assignment(
    instance: Instance,
    scope: Scope,
    options: dict[str, UnitOptions],
    solution: PlacementSolution,
) -> Assignment:
    """Meshes and strategies of a solution."""
    meshes: dict[str, Mesh] = {}
    strategies = {}
    for unit in instance.units:
        row = solution.options[unit.name]
        chosen = options[unit.name]
        group = instance.cluster.groups[int(chosen.unit.group[row])]
        mesh = mesh_at(
            group.name,
            solution.first_device[unit.name],
            int(chosen.unit.devices[row]),
            group.devices_per_node,
        )
        for name in unit.calls:
            meshes[name] = mesh
            strategies[name] = chosen.strategies[name].strategy(row)
    return Assignment(
        meshes=meshes,
        strategies=strategies,
        staleness=scope.staleness,
        fusions=scope.fusions,
        framework=scope.space.framework,
        engine=scope.space.engine,
        space=scope.space.name,
    )


def mesh_at(group: str, first_device: int, devices: int, devices_per_node: int) -> Mesh:
    """The mesh of a contiguous range of devices of a group."""
    first_node, inside = divmod(first_device, devices_per_node)
    if devices < devices_per_node:
        return Mesh(
            group=group,
            first_node=first_node,
            nodes=1,
            first_device=inside,
            devices_per_node=devices,
        )
    return Mesh(
        group=group,
        first_node=first_node,
        nodes=devices // devices_per_node,
        devices_per_node=devices_per_node,
    )
