"""Capacity: how many of which devices a run needs, and what it costs."""

from __future__ import annotations

from planner.schema.base import Name, NonNegativeFloat, PositiveFloat, Schema
from planner.schema.front import FrontPoint
from planner.schema.hardware import Cluster
from planner.schema.plan import SCHEMA_VERSION
from planner.schema.workload import Workload


class CapacityChoice(Schema):
    """A number of devices of one cluster, and the whole run on them."""

    cluster: Name
    """The cluster that it is part of."""
    devices_in_words: str
    """For example "64 h100-80-sxm"."""
    run_s: NonNegativeFloat
    """All steps one after another, seconds."""
    run_interval_s: tuple[NonNegativeFloat, NonNegativeFloat]
    """80 % interval of it."""
    device_hours: NonNegativeFloat
    """Reserved devices times the duration."""
    cost_usd: NonNegativeFloat | None
    """Price of the run, US dollars; null when a device has no price."""
    meets: bool
    """It ends in time and within the budget."""
    surely: bool
    """It does so at the slow end of the interval, too."""
    point: FrontPoint
    """The best plan on so many devices."""


class Capacity(Schema):
    """The answer of `planner.capacity`."""

    schema_version: int = SCHEMA_VERSION
    """Version of this format; fields are added without raising it."""
    steps: PositiveFloat
    """Steps of the run."""
    within_s: PositiveFloat | None
    """Seconds that it may take."""
    budget_usd: PositiveFloat | None
    """US dollars that it may cost."""
    choices: tuple[CapacityChoice, ...]
    """Best first: those that meet the limits, the cheapest first (with a budget and no deadline
    the fastest; those without a price last, kind by kind), then the others, the nearest first."""
    verdict: str
    """The answer in a sentence."""
    without_plan: tuple[str, ...]
    """Clusters that hold no plan, and why."""
    assumptions: tuple[str, ...]
    """What the planner assumed because the user did not say it."""
    workload: Workload
    """The workload as planned."""
    clusters: tuple[Cluster, ...]
    """The clusters as searched."""
