"""The planned schedule of a few steps as spans on meshes: what a Gantt chart or a trace shows."""

from __future__ import annotations

from planner.schema import Assignment, Cluster, Plan, Workload
from planner.simulate.check import check_assignment
from planner.simulate.copies import of_assignment
from planner.simulate.evaluate import planned_schedule, priced, sync_times_s
from planner.simulate.events.timeline import CPU, Span, mesh_name
from planner.simulate.instance import Instance, instance_for
from planner.simulate.prices import price_assignments

OVERHEAD = "step_overhead"
"""Name of the span at the end of each step that belongs to no call."""


def planned_spans(
    plan: Plan | Assignment, workload: Workload, cluster: Cluster, *, steps: int | None = None
) -> tuple[Span, ...]:
    """Spans of `steps` consecutive steps under mean lengths, by start.

    By default one step of a synchronous plan, and of an asynchronous one as many as overlap and one
    more. A weight sync stands on both meshes that it joins, CPU work on the mesh "cpu".

    Synchronous steps end with their fixed overhead, on the mesh "cpu", so step i begins i step
    times after the first. Asynchronous ones follow each other by the period of their schedule: the
    overhead, which stops all devices once a step, is not drawn.

    Raises InputError as `evaluate` does, ValueError for less than one step.
    """
    assignment = plan.assignment if isinstance(plan, Plan) else plan
    if steps is None:
        steps = 2 + assignment.staleness if assignment.staleness else 1
    if steps < 1:
        raise ValueError("a timeline has at least one step")
    general = instance_for(assignment, workload, cluster)
    instance = of_assignment(general, assignment)
    check_assignment(instance, assignment)
    prices = price_assignments(general, [assignment])
    costs = {
        call.name: priced(instance, assignment, call, prices)
        for call in instance.calls
        if call.kind != "environment"
    }
    syncs_s = sync_times_s(instance, assignment)
    schedule = planned_schedule(instance, assignment, costs, syncs_s)
    durations = {name: float(cost.time_s[0]) for name, cost in costs.items()}
    durations |= instance.host_calls_s | syncs_s
    period_s, fixed_s = schedule.step_time_s, 0.0
    if assignment.staleness == 0:
        period_s, fixed_s = max(period_s, instance.pool_s), instance.fixed_s
    meshes = meshes_of(instance, assignment)
    spans = [
        Span(step, name, mesh, begin_s, begin_s + durations[name])
        for step in range(steps)
        for name, start_s in schedule.start_s.items()
        if durations[name] > 0
        for begin_s in (max(0.0, start_s) + step * (period_s + fixed_s),)
        for mesh in meshes.get(name, [CPU])
    ]
    if fixed_s > 0:
        for step in range(steps):
            end_s = (step + 1) * (period_s + fixed_s)
            spans.append(Span(step, OVERHEAD, CPU, end_s - fixed_s, end_s))
    return tuple(sorted(spans, key=lambda span: (span.start_s, span.mesh, span.call)))


def meshes_of(instance: Instance, assignment: Assignment) -> dict[str, list[str]]:
    """Names of the meshes that each call occupies: two for a sync between two."""
    names = {name: [mesh_name(mesh)] for name, mesh in assignment.meshes.items()}
    for sync in instance.syncs:
        both = names[sync.after_call] + names[sync.before_call]
        names[sync.name] = list(dict.fromkeys(both))
    return names | {call.name: [CPU] for call in instance.calls if call.kind == "environment"}
