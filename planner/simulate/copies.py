"""Which calls of an assignment share one copy of a model, and what a second copy costs.

The rule: a forward pass of a trained model runs on the trainer's copy if it has the trainer's mesh
and weight layout. Else it has a copy of its own, which exists while the pass runs: it receives the
new weights from the trainer just before, and keeps nothing afterwards. That is only so where the
search space allows reallocation; under other launchers a role has one layout.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.cost.arrays import CallCosts, FloatArray, StrategyArrays
from planner.cost.reallocation import LAYOUT_FIELDS, reallocation_s
from planner.schema import Assignment, Mesh, Strategy
from planner.simulate.fusions import with_fusions
from planner.simulate.instance import Instance
from planner.workload.units import CallUnit, with_copies

Place = tuple[Mesh, tuple[int, ...]]
"""Mesh, and the degrees that say which weights lie where."""


def of_assignment(instance: Instance, assignment: Assignment) -> Instance:
    """The instance with the assignment's fusions, and the copies that it implies as units."""
    instance = with_fusions(instance, assignment.fusions)
    if not instance.reallocates:
        return instance
    copies: list[CallUnit] = []
    for unit in instance.units:
        forward = forward_calls(instance, unit)
        if not forward or not set(unit.calls) <= assignment.meshes.keys():
            continue
        train = next(name for name in unit.calls if instance.call(name).kind == "train")
        moved: dict[Place, list[str]] = {}
        for name in forward:
            place = _place(assignment, name)
            if place != _place(assignment, train):
                moved.setdefault(place, []).append(name)
        for number, names in enumerate(moved.values()):
            copies.append(CallUnit(copy_name(unit.name, number), tuple(names)))
    return replace(instance, units=with_copies(instance.units, copies)) if copies else instance


def forward_calls(instance: Instance, unit: CallUnit) -> tuple[str, ...]:
    """Forward calls of the model that the unit trains, fused ones excepted, which stay with it;
    none for a unit that trains nothing."""
    calls = [instance.call(name) for name in unit.calls]
    trained = {call.role for call in calls if call.kind == "train"}
    return tuple(
        call.name
        for call in calls
        if call.kind == "forward" and call.role in trained and call.name not in instance.adjustments
    )


def copy_name(unit: str, number: int = 0) -> str:
    """Name of a copy of a trainer's model."""
    return f"{unit}_copy" + (f"_{number + 1}" if number else "")


def _place(assignment: Assignment, call: str) -> Place:
    return assignment.meshes[call], layout(assignment.strategies[call])


def layout(strategy: Strategy) -> tuple[int, ...]:
    """The degrees that say which weights lie where."""
    return tuple(getattr(strategy, name) for name in LAYOUT_FIELDS)


def transfer_s(instance: Instance, assignment: Assignment, call: str) -> float:
    """Seconds for the weights of a copy to arrive; 0 for a call that runs on no copy."""
    train = instance.copies.get(call)
    if train is None:
        return 0.0
    mesh = assignment.meshes[call]
    context = instance.context(
        instance.call(call), instance.cluster.group(mesh.group), assignment.staleness
    )
    source, destination = (
        StrategyArrays.from_strategies([assignment.strategies[name]]) for name in (train, call)
    )
    here = mesh == assignment.meshes[train]
    return float(reallocation_s(context, destination, source if here else None)[0])


def on_copy(costs: CallCosts, reallocation_s: FloatArray) -> CallCosts:
    """Costs of a forward pass whose weights arrive first; shapes [n].

    `costs` are those of a frozen model: its own bf16 weights and no training state. Once the pass
    is over nothing stays, since the weights are out of date with the next optimizer step.
    """
    nothing = np.zeros(len(costs.time_s))
    return replace(
        costs,
        time_s=costs.time_s + reallocation_s,
        time_parts_s=costs.time_parts_s | {"reallocation": reallocation_s},
        resident_bytes=nothing,
        host_bytes_per_device=nothing,
    )
