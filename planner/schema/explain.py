"""Explanation of a plan, and Comparison of two: why, what binds, what a change would give."""

from __future__ import annotations

from typing import Literal

from planner.schema.analysis import Limit
from planner.schema.base import Name, NonNegativeFloat, NonNegativeInt, PositiveInt, Schema
from planner.schema.check import CallChange
from planner.schema.plan import SCHEMA_VERSION, MemoryVerdict
from planner.schema.workload import CallKind

BindKind = Literal["memory", "host memory", "rule", "tail", "network", "environment"]
"""What keeps a plan from being faster."""


class CallReason(Schema):
    """Where the time and the memory of one call go."""

    kind: CallKind
    """What the call does."""
    time_s: NonNegativeFloat
    """Predicted duration."""
    share_of_step: NonNegativeFloat
    """time_s over the step time; calls that run side by side add up to more than one."""
    bottleneck: Name
    """The largest part of the time."""
    bottleneck_share: NonNegativeFloat
    """Its share of the call's time."""
    bound_by: Limit
    """The kind of limit with the largest share of the time."""
    parallelism: NonNegativeFloat | None
    """Devices that the call can use (W / D); null for CPU work."""
    memory_bytes: NonNegativeInt
    """Bytes on the fullest device while it runs, the reserve included; 0 for CPU work."""
    capacity_bytes: NonNegativeInt
    """What a device offers; 0 for CPU work."""
    memory_verdict: MemoryVerdict
    """fits, tight or does not fit."""


class Rival(Schema):
    """Another plan of the same search: what it does otherwise and what that costs."""

    rank: PositiveInt
    """Its rank."""
    placement: Name
    """Its placement in words."""
    step_time_s: NonNegativeFloat
    """Its step time."""
    worse: float
    """How much worse it is by the objective, relative to the explained plan; negative: better."""
    tie: bool
    """Too close to the best for the model to tell."""
    changes: tuple[CallChange, ...]
    """What it does otherwise, call by call: `have_s` in the explained plan, `want_s` in this."""
    costs_most: str
    """The call (or overhead) that loses it most time, in words; empty when none does."""


class Bind(Schema):
    """One thing that keeps the plan from being faster."""

    kind: BindKind
    """What it is."""
    call: str
    """The call that it concerns."""
    message: str
    """In words, with numbers."""
    change: str
    """The change that it forbids, for example "actor_train recompute full -> none"; or empty."""
    saving: NonNegativeFloat
    """Share of the step that the change would save, or that the limit takes."""


class Sensitivity(Schema):
    """What one change of hardware or workload would give."""

    change: Name
    """In words, for example "scale-out bandwidth x 2"."""
    same_plan_s: NonNegativeFloat | None
    """Step time of this plan then; null when it cannot run, or the change does not touch it."""
    replanned_s: NonNegativeFloat | None
    """Step time of the best plan then; null when not planned again, or no plan fits."""
    saving: float
    """Share by which the objective improves: this plan as it is, or the best plan then against the
    best plan now; the larger one."""
    devices: PositiveInt | None
    """Devices that the best plan then reserves."""
    cost_per_step_usd: NonNegativeFloat | None
    """Its price for a step."""
    placement: str
    """Its placement, where it differs from this plan's; or why there is none."""


class Guideline(Schema):
    """A published rule of thumb that speaks of this plan."""

    rule: Name
    """The rule."""
    here: str
    """What the plan does, with numbers."""
    follows: bool
    """Whether the plan agrees with it."""
    source: Name
    """Who published it."""


class Explanation(Schema):
    """Why a plan is as it is."""

    schema_version: PositiveInt = SCHEMA_VERSION
    """Version of this format; fields are added without raising it."""
    rank: PositiveInt
    """Rank of the plan that is explained."""
    placement: Name
    """Its placement in words."""
    devices: PositiveInt
    """Devices that it reserves."""
    step_time_s: NonNegativeFloat
    """Its step time."""
    bound_s: NonNegativeFloat
    """No plan of the search space has a shorter step."""
    reasons: tuple[str, ...]
    """What the plan is, and what binds it most, in sentences."""
    calls: dict[Name, CallReason]
    """Every call of the iteration."""
    rivals: tuple[Rival, ...]
    """The other plans of the search, best first."""
    binds: tuple[Bind, ...]
    """What keeps it from being faster: changes that are forbidden, largest saving first, then the
    tail, the network and the environment."""
    sensitivities: tuple[Sensitivity, ...]
    """What changes would give, largest saving first."""
    guidelines: tuple[Guideline, ...]
    """Published rules that apply."""
    notes: tuple[str, ...] = ()
    """What was left out, and why."""


class Side(Schema):
    """One side of a comparison."""

    name: Name
    """What the user called it."""
    placement: Name
    """Placement in words."""
    cluster: Name
    """Node groups in words."""
    space: Name
    """Search space of the plan."""
    devices: PositiveInt
    """Devices that it reserves."""
    staleness: NonNegativeInt
    """Versions that samples may be old."""
    step_time_s: NonNegativeFloat
    """Seconds of a step."""
    step_time_interval_s: tuple[NonNegativeFloat, NonNegativeFloat]
    """80 % interval."""
    tokens_per_s: NonNegativeFloat
    """Prompt and response tokens of a step over the step time."""
    tokens_per_s_per_device: NonNegativeFloat
    """The same for each reserved device."""
    cost_per_step_usd: NonNegativeFloat | None
    """Price of the reserved devices for a step; null when a device has no price."""
    cost_per_billion_tokens_usd: NonNegativeFloat | None
    """Price of 1e9 prompt and response tokens."""
    fullest_bytes: NonNegativeInt
    """Bytes on the fullest device of all calls."""
    fullest_capacity_bytes: NonNegativeInt
    """What that device offers."""
    fits: bool
    """Whether every call fits in memory."""
    broken: tuple[str, ...]
    """Rules of its launcher that it breaks (launcher configurations only)."""


class CallPair(Schema):
    """One call on both sides."""

    call: Name
    """Name of the call, or of an overhead."""
    left: str
    """Devices, degrees and knobs on the left; empty when the call is not there."""
    right: str
    """The same on the right."""
    left_s: NonNegativeFloat | None
    """Its time on the left; null when the call is not there."""
    right_s: NonNegativeFloat | None
    """Its time on the right."""
    change: str
    """Fields that differ, from left to right, in words."""


class Comparison(Schema):
    """Two plans side by side."""

    schema_version: PositiveInt = SCHEMA_VERSION
    """Version of this format; fields are added without raising it."""
    left: Side
    """The first plan."""
    right: Side
    """The second plan."""
    calls: tuple[CallPair, ...]
    """Calls and overheads, those that run first first."""
    speedup: NonNegativeFloat
    """Tokens a second on the right over those on the left; above one the right is faster."""
    cost_ratio: NonNegativeFloat | None
    """Cost of a token on the right over that on the left; null where a price is unknown."""
    tie: bool
    """The two are too close for the model to tell."""
    verdict: str
    """Which is better, by how much and where it comes from, in words."""
    workload_differs: tuple[str, ...]
    """Fields of the workload that differ: then times are not those of the same step."""
