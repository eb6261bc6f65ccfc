"""Replan: the plan after a change of the cluster, and what moves on the way to it."""

from __future__ import annotations

from typing import Literal

from planner.schema.base import Name, NonNegativeFloat, NonNegativeInt, PositiveInt, Schema
from planner.schema.plan import SCHEMA_VERSION, PlanSet
from planner.schema.strategy import Mesh, Strategy


class Move(Schema):
    """A unit (the calls that share one copy of a model) whose devices or layout change."""

    unit: Name
    """Name of the unit."""
    calls: tuple[Name, ...]
    """Its calls."""
    from_mesh: Mesh
    """Where it ran, in the numbers of the old cluster's nodes."""
    to_mesh: Mesh
    """Where it runs now, in the numbers of the new cluster's nodes."""
    from_strategy: Strategy
    """How the call that holds its state was parallelised."""
    to_strategy: Strategy
    """How it is now."""
    why: Literal["lost nodes", "room or speed"]
    """Whether it has to move, or moves to make room for others or for a faster step."""
    bytes: NonNegativeInt
    """State that devices receive because they do not hold it: weights and, where the unit is
    trained, optimizer state; an upper estimate when degrees change."""
    seconds: NonNegativeFloat
    """The most that one device receives over its scale-out bandwidth."""


class Replan(Schema):
    """The answer of `planner.replan`."""

    schema_version: PositiveInt = SCHEMA_VERSION
    """Version of this format; fields are added without raising it."""
    plans: PlanSet
    """The new plan alone, on the new cluster, with its bound; `rlmplan export` takes it."""
    moves: tuple[Move, ...]
    """What moves; units that are not named stay as they are."""
    moved_bytes: NonNegativeInt
    """Sum over the moves."""
    move_s: NonNegativeFloat
    """Seconds when the units move one after another."""
    old_step_time_s: NonNegativeFloat
    """Step time of the old plan on the old cluster."""
    least_step_time_s: NonNegativeFloat
    """Shortest step of all plans that were found, however much moves."""
    lost_devices: NonNegativeInt
    """Devices of the old cluster that are gone."""
    bound_from: Literal["new search", "old search", "work and depth"]
    """What `plans.search.bound_s` rests on: a search of the new cluster, that of the old one (which
    contains the new), or the hardware alone."""
    wall_s: NonNegativeFloat
    """Duration, seconds."""
