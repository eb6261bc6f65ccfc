"""Analysis: work, depth and limits of a plan, call by call."""

from __future__ import annotations

from typing import Literal

from planner.schema.base import Name, NonNegativeFloat, NonNegativeInt, PositiveInt, Schema
from planner.schema.workload import CallKind

Limit = Literal["compute", "memory bandwidth", "network", "depth", "environment", "overheads"]
"""What a call or step is bound by."""


class CallAnalysis(Schema):
    """Work and depth of one call, and how far devices can shorten it."""

    kind: CallKind
    """What the call does."""
    role: Name
    """The model that it runs."""
    work_flop: NonNegativeFloat
    """Useful work W of all devices, FLOP, without recomputation."""
    traffic_bytes: NonNegativeFloat
    """Device-memory traffic Q of all devices under the plan's strategy, bytes."""
    network_bytes: dict[Name, NonNegativeFloat]
    """Kind of parallelism -> bytes that all devices send under the plan's strategy."""
    messages: NonNegativeFloat
    """Messages that one device sends or waits for one after another."""
    depth: NonNegativeInt
    """Depth D: dependent kernels and collectives on the critical path."""
    limits_s: dict[Name, NonNegativeFloat]
    """Lower bounds on the plan's devices, seconds: compute W / (p x peak), memory bandwidth
    Q / (p x bandwidth), depth D x kernel latency."""
    time_s: NonNegativeFloat
    """Predicted duration in the plan."""
    devices: PositiveInt
    """Devices of the plan's mesh."""
    bound_by: Limit
    """The kind of the largest part of the predicted time."""
    least_s: NonNegativeFloat
    """Shortest predicted time of the call on any number of the cluster's devices."""
    least_s_devices: PositiveInt
    """Devices that this time takes."""
    least_device_s: NonNegativeFloat
    """Fewest device-seconds that any strategy needs: the call's work in this cost model."""
    parallelism: NonNegativeFloat
    """least_device_s / least_s: W / D in devices. Beyond it more devices buy little."""


class WhatIf(Schema):
    """The same plan with one quantity changed."""

    change: Name
    """What is changed, for example "device memory bandwidth x 2"."""
    step_time_s: NonNegativeFloat
    """Predicted step time then; decisions are not changed."""
    saving: float
    """1 - step_time_s / the plan's step time."""


class Analysis(Schema):
    """Work-depth report of a plan."""

    rank: PositiveInt
    """Rank of the plan that is analysed."""
    devices: PositiveInt
    """Devices that the plan reserves."""
    step_time_s: NonNegativeFloat
    """Predicted step time."""
    calls: dict[Name, CallAnalysis]
    """Device calls of the iteration."""
    work_flop: NonNegativeFloat
    """Useful work of the iteration, FLOP."""
    traffic_bytes: NonNegativeFloat
    """Device-memory traffic of the iteration, bytes."""
    network_bytes: NonNegativeFloat
    """Bytes that all devices send in the iteration, weight syncs not counted."""
    depth: NonNegativeInt
    """Depth of the iteration: the longest chain of dependent rounds."""
    parallelism: NonNegativeFloat
    """Least device-seconds of all calls over the shortest critical path: devices that the
    iteration can use when its samples must be fresh."""
    shortest_path_s: NonNegativeFloat
    """Longest chain of dependent calls, each at its shortest time, seconds."""
    limits_s: dict[Name, NonNegativeFloat]
    """Lower bounds on the step, seconds: on all devices of the cluster compute, memory bandwidth
    and the least device-seconds of this cost model; the environment pool; fixed costs; and for
    synchronous plans depth and the shortest critical path."""
    bound_by: Limit
    """What most of the critical path of the plan is bound by."""
    what_ifs: tuple[WhatIf, ...]
    """Changes of one quantity, largest saving first."""
    findings: tuple[str, ...]
    """What follows, in words."""
