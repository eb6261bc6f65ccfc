"""The two objectives: makespan of a synchronous step, period of an asynchronous one."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from planner.search.placement.capacity import add_capacity
from planner.search.placement.instance import Instance
from planner.search.placement.memory import add_memory
from planner.search.placement.relative import (
    Model,
    add_events,
    add_order,
    build,
    sharing_literals,
)
from planner.search.placement.windows import add_serial, add_windows, area


def step_model(
    instance: Instance, tick_s: float, memory_parts: int, most: int, least: int
) -> Model:
    """The whole model of an instance; its objective, in ticks, lies in [`least`, `most`]."""
    stale = instance.staleness
    model = build(instance, tick_s, most * (1 + stale))
    add_events(model)
    add_capacity(model)
    add_memory(model, memory_parts)
    step = model.cp.new_int_var(least, most, "step")
    if stale == 0:
        add_order(model)
        for end in model.end:
            model.cp.add(end <= step)
        add_windows(model, step)
    else:
        _add_loads(model, step)
        _add_period(model, step)
    model.cp.minimize(step)
    return model


def load_model(
    instance: Instance, tick_s: float, memory_parts: int, most: int, least: int
) -> Model:
    """The period without a schedule: area of each group, load of meshes that share devices.

    A relaxation of `step_model` for asynchronous steps, close to it (a schedule that keeps busy
    meshes busy nearly always exists) and ten times smaller. Only total times matter, so the options
    of a unit may be compared by their total (`reduce.by_load`).
    """
    model = build(instance, tick_s, most)
    add_capacity(model)
    add_memory(model, memory_parts)
    step = model.cp.new_int_var(least, most, "step")
    _add_loads(model, step)
    model.cp.minimize(step)
    return model


def _on_devices(instance: Instance) -> tuple[int, ...]:
    return tuple(e for e, meshes in enumerate(instance.event_meshes) if meshes)


def _add_loads(model: Model, period: Any) -> None:
    """Each group's area, and the events on meshes that pairwise share devices, fit in a period."""
    events = _on_devices(model.instance)
    for group, devices in enumerate(model.instance.group_devices):
        model.cp.add(area(model, events, group) <= devices * period)
    add_serial(model, events, period)


def _add_period(model: Model, period: Any) -> None:
    """The schedule repeats every `period`; an iteration lasts at most 1 + staleness periods.

    Two events that share a device do not overlap modulo the period: for one integer j,
    end_a <= start_b + j P and end_b <= start_a + (1 - j) P; also for pairs that the data orders.
    """
    instance, cp = model.instance, model.cp
    stale = instance.staleness
    for event in range(len(instance.events)):
        cp.add(model.end[event] <= (1 + stale) * period)
    for event in _on_devices(instance):
        cp.add(model.duration[event] <= period)
    for a, b in combinations(range(len(instance.events)), 2):
        sharing = sharing_literals(model, a, b)
        if sharing == []:
            continue
        shifts = []
        for j in range(-stale, stale + 2):
            literal = cp.new_bool_var(f"{a} {b} shift {j}")
            shifts.append(literal)
            cp.add(model.end[a] <= model.start[b] + j * period).only_enforce_if(literal)
            cp.add(model.end[b] <= model.start[a] + (1 - j) * period).only_enforce_if(literal)
        cp.add_at_most_one(shifts)
        for share in sharing or [None]:
            cp.add_bool_or([*shifts, share.negated()] if share is not None else shifts)
