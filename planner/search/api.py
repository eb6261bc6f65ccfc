"""`plan`: the search from workload and cluster to ranked plans with a proof."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from planner.catalog.spaces import load_space
from planner.cost.memory import FITS_SHARE
from planner.errors import InfeasibleError, InputError, PlanningCancelledError
from planner.schema import (
    Cluster,
    Limits,
    Plan,
    PlanSet,
    SearchReport,
    SearchSpace,
    Workload,
)
from planner.search.best import Outcome, find_best
from planner.search.classes import SizeSearch
from planner.search.hashes import input_hashes
from planner.search.infeasible import Attempt, explain_infeasible
from planner.search.limits import explain_limits
from planner.search.objectives import Goal
from planner.search.placement.clock import Clock
from planner.search.problems import scopes
from planner.search.ranking import rank_plans
from planner.search.sizes import Size, contains, usual_sizes, whole
from planner.simulate.instance import Instance, make_instance
from planner.version import __version__
from planner.workload.describe import workload_notes

_CALIBRATED_RESPONSES = 2048
"""Most responses in a step of the published runs that the step overhead was read off."""
GAP = 0.005
"""A plan counts as proven best when the bound is this close, relative."""
_RANKING_S = 0.25
"""Seconds of a deadline that are left for ranking the plans found and checking them."""
_SOLUTIONS_PER_PLAN = 2
"""Solutions asked for each plan shown, since many differ in a knob only."""


def plan(
    workload: Workload,
    cluster: Cluster,
    *,
    space: str | SearchSpace = "any",
    objective: str = "step_time",
    limits: Limits | None = None,
    tokens: float | None = None,
    top: int = 5,
    deadline_s: float | None = None,
    gap: float = GAP,
    cancel: Callable[[], bool] | None = None,
) -> PlanSet:
    """The best plans for `workload` on `cluster`, ranked, with a proven bound.

    Parameters: `space` is a search space, its name or file; `objective` one of
    `planner.search.objectives.OBJECTIVES`; `limits` what every plan must stay within; `tokens` the
    budget of prompt and response tokens of the objectives and limits that count to one; `top` the
    number of distinct plans; `deadline_s` the seconds after which the best plans so far are
    returned with the bound reached; `gap` the relative distance to the bound that counts as proven;
    `cancel` is polled and ends the search early when it returns True.

    Under limits, and for objectives other than time, sub-clusters of the usual sizes are searched;
    the objective's bound is for plans that reserve one of these numbers of devices
    (`SearchReport.sizes`).

    The answer is deterministic when the search ends before the deadline. Thread-safe.

    Raises InputError for inputs that make no sense, InfeasibleError when nothing fits or stays
    within the limits, and PlanningCancelledError when cancelled before any plan was found.
    """
    started = time.monotonic()
    check_options(top, deadline_s, gap)
    limits = limits or Limits()
    goal = Goal(objective, limits, tokens, workload, cluster)
    chosen = load_space(space) if isinstance(space, str) else space
    instance = instance_of(workload, cluster, chosen)
    sizes = _sizes(goal, cluster, chosen)
    if not sizes:
        raise InfeasibleError(
            f"no plan stays within the limits: {limits.devices} devices hold no mesh of the space "
            f"{chosen.name} on {cluster.name}. Raise the limit on devices."
        )
    limit_s = deadline_s
    if limit_s is not None:
        limit_s = max(limit_s / 2, limit_s - (time.monotonic() - started) - _RANKING_S)
    clock = Clock(limit_s, cancel)
    plans: list[Plan] = []
    # Plans that leave a margin of memory come first; tight ones only where there is no other.
    for memory_share in (FITS_SHARE, 1.0):
        search = SizeSearch(
            instance,
            scopes(instance, chosen, memory_share),
            gap=gap,
            solutions=_SOLUTIONS_PER_PLAN * top,
            clock=clock,
            cancel=cancel,
        )
        outcome = find_best(search, goal, sizes)
        plans = rank_plans(
            instance,
            chosen,
            outcome.attempts,
            goal,
            outcome.bound,
            top,
            gap,
            variants=not search.partial,
        )
        if plans or clock.cancelled:
            break
    if not plans:
        if clock.cancelled:
            raise PlanningCancelledError("cancelled before any plan was found")
        raise _why_none(search, goal, chosen, outcome.attempts)
    report = _report(search, goal, outcome, plans, top, time.monotonic() - started)
    return PlanSet(
        planner_version=__version__,
        workload=workload,
        cluster=cluster,
        space=chosen.name,
        objective=objective,
        limits=limits,
        tokens=tokens,
        plans=tuple(each.model_copy(update={"bound_s": report.bound_s}) for each in plans),
        search=report,
        assumptions=assumptions_of(instance, memory_share, counts_money(goal, limits)),
        input_hashes=input_hashes(instance, chosen),
    )


def instance_of(workload: Workload, cluster: Cluster, space: SearchSpace) -> Instance:
    """The instance under the conventions of a search space."""
    return make_instance(
        workload,
        cluster,
        framework=space.framework,
        engine=space.engine,
        reference_shares_actor_layout=space.reference_shares_actor_layout,
        reallocates=space.reallocation,
    )


def check_options(top: int, deadline_s: float | None, gap: float) -> None:
    """Raise InputError for options of a search that make no sense."""
    if top < 1:
        raise InputError(f"top is {top}", where="top", remedy="Ask for one plan or more")
    if deadline_s is not None and not (0 < deadline_s < math.inf):
        raise InputError(
            f"deadline is {deadline_s:g} s", where="deadline_s", remedy="Give seconds above zero"
        )
    if not 0 <= gap < 1:
        raise InputError(f"gap is {gap:g}", where="gap", remedy="Give a fraction from 0 to 1")


def _sizes(goal: Goal, cluster: Cluster, space: SearchSpace) -> list[Size]:
    """Sub-clusters to consider: only the whole where more devices cannot be a drawback."""
    most = goal.limits.devices
    money = math.isfinite(goal.cost_per_step_limit_usd)
    if goal.objective.score == "time" and not money:
        if most is None or most >= cluster.devices:
            return [whole(cluster)]
        sizes = usual_sizes(cluster, space, most)
        return [
            size
            for size in sizes
            if not any(other != size and contains(other, size) for other in sizes)
        ]
    return usual_sizes(cluster, space, most)


def counts_money(goal: Goal, limits: Limits) -> bool:
    """Whether devices or their price decide anything."""
    return goal.objective.score != "time" or limits != Limits()


def _why_none(
    search: SizeSearch, goal: Goal, space: SearchSpace, attempts: list[Attempt]
) -> InfeasibleError:
    if goal.limits == Limits():
        return explain_infeasible(search.instance, attempts)
    return explain_limits(search, goal, space)


def _report(
    search: SizeSearch, goal: Goal, outcome: Outcome, plans: list[Plan], top: int, wall_s: float
) -> SearchReport:
    best = plans[0]
    score = goal.score(best)
    bound = min(outcome.bound, score)
    reached = max(0.0, 1.0 - bound / score)
    bound_s = bound
    if goal.objective.score != "time":
        largest = [size for size in outcome.sizes if goal.most_s(size) > 0]
        bound_s = min((search.floor_s(size) for size in largest), default=0.0)
    bound_s = min(bound_s, best.step_time_s)
    # The bound of a class may be exactly this far from the best plan of another.
    proven = reached <= search.gap * (1 + 1e-6)
    return SearchReport(
        optimal=proven,
        bound_s=bound_s,
        gap=max(0.0, 1.0 - bound_s / best.step_time_s),
        candidates=sum(unit.costed for unit in search.priced),
        pareto_candidates=sum(len(unit.unit.devices) for unit in search.priced),
        wall_s=wall_s,
        status="proven" if proven else "stopped before the proof closed",
        objective_bound=goal.value(bound),
        objective_gap=reached,
        sizes=tuple(outcome.sizes),
        sizes_searched=outcome.solved,
        plans_asked=top,
    )


def assumptions_of(instance: Instance, memory_share: float, sizes_matter: bool) -> tuple[str, ...]:
    lines = [*instance.workload.assumptions, *instance.cluster.assumptions]
    lines += workload_notes(instance.workload, instance.calls)
    lines.append(
        f"plans fill at most {100 * memory_share:.0f} % of a device's usable memory"
        + (": none leaves the usual margin" if memory_share == 1.0 else "; the bound is for these")
    )
    if sizes_matter:
        lines.append(
            "devices and money: those of the devices that a plan's calls use, by the device-hour, "
            "also where they are parts of a node"
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
