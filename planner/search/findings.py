"""What a work-depth analysis means for the user, in sentences."""

from __future__ import annotations

from planner.schema import Plan, Workload
from planner.schema.analysis import Analysis

_NEAR = 1.05
"""A call this close to its shortest time gains nothing worth buying from more devices."""
_WORTH = 0.05
"""Relative saving that is worth a sentence."""


def findings(
    analysis: Analysis, plan: Plan, workload: Workload, cluster_devices: int
) -> tuple[str, ...]:
    """Sentences, the most important first."""
    lines = [_what_binds(analysis)]
    for name, call in analysis.calls.items():
        words = name.replace("_", " ")
        share = call.time_s / analysis.step_time_s
        if share < _WORTH:
            continue
        beyond = f"parallelism {call.parallelism:,.0f}"
        if call.time_s <= _NEAR * call.least_s:
            if call.least_s_devices > cluster_devices / 2:
                lines.append(
                    f"{words}: {beyond}; on {call.devices} devices as fast as this cluster can run "
                    "it; a larger one may shorten it"
                )
            else:
                lines.append(
                    f"{words}: {beyond}: more devices do not shorten it (it is on {call.devices}, "
                    f"its shortest time needs {call.least_s_devices})"
                )
        elif call.least_s_devices != call.devices:
            lines.append(
                f"{words}: {beyond}; alone on {call.least_s_devices} devices it would take "
                f"{1 - call.least_s / call.time_s:.0%} less than on {call.devices}"
            )
    generate = [call for call in analysis.calls.values() if call.kind == "generate"]
    if plan.staleness == 0 and any(call.bound_by == "depth" for call in generate):
        lines.append(
            "generation waits for its longest responses: a shorter cap, partial rollouts or "
            "samples one step stale hide the tail, more devices do not"
        )
    for each in analysis.what_ifs:
        if each.saving >= _WORTH:
            lines.append(f"{each.change}: the step is {each.saving:.0%} shorter with the same plan")
    return tuple(lines)


def _what_binds(analysis: Analysis) -> str:
    largest = max(analysis.limits_s, key=lambda name: analysis.limits_s[name])
    share = analysis.limits_s[largest] / analysis.step_time_s
    return (
        f"most of the time on the critical path is {analysis.bound_by}; of the lower bounds below, "
        f"{largest} comes nearest: {share:.0%} of the step time"
    )
