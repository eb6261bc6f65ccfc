"""`simulate`: a plan replayed over sampled lengths, step after step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from planner.cost.arrays import CallCosts
from planner.errors import InputError
from planner.schema import Assignment, Cluster, Mesh, Plan, Prediction, Workload
from planner.simulate.check import check_assignment
from planner.simulate.copies import of_assignment
from planner.simulate.evaluate import (
    device_range,
    evaluate_instance,
    planned_schedule,
    priced,
    sync_times_s,
)
from planner.simulate.events.durations import Durations
from planner.simulate.events.loop import Calls, Event, run_calls
from planner.simulate.events.timeline import (
    CPU,
    CallResult,
    GenerationResult,
    Simulation,
    Span,
    mesh_name,
    statistics,
)
from planner.simulate.instance import Instance, instance_for
from planner.simulate.prices import price_assignments
from planner.simulate.schedule import DeviceRange
from planner.simulate.timeline import meshes_of

_MOST_RESPONSES = 20_000_000
"""More would take hours and much memory."""


def simulate(
    plan: Plan | Assignment, workload: Workload, cluster: Cluster, *, steps: int = 16, seed: int = 0
) -> Simulation:
    """Replay `steps` steps of a plan; the same seed gives the same answer.

    Lengths are sampled anew for every step. Asynchronous plans start with a few steps that are not
    counted, until as many iterations overlap as will. Raises InputError for an assignment that
    `evaluate` refuses, ValueError for less than one step.
    """
    assignment = plan.assignment if isinstance(plan, Plan) else plan
    general = instance_for(assignment, workload, cluster)
    return simulate_instance(general, assignment, steps=steps, seed=seed)


def simulate_instance(
    general: Instance, assignment: Assignment, *, steps: int = 16, seed: int = 0
) -> Simulation:
    """`simulate` with everything loaded; `general` is the workload's on the cluster."""
    if steps < 1:
        raise ValueError("a simulation has at least one step")
    _check_size(general.workload, steps)
    instance = of_assignment(general, assignment)
    check_assignment(instance, assignment)
    prices = price_assignments(general, [assignment])
    prediction = evaluate_instance(general, assignment, prices=prices)
    if not prediction.fits:
        over = [n for n, call in prediction.calls.items() if call.memory_verdict == "does not fit"]
        raise InputError(
            f"{', '.join(over)} does not fit in memory",
            where="assignment: strategies",
            remedy="Split the model over more devices, or plan again",
        )
    costs = {
        call.name: priced(instance, assignment, call, prices)
        for call in instance.calls
        if call.kind != "environment"
    }
    # Iterations overlap by one latency: those before the first and after the last step that counts
    # are there too.
    overlap = 1 + assignment.staleness if assignment.staleness else 0
    counted = range(2 * overlap, 2 * overlap + steps)
    durations = Durations(
        instance=instance,
        assignment=assignment,
        costs=costs,
        syncs_s=sync_times_s(instance, assignment),
        iterations=counted.stop + overlap,
        rng=np.random.default_rng(seed),
    )
    calls = _calls(instance, assignment, costs, durations.syncs_s)
    events = list(run_calls(calls, durations.iterations, durations.end_s))
    return _result(instance, assignment, prediction, durations, calls, events, counted, seed)


def _check_size(workload: Workload, steps: int) -> None:
    responses = workload.sequences_per_step * steps
    if responses > _MOST_RESPONSES:
        raise InputError(
            f"{steps} steps of {workload.sequences_per_step:,} responses are "
            f"{responses:,}; at most {_MOST_RESPONSES:,} are simulated",
            where="steps",
            remedy="Simulate fewer steps, or a smaller batch",
        )


def _calls(
    instance: Instance,
    assignment: Assignment,
    costs: dict[str, CallCosts],
    syncs_s: dict[str, float],
) -> Calls:
    """The calls with their syncs, ordered by the analytic schedule."""
    ranges: dict[str, list[DeviceRange]] = {
        name: [device_range(instance.cluster, assignment.meshes[name])] for name in costs
    }
    edges = list(instance.graph.edges)
    for sync in instance.syncs:
        ranges[sync.name] = ranges[sync.after_call] + ranges[sync.before_call]
        edges.append((sync.after_call, sync.name))
        if sync.same_iteration:
            edges.append((sync.name, sync.before_call))
    names = [call.name for call in instance.calls]
    for sync in instance.syncs:
        names.insert(names.index(sync.after_call) + 1, sync.name)
    return Calls(
        names=names,
        edges=edges,
        ranges=ranges | {name: [] for name in names if name not in ranges},
        schedule=planned_schedule(instance, assignment, costs, syncs_s),
        staleness=assignment.staleness,
    )


def _result(
    instance: Instance,
    assignment: Assignment,
    prediction: Prediction,
    durations: Durations,
    calls: Calls,
    events: Sequence[Event],
    counted: range,
    seed: int,
) -> Simulation:
    ends_s = np.zeros(durations.iterations + 1)
    for event in events:
        ends_s[event.iteration + 1] = max(ends_s[event.iteration + 1], event.end_s)
    step_times_s = np.diff(ends_s)[counted.start : counted.stop] + instance.fixed_s
    begin_s, end_s = float(ends_s[counted.start]), float(ends_s[counted.stop])
    horizon_s = float(step_times_s.sum())
    own = [event for event in events if event.iteration in counted]
    busy_s = _busy_s(instance, assignment, durations, calls, events, begin_s, end_s)
    used = {mesh: seconds / horizon_s for mesh, seconds in busy_s.items()}
    if any(call.kind == "environment" for call in instance.calls):
        share = len(counted) / durations.iterations
        used[CPU] = durations.pool.busy_s * share / (durations.pool.workers * horizon_s)
    results = {}
    for name in calls.names:
        if name in prediction.calls:
            predicted = prediction.calls[name]
            analytic_s, bound_s = predicted.time_s, predicted.bound_s
        else:
            analytic_s, bound_s = durations.syncs_s[name], 0.0
        times = [event.end_s - event.start_s for event in own if event.call == name]
        results[name] = CallResult(statistics(times), analytic_s, bound_s)
    return Simulation(
        steps=len(counted),
        seed=seed,
        staleness=assignment.staleness,
        step_time_s=statistics(step_times_s),
        analytic_step_time_s=prediction.step_time_s,
        overhead_s=instance.fixed_s,
        calls=results,
        utilisation=used,
        generation=_generation(durations, assignment.staleness, counted),
        spans=_spans(own, counted, meshes_of(instance, assignment)),
    )


def _spans(
    events: Sequence[Event], counted: range, meshes: Mapping[str, Sequence[str]]
) -> tuple[Span, ...]:
    """The events on each of their meshes, from the start of the first."""
    first_s = min(event.start_s for event in events)
    spans = [
        Span(
            event.iteration - counted.start,
            event.call,
            mesh,
            event.start_s - first_s,
            event.end_s - first_s,
        )
        for event in events
        for mesh in meshes[event.call]
    ]
    return tuple(sorted(spans, key=lambda span: (span.start_s, span.mesh, span.call)))


def _busy_s(
    instance: Instance,
    assignment: Assignment,
    durations: Durations,
    calls: Calls,
    events: Sequence[Event],
    begin_s: float,
    end_s: float,
) -> dict[str, float]:
    """Seconds in which the mean device of each mesh had work, between two times."""
    meshes: Mapping[str, Mesh] = {mesh_name(mesh): mesh for mesh in assignment.meshes.values()}
    found = {}
    for label, mesh in meshes.items():
        own = device_range(instance.cluster, mesh)
        share = {name: _covered(calls.ranges[name], own) for name in calls.names}
        busy_s = 0.0
        for event in events:
            inside_s = max(0.0, min(event.end_s, end_s) - max(event.start_s, begin_s))
            if event.call in durations.generations:
                inside_s *= durations.generations[event.call][event.iteration].busy_share
            busy_s += share[event.call] * inside_s
        found[label] = busy_s
    return found


def _covered(ranges: Sequence[DeviceRange], own: DeviceRange) -> float:
    """Share of the devices of `own` that lie in one of the ranges (of at most two)."""
    devices = {
        device
        for one in ranges
        if one.overlaps(own)
        for device in range(
            max(one.first, own.first), min(one.first + one.count, own.first + own.count)
        )
    }
    return len(devices) / own.count


def _generation(durations: Durations, staleness: int, counted: range) -> GenerationResult | None:
    steps = [
        one
        for found in durations.generations.values()
        for one in found[counted.start : counted.stop]
    ]
    if not steps:
        return None
    count = len(steps) / len(durations.generations)
    behind = np.concatenate([one.versions_behind for one in steps])
    return GenerationResult(
        mode="flow" if any(one.flowing for one in steps) else "drain",
        tokens_sampled=float(sum(one.batch.response.sum() for one in steps)),
        tokens_generated=sum(one.tokens for one in steps),
        busy_share=float(np.mean([one.busy_share for one in steps])),
        tail_share=float(np.mean([one.tail_share for one in steps])),
        imbalance=float(np.mean([one.imbalance for one in steps])),
        preemptions_per_step=sum(one.preemptions for one in steps) / count,
        versions_behind_mean=float(behind.mean()),
        versions_behind_max=float(behind.max()),
        over_stale_share=float((behind > staleness).mean()),
    )
