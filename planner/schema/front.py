"""ParetoFront: the best step time of each number of devices."""

from __future__ import annotations

from planner.schema.base import Name, NonNegativeFloat, NonNegativeInt, PositiveInt, Schema
from planner.schema.hardware import Cluster
from planner.schema.plan import SCHEMA_VERSION, Plan
from planner.schema.workload import Workload


class FrontPoint(Schema):
    """The best plan on a sub-cluster of one size."""

    size: tuple[NonNegativeInt, ...]
    """Devices of each node group that plans may reserve."""
    devices: PositiveInt
    """Devices that the plan reserves; fewer than the size where more do not help."""
    step_time_s: NonNegativeFloat
    """Seconds of a step."""
    bound_s: NonNegativeFloat
    """No plan on the sub-cluster has a shorter step."""
    tokens_per_s: NonNegativeFloat
    """Prompt and response tokens of a step over the step time."""
    cost_per_step_usd: NonNegativeFloat | None
    """Price of the reserved devices for one step; null when a device has no price."""
    device_hours_per_billion_tokens: NonNegativeFloat
    """Device-hours for 1e9 prompt and response tokens."""
    cost_per_billion_tokens_usd: NonNegativeFloat | None
    """Price of 1e9 prompt and response tokens."""
    scaling_efficiency: NonNegativeFloat
    """Tokens a second and device, over those of the smallest size that holds a plan."""
    dominated: bool
    """Another point has no more devices, no longer step and no higher cost, and less of one; or
    the same plan on fewer devices."""
    knee: bool
    """The point of the front with the least product of step time and cost (device-seconds without
    prices): beyond it a per cent of time costs more than a per cent of money."""
    best: bool = False
    """The best point by the front's objective."""
    plan: Plan
    """The best plan."""


class ParetoFront(Schema):
    """The answer of `planner.pareto`."""

    schema_version: PositiveInt = SCHEMA_VERSION
    """Version of this format; fields are added without raising it."""
    planner_version: Name
    """Release of the planner that wrote it."""
    space: Name
    """Name of the search space."""
    objective: Name = "step_time"
    """What `FrontPoint.best` is best by; plans are the fastest of their size in any case."""
    points: tuple[FrontPoint, ...]
    """Fewest devices first."""
    without_plan: tuple[tuple[NonNegativeInt, ...], ...]
    """Sizes that hold no plan (or none was found in time)."""
    optimal: bool
    """Every point is within the tolerance that was asked for of its bound."""
    wall_s: NonNegativeFloat
    """Duration of the search, seconds."""
    candidates: NonNegativeInt
    """Strategies costed, once for all sizes."""
    assumptions: tuple[str, ...]
    """What the planner assumed because the user did not say it."""
    input_hashes: dict[Name, Name]
    """SHA-256 of workload, cluster, search space, framework and kernel profiles."""
    workload: Workload
    """The workload as planned."""
    cluster: Cluster
    """The cluster as planned."""
