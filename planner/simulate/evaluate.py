"""What one assignment costs: every call priced on its mesh, scheduled, and held against memory."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from planner.cost.arrays import CallCosts
from planner.cost.memory import usable_bytes, verdict
from planner.errors import InputError
from planner.schema import (
    Assignment,
    Call,
    CallPrediction,
    Cluster,
    Mesh,
    Plan,
    Prediction,
    Workload,
)
from planner.schema.plan import MemoryVerdict
from planner.simulate.bounds import work_depth_bound_s
from planner.simulate.check import check_assignment
from planner.simulate.copies import of_assignment, on_copy, transfer_s
from planner.simulate.instance import Instance, instance_for
from planner.simulate.prices import Prices, price_assignments, price_key
from planner.simulate.schedule import DeviceRange, Schedule, schedule_on_meshes
from planner.workload.calls import workload_of
from planner.workload.environment import workers_needed
from planner.workload.units import CallUnit

# A central interval that holds 80 % of a normal distribution is +-1.2816 standard deviations.
Z_80 = 1.2816
# Efficiencies carried over from another device's kernel table are off by about this much in log
# time: A100 and B200 predicted from the H100 table (docs/adding-a-device.md).
CARRIED_TABLE_ERROR = 0.2


def evaluate(plan: Plan | Assignment, workload: Workload, cluster: Cluster) -> Prediction:
    """Price a plan, or any assignment of calls to meshes and strategies.

    No search takes place: the strategies are taken as given, whether or not they are legal for a
    launcher, and a call that does not fit in memory is reported as such.

    Raises InputError when a call has no mesh or strategy, a mesh lies outside the cluster, or a
    strategy's degrees do not multiply to its mesh's devices.
    """
    assignment = plan.assignment if isinstance(plan, Plan) else plan
    instance = instance_for(assignment, workload, cluster)
    return evaluate_instance(instance, assignment)


def evaluate_instance(
    instance: Instance,
    assignment: Assignment,
    *,
    bound_s: float | None = None,
    prices: Prices | None = None,
) -> Prediction:
    """`evaluate` with everything loaded; `bound_s` is the work-depth bound if it is known, and
    `prices` those of the assignment's calls (`price_assignments`)."""
    instance = of_assignment(instance, assignment)
    check_assignment(instance, assignment)
    if prices is None:
        prices = price_assignments(instance, [assignment])
    costs = {
        call.name: priced(instance, assignment, call, prices)
        for call in instance.calls
        if call.kind != "environment"
    }
    syncs_s = sync_times_s(instance, assignment)
    schedule = planned_schedule(instance, assignment, costs, syncs_s)
    # The workers' throughput bounds a step even where their latency hides behind other steps.
    step_time_s = max(schedule.step_time_s, instance.pool_s) + instance.fixed_s
    calls = {
        call.name: _predict(instance, assignment, call, costs, schedule) for call in instance.calls
    }
    devices = used_devices(assignment)
    if bound_s is None:
        bound_s = work_depth_bound_s(instance, assignment.staleness)
    return Prediction(
        step_time_s=step_time_s,
        step_time_interval_s=_interval(instance, step_time_s, bound_s),
        work_depth_bound_s=bound_s,
        tokens_per_s_per_device=_tokens(instance.workload) / step_time_s / devices,
        cost_per_step_usd=_cost_usd(instance.cluster, assignment, step_time_s),
        staleness=assignment.staleness,
        calls=calls,
        overheads_s=syncs_s | {"step_overhead": instance.fixed_s},
        fits=all(call.memory_verdict != "does not fit" for call in calls.values()),
    )


def device_range(cluster: Cluster, mesh: Mesh) -> DeviceRange:
    """The mesh as a range of devices of its group."""
    index = [group.name for group in cluster.groups].index(mesh.group)
    per_node = cluster.groups[index].devices_per_node
    return DeviceRange(index, mesh.first_node * per_node + mesh.first_device, mesh.devices)


def used_devices(assignment: Assignment) -> int:
    """Devices in the union of all meshes."""
    return sum(_used_by_group(assignment).values())


def _used_by_group(assignment: Assignment) -> dict[str, int]:
    by_group: dict[str, list[Mesh]] = {}
    for mesh in dict.fromkeys(assignment.meshes.values()):
        by_group.setdefault(mesh.group, []).append(mesh)
    return {group: _union(meshes) for group, meshes in by_group.items()}


def _union(meshes: list[Mesh]) -> int:
    """Devices that lie in at least one of the meshes of a group."""
    edges = sorted({edge for m in meshes for edge in (m.first_node, m.first_node + m.nodes)})
    total = 0
    for begin, end in pairwise(edges):
        inside = [m for m in meshes if m.first_node <= begin < m.first_node + m.nodes]
        covered = 0
        for mesh in sorted(inside, key=lambda m: m.first_device):
            last = mesh.first_device + mesh.devices_per_node
            total += max(0, last - max(covered, mesh.first_device)) * (end - begin)
            covered = max(covered, last)
    return total


def priced(instance: Instance, assignment: Assignment, call: Call, prices: Prices) -> CallCosts:
    """Costs of a call of an assignment, the transfer to a copy included; InputError where it cannot
    run."""
    costs = prices[price_key(instance, assignment, call)]
    if not math.isfinite(costs.time_s[0]):
        group = instance.cluster.group(assignment.meshes[call.name].group)
        raise InputError(
            f"{call.name} cannot run with this strategy on {group.device.id}: the device has no "
            "room for the model and one sequence",
            where=f"assignment: strategies.{call.name}",
            remedy="Split the model over more devices or raise memory_fraction",
        )
    if call.name in instance.copies:
        return on_copy(costs, np.array([transfer_s(instance, assignment, call.name)]))
    return costs


def sync_times_s(instance: Instance, assignment: Assignment) -> dict[str, float]:
    """Seconds of every weight transfer by name."""
    meshes = assignment.meshes
    return {
        sync.name: instance.sync_s(
            sync, shared=meshes[sync.after_call].overlaps(meshes[sync.before_call])
        )
        for sync in instance.syncs
    }


def planned_schedule(
    instance: Instance,
    assignment: Assignment,
    costs: dict[str, CallCosts],
    syncs_s: dict[str, float],
) -> Schedule:
    """The best order of the calls and weight syncs of an assignment."""
    ranges = {name: [device_range(instance.cluster, assignment.meshes[name])] for name in costs}
    durations = {name: float(cost.time_s[0]) for name, cost in costs.items()}
    durations |= instance.host_calls_s | syncs_s
    edges = list(instance.edges)
    for sync in instance.syncs:
        ranges[sync.name] = ranges[sync.after_call] + ranges[sync.before_call]
        edges.append((sync.after_call, sync.name))
        if sync.same_iteration:
            edges.append((sync.name, sync.before_call))
    return schedule_on_meshes(
        durations,
        edges,
        ranges,
        staleness=assignment.staleness,
    )


def _predict(
    instance: Instance,
    assignment: Assignment,
    call: Call,
    costs: dict[str, CallCosts],
    schedule: Schedule,
) -> CallPrediction:
    start_s = max(0.0, schedule.start_s[call.name])
    if call.kind == "environment":
        time_s = instance.host_calls_s[call.name]
        if assignment.staleness == 0:
            # The pool may still be busy when the last scores of generation are due.
            time_s = max(time_s, instance.pool_s - start_s)
        return CallPrediction(
            kind=call.kind,
            role=call.role,
            mesh=None,
            strategy=None,
            start_s=start_s,
            time_s=time_s,
            time_parts_s={"environment": time_s},
            bottleneck="environment",
            memory_bytes={},
            memory_verdict="fits",
            workers_needed=_workers_needed(instance, call, costs),
            work_flop=0.0,
            traffic_bytes=0.0,
            depth=0,
            bound_s=0.0,
        )
    cost = costs[call.name]
    parts = {name: float(value[0]) for name, value in cost.time_parts_s.items() if value[0] > 0}
    memory, fits = _memory(instance, assignment, call, costs)
    return CallPrediction(
        kind=call.kind,
        role=call.role,
        mesh=assignment.meshes[call.name],
        strategy=assignment.strategies[call.name],
        start_s=start_s,
        time_s=float(cost.time_s[0]),
        time_parts_s=parts,
        bottleneck=max(parts, key=lambda name: parts[name]) if parts else "none",
        memory_bytes=memory,
        memory_verdict=fits,
        workers_needed=_workers_needed(instance, call, costs),
        work_flop=float(cost.work_flop[0]),
        traffic_bytes=float(cost.traffic_bytes[0]),
        depth=int(cost.depth[0]),
        bound_s=float(cost.bound_s[0]),
    )


def _workers_needed(instance: Instance, call: Call, costs: dict[str, CallCosts]) -> float | None:
    """Workers of the environment that do not slow generation down."""
    if call.kind not in ("generate", "environment"):
        return None
    generates = [call.name]
    if call.kind == "environment":
        generates = [each.name for each in instance.calls if each.kind == "generate"]
    generation_s = sum(
        float(costs[name].time_s[0] - costs[name].time_parts_s["environment_pool"][0])
        for name in generates
    )
    return workers_needed(workload_of(call, instance.workload), call, generation_s)


def _memory(
    instance: Instance, assignment: Assignment, call: Call, costs: dict[str, CallCosts]
) -> tuple[dict[str, int], MemoryVerdict]:
    """Items on the fullest device while the call runs, and whether they fit."""
    mesh = assignment.meshes[call.name]
    device = instance.cluster.group(mesh.group).device
    own = instance.unit_of(call.name)
    items = {
        name: round(float(value[0]))
        for name, value in costs[call.name].memory_parts_bytes.items()
        if value[0] > 0
    }
    others = _others_resident_bytes(instance, assignment, own, mesh, costs)
    if others > 0:
        items["other_models"] = round(others)
    usable = usable_bytes(device, instance.framework)
    fits = verdict(float(sum(items.values())), usable)
    items["reserve"] = round(device.memory_bytes - usable)
    items["total"] = sum(items.values())
    items["capacity"] = device.memory_bytes
    return items, fits


def _others_resident_bytes(
    instance: Instance,
    assignment: Assignment,
    own: CallUnit | None,
    mesh: Mesh,
    costs: dict[str, CallCosts],
) -> float:
    """What other units keep on the device of the mesh that holds most of it, bytes."""
    here = device_range(instance.cluster, mesh)
    held: list[tuple[DeviceRange, float]] = []
    for unit in instance.units:
        there = device_range(instance.cluster, assignment.meshes[unit.calls[0]])
        if unit != own and here.overlaps(there):
            held.append((there, max(float(costs[name].resident_bytes[0]) for name in unit.calls)))
    # The fullest device is the first one of this mesh or of one of the others.
    firsts = {max(here.first, there.first) for there, _ in held}
    return max(
        (
            sum(size for there, size in held if there.first <= at < there.first + there.count)
            for at in firsts
        ),
        default=0.0,
    )


def _interval(instance: Instance, step_time_s: float, bound_s: float) -> tuple[float, float]:
    """80 % interval of the step time; never below the hardware bound."""
    spread = instance.framework.relative_error
    if not all(group.device.kernel_table_is_own for group in instance.cluster.groups):
        spread = math.hypot(spread, CARRIED_TABLE_ERROR)
    factor = math.exp(Z_80 * spread)
    return max(bound_s, step_time_s / factor), step_time_s * factor


def _tokens(workload: Workload) -> float:
    return workload.sequences_per_step * workload.mean_sequence_tokens


def _cost_usd(cluster: Cluster, assignment: Assignment, step_time_s: float) -> float | None:
    total = 0.0
    for name, devices in _used_by_group(assignment).items():
        group = cluster.group(name)
        price = group.price_usd_per_device_hour or group.device.price_usd_per_hour
        if price is None:
            return None
        total += devices * price * step_time_s / 3600.0
    return total
