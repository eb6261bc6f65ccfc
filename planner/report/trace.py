"""The step of a plan as a trace that Perfetto and chrome://tracing open."""

from __future__ import annotations

from typing import Any

from planner.report.text import degrees, knobs
from planner.report.units import GIB
from planner.schema import CallPrediction, Cluster, Plan, Workload
from planner.simulate.events.timeline import chrome_trace
from planner.simulate.timeline import planned_spans


def plan_trace(plan: Plan, workload: Workload, cluster: Cluster) -> str:
    """The planned schedule in the Trace Event Format, with the parts of each call's time, its
    strategy and its memory as arguments of its slices."""
    details = {name: call_details(call) for name, call in plan.calls.items()}
    return chrome_trace(planned_spans(plan, workload, cluster), details)


def call_details(call: CallPrediction) -> dict[str, Any]:
    """What a slice of the call shows when it is chosen."""
    found: dict[str, Any] = {"kind": call.kind, "bottleneck": call.bottleneck}
    if call.strategy is not None and call.mesh is not None:
        found |= {
            "devices": call.mesh.devices,
            "degrees": degrees(call.strategy, call.kind),
            "knobs": knobs(call.strategy, call.kind),
            "memory_gib": round(call.memory_bytes["total"] / GIB, 2),
            "capacity_gib": round(call.memory_bytes["capacity"] / GIB, 2),
        }
    found["seconds"] = {name: round(value, 6) for name, value in call.time_parts_s.items()}
    return found
