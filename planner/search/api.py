"""`plan`: the search from workload and cluster to ranked plans with a proof."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable

from planner.catalog.spaces import load_space
from planner.cost.memory import FITS_SHARE
from planner.errors import InputError, PlanningCancelledError
from planner.schema import (
    Cluster,
    Plan,
    PlanSet,
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
from planner.search.placement import solve_placement
from planner.search.problems import placement_problem, scopes
from planner.search.ranking import rank_plans
from planner.simulate.bounds import work_depth_bound_s
from planner.simulate.instance import Instance, make_instance
from planner.version import __version__
from planner.workload.units import CallUnit

OBJECTIVES = ("step_time",)
_CALIBRATED_RESPONSES = 2048
"""Most responses in a step of the published runs that the step overhead was read off."""
GAP = 0.005
"""A plan counts as proven best when the bound is this close, relative."""
_ALTERNATIVE_GAP = 0.03
"""The same for the best plan of a class (asynchronous, say) that another class beats."""
_SOLUTIONS_PER_PLAN = 2
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
        wanted = scopes(instance, chosen, memory_share)
        classes = _solve_classes(instance, wanted, top, started, deadline_s, gap, cancel)
        unsolved = [scope for scope in wanted if scope not in [each.scope for each in classes]]
        plans = rank_plans(instance, chosen, classes, top, gap)
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
        assumptions=_assumptions(instance, memory_share),
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

    # Asynchronous classes first: where they win, which is often, the others need a rough proof.
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
        late = deadline_s is not None and time.monotonic() - started > deadline_s
        if (cancel is not None and cancel()) or (late and best_s is not None):
            break
    return solved


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
    covered_s = min(
        *(each.result.bound_s for each in classes),
        *(work_depth_bound_s(instance, scope.staleness) for scope in unsolved),
        math.inf,
    )
    bound_s = min(best_s, max(covered_s, instance.pool_s + instance.fixed_s))
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


def _assumptions(instance: Instance, memory_share: float) -> tuple[str, ...]:
    lines = [*instance.workload.assumptions, *instance.cluster.assumptions]
    lines.append(
        f"plans fill at most {100 * memory_share:.0f} % of a device's usable memory"
        + (": none leaves the usual margin" if memory_share == 1.0 else "; the bound is for these")
    )
    for group in instance.cluster.groups:
        if not group.device.kernel_table_is_own:
            lines.append(
                f"kernel efficiencies of {group.device.id} are carried over from "
                f"{group.device.kernel_table}: wider interval"
            )
    per_response_ms = 1e3 * instance.framework.value("step_per_sequence_s")
    overhead = (
        f"step overhead of {instance.fixed_s:.1f} s (data, batching, logging): "
        f"{instance.framework.value('step_fixed_s'):.1f} s and {per_response_ms:.1f} ms for each "
        "response"
    )
    if instance.workload.sequences_per_step > _CALIBRATED_RESPONSES:
        overhead += f"; extrapolated, calibrated on up to {_CALIBRATED_RESPONSES:,} responses"
    lines.append(overhead)
    for profile in (instance.framework, instance.engine):
        lines.append(f"{profile.name}: {profile.description}")
    return tuple(dict.fromkeys(lines))
