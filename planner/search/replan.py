"""`replan`: from an old plan to a good one on a changed cluster, moving no more than is asked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from planner.catalog.spaces import load_space
from planner.cost.memory import FITS_SHARE
from planner.errors import InfeasibleError, InputError
from planner.schema import (
    Assignment,
    CallPrediction,
    Cluster,
    Limits,
    Move,
    Plan,
    PlanSet,
    Prediction,
    Replan,
    SearchReport,
    SearchSpace,
)
from planner.search import api
from planner.search.hashes import input_hashes
from planner.search.moves import holders, move_of
from planner.search.neighbours import (
    mesh_counts,
    near_options,
    near_scopes,
    other_places,
    pinned,
    within_remains,
)
from planner.search.options import UnitOptions
from planner.search.placement import solve_placement
from planner.search.problems import class_instance, placement_problem
from planner.search.ranking import to_assignment, to_plan
from planner.search.survivors import Survivors, on_cluster, without_nodes
from planner.simulate.bounds import work_depth_bound_s
from planner.simulate.check import check_calls
from planner.simulate.copies import of_assignment
from planner.simulate.evaluate import evaluate, evaluate_instance
from planner.simulate.instance import Instance
from planner.simulate.prices import price_assignments
from planner.version import __version__

_FACTOR = 2
"""How far degrees may be from the old ones, in the search near the old plan."""
_NEAR_GAP = 0.02
"""Proof that is enough among the plans near the old one."""
_SOLUTIONS = 1


@dataclass(frozen=True)
class _Candidate:
    assignment: Assignment
    prediction: Prediction
    moves: tuple[Move, ...]

    @property
    def moved_bytes(self) -> int:
        return sum(move.bytes for move in self.moves)

    @property
    def order(self) -> tuple[int, int, float, str]:
        """Least state first, then fewest moves, then the shortest step."""
        key = self.assignment.model_dump_json()
        return self.moved_bytes, len(self.moves), self.prediction.step_time_s, key


def replan(
    old: PlanSet,
    cluster: Cluster | None = None,
    *,
    rank: int = 1,
    without: Mapping[str, Sequence[int]] | None = None,
    within: float = 0.0,
    thorough: bool = False,
    space: str | SearchSpace | None = None,
    gap: float = api.GAP,
    deadline_s: float | None = None,
    cancel: Callable[[], bool] | None = None,
) -> Replan:
    """A plan for the workload of `old` on a changed cluster, starting from its plan of rank `rank`.

    Give the new `cluster`, or `without`: node group -> numbers of its nodes that are gone. Of the
    plans found whose step takes at most 1 + `within` times the shortest, the one that moves the
    least state is returned (inf: the one that moves least of all); plans closer than `gap` count
    as equally fast, so a plan that nothing forces to move stays.

    Plans near the old one are searched, which takes a fraction of a second to a few; `thorough`
    searches the whole new cluster as well and proves a bound for it. Otherwise the bound is that of
    the old search, which holds for every plan whose meshes the old cluster offered (only clusters
    of more than 16 nodes offer others when they shrink), where the plan set's hashes say that its
    inputs were those of today; else the hardware's.

    Raises InputError for inputs that make no sense, InfeasibleError when nothing fits.
    """
    started = time.monotonic()
    if not within >= 0:
        raise InputError(f"within is {within:g}", where="within", remedy="Give a share from 0 on")
    api.check_options(1, deadline_s, gap)
    before = _pick(old, rank)
    _check_old(before, old)
    survivors = _survivors(old.cluster, cluster, without)
    name = before.assignment.space
    chosen = load_space(space or name) if not isinstance(space, SearchSpace) else space
    instance = api.instance_of(old.workload, survivors.new, chosen)
    trusted = _trusted_bound_s(old, chosen, survivors)
    found = _Found(instance, chosen, before, survivors)
    kept = _kept(before, survivors)
    if kept is not None:
        found.add([kept])
    # An old plan that survives and was proven best is best on any part of its cluster.
    settled = bool(found.candidates) and (
        math.isinf(within)
        or found.fastest_s <= (trusted or 0.0) * max(1 + within, (1 + 1e-6) / (1 - gap))
    )
    if not settled:
        for assignments in _near(instance, chosen, before, survivors):
            found.add(assignments)
    bound_s, source = trusted or 0.0, "old search" if trusted else "work and depth"
    if thorough or not found.candidates:
        answer = api.plan(
            old.workload,
            survivors.new,
            space=chosen,
            top=3,
            deadline_s=deadline_s,
            gap=gap,
            cancel=cancel,
        )
        found.add([plan.assignment for plan in answer.plans])
        bound_s, source = answer.search.bound_s, "new search"
    if not found.candidates:
        raise InfeasibleError("no plan fits on what is left of the cluster")
    best = found.choose(max(within, gap))
    hardware_s = work_depth_bound_s(instance, best.assignment.staleness)
    bound_s = max(bound_s, hardware_s)
    prediction = evaluate_instance(instance, best.assignment, bound_s=hardware_s)
    plan = to_plan(instance, chosen, best.assignment, prediction)
    report = _report(found, plan, bound_s, gap, time.monotonic() - started)
    return Replan(
        plans=_plan_set(old, survivors, instance, chosen, plan, report),
        moves=best.moves,
        moved_bytes=best.moved_bytes,
        move_s=sum(move.seconds for move in best.moves),
        old_step_time_s=before.step_time_s,
        least_step_time_s=found.fastest_s,
        lost_devices=survivors.lost_devices,
        bound_from=source,  # type: ignore[arg-type]
        wall_s=time.monotonic() - started,
    )


class _Found:
    """Plans met so far, each placed so that it moves least."""

    def __init__(self, instance: Instance, space: SearchSpace, old: Plan, survivors: Survivors):
        self.instance = instance
        self.space = space
        self.old = old
        self.survivors = survivors
        self.candidates: list[_Candidate] = []
        self.tried = 0
        self._before = holders(of_assignment(instance, old.assignment), old.calls)
        self._known: dict[Hashable, Move | None] = {}

    @property
    def fastest_s(self) -> float:
        """Shortest step of all."""
        return min((each.prediction.step_time_s for each in self.candidates), default=math.inf)

    def add(self, assignments: Sequence[Assignment]) -> None:
        """Evaluate assignments, and those of the same plan elsewhere that move less."""
        prices = price_assignments(self.instance, assignments)
        for assignment in assignments:
            prediction = evaluate_instance(self.instance, assignment, bound_s=0.0, prices=prices)
            self.tried += 1
            if not prediction.fits:
                continue
            best = _Candidate(assignment, prediction, self._moves(assignment, prediction.calls))
            self.candidates.append(best)
            if not best.moves:
                continue
            places = other_places(assignment, self.old.assignment, self.survivors)
            moved = [(self._moves(each, _at(prediction, each)), each) for each in places]
            if not moved:
                continue
            moves, least = min(moved, key=lambda pair: _cost(pair[0]))
            if _cost(moves) < _cost(best.moves):
                again = evaluate_instance(self.instance, least, bound_s=0.0, prices=prices)
                if again.fits:
                    self.candidates.append(
                        _Candidate(least, again, self._moves(least, again.calls))
                    )

    def choose(self, within: float) -> _Candidate:
        """The candidate that moves least of those that are fast enough."""
        limit_s = self.fastest_s * (1 + within)
        fast = [each for each in self.candidates if each.prediction.step_time_s <= limit_s]
        return min(fast, key=lambda each: each.order)

    def _moves(
        self, assignment: Assignment, calls: Mapping[str, CallPrediction]
    ) -> tuple[Move, ...]:
        own = of_assignment(self.instance, assignment)
        moves = (self._move(unit, names, calls) for unit, names in holders(own, calls).items())
        return tuple(move for move in moves if move is not None)

    def _move(
        self, unit: str, names: tuple[str, ...], calls: Mapping[str, CallPrediction]
    ) -> Move | None:
        call = calls[names[0]]
        key = unit, names, call.mesh, call.strategy
        if key not in self._known:
            # A model that was held by another unit (a fused form of its calls) comes from there.
            before = self._before.get(unit) or next(iter(self._before.values()))
            self._known[key] = move_of(unit, names, before[0], self.old, calls, self.survivors)
        return self._known[key]


def _cost(moves: Sequence[Move]) -> tuple[int, int]:
    return sum(move.bytes for move in moves), len(moves)


def _at(prediction: Prediction, assignment: Assignment) -> dict[str, CallPrediction]:
    """The calls on the meshes of another assignment (whose times are the same)."""
    return {
        name: call.model_copy(update={"mesh": assignment.meshes.get(name)})
        for name, call in prediction.calls.items()
    }


def _pick(old: PlanSet, rank: int) -> Plan:
    for plan in old.plans:
        if plan.rank == rank:
            return plan
    raise InputError(
        f"no plan of rank {rank}",
        where="rank",
        remedy=f"The plan set has ranks {[plan.rank for plan in old.plans]}",
    )


def _check_old(plan: Plan, old: PlanSet) -> None:
    """Refuse a plan that was edited into one that cannot run on the old cluster."""
    try:
        check_calls(plan, evaluate(plan, old.workload, old.cluster).calls)
    except InputError as error:
        where = f"plan of rank {plan.rank}: {error.where}"
        raise InputError(error.message, where=where, remedy=error.remedy) from None


def _survivors(
    old: Cluster, new: Cluster | None, without: Mapping[str, Sequence[int]] | None
) -> Survivors:
    if (new is None) == (without is None):
        raise InputError(
            "both are given" if without is not None else "neither is given",
            where="cluster, without",
            remedy="Give the new cluster, or the nodes that are gone",
        )
    if new is not None:
        return on_cluster(old, new)
    assert without is not None
    return without_nodes(old, without)


def _kept(old: Plan, survivors: Survivors) -> Assignment | None:
    """The old assignment in the new numbers, if no mesh lost a node."""
    meshes = {}
    for name, mesh in old.assignment.meshes.items():
        mapped = survivors.mesh(mesh)
        if mapped is None:
            return None
        meshes[name] = mapped
    return old.assignment.model_copy(update={"meshes": meshes})


def _trusted_bound_s(old: PlanSet, space: SearchSpace, survivors: Survivors) -> float | None:
    """The old search's bound if it speaks of the same inputs and of a cluster that contains the
    new one."""
    grown = {group.name for group in survivors.new.groups} - {g.name for g in old.cluster.groups}
    grown |= {
        group.name
        for group in survivors.new.groups
        if group.name not in grown and group.nodes > old.cluster.group(group.name).nodes
    }
    if grown or old.limits != Limits():
        return None
    same = input_hashes(api.instance_of(old.workload, old.cluster, space), space)
    known = old.planner_version == __version__ and old.input_hashes == same
    return old.search.bound_s if known else None


def _near(
    instance: Instance, space: SearchSpace, old: Plan, survivors: Survivors
) -> list[list[Assignment]]:
    """Plans near the old one: all units free, and with the units that survived as they are."""
    assignment = old.assignment
    counts = mesh_counts(assignment, survivors)
    found: list[list[Assignment]] = []
    for share in (FITS_SHARE, 1.0):
        for scope in near_scopes(instance, space, assignment, share):
            own = class_instance(instance, scope)
            options = {
                unit.name: near_options(own, scope, unit, assignment.strategies, counts, _FACTOR)
                for unit in own.units
            }
            tables: list[dict[str, UnitOptions]] = [options]
            kept = {
                unit.name: pinned(own, scope, unit, assignment.strategies, mesh, options[unit.name])
                for unit in own.units
                if (mesh := survivors.mesh(assignment.meshes[unit.calls[0]])) is not None
            }
            if kept:
                tables.append(options | kept)
                # The same in place: a broken mesh shrinks rather than pushing others aside.
                broken = {
                    unit.name: within_remains(
                        options[unit.name], assignment.meshes[unit.calls[0]], survivors
                    )
                    for unit in own.units
                    if unit.name not in kept
                }
                if broken:
                    tables.append(options | kept | broken)
            for table in tables:
                problem = placement_problem(own, scope, table)
                result = solve_placement(problem, top=_SOLUTIONS, gap=_NEAR_GAP)
                found.append([to_assignment(own, scope, table, each) for each in result.solutions])
        if any(found):
            break
    return found


def _report(found: _Found, plan: Plan, bound_s: float, gap: float, wall_s: float) -> SearchReport:
    bound_s = min(bound_s, plan.step_time_s)
    reached = 1.0 - bound_s / plan.step_time_s
    proven = reached <= gap * (1 + 1e-6)
    return SearchReport(
        optimal=proven,
        bound_s=bound_s,
        gap=reached,
        candidates=found.tried,
        pareto_candidates=len(found.candidates),
        wall_s=wall_s,
        status="proven" if proven else "near the old plan",
        objective_bound=bound_s,
        objective_gap=reached,
        sizes=(tuple(group.devices for group in found.survivors.new.groups),),
        sizes_searched=1,
        plans_asked=1,
    )


def _plan_set(
    old: PlanSet,
    survivors: Survivors,
    instance: Instance,
    space: SearchSpace,
    plan: Plan,
    report: SearchReport,
) -> PlanSet:
    ranked = plan.model_copy(
        update={"bound_s": report.bound_s, "objective_value": plan.step_time_s}
    )
    return PlanSet(
        planner_version=__version__,
        space=space.name,
        objective="step_time",
        plans=(ranked,),
        search=report,
        assumptions=old.assumptions,
        input_hashes=input_hashes(instance, space),
        workload=old.workload,
        cluster=survivors.new,
    )
