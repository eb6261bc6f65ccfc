"""`explain`: why a plan is as it is, what keeps it from being faster, what changes would give."""

from __future__ import annotations

from collections.abc import Callable

from planner.catalog.spaces import load_space
from planner.cost.parameters import count_parameters
from planner.errors import InfeasibleError, InputError
from planner.schema import CallPrediction, Cluster, Plan, PlanSet, SearchSpace, Workload
from planner.schema.analysis import Analysis
from planner.schema.check import CallChange
from planner.schema.explain import Bind, CallReason, Explanation, Rival, Sensitivity
from planner.search import api
from planner.search.analysis import LIMIT_OF_PART, analyze_plan
from planner.search.changes import new_plan_changes, same_plan_changes
from planner.search.guidelines import guidelines
from planner.search.objectives import OBJECTIVES
from planner.search.refused import refused
from planner.search.words import differences

_REPLAN_GAP = 0.01
"""Proof that is enough for a plan of a changed cluster or workload."""
_LEAST_SHARE = 0.02
"""Share of the step from which the tail, the network or the environment is said to bind."""


def explain(
    plan_set: PlanSet,
    rank: int = 1,
    *,
    space: str | SearchSpace | None = None,
    replan: bool = True,
    deadline_s: float | None = None,
    cancel: Callable[[], bool] | None = None,
) -> Explanation:
    """Why the plan of `rank` is as it is, with numbers from pricing and planning again.

    What binds comes from pricing every plan that differs from it in one field of one call: those
    that are faster are refused for memory or for a rule. Sensitivities price the same plan with one
    quantity of the hardware or workload changed, and where `replan` search the best plan then, each
    for at most `deadline_s`. `space` is the search space, by default the one of the plan's name.

    Raises InputError for an unknown rank, or a plan that was edited into one that cannot run.
    """
    plan = pick(plan_set, rank)
    chosen = space if isinstance(space, SearchSpace) else load_space(space or plan_set.space)
    workload, cluster = plan_set.workload, plan_set.cluster
    analysis = analyze_plan(plan, workload, cluster)
    instance = api.instance_of(workload, cluster, chosen)
    binds = [*refused(instance, chosen, plan), *_limits(plan)]
    actor = workload.models.get("actor") or next(iter(workload.models.values()))
    found, notes = _sensitivities(plan_set, plan, analysis, chosen, replan, deadline_s, cancel)
    if len(plan_set.plans) == 1:
        notes.append("the file holds no other plan to compare with: plan with --top 5")
    return Explanation(
        rank=rank,
        placement=plan.placement,
        devices=plan.devices,
        step_time_s=plan.step_time_s,
        bound_s=plan.bound_s,
        reasons=_reasons(plan_set, plan, analysis),
        calls=_calls(plan, analysis),
        rivals=tuple(_rival(plan_set, plan, each) for each in plan_set.plans if each is not plan),
        binds=tuple(binds),
        sensitivities=found,
        guidelines=guidelines(plan, workload, analysis, float(count_parameters(actor).total)),
        notes=tuple(notes),
    )


def pick(plan_set: PlanSet, rank: int) -> Plan:
    """The plan of a rank; InputError when there is none."""
    for plan in plan_set.plans:
        if plan.rank == rank:
            return plan
    raise InputError(
        f"no plan of rank {rank}",
        where="rank",
        remedy=f"There are the ranks {[plan.rank for plan in plan_set.plans]}",
    )


def _reasons(plan_set: PlanSet, plan: Plan, analysis: Analysis) -> tuple[str, ...]:
    """Proof, then what binds the step, call by call."""
    best = plan_set.plans[0]
    search = plan_set.search
    if plan is not best:
        first = f"rank {plan.rank}: {_worse(plan_set, best, plan):+.1%} against the best plan"
    elif search.optimal:
        gap = search.gap if search.objective_gap is None else search.objective_gap
        first = f"proven best of its search space, within {gap:.1%}"
    else:
        first = f"best found; no plan of the space is under {search.bound_s:.1f} s"
    # The changes stand in a table of their own.
    changes = tuple(f"{each.change}:" for each in analysis.what_ifs)
    return (first, *(line for line in analysis.findings if not line.startswith(changes)))


def _calls(plan: Plan, analysis: Analysis) -> dict[str, CallReason]:
    found = {}
    for name, call in plan.calls.items():
        analysed = analysis.calls.get(name)
        largest = max(call.time_parts_s.values(), default=0.0)
        found[name] = CallReason(
            kind=call.kind,
            time_s=call.time_s,
            share_of_step=call.time_s / plan.step_time_s,
            bottleneck=call.bottleneck,
            bottleneck_share=largest / call.time_s if call.time_s > 0 else 0.0,
            bound_by="environment" if analysed is None else analysed.bound_by,
            parallelism=None if analysed is None else analysed.parallelism,
            memory_bytes=call.memory_bytes.get("total", 0),
            capacity_bytes=call.memory_bytes.get("capacity", 0),
            memory_verdict=call.memory_verdict,
        )
    return found


def _worse(plan_set: PlanSet, base: Plan, other: Plan) -> float:
    """How much worse `other` is than `base` by the objective, relative."""
    old, new = base.objective_value, other.objective_value
    if not old or not new:
        return other.step_time_s / base.step_time_s - 1
    larger = OBJECTIVES[plan_set.objective].larger_is_better
    return (old / new if larger else new / old) - 1


def call_changes(
    have: dict[str, CallPrediction], want: dict[str, CallPrediction]
) -> tuple[CallChange, ...]:
    """What `want` does otherwise than `have`, for the calls that both have."""
    changes = []
    for name, new in want.items():
        old = have.get(name)
        if old is None or old.strategy is None or new.strategy is None:
            continue
        assert old.mesh is not None
        assert new.mesh is not None
        words = differences(old.strategy, new.strategy, (old.mesh, new.mesh))
        if words:
            changes.append(
                CallChange(call=name, change=", ".join(words), have_s=old.time_s, want_s=new.time_s)
            )
    return tuple(changes)


def _rival(plan_set: PlanSet, plan: Plan, other: Plan) -> Rival:
    return Rival(
        rank=other.rank,
        placement=other.placement,
        step_time_s=other.step_time_s,
        worse=_worse(plan_set, plan, other),
        tie=other.tie_with_best and plan.tie_with_best,
        changes=call_changes(dict(plan.calls), dict(other.calls)),
        costs_most=_loses_most(plan, other) if other.step_time_s > plan.step_time_s else "",
    )


def _loses_most(plan: Plan, other: Plan) -> str:
    """The call or overhead with the largest loss of time, and the part of it that grew most."""
    if other.staleness == 0 and plan.staleness > 0:
        turns = " + ".join(f"{call.time_s:.1f}" for call in other.calls.values() if call.time_s > 0)
        return f"synchronous, so its calls wait for each other: {turns} s"
    have = {name: call.time_s for name, call in plan.calls.items()} | plan.overheads_s
    want = {name: call.time_s for name, call in other.calls.items()} | other.overheads_s
    losses = {name: want[name] - have[name] for name in want if name in have}
    # A fused form stands for the calls that it replaces.
    fresh = [name for name in want if name not in have]
    gone = [name for name in have if name not in want]
    if fresh:
        instead = f"{', '.join(fresh)} (for {', '.join(gone)})" if gone else ", ".join(fresh)
        losses[instead] = sum(want[n] for n in fresh) - sum(have[n] for n in gone)
    name = max(losses, key=lambda each: losses[each])
    if losses[name] <= 0:
        return ""
    words = f"{name} takes {losses[name]:.1f} s longer"
    if name in other.calls and name in plan.calls:
        before = plan.calls[name].time_parts_s
        parts = {
            part: value - before.get(part, 0.0)
            for part, value in other.calls[name].time_parts_s.items()
        }
        part = max(parts, key=lambda each: parts[each])
        if parts[part] > 0:
            words += f" ({part.replace('_', ' ')} {parts[part]:+.1f} s)"
    return words


def _limits(plan: Plan) -> list[Bind]:
    """Tail, network and environment, where they take a share of the step."""
    found = []
    for name, call in plan.calls.items():
        network_s = sum(
            s for part, s in call.time_parts_s.items() if LIMIT_OF_PART.get(part) == "network"
        )
        for kind, taken_s, words in (
            ("tail", call.time_parts_s.get("tail", 0.0), "waits for its longest responses"),
            ("network", network_s, "spends its time on the network"),
            ("environment", call.time_s if call.kind == "environment" else 0.0, "is CPU work"),
            (
                "environment",
                call.time_parts_s.get("environment_pool", 0.0),
                "waits for the environment's workers",
            ),
        ):
            share = taken_s / plan.step_time_s
            if share >= _LEAST_SHARE:
                found.append(
                    Bind(
                        kind=kind,  # type: ignore[arg-type]
                        call=name,
                        message=f"{name} {words} for {taken_s:.1f} s, {share:.0%} of the step",
                        change="",
                        saving=share,
                    )
                )
    return found


def _sensitivities(
    plan_set: PlanSet,
    plan: Plan,
    analysis: Analysis,
    space: SearchSpace,
    replan: bool,
    deadline_s: float | None,
    cancel: Callable[[], bool] | None,
) -> tuple[tuple[Sensitivity, ...], list[str]]:
    """Every change priced, and searched where asked for; the largest saving first."""
    workload, cluster = plan_set.workload, plan_set.cluster
    same_s = {each.change: each.step_time_s for each in analysis.what_ifs}
    changes = [*same_plan_changes(workload, cluster)]
    notes = []
    if replan:
        changes += new_plan_changes(workload, cluster)
    else:
        notes.append("not planned again: changes are priced for this plan alone")
    found = []
    for change in changes:
        best, why = None, ""
        if replan:
            best, why = _again(plan_set, change.workload, change.cluster, space, deadline_s, cancel)
        now_s = same_s.get(change.words)
        gains = [1 - now_s / plan.step_time_s] if now_s is not None else []
        if best is not None and now_s is not None and plan_set.objective == "step_time":
            # Within its gap a search may stop at a plan that today's beats: then that one is new.
            best = min(best, _same(plan, now_s), key=lambda each: each.step_time_s)
        if best is not None:
            gains.append(1 - 1 / (1 + _worse(plan_set, best, plan_set.plans[0])))
            why = best.placement if best.placement != plan.placement else ""
        found.append(
            Sensitivity(
                change=change.words,
                same_plan_s=now_s,
                replanned_s=None if best is None else best.step_time_s,
                saving=max(gains, default=0.0),
                devices=None if best is None else best.devices,
                cost_per_step_usd=None if best is None else best.cost_per_step_usd,
                placement=why,
            )
        )
    return tuple(sorted(found, key=lambda each: (-each.saving, each.change))), notes


def _same(plan: Plan, step_time_s: float) -> Plan:
    """The plan at the step time of a changed problem: its devices, for that long."""
    usd = plan.cost_per_step_usd
    share = step_time_s / plan.step_time_s
    return plan.model_copy(
        update={
            "step_time_s": step_time_s,
            "cost_per_step_usd": None if usd is None else usd * share,
            "objective_value": step_time_s,
        }
    )


def _again(
    plan_set: PlanSet,
    workload: Workload,
    cluster: Cluster,
    space: SearchSpace,
    deadline_s: float | None,
    cancel: Callable[[], bool] | None,
) -> tuple[Plan | None, str]:
    """The best plan of a changed problem by the same objective, or why there is none."""
    try:
        found = api.plan(
            workload,
            cluster,
            space=space,
            objective=plan_set.objective,
            limits=plan_set.limits,
            tokens=plan_set.tokens,
            top=1,
            deadline_s=deadline_s,
            gap=_REPLAN_GAP,
            cancel=cancel,
        )
    except InfeasibleError as error:
        return None, str(error)
    return found.plans[0], ""
