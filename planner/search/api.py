"""`plan`: the search from workload and cluster to ranked plans with a proof."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator

import numpy as np

from planner.catalog.spaces import load_space
from planner.cost.memory import FITS_SHARE
from planner.errors import InputError, PlanningCancelledError
from planner.schema import (
    Assignment,
    Cluster,
    Mesh,
    Plan,
    PlanSet,
    Prediction,
    SearchReport,
    SearchSpace,
    Workload,
)
from planner.search.hashes import input_hashes
from planner.search.infeasible import Attempt, explain_infeasible
from planner.search.options import (
    Scope,
    UnitOptions,
    depends_on_staleness,
    unit_options,
)
from planner.search.placement import PlacementSolution, solve_placement
from planner.search.problems import placement_problem, scopes
from planner.search.words import placement_words
from planner.simulate.bounds import work_depth_bound_s
from planner.simulate.evaluate import evaluate_instance, used_devices
from planner.simulate.instance import Instance, make_instance
from planner.version import __version__
from planner.workload.units import CallUnit

OBJECTIVES = ("step_time",)
TIE_ERROR_SHARE = 0.5
"""Plans of one workload and framework share most of the model's error: they count as ties within
this share of its relative error."""
GAP = 0.005
"""A plan counts as proven best when the bound is this close, relative."""
_ALTERNATIVE_GAP = 0.03
"""The same for the best plan of a class (asynchronous, say) that another class beats."""
_SIMPLER_WITHIN = 0.002
"""Of plans this close, relative, the one with the fewest kinds of parallelism comes first."""
_VARIANTS_OF_UNIT = 8
"""Other layouts of each unit that are tried around the best plan of a class."""
_SOLUTIONS_PER_PLAN = 4
"""Solutions asked for each plan shown, since many differ in a knob only."""


def plan(
    workload: Workload,
    cluster: Cluster,
    *,
    space: str | SearchSpace = "any",
    objective: str = "step_time",
    top: int = 5,
    deadline_s: float | None = None,
    gap: float = GAP,
    cancel: Callable[[], bool] | None = None,
) -> PlanSet:
    """The best plans for `workload` on `cluster`, ranked, with a proven bound.

    Parameters: `space` is a search space, its name or file; `top` the number of distinct plans;
    `deadline_s` the seconds after which the best plans so far are returned with the bound reached;
    `gap` the relative distance to the bound that counts as proven; `cancel` is polled and ends
    the search early when it returns True.

    The answer is deterministic when the search ends before the deadline. Thread-safe.

    Raises InputError for inputs that make no sense, InfeasibleError when nothing fits, and
    PlanningCancelledError when cancelled before any plan was found.
    """
    started = time.monotonic()
    _check(objective, top, deadline_s, gap)
    chosen = load_space(space) if isinstance(space, str) else space
    instance = make_instance(
        workload,
        cluster,
        framework=chosen.framework,
        engine=chosen.engine,
        reference_shares_actor_layout=chosen.reference_shares_actor_layout,
    )
    plans: list[Plan] = []
    # Plans that leave a margin of memory come first; tight ones only where there is no other.
    for memory_share in (FITS_SHARE, 1.0):
        wanted = scopes(chosen, workload, memory_share)
        classes = _solve_classes(instance, wanted, top, started, deadline_s, gap, cancel)
        unsolved = [scope for scope in wanted if scope not in [each.scope for each in classes]]
        plans = _rank(instance, chosen, classes, top, gap)
        if plans or any(each.result.status == "cancelled" for each in classes):
            break
    if not plans:
        if any(each.result.status == "cancelled" for each in classes):
            raise PlanningCancelledError("cancelled before any plan was found")
        raise explain_infeasible(instance, classes)
    report = _report(instance, classes, unsolved, plans, gap, time.monotonic() - started)
    return PlanSet(
        planner_version=__version__,
        workload=workload,
        cluster=cluster,
        space=chosen.name,
        objective=objective,
        plans=tuple(each.model_copy(update={"bound_s": report.bound_s}) for each in plans),
        search=report,
        assumptions=_assumptions(instance),
        input_hashes=input_hashes(instance, chosen),
    )


def _check(objective: str, top: int, deadline_s: float | None, gap: float) -> None:
    if objective not in OBJECTIVES:
        raise InputError(
            f"unknown objective {objective!r}",
            where="objective",
            remedy=f"Known: {', '.join(OBJECTIVES)}",
        )
    if top < 1:
        raise InputError(f"top is {top}", where="top", remedy="Ask for one plan or more")
    if deadline_s is not None and not (0 < deadline_s < math.inf):
        raise InputError(
            f"deadline is {deadline_s:g} s", where="deadline_s", remedy="Give seconds above zero"
        )
    if not 0 <= gap < 1:
        raise InputError(f"gap is {gap:g}", where="gap", remedy="Give a fraction from 0 to 1")


def _solve_classes(
    instance: Instance,
    wanted: list[Scope],
    top: int,
    started: float,
    deadline_s: float | None,
    gap: float,
    cancel: Callable[[], bool] | None,
) -> list[Attempt]:
    solved: list[Attempt] = []
    best_s: float | None = None
    known: dict[Hashable, UnitOptions] = {}

    def priced(scope: Scope, unit: CallUnit) -> UnitOptions:
        """A unit's options; those of a trainer are the same at every staleness as a rule."""
        matters = depends_on_staleness(instance, scope, unit)
        key = (unit.name, scope.placement, scope.staleness if matters else None)
        if key not in known:
            known[key] = unit_options(instance, scope, unit)
        return known[key]

    # Asynchronous classes first: where they win, which is often, they cut the others short.
    ordered = sorted(wanted, key=lambda scope: -scope.staleness)
    for index, scope in enumerate(ordered):
        options = {unit.name: priced(scope, unit) for unit in instance.units}
        left = None
        if deadline_s is not None:
            remaining = deadline_s - (time.monotonic() - started)
            left = max(0.01, remaining / (len(ordered) - index))
        # A class that cannot hold the best plan is still shown: its own best, roughly proven.
        rough = gap if best_s is None else max(gap, _ALTERNATIVE_GAP)
        problem = placement_problem(instance, scope, options)
        wanted_plans = _SOLUTIONS_PER_PLAN * top
        result = solve_placement(
            problem, top=wanted_plans, deadline_s=left, gap=rough, cancel=cancel
        )
        if best_s is not None and result.bound_s < best_s * (1 - gap):
            result = solve_placement(
                problem, top=wanted_plans, deadline_s=left, gap=gap, cancel=cancel
            )
        solved.append(Attempt(scope, options, result))
        if result.solutions:
            best_s = min(best_s or math.inf, result.solutions[0].step_time_s)
        if cancel is not None and cancel():
            break
    return solved


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


def _rank(
    instance: Instance, space: SearchSpace, classes: list[Attempt], top: int, gap: float
) -> list[Plan]:
    found: dict[str, tuple[tuple[float, str], Plan]] = {}
    for each in classes:
        solved = [
            to_assignment(instance, each.scope, each.options, solution)
            for solution in each.result.solutions
        ]
        variants = _with_variants(instance, each, solved[0]) if solved else iter(())
        for assignment in (*solved, *variants):
            prediction = evaluate_instance(instance, assignment)
            if assignment not in solved and not _leaves_margin(prediction):
                continue
            ranked = Plan(
                **{name: getattr(prediction, name) for name in type(prediction).model_fields},
                rank=1,
                tie_with_best=True,
                placement=placement_words(instance, assignment),
                assignment=assignment,
                devices=used_devices(assignment),
                bound_s=0.0,
                launchers=(space.launcher,) if space.launcher else (),
            )
            key = assignment.model_dump_json()
            found.setdefault(key, ((prediction.step_time_s, key), ranked))
    ordered = [item for _, item in sorted(found.values(), key=lambda pair: pair[0])]
    if not ordered:
        return []
    simplest = _simplest_first(ordered, min(each.result.bound_s for each in classes), gap)
    best_s = simplest[0].step_time_s
    tie_s = best_s * math.exp(TIE_ERROR_SHARE * instance.framework.relative_error)
    return [
        each.model_copy(update={"rank": index + 1, "tie_with_best": each.step_time_s <= tie_s})
        for index, each in enumerate(_distinct(simplest, top))
    ]


def _leaves_margin(prediction: Prediction) -> bool:
    return all(call.memory_verdict == "fits" for call in prediction.calls.values())


def _simplest_first(ordered: list[Plan], bound_s: float, gap: float) -> list[Plan]:
    """The order by time, but the simplest of the plans that nearly tie with the best leads.

    Its time must still be proven within the gap if the best one's is.
    """
    best_s = ordered[0].step_time_s
    limit_s = best_s * (1 + _SIMPLER_WITHIN)
    if bound_s >= best_s * (1 - gap):
        limit_s = min(limit_s, bound_s / (1 - gap))
    near = [each for each in ordered if each.step_time_s <= max(limit_s, best_s)]
    leader = min(near, key=lambda each: (_complexity(each), each.step_time_s))
    return [leader, *(each for each in ordered if each is not leader)]


def _complexity(plan: Plan) -> int:
    """How many kinds of parallelism and offloading the plan's calls use together."""
    return sum(
        (s.tp > 1)
        + (s.pp > 1)
        + (s.vpp > 1)
        + (s.cp > 1)
        + (s.first_stage_layers > 0)
        + (s.offload != "none")
        + s.optimizer_on_cpu
        for s in plan.assignment.strategies.values()
    )


def _distinct(ordered: list[Plan], top: int) -> list[Plan]:
    """The best plans that differ in more than a knob: first in the devices of the engine and the
    trainers, in what overlaps or in staleness, then, if there are too few, in parallel degrees.

    Plans slower than the leader only, in time order; fewer than `top` when all others look alike.
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
    return [leader, *sorted(others, key=lambda each: each.step_time_s)]


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


def _report(
    instance: Instance,
    classes: list[Attempt],
    unsolved: list[Scope],
    plans: list[Plan],
    gap: float,
    wall_s: float,
) -> SearchReport:
    best_s = plans[0].step_time_s
    # The classes cover the space together: what none of them can beat, no plan beats.
    bound_s = min(
        best_s,
        *(each.result.bound_s for each in classes),
        *(work_depth_bound_s(instance, scope.staleness) for scope in unsolved),
    )
    reached = max(0.0, 1.0 - bound_s / best_s)
    # Classes share the options of units that do not depend on the class.
    priced = {id(unit): unit for each in classes for unit in each.options.values()}.values()
    # The bound of a class may be exactly this far from the best plan of another.
    proven = reached <= gap * (1 + 1e-6)
    return SearchReport(
        optimal=proven,
        bound_s=bound_s,
        gap=reached,
        candidates=sum(unit.costed for unit in priced),
        pareto_candidates=sum(len(unit.unit.devices) for unit in priced),
        wall_s=wall_s,
        status="proven" if proven else "stopped before the proof closed",
    )


def _assumptions(instance: Instance) -> tuple[str, ...]:
    lines = [*instance.workload.assumptions, *instance.cluster.assumptions]
    for group in instance.cluster.groups:
        if not group.device.kernel_table_is_own:
            lines.append(
                f"kernel efficiencies of {group.device.id} are carried over from "
                f"{group.device.kernel_table}: wider interval"
            )
    lines.append(
        f"step overhead of {instance.fixed_s:.1f} s (data, batching, logging): "
        f"{instance.framework.value('step_fixed_s'):.1f} s and "
        f"{1e3 * instance.framework.value('step_per_sequence_s'):.1f} ms for each response"
    )
    for profile in (instance.framework, instance.engine):
        lines.append(f"{profile.name}: {profile.description}")
    return tuple(dict.fromkeys(lines))
