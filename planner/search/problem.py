"""The placement problem: what the exact search decides, free of models and devices.

A *unit* is a set of calls that share one copy of a model on one mesh in one layout: the actor's
training and log-probs, the critic's training and values, a frozen model's forward pass, the
generation engine. A unit's *option* is one Pareto candidate: a number of devices and the time of
each call. The search picks one option a unit, the devices, and the order of calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Unit:
    """A unit and its n options."""

    name: str
    calls: tuple[str, ...]
    """Calls of the unit, c of them; they never overlap in time (they share the mesh)."""
    group: IntArray
    """Node group of each option, index into `PlacementProblem.group_devices`; shape [n]."""
    devices: IntArray
    """Devices of each option; shape [n]."""
    time_s: FloatArray
    """Duration of each call; shape [n, c]."""
    resident_bytes: FloatArray
    """Bytes on each device of the mesh while no call of the unit runs; shape [n]."""
    peak_bytes: FloatArray
    """Bytes on each device while the call runs, the unit's own state included; shape [n, c]."""
    host_bytes_per_device: FloatArray
    """Host memory for each device, bytes; shape [n]."""


@dataclass(frozen=True)
class WeightSync:
    """New weights go from a trainer unit to an engine unit after `after_call`, once a step.

    It occupies the devices of both units.
    """

    trainer: str
    engine: str
    after_call: str
    before_call: str
    """The call that needs the new weights, of the next step as a rule."""
    shared_s: float
    """Seconds when the two units share devices."""
    disjoint_s: float
    """Seconds when they do not."""
    same_iteration: bool = False
    """True when `before_call` is that of the same step: it waits for the sync."""


@dataclass(frozen=True)
class PlacementProblem:
    """One placement problem: units, precedence, capacity, and the class of plans to consider."""

    units: tuple[Unit, ...]
    edges: tuple[tuple[str, str], ...]
    """Precedence of calls within one iteration (data dependencies), acyclic."""
    host_calls_s: dict[str, float]
    """Calls that use no device (CPU verifiers), with their duration; they may overlap anything."""
    syncs: tuple[WeightSync, ...]
    group_devices: tuple[int, ...]
    group_devices_per_node: tuple[int, ...]
    group_memory_bytes: tuple[float, ...]
    """Usable bytes of one device in each group."""
    group_host_memory_bytes: tuple[float, ...]
    """Host memory of one node in each group."""
    fixed_s: float = 0.0
    """Seconds added to every step (data loading, logging), during which devices are idle."""
    staleness: int = 0
    """0: the objective is the makespan of one iteration; k >= 1: the period of the cyclic
    schedule in which iteration i's samples are trained on at most k steps late."""
    must_share: tuple[tuple[str, str], ...] = ()
    """Pairs of units that must have exactly the same devices."""
    must_be_disjoint: tuple[tuple[str, str], ...] = ()
    """Pairs of units that must have no device in common."""
