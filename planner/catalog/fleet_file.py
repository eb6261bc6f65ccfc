"""The keys of a fleet file, as users write them (hours, GiB, GB/s; units in the keys)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from planner.schema.base import Name, Schema
from planner.schema.fleet import Priority, Slots, Steps, StepTimeS
from planner.schema.hardware import Nodes

Hours = Annotated[float, Field(ge=0, le=2e5)]


class PhaseFile(Schema):
    """A phase: either `problem` or `step_times`."""

    name: Name | None = None
    steps: Steps | None = None
    problem: Name | None = None
    """A problem file as `rlmplan plan` reads it; its cluster is not used."""
    step_times: dict[Name, dict[str, StepTimeS]] | None = None
    """Measured instead: node group -> number of nodes -> seconds of a step."""
    after: tuple[Name, ...] = ()
    groups: tuple[Name, ...] = ()
    nodes: tuple[Nodes, ...] = ()
    slots: Slots = 0
    slots_per_node: Slots = 0
    weights: Name | None = None
    reload_gib: Annotated[float, Field(ge=0, le=9e5)] | None = None
    """GiB that each node reads when it does not hold the phase's weights."""


class JobFile(PhaseFile):
    """A job: either `phases`, or the keys of its only phase."""

    release_h: Hours = 0.0
    """Hours from now before which it cannot start."""
    due_h: Hours | None = None
    """Hours from now when it should be done."""
    weight: Priority = 1.0
    phases: tuple[PhaseFile, ...] | None = None


class FleetFile(Schema):
    """The keys of a fleet file."""

    cluster: str | dict[str, Any] | None = None
    """NAME:NODESxDEVICES, the path of a cluster file, or its content inline."""
    slots: Slots | None = None
    """CPU or environment slots of the cluster; unlimited when left out."""
    storage_gb_s: Annotated[float, Field(ge=1e-3, le=1e5)] | None = None
    """GB/s at which one node reads weights."""
    objective: Literal["makespan", "tardiness", "pareto"] | None = None
    optimizer: Name | None = None
    budget: Annotated[int, Field(ge=1, le=10**9)] | None = None
    deadline_s: Annotated[float, Field(gt=0, le=1e7)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    jobs: tuple[JobFile, ...]
