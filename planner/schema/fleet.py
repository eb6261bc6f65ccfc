"""Several RL jobs on one cluster: FleetJob is the question, FleetPlan the answer.

Fields are added over time, never renamed.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from planner.schema.base import (
    Fraction,
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Schema,
)
from planner.schema.hardware import Cluster, Nodes
from planner.schema.workload import Workload

FLEET_SCHEMA_VERSION = 1
# Far above any sensible figure, so that a slip is refused and products stay in range.
MAX_TIME_S = 1e9
MAX_BYTES = 1e15
Steps = Annotated[int, Field(gt=0, le=10**9)]
TimeS = Annotated[float, Field(ge=0, le=MAX_TIME_S)]
StepTimeS = Annotated[float, Field(ge=1e-6, le=1e7)]
Slots = Annotated[int, Field(ge=0, le=10**9)]
Priority = Annotated[float, Field(ge=1e-3, le=1e6)]


class ShareTime(Schema):
    """A measured step time."""

    group: Name
    """Node group of the cluster."""
    nodes: Nodes
    """Nodes that the job had."""
    step_time_s: StepTimeS
    """Seconds of one step."""


class FleetPhase(Schema):
    """A part of a job that keeps its nodes from start to end: an RL run, an SFT warm-up.

    Either `workload` is given and the planner prices it, or `step_times` are.
    """

    name: Name = "run"
    """Unique within the job."""
    steps: Steps
    """Steps that it runs."""
    workload: Workload | None = None
    """What one step does."""
    space: Name = "any"
    """Search space in which the workload is planned."""
    step_times: tuple[ShareTime, ...] = ()
    """Measured step times instead of a workload: the shares that the phase may have."""
    after: tuple[Name, ...] = ()
    """Phases of the same job that end before this one starts."""
    groups: tuple[Name, ...] = ()
    """Node groups that it may use; empty: all."""
    nodes: tuple[Nodes, ...] = ()
    """Numbers of nodes that it may have; empty: the usual ones."""
    slots: Slots = 0
    """CPU or environment slots that it holds, whatever its share."""
    slots_per_node: Slots = 0
    """Slots that it holds for each of its nodes, besides `slots`."""
    weights: Name | None = None
    """What stays on the nodes when the phase ends. A phase whose nodes all hold its weights
    already reloads nothing. Null: the job's actor (LoRA: the frozen base, whatever the job)."""
    reload_bytes: Annotated[float, Field(ge=0, le=MAX_BYTES)] | None = None
    """Bytes that each of its nodes reads when it does not hold the weights; null: the workload's
    models in 16 bits."""

    @model_validator(mode="after")
    def _one_source_of_times(self) -> Self:
        if (self.workload is None) == (not self.step_times):
            raise ValueError("give either a workload or step times")
        return self


class FleetJob(Schema):
    """One tenant's job: phases that form a directed acyclic graph."""

    name: Name
    """Unique among the jobs."""
    phases: tuple[FleetPhase, ...]
    """At least one."""
    release_s: TimeS = 0.0
    """Seconds from now before which nothing of the job can start."""
    due_s: TimeS | None = None
    """Seconds from now when it should be done; null: any time will do."""
    weight: Priority = 1.0
    """Priority: what one second of tardiness costs."""

    @model_validator(mode="after")
    def _phases_form_a_dag(self) -> Self:
        names = [phase.name for phase in self.phases]
        if not names:
            raise ValueError("a job needs at least one phase")
        if len(set(names)) != len(names):
            raise ValueError(f"phase names must differ, given {names}")
        done: set[str] = set()
        waiting = list(self.phases)
        for phase in self.phases:
            for before in phase.after:
                if before not in names:
                    raise ValueError(f"phase {phase.name!r} is after {before!r}, which is none")
        while waiting:
            ready = [phase for phase in waiting if done.issuperset(phase.after)]
            if not ready:
                stuck = ", ".join(phase.name for phase in waiting)
                raise ValueError(f"phases wait for one another: {stuck}")
            done.update(phase.name for phase in ready)
            waiting = [phase for phase in waiting if phase.name not in done]
        return self


class FleetRun(Schema):
    """Where and when a phase runs."""

    job: Name
    """The job."""
    phase: Name
    """Its phase."""
    group: Name
    """Node group."""
    first_node: NonNegativeInt
    """First node of its contiguous range in the group."""
    nodes: PositiveInt
    """Nodes in the range."""
    slots: NonNegativeInt
    """Slots that it holds."""
    start_s: NonNegativeFloat
    """Seconds from now when it takes its nodes; the reload comes first."""
    setup_s: NonNegativeFloat
    """Reload of weights, seconds; 0 when the nodes hold them already."""
    end_s: NonNegativeFloat
    """Seconds from now when it gives its nodes back."""
    step_time_s: NonNegativeFloat
    """Seconds of one of its steps on this share."""


class FleetJobResult(Schema):
    """What a schedule means for one job."""

    name: Name
    """The job."""
    weight: NonNegativeFloat
    """Priority."""
    due_s: NonNegativeFloat | None
    """When it should be done; null: any time."""
    start_s: NonNegativeFloat
    """When its first phase takes nodes."""
    end_s: NonNegativeFloat
    """When its last phase ends."""
    tardiness_s: NonNegativeFloat
    """Seconds by which it ends after it is due."""


class FleetSchedule(Schema):
    """One schedule of all jobs."""

    makespan_s: NonNegativeFloat
    """When the last job ends, seconds from now."""
    weighted_tardiness_s: NonNegativeFloat
    """Sum over the jobs of weight x tardiness, seconds."""
    runs: tuple[FleetRun, ...]
    """By start, then job."""
    jobs: tuple[FleetJobResult, ...]
    """In the order given."""
    utilisation: dict[Name, Fraction]
    """Group -> share of its node-seconds up to the makespan in which steps run, reloads excluded;
    "slots" -> the same of the slots, when they are limited."""


class FleetProgress(Schema):
    """A point of the search's trace: what was known after some evaluations."""

    evaluations: NonNegativeInt
    """Schedules evaluated."""
    makespan_s: NonNegativeFloat
    """Least makespan so far."""
    weighted_tardiness_s: NonNegativeFloat
    """Least total weighted tardiness so far."""


class FleetPlan(Schema):
    """The answer of `planner.plan_fleet`."""

    schema_version: PositiveInt = FLEET_SCHEMA_VERSION
    """Version of this format; fields are added without raising it."""
    planner_version: Name
    """Release of the planner that wrote it."""
    objective: Name
    """makespan, tardiness or pareto."""
    optimizer: Name
    """The optimizer that found it."""
    seed: NonNegativeInt
    """Seed of the optimizer."""
    schedules: tuple[FleetSchedule, ...]
    """The best schedule; for "pareto" the front of both objectives, by ascending makespan."""
    makespan_bound_s: NonNegativeFloat
    """No schedule with these shares to choose from ends earlier, seconds."""
    weighted_tardiness_bound_s: NonNegativeFloat
    """No such schedule has less weighted tardiness, seconds."""
    gap: Fraction
    """1 - bound / best value; for "pareto" the larger one of the front's two ends."""
    optimal: bool
    """The gap is within the tolerance; for "pareto" every point of the front is proven,
    to within 1/20,000 of the makespan unless all times are whole seconds."""
    status: Name
    """How the search ended, in words."""
    evaluations: NonNegativeInt
    """Schedules evaluated."""
    wall_s: NonNegativeFloat
    """Seconds of the whole call, the pricing of shares included."""
    trace: tuple[FleetProgress, ...]
    """How the best values came down."""
    assumptions: tuple[str, ...]
    """What the planner assumed because the user did not say it."""
    slots: NonNegativeInt | None
    """Slots of the cluster; null: as many as asked for."""
    cluster: Cluster
    """The cluster as planned."""
