"""Plan and PlanSet: what the planner answers. Fields are added over time, never renamed."""

from __future__ import annotations

from typing import Literal

from planner.schema.base import Name, NonNegativeFloat, NonNegativeInt, PositiveInt, Schema
from planner.schema.hardware import Cluster
from planner.schema.strategy import Mesh, Strategy
from planner.schema.workload import CallKind, Workload

SCHEMA_VERSION = 1

MemoryVerdict = Literal["fits", "tight", "does not fit"]


class Assignment(Schema):
    """Where and how each call runs: the decision part of a plan, which can be evaluated."""

    meshes: dict[Name, Mesh]
    """Call -> devices. Calls of kind environment have none."""
    strategies: dict[Name, Strategy]
    """Call -> strategy."""
    staleness: NonNegativeInt = 0
    framework: Name
    """Framework profile used for training and forward calls, and for overheads of the step."""
    engine: Name
    """Engine profile used for generation."""
    space: Name = "any"
    """Search space whose launcher conventions hold (which models share processes)."""


class CallPrediction(Schema):
    """What the cost model says about one call of a plan."""

    kind: CallKind
    role: Name
    mesh: Mesh | None
    strategy: Strategy | None
    start_s: NonNegativeFloat
    time_s: NonNegativeFloat
    """Duration on its mesh, transfers before it included."""
    time_parts_s: dict[Name, float]
    """Itemised time, seconds; sums to time_s."""
    bottleneck: Name
    """The largest part: compute, memory bandwidth, communication, pipeline bubble, host, tail."""
    memory_bytes: dict[Name, int]
    """Itemised bytes on the fullest device while the call runs, other models that stay resident
    included; `total` is their sum and `capacity` what a device offers."""
    memory_verdict: MemoryVerdict
    work_flop: NonNegativeFloat
    """Useful and recomputed work of all devices, FLOP."""
    traffic_bytes: NonNegativeFloat
    """Device-memory traffic of all devices, bytes."""
    depth: NonNegativeInt
    """Dependent kernels and collectives on the critical path."""
    bound_s: NonNegativeFloat
    """No execution on this mesh is faster: max(work / peak, traffic / bandwidth, depth x
    latency)."""


class Prediction(Schema):
    """The cost model's answer for one assignment."""

    step_time_s: NonNegativeFloat
    step_time_interval_s: tuple[NonNegativeFloat, NonNegativeFloat]
    """80 % interval of the step time."""
    work_depth_bound_s: NonNegativeFloat
    """No plan on all devices of the cluster is faster: max(W / (p x peak), D x latency)."""
    tokens_per_s_per_device: NonNegativeFloat
    """Prompt and response tokens of a step over step time and all devices of the plan."""
    cost_per_step_usd: NonNegativeFloat | None
    """Price of all devices that the plan reserves; null when a device has no price."""
    staleness: NonNegativeInt
    calls: dict[Name, CallPrediction]
    overheads_s: dict[Name, float]
    """Parts of the step that belong to no call: weight sync, fixed costs."""
    fits: bool
    """True when no call's verdict is "does not fit"."""


class Plan(Prediction):
    """A ranked, executable plan."""

    rank: PositiveInt
    tie_with_best: bool
    """True when the step time lies inside the best plan's interval: the model cannot tell."""
    placement: Name
    """The placement in words."""
    assignment: Assignment
    devices: PositiveInt
    """Devices that the plan reserves."""
    bound_s: NonNegativeFloat
    """Proven lower bound on the step time of every plan of the search space."""
    launchers: tuple[Name, ...]
    """Launchers whose files `rlmplan export` writes for this plan."""


class SearchReport(Schema):
    """How the search ended."""

    optimal: bool
    """True when the gap is within the tolerance that was asked for."""
    bound_s: NonNegativeFloat
    gap: NonNegativeFloat
    """1 - bound / best step time."""
    candidates: NonNegativeInt
    """Strategies costed."""
    pareto_candidates: NonNegativeInt
    """Strategies left after the safe filter."""
    wall_s: NonNegativeFloat
    status: Name


class PlanSet(Schema):
    """The answer of `planner.plan`."""

    schema_version: PositiveInt = SCHEMA_VERSION
    planner_version: Name
    space: Name
    objective: Name
    plans: tuple[Plan, ...]
    search: SearchReport
    assumptions: tuple[str, ...]
    input_hashes: dict[Name, Name]
    """SHA-256 of workload, cluster, search space, framework and kernel profiles."""
    workload: Workload
    """The workload as planned, so that a plan file is complete."""
    cluster: Cluster
    """The cluster as planned."""
