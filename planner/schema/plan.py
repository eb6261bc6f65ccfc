"""Plan and PlanSet: what the planner answers. Fields are added over time, never renamed."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

from pydantic import Field

from planner.schema.base import (
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Schema,
)
from planner.schema.hardware import Cluster
from planner.schema.strategy import Mesh, Strategy
from planner.schema.workload import CallKind, Workload

SCHEMA_VERSION = 1

MemoryVerdict = Literal["fits", "tight", "does not fit"]


class Limits(Schema):
    """What every plan must stay within; null: no limit."""

    devices: PositiveInt | None = None
    """Devices that a plan may reserve."""
    step_time_s: PositiveFloat | None = None
    """Longest step, seconds."""
    cost_per_step_usd: PositiveFloat | None = None
    """Price of the reserved devices for one step, US dollars."""
    cost_usd: PositiveFloat | None = None
    """Price of the reserved devices until the token budget is spent, US dollars."""


class Assignment(Schema):
    """Where and how each call runs: the decision part of a plan, which can be evaluated."""

    meshes: dict[Name, Mesh]
    """Call -> devices. Calls of kind environment have none."""
    strategies: dict[Name, Strategy]
    """Call -> strategy."""
    staleness: NonNegativeInt = 0
    """Versions that the generating policy may lag behind; 0 is synchronous."""
    framework: Name
    """Framework profile used for training and forward calls, and for overheads of the step."""
    engine: Name
    """Engine profile used for generation."""
    fusions: tuple[Name, ...] = ()
    """Fused forms of calls that the plan uses (docs/fusion.md); the calls are then those."""
    space: Name = "any"
    """Search space whose launcher conventions hold (which models share processes)."""


class CallPrediction(Schema):
    """What the cost model says about one call of a plan."""

    kind: CallKind
    """What the call does: generate, forward, train or environment."""
    role: Name
    """The model that it runs; "environment" for CPU work."""
    mesh: Mesh | None
    """The devices that it runs on; null for kind environment."""
    strategy: Strategy | None
    """How it is parallelised; null for kind environment."""
    start_s: NonNegativeFloat
    """Seconds from the start of the iteration to which the call belongs. In asynchronous plans the
    calls of several iterations overlap and one iteration lasts longer than a step, so it may
    exceed step_time_s."""
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
    """fits, tight (fits with little room to spare) or does not fit; fits for kind environment."""
    workers_needed: NonNegativeFloat | None = None
    """Workers of the environment that keep pace with the policy, by Little's law: requests a second
    x latency. A pool with fewer holds the step up. Null for calls without an environment."""
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
    """Seconds from one step to the next when many follow each other: the makespan of a synchronous
    step, the period of an asynchronous plan; overheads included."""
    step_time_interval_s: tuple[NonNegativeFloat, NonNegativeFloat]
    """80 % interval of the step time."""
    work_depth_bound_s: NonNegativeFloat
    """No plan on all devices of the cluster is faster: max(W / (p x peak), D x latency)."""
    tokens_per_s_per_device: NonNegativeFloat
    """Prompt and response tokens of a step over step time and all devices of the plan."""
    cost_per_step_usd: NonNegativeFloat | None
    """Price of all devices that the plan reserves; null when a device has no price."""
    staleness: NonNegativeInt
    """Versions that the generating policy may lag behind; 0 is synchronous."""
    calls: dict[Name, CallPrediction]
    """Call -> prediction, for every call of the iteration."""
    overheads_s: dict[Name, float]
    """Parts of the step that belong to no call: weight sync, fixed costs."""
    fits: bool
    """True when no call's verdict is "does not fit"."""


class Plan(Prediction):
    """A ranked, executable plan."""

    rank: PositiveInt
    """Place in the answer, from 1, the best."""
    tie_with_best: bool
    """True when the step time lies inside the best plan's interval: the model cannot tell."""
    placement: Name
    """The placement in words."""
    assignment: Assignment
    """The decisions: meshes, strategies, staleness and profiles."""
    devices: PositiveInt
    """Devices that the plan reserves."""
    bound_s: NonNegativeFloat
    """Proven lower bound, seconds, on the step time of every plan of the search space that stays
    within the share of memory that the assumptions name."""
    launchers: tuple[Name, ...]
    """Launchers whose files `rlmplan export` writes for this plan."""
    lacking: dict[Name, tuple[str, ...]] = Field(default_factory=dict)
    """Every other launcher -> why it cannot run this plan, in sentences."""
    objective_value: NonNegativeFloat | None = None
    """The plan set's objective in its own unit; null in files of older releases."""

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return str(_reported("plan_html", self))


class SearchReport(Schema):
    """How the search ended."""

    optimal: bool
    """True when the objective's gap is within the tolerance that was asked for."""
    bound_s: NonNegativeFloat
    """Proven lower bound on the step time of every plan of the search space, seconds."""
    gap: NonNegativeFloat
    """1 - bound_s / step time of the best plan; the gap that counts is `objective_gap`."""
    candidates: NonNegativeInt
    """Strategies costed."""
    pareto_candidates: NonNegativeInt
    """Strategies left after the safe filter."""
    wall_s: NonNegativeFloat
    """Duration of the search, seconds."""
    status: Name
    """How it ended, in words, for example "proven"."""
    objective_bound: NonNegativeFloat | None = None
    """No plan that reserves one of `sizes` and stays within the limits is better; in the
    objective's unit (a largest value for rates)."""
    objective_gap: NonNegativeFloat | None = None
    """How much better than the best plan the bound is, relative."""
    sizes: tuple[tuple[NonNegativeInt, ...], ...] = ()
    """Numbers of devices (of each node group) that the objective's bound speaks of; a plan of the
    objective step_time without limits may use any part of the only one, the cluster."""
    sizes_searched: NonNegativeInt = 0
    """How many of them had to be searched; bounds excluded the others."""
    plans_asked: NonNegativeInt = 0
    """Plans asked for; there are fewer when all others are like one of those shown."""


class PlanSet(Schema):
    """The answer of `planner.plan`."""

    schema_version: PositiveInt = SCHEMA_VERSION
    """Version of this format; fields are added without raising it."""
    planner_version: Name
    """Release of the planner that wrote it."""
    space: Name
    """Name of the search space."""
    objective: Name
    """What plans are ranked by, for example "step_time"."""
    limits: Limits = Limits()
    """What every plan stays within."""
    tokens: PositiveFloat | None = None
    """Token budget of the objectives that count to one: prompt and response tokens."""
    plans: tuple[Plan, ...]
    """Best first."""
    search: SearchReport
    """How the search ended, and its bound."""
    assumptions: tuple[str, ...]
    """What the planner assumed because the user did not say it."""
    input_hashes: dict[Name, Name]
    """SHA-256 of workload, cluster, search space, framework and kernel profiles."""
    workload: Workload
    """The workload as planned, so that a plan file is complete."""
    cluster: Cluster
    """The cluster as planned."""

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return str(_reported("plan_set_html", self))

    def to_dataframe(self, *, calls: bool = False) -> Any:
        """A pandas data frame with one row a plan, or with `calls` one row a plan and call.

        Columns are the fields of Plan and CallPrediction with their units in their names; itemised
        times and memory are columns such as `time_s.compute` and `memory_bytes.weights`, in the
        rows of calls. Raises InputError when pandas is not installed.
        """
        return _reported("data_frame", self, calls=calls)


def _reported(function: str, *arguments: Any, **options: Any) -> Any:
    """A report of a plan; found by name, since reports know plans and not the other way round."""
    return getattr(import_module("planner.report.notebook"), function)(*arguments, **options)
