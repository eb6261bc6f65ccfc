"""`compare`: two plans side by side, call by call."""

from __future__ import annotations

from dataclasses import dataclass

from planner.schema import CallPrediction, Cluster, Plan, Workload
from planner.schema.explain import CallPair, Comparison, Side
from planner.search.ranking import TIE_ERROR_SHARE
from planner.search.words import differences
from planner.simulate.evaluate import Z_80

_BILLION = 1e9
_WORTH = 0.01
"""Share of the slower step from which a call's difference is named."""


@dataclass(frozen=True)
class Compared:
    """One side of a comparison."""

    name: str
    """What the user called it."""
    plan: Plan
    workload: Workload
    cluster: Cluster
    broken: tuple[str, ...] = ()
    """Rules of its launcher that it breaks."""


def compare(left: Compared, right: Compared) -> Comparison:
    """What differs between two plans, and what that costs.

    Speed is that of tokens, so that workloads of different batches can be compared too; fields of
    the workload that differ are named.
    """
    sides = _side(left), _side(right)
    speedup = sides[1].tokens_per_s / sides[0].tokens_per_s
    costs = [side.cost_per_billion_tokens_usd for side in sides]
    cost_ratio = costs[1] / costs[0] if costs[0] and costs[1] else None
    differs = _workload_differs(left.workload, right.workload)
    run = all(side.fits and not side.broken for side in sides)
    tie = run and not differs and _within_error(left, right, speedup)
    pairs = _pairs(left.plan, right.plan)
    return Comparison(
        left=sides[0],
        right=sides[1],
        calls=pairs,
        speedup=speedup,
        cost_ratio=cost_ratio,
        tie=tie,
        verdict=_verdict(sides, speedup, cost_ratio, tie, pairs),
        workload_differs=differs,
    )


def _side(given: Compared) -> Side:
    plan, workload = given.plan, given.workload
    tokens = workload.sequences_per_step * workload.mean_sequence_tokens
    memory = [call.memory_bytes for call in plan.calls.values() if call.memory_bytes]
    fullest = max(memory, key=lambda items: items["total"] / items["capacity"])
    usd = plan.cost_per_step_usd
    return Side(
        name=given.name,
        placement=plan.placement,
        cluster=" + ".join(
            f"{group.nodes} x {group.devices_per_node} {group.device.id}"
            for group in given.cluster.groups
        ),
        space=plan.assignment.space,
        devices=plan.devices,
        staleness=plan.staleness,
        step_time_s=plan.step_time_s,
        step_time_interval_s=plan.step_time_interval_s,
        tokens_per_s=tokens / plan.step_time_s,
        tokens_per_s_per_device=plan.tokens_per_s_per_device,
        cost_per_step_usd=usd,
        cost_per_billion_tokens_usd=None if usd is None else usd / tokens * _BILLION,
        fullest_bytes=fullest["total"],
        fullest_capacity_bytes=fullest["capacity"],
        fits=plan.fits,
        broken=given.broken,
    )


def _workload_differs(left: Workload, right: Workload) -> tuple[str, ...]:
    ignored = {"name", "assumptions", "max_staleness"}
    found = []
    for name in type(left).model_fields:
        have, want = getattr(left, name), getattr(right, name)
        if name == "models":
            have, want = (
                {role: model.name for role, model in each.items()} for each in (have, want)
            )
        if name not in ignored and have != want:
            found.append(name)
    return tuple(found)


def _within_error(left: Compared, right: Compared, speedup: float) -> bool:
    """Plans of one cluster share most of the model's error; those of two share none of it."""
    factors = [c.plan.step_time_interval_s[1] / c.plan.step_time_s for c in (left, right)]
    factor = max(factors)
    if left.cluster.groups == right.cluster.groups:
        # The interval is exp(1.28 error); ties are within half of the error.
        factor = factor ** (TIE_ERROR_SHARE / Z_80)
    return 1 / factor <= speedup <= factor


def _words(call: CallPrediction) -> str:
    if call.mesh is None or call.strategy is None:
        return "CPU"
    defaults = type(call.strategy)()
    fields = [
        f"{name} {getattr(call.strategy, name)}"
        for name in type(call.strategy).model_fields
        if getattr(call.strategy, name) != getattr(defaults, name)
    ]
    return f"{call.mesh.devices} devices: {', '.join(fields) or 'no parallelism'}"


def _pairs(left: Plan, right: Plan) -> tuple[CallPair, ...]:
    names = dict.fromkeys([*left.calls, *right.calls])
    found = []
    for name in names:
        a, b = left.calls.get(name), right.calls.get(name)
        change = ""
        if a and b and a.strategy and b.strategy and a.mesh and b.mesh:
            change = ", ".join(differences(a.strategy, b.strategy, (a.mesh, b.mesh)))
        found.append(
            CallPair(
                call=name,
                left=_words(a) if a else "",
                right=_words(b) if b else "",
                left_s=a.time_s if a else None,
                right_s=b.time_s if b else None,
                change=change,
            )
        )
    for name in dict.fromkeys([*left.overheads_s, *right.overheads_s]):
        found.append(
            CallPair(
                call=name,
                left="",
                right="",
                left_s=left.overheads_s.get(name),
                right_s=right.overheads_s.get(name),
                change="",
            )
        )
    return tuple(found)


def _verdict(
    sides: tuple[Side, Side],
    speedup: float,
    cost_ratio: float | None,
    tie: bool,
    pairs: tuple[CallPair, ...],
) -> str:
    unfit = [side.name for side in sides if not side.fits or side.broken]
    if unfit:
        names = " and ".join(dict.fromkeys(unfit))
        return f"{names} cannot run as it is, so neither speed nor cost is compared"
    ahead, behind = (sides[1], sides[0]) if speedup >= 1 else (sides[0], sides[1])
    by = max(speedup, 1 / speedup)
    if tie:
        words = f"as fast as each other: {by:.2f}x is within the model's error"
    else:
        words = f"{ahead.name} is {by:.2f}x faster than {behind.name}"
    if cost_ratio is not None and abs(cost_ratio - 1) >= _WORTH:
        cheap, dear = (sides[1], sides[0]) if cost_ratio < 1 else (sides[0], sides[1])
        ratio = max(cost_ratio, 1 / cost_ratio)
        words += f"; a token costs {ratio:.2f}x more on {dear.name} than on {cheap.name}"
    if sides[0].staleness != sides[1].staleness:
        for side in sides:
            words += (
                f"; {side.name} generates up to {side.staleness} steps ahead while it trains"
                if side.staleness
                else f"; in {side.name} calls wait for each other"
            )
        return words
    slower_s = max(side.step_time_s for side in sides)
    moved = [
        (pair.right_s - pair.left_s, pair.call)
        for pair in pairs
        if pair.left_s is not None
        and pair.right_s is not None
        and abs(pair.right_s - pair.left_s) >= _WORTH * slower_s
    ]
    moved.sort(key=lambda each: -abs(each[0]))
    if moved:
        words += "; from left to right " + ", ".join(
            f"{call} {delta:+.1f} s" for delta, call in moved[:3]
        )
    return words
