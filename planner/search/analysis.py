"""Work-depth report of a plan: what bounds each call and the step, and what would move it."""

from __future__ import annotations

import numpy as np

from planner.catalog.spaces import load_space
from planner.cost.arrays import CallCosts, StrategyArrays
from planner.cost.calls import call_costs
from planner.cost.network import network_volume
from planner.schema import Call, Cluster, NodeGroup, Plan, Workload
from planner.schema.analysis import Analysis, CallAnalysis, Limit, WhatIf
from planner.search.changes import same_plan_changes
from planner.search.findings import findings
from planner.search.options import unit_options
from planner.search.scope import Scope
from planner.simulate.bounds import dtype_of, longest_chain_s
from planner.simulate.check import check_calls
from planner.simulate.copies import of_assignment
from planner.simulate.evaluate import evaluate_instance
from planner.simulate.instance import Instance, instance_for
from planner.simulate.prices import price_key

LIMIT_OF_PART: dict[str, Limit] = {
    "compute": "compute",
    "experts": "compute",
    "attention": "compute",
    "head": "compute",
    "prefill": "compute",
    "straggler": "compute",
    "elementwise": "memory bandwidth",
    "activation_copies": "memory bandwidth",
    "optimizer": "memory bandwidth",
    "decode_weights": "memory bandwidth",
    "decode_attention": "memory bandwidth",
    "pipeline_bubble": "depth",
    "imbalance": "depth",
    "tail": "depth",
    "engine_overhead": "overheads",
    "host": "overheads",
    "offload": "overheads",
    "tp_comm": "network",
    "cp_comm": "network",
    "ep_comm": "network",
    "dp_comm": "network",
    "reallocation": "network",
    "environment_pool": "overheads",
    "tp_communication": "network",
}
"""Part of a call's time -> what it is bound by."""


def analyze_plan(plan: Plan, workload: Workload, cluster: Cluster) -> Analysis:
    """Work, depth, traffic, messages and limits of every call of `plan` and of its step.

    Shortest times come from pricing every strategy of the plan's search space on every mesh of
    the cluster, one call at a time; limits are Brent's bound with traffic (docs/analysis.md).

    Raises InputError when the plan does not fit the workload or cluster.
    """
    assignment = plan.assignment
    space = load_space(assignment.space)
    instance = instance_for(assignment, workload, cluster)
    instance = of_assignment(instance, assignment)
    predicted = evaluate_instance(instance, assignment)
    check_calls(plan, predicted.calls)
    # The freest placement that the space allows: rules of tighter ones would hide faster options.
    scope = Scope(space, space.placements[-1], assignment.staleness)
    calls: dict[str, CallAnalysis] = {}
    for unit in instance.units:
        unit_calls = [instance.call(name) for name in unit.calls]
        options = unit_options(instance, scope, unit).unit
        for column, call in enumerate(unit_calls):
            prediction = predicted.calls[call.name]
            assert prediction.mesh is not None
            time_s = np.append(options.time_s[:, column], prediction.time_s)
            devices = np.append(options.devices, prediction.mesh.devices)
            calls[call.name] = _call(instance, plan, call, prediction.time_parts_s, time_s, devices)
    return _step(instance, plan, predicted.step_time_s, calls)


def _call(
    instance: Instance,
    plan: Plan,
    call: Call,
    parts_s: dict[str, float],
    time_s: np.ndarray[tuple[int], np.dtype[np.float64]],
    devices: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> CallAnalysis:
    """Analysis of a call; `time_s` and `devices` of its options, the plan's the last."""
    mesh = plan.assignment.meshes[call.name]
    group = instance.cluster.group(mesh.group)
    strategies = StrategyArrays.from_strategies([plan.assignment.strategies[call.name]])
    key, _ = price_key(instance, plan.assignment, call)
    context = instance.context(
        call, group, plan.assignment.staleness, beside_trainer=key.beside_trainer
    )
    costs = call_costs(context, strategies)
    volume = network_volume(context, strategies)
    # Of options that are equally fast the one with fewest devices.
    fastest = np.lexsort((devices, time_s))[0]
    least_device_s = float((time_s * devices).min())
    return CallAnalysis(
        kind=call.kind,
        role=call.role,
        work_flop=float(costs.useful_flop[0]),
        traffic_bytes=float(costs.traffic_bytes[0]),
        network_bytes={
            kind: float(value[0]) for kind, value in volume.sent_bytes.items() if value[0] > 0
        },
        messages=sum(float(value[0]) for value in volume.messages.values()),
        depth=int(costs.depth[0]),
        limits_s=_limits(instance, group, call, costs, mesh.devices),
        time_s=float(time_s[-1]),
        devices=mesh.devices,
        bound_by=_bound_by([parts_s]),
        least_s=float(time_s[fastest]),
        least_s_devices=int(devices[fastest]),
        least_device_s=least_device_s,
        parallelism=least_device_s / float(time_s[fastest]),
    )


def _limits(
    instance: Instance, group: NodeGroup, call: Call, costs: CallCosts, devices: int
) -> dict[str, float]:
    device = group.device
    peak = device.peak_flop_per_s.get(
        dtype_of(instance.workload, call), device.peak_flop_per_s["bf16"]
    )
    return {
        "compute": float(costs.useful_flop[0]) / (devices * peak),
        "memory bandwidth": float(costs.traffic_bytes[0])
        / (devices * device.memory_bandwidth_bytes_per_s),
        "depth": float(costs.depth[0]) * device.kernel_latency_s,
    }


def _bound_by(parts_of_calls: list[dict[str, float]]) -> Limit:
    """The kind of limit with the largest share of the given parts of time."""
    shares: dict[Limit, float] = {}
    for parts_s in parts_of_calls:
        for name, seconds in parts_s.items():
            kind = LIMIT_OF_PART.get(name, "overheads")
            shares[kind] = shares.get(kind, 0.0) + seconds
    return max(shares, key=lambda kind: shares[kind]) if shares else "overheads"


def _step(
    instance: Instance, plan: Plan, step_time_s: float, calls: dict[str, CallAnalysis]
) -> Analysis:
    cluster = instance.cluster
    bandwidth = sum(
        group.devices * group.device.memory_bandwidth_bytes_per_s for group in cluster.groups
    )
    latency_s = min(group.device.kernel_latency_s for group in cluster.groups)
    hosts_s = {name: s for name, s in instance.host_calls_s.items() if name in instance.graph}
    shortest_s = longest_chain_s(instance, hosts_s | {n: c.least_s for n, c in calls.items()})
    depth = longest_chain_s(instance, {n: float(c.depth) for n, c in calls.items()})
    compute_s = sum(
        calls[call.name].work_flop
        / sum(
            group.devices * group.device.peak_flop_per_s.get(dtype_of(instance.workload, call), 0.0)
            for group in cluster.groups
        )
        for call in instance.calls
        if call.name in calls
    )
    traffic = sum(each.traffic_bytes for each in calls.values())
    limits_s = {
        "compute": compute_s,
        "memory bandwidth": traffic / bandwidth,
        "least device-seconds": sum(each.least_device_s for each in calls.values())
        / cluster.devices,
        "environment pool": instance.pool_s,
        "fixed costs": instance.fixed_s,
    }
    if plan.assignment.staleness == 0:
        # Stale samples let iterations overlap: a chain may then be longer than a step.
        limits_s |= {"depth": depth * latency_s, "shortest critical path": shortest_s}
    what_ifs = _what_ifs(instance, plan, step_time_s)
    analysis = Analysis(
        rank=plan.rank,
        devices=plan.devices,
        step_time_s=step_time_s,
        calls=calls,
        work_flop=sum(each.work_flop for each in calls.values()),
        traffic_bytes=traffic,
        network_bytes=sum(sum(each.network_bytes.values()) for each in calls.values()),
        depth=int(depth),
        parallelism=sum(each.least_device_s for each in calls.values()) / shortest_s,
        shortest_path_s=shortest_s,
        limits_s=limits_s,
        bound_by=_step_bound_by(instance, plan, calls, step_time_s),
        what_ifs=what_ifs,
        findings=(),
    )
    return analysis.model_copy(
        update={"findings": findings(analysis, plan, instance.workload, cluster.devices)}
    )


def _step_bound_by(
    instance: Instance, plan: Plan, calls: dict[str, CallAnalysis], step_time_s: float
) -> Limit:
    """What binds the calls that fill the step: all of a synchronous step, in an asynchronous one
    those on the busiest mesh; the environment where its pool fills more than half of the step."""
    if instance.pool_s > step_time_s / 2:
        return "environment"
    if instance.fixed_s > step_time_s / 2:
        return "overheads"
    chosen = list(calls)
    if plan.assignment.staleness > 0:
        meshes = plan.assignment.meshes
        busy = {
            name: [other for other in calls if meshes[other].overlaps(meshes[name])]
            for name in calls
        }
        chosen = max(busy.values(), key=lambda names: sum(calls[n].time_s for n in names))
    return _bound_by([plan.calls[name].time_parts_s for name in chosen])


def _what_ifs(instance: Instance, plan: Plan, step_time_s: float) -> tuple[WhatIf, ...]:
    """The plan evaluated with one quantity of its hardware or workload changed."""
    found = []
    for change in same_plan_changes(instance.workload, instance.cluster):
        other = instance_for(plan.assignment, change.workload, change.cluster)
        seconds = evaluate_instance(other, plan.assignment, bound_s=0.0).step_time_s
        found.append(
            WhatIf(change=change.words, step_time_s=seconds, saving=1 - seconds / step_time_s)
        )
    return tuple(sorted(found, key=lambda each: (-each.saving, each.change)))
