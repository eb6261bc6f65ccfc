"""What a simulation answers: spans of calls on meshes, statistics, utilisation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from planner.schema import Mesh

_MICROSECONDS = 1e6
_ROUNDING_S = 1e-9
CPU = "cpu"
"""Name of the mesh of calls that use no device."""


@dataclass(frozen=True)
class Span:
    """A call, or a weight sync, on one mesh."""

    iteration: int
    call: str
    mesh: str
    """Name of the mesh; "cpu" for environment calls."""
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Statistics:
    """Of one figure over the measured steps."""

    mean: float
    p50: float
    p90: float
    least: float
    most: float


@dataclass(frozen=True)
class CallResult:
    """One call over the measured steps."""

    time_s: Statistics
    analytic_s: float
    """What the analytic model says."""
    bound_s: float
    """Work, traffic and depth bound for the expected tokens; 0 for CPU work."""


@dataclass(frozen=True)
class GenerationResult:
    """Means over the measured steps of all generate calls."""

    mode: str
    """"drain": each batch to its last response; "flow": whoever ends is replaced."""
    tokens_sampled: float
    """Response tokens of all measured steps."""
    tokens_generated: float
    busy_share: float
    tail_share: float
    imbalance: float
    preemptions_per_step: float
    versions_behind_mean: float
    versions_behind_max: float
    over_stale_share: float
    """Responses that took longer than the staleness allows."""


@dataclass(frozen=True)
class Simulation:
    """A plan replayed."""

    steps: int
    seed: int
    staleness: int
    step_time_s: Statistics
    analytic_step_time_s: float
    overhead_s: float
    """Of each step, in no call; part of the step times."""
    calls: dict[str, CallResult]
    utilisation: dict[str, float]
    """Mesh -> share of its device time in which a call had work for it; "cpu" is the pool."""
    generation: GenerationResult | None
    spans: tuple[Span, ...]
    """Of the measured steps, by start."""

    @property
    def difference(self) -> float:
        """Mean simulated over analytic step time, less one."""
        return self.step_time_s.mean / self.analytic_step_time_s - 1.0

    def as_json(self, *, timeline: bool = False) -> dict[str, Any]:
        """A JSON object; with the spans when asked for."""
        content = asdict(self)
        del content["spans"]
        content["difference"] = self.difference
        if timeline:
            content["spans"] = [asdict(span) for span in self.spans]
        return content


def statistics(values: Iterable[float]) -> Statistics:
    """Mean, median, 90th percentile and range."""
    found = np.array(list(values), dtype=np.float64)
    median, p90 = np.quantile(found, [0.5, 0.9])
    return Statistics(
        float(found.mean()), float(median), float(p90), float(found.min()), float(found.max())
    )


def mesh_name(mesh: Mesh) -> str:
    """Unique in a cluster, for people: "h100 nodes 0-3" or "h100 node 0 devices 4-7"."""
    if mesh.nodes > 1:
        return f"{mesh.group} nodes {mesh.first_node}-{mesh.first_node + mesh.nodes - 1}"
    last = mesh.first_device + mesh.devices_per_node - 1
    devices = (
        f"device {last}" if mesh.devices_per_node == 1 else f"devices {mesh.first_device}-{last}"
    )
    return f"{mesh.group} node {mesh.first_node} {devices}"


def chrome_trace(
    spans: Sequence[Span], details: Mapping[str, Mapping[str, Any]] | None = None
) -> str:
    """The spans in the Trace Event Format that chrome://tracing and Perfetto open: one process a
    mesh, microseconds; `details` are arguments of each call.

    Slices of one thread must nest, so spans that overlap on a mesh get threads of their own.
    """
    meshes = sorted({span.mesh for span in spans})
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": index, "tid": 0, "args": {"name": mesh}}
        for index, mesh in enumerate(meshes)
    ]
    for span, thread in zip(spans, _threads(spans), strict=True):
        events.append(
            {
                "name": span.call,
                "cat": "call",
                "ph": "X",
                "pid": meshes.index(span.mesh),
                "tid": thread,
                "ts": span.start_s * _MICROSECONDS,
                "dur": (span.end_s - span.start_s) * _MICROSECONDS,
                "args": {"iteration": span.iteration, **(details or {}).get(span.call, {})},
            }
        )
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, allow_nan=False) + "\n"


def _threads(spans: Sequence[Span]) -> list[int]:
    """Of each span the lowest thread of its mesh that is free when it starts."""
    order = sorted(range(len(spans)), key=lambda index: (spans[index].start_s, index))
    ends: dict[str, list[float]] = {}
    found = [0] * len(spans)
    for index in order:
        span = spans[index]
        busy = ends.setdefault(span.mesh, [])
        free = (n for n, end_s in enumerate(busy) if end_s <= span.start_s + _ROUNDING_S)
        thread = next(free, len(busy))
        busy[thread : thread + 1] = [span.end_s]
        found[index] = thread
    return found
