"""Why a problem has no plan: the smallest shortage, and where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from planner.search.placement.capacity import add_capacity
from planner.search.placement.clock import Clock
from planner.search.placement.instance import Instance, compile_instance
from planner.search.placement.memory import MEMORY_PARTS, add_memory
from planner.search.placement.realise import realise
from planner.search.placement.reduce import by_memory
from planner.search.placement.relations import Relations
from planner.search.placement.relative import Model, build, chosen
from planner.search.placement.result import Shortage
from planner.search.problem import PlacementProblem, Unit

# The explanation may take this long after the deadline: an unexplained refusal is of no use.
_GRACE_S = 2.0
_GB = 1e9


def alone(problem: PlacementProblem) -> Shortage | None:
    """The largest shortage of a unit that cannot run even alone, or None."""
    found = [s for s in (unit_shortage(problem, unit) for unit in problem.units) if s is not None]
    return max(found, key=lambda s: (s.short_bytes, s.short_devices), default=None)


def together(problem: PlacementProblem, instance: Instance, clock: Clock) -> Shortage | None:
    """The smallest shortage of units that fit alone but not together; None if it was not found.

    `instance` is the compiled problem. Memory of all groups is stretched by the smallest factor
    that lets some plan exist; if none does, the devices are.
    """
    for a, b in problem.must_be_disjoint:
        mesh = instance.mesh_of[instance.units.index(a)]
        if mesh == instance.mesh_of[instance.units.index(b)]:
            return Shortage((a, b), None, 0, None, "options", 0.0, 0)
    endless = replace(
        problem,
        group_memory_bytes=(float("inf"),) * len(problem.group_memory_bytes),
        group_host_memory_bytes=(float("inf"),) * len(problem.group_host_memory_bytes),
    )
    relaxed = by_memory(compile_instance(endless))
    for members, units in zip(instance.meshes, relaxed.meshes, strict=True):
        if any(len(relaxed.options[u]) == 0 for u in units):
            names = tuple(instance.units[u] for u in members)
            return Shortage(names, None, 0, None, "options", 0.0, 0)
    relaxed = replace(
        relaxed,
        group_memory_bytes=instance.group_memory_bytes,
        group_host_bytes=instance.group_host_bytes,
    )
    return _memory_shortage(problem, relaxed, clock) or _device_shortage(relaxed, clock)


def _memory_shortage(
    problem: PlacementProblem, instance: Instance, clock: Clock
) -> Shortage | None:
    model = build(instance, 1.0, 0)
    add_capacity(model)
    stretch = model.cp.new_int_var(0, 64 * MEMORY_PARTS, "stretch")
    add_memory(model, MEMORY_PARTS, stretch)
    model.cp.minimize(stretch)
    solver = _solved(model, clock)
    if solver is None:
        return None
    choice = chosen(model, solver.boolean_value)
    disjoint = sum(
        bool(solver.boolean_value(model.disjoint[pair])) << bit
        for bit, pair in enumerate(instance.pairs)
    )
    return _worst_clique(problem, instance, choice, disjoint) or _worst_node(
        instance, choice, disjoint
    )


def _worst_clique(
    problem: PlacementProblem, instance: Instance, choice: list[int], disjoint: int
) -> Shortage | None:
    """The largest lack of memory among meshes that share devices."""
    found: list[Shortage] = []
    for clique in Relations(instance).shared_cliques(disjoint):
        units = [u for mesh in clique for u in instance.meshes[mesh]]
        rows = [instance.options[u].take([choice[u]]) for u in units]
        group, devices = rows[0].key(0)
        devices = max(devices, *(r.key(0)[1] for r in rows))
        extra = [float(r.extra_bytes[0]) for r in rows]
        running = units[int(np.argmax(extra))]
        need = sum(float(r.resident_bytes[0]) for r in rows) + max(extra)
        host = sum(float(r.host_bytes_per_node[0]) for r in rows)
        names = tuple(instance.units[u] for u in units)
        lack = need - instance.group_memory_bytes[group]
        lack_host = host - instance.group_host_bytes[group]
        if lack > 0:
            unit = problem.units[running]
            origin = int(instance.options[running].origin[choice[running]])
            call = unit.calls[int(np.asarray(unit.peak_bytes)[origin].argmax())]
            found.append(Shortage(names, group, devices, call, "device memory", lack, 0))
        if lack_host > 0:
            found.append(Shortage(names, group, devices, None, "host memory", lack_host, 0))
    return max(found, key=lambda s: s.short_bytes, default=None)


def _worst_node(instance: Instance, choice: list[int], disjoint: int) -> Shortage | None:
    """The largest lack of host memory on a node where meshes lie that share no device."""
    keys = [instance.options[members[0]].key(choice[members[0]]) for members in instance.meshes]
    host = [
        sum(float(instance.options[u].host_bytes_per_node[choice[u]]) for u in members)
        for members in instance.meshes
    ]
    endless = replace(instance, group_host_bytes=(float("inf"),) * len(instance.group_host_bytes))
    first = realise(endless, keys, disjoint, 0, host).first
    if first is None:
        return None
    found: list[Shortage] = []
    for group, begin in {(key[0], start) for key, start in zip(keys, first, strict=True)}:
        per_node = instance.group_devices_per_node[group]
        node = begin // per_node
        here = [
            mesh
            for mesh, (key, start) in enumerate(zip(keys, first, strict=True))
            if key[0] == group and start // per_node <= node <= (start + key[1] - 1) // per_node
        ]
        lack = sum(host[mesh] for mesh in here) - instance.group_host_bytes[group]
        if lack > 0:
            names = tuple(instance.units[u] for mesh in here for u in instance.meshes[mesh])
            found.append(Shortage(names, group, per_node, None, "host memory", lack, 0))
    return max(found, key=lambda s: (s.short_bytes, s.units), default=None)


def _device_shortage(instance: Instance, clock: Clock) -> Shortage | None:
    """How many devices a group lacks for meshes that must be disjoint."""
    model = build(instance, 1.0, 0)
    total = sum(int(rows.devices.max()) for rows in instance.options)
    more = {
        group: model.cp.new_int_var(0, total, f"more devices {group}")
        for group in range(len(instance.group_devices))
    }
    add_capacity(model, more)
    model.cp.minimize(sum(more.values()))
    solver = _solved(model, clock)
    if solver is None or solver.objective_value < 1:
        return None
    group = max(more, key=lambda g: (solver.value(more[g]), -g))
    apart = {mesh for pair in instance.apart for mesh in pair}
    names = tuple(instance.units[u] for m in sorted(apart) for u in instance.meshes[m])
    return Shortage(names, group, 0, None, "devices", 0.0, int(solver.value(more[group])))


def _solved(model: Model, clock: Clock) -> Any:
    """The solver with a solution, or None."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if clock.left_s is not None:
        solver.parameters.max_time_in_seconds = max(clock.left_s, _GRACE_S)
    status = solver.solve(model.cp)
    return solver if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None


def text(shortage: Shortage) -> str:
    """The shortage in a sentence."""
    who = " and ".join(shortage.units)
    verb = "needs" if len(shortage.units) == 1 else "together need"
    where = f"group {shortage.group}"
    if shortage.devices:
        where = f"{shortage.devices} devices of {where}"
    short = f"{shortage.short_bytes / _GB:,.2f} GB more"
    if shortage.kind == "device memory":
        return f"{who} {verb} {short} on each device than {where} offer while {shortage.call} runs"
    if shortage.kind == "host memory":
        return f"{who} {verb} {short} host memory on each node of {where}"
    if shortage.kind == "devices":
        more = "1 device" if shortage.short_devices == 1 else f"{shortage.short_devices} devices"
        return f"{who} {verb} {more} more than {where} offers"
    if len(shortage.units) == 1:
        return f"{who} has no option that can run"
    return f"{who} have no options that meet the rules on sharing devices"


def unit_shortage(problem: PlacementProblem, unit: Unit) -> Shortage | None:
    """What one unit lacks to run alone on the device group where it lacks least; None: nothing."""
    n = len(unit.devices)
    time_s = np.asarray(unit.time_s, dtype=np.float64).reshape(n, len(unit.calls))
    runs = np.isfinite(time_s).all(axis=1)
    if not runs.any():
        return Shortage((unit.name,), None, 0, None, "options", 0.0, 0)
    group = np.asarray(unit.group, dtype=np.int64)
    devices = np.asarray(unit.devices, dtype=np.int64)
    peak = np.asarray(unit.peak_bytes, dtype=np.float64).reshape(n, len(unit.calls))
    most = np.maximum(peak.max(axis=1, initial=0.0), np.asarray(unit.resident_bytes))
    per_node = np.minimum(devices, np.asarray(problem.group_devices_per_node)[group])
    host = np.asarray(unit.host_bytes_per_device, dtype=np.float64) * per_node
    lack_devices = np.maximum(devices - np.asarray(problem.group_devices)[group], 0)
    lack_bytes = np.maximum(most - np.asarray(problem.group_memory_bytes)[group], 0.0)
    lack_host = np.maximum(host - np.asarray(problem.group_host_memory_bytes)[group], 0.0)
    if (runs & (lack_devices == 0) & (lack_bytes == 0) & (lack_host == 0)).any():
        return None
    # Devices cannot be had by offloading, host memory is cheaper than device memory.
    rows = np.flatnonzero(runs)
    k = int(rows[np.lexsort((lack_host[rows], lack_bytes[rows], lack_devices[rows]))[0]])
    call = unit.calls[int(peak[k].argmax())] if unit.calls else None
    place = int(group[k]), int(devices[k])
    if lack_devices[k]:
        return Shortage((unit.name,), *place, None, "devices", 0.0, int(lack_devices[k]))
    if lack_bytes[k]:
        return Shortage((unit.name,), *place, call, "device memory", float(lack_bytes[k]), 0)
    return Shortage((unit.name,), *place, None, "host memory", float(lack_host[k]), 0)
