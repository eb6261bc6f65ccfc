"""From jobs and a cluster to the fleet problem, and from a schedule back to names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.parameters import count_parameters
from planner.errors import InfeasibleError
from planner.fleet.options import JobOptions, Prices
from planner.fleet.problem import FleetProblem, JobTerms, Option, Schedule, Task
from planner.schema import (
    Cluster,
    FleetJob,
    FleetJobResult,
    FleetPhase,
    FleetRun,
    FleetSchedule,
    NodeGroup,
    Workload,
)

_CHECKPOINT_BYTES = 2
"""Bytes of a parameter in the checkpoints that runs start from: 16-bit formats."""


@dataclass(frozen=True)
class Fleet:
    """The problem, and what its numbers stand for."""

    problem: FleetProblem
    jobs: tuple[FleetJob, ...]
    cluster: Cluster
    phases: tuple[tuple[int, FleetPhase], ...]
    """Job and phase of each task."""
    step_time_s: tuple[tuple[float, ...], ...]
    """Of each task's options."""
    assumptions: tuple[str, ...]


def make_fleet(
    jobs: Sequence[FleetJob],
    cluster: Cluster,
    slots: int | None,
    storage_bytes_per_s: float | None,
    prices: Prices,
) -> Fleet:
    """Price every phase's shares and number everything.

    Raises InfeasibleError for a phase that no share fits, PlanningCancelledError when cancelled.
    """
    tasks: list[Task] = []
    edges: list[tuple[int, int]] = []
    phases: list[tuple[int, FleetPhase]] = []
    times: list[tuple[float, ...]] = []
    weights: dict[str, int] = {}
    for j, job in enumerate(jobs):
        first = len(tasks)
        index = {phase.name: first + i for i, phase in enumerate(job.phases)}
        for phase in job.phases:
            try:
                options = prices.job_options(phase, cluster)
                options = _within_slots(options, phase, slots)
            except InfeasibleError as error:
                raise InfeasibleError(f"job {job.name!r}, phase {phase.name!r}: {error}") from None
            label = _weights(job, phase)
            tasks.append(
                Task(
                    job=j,
                    weights=weights.setdefault(label, len(weights)),
                    release_s=job.release_s,
                    options=_options(options, phase, cluster, storage_bytes_per_s),
                )
            )
            edges += [(index[before], index[phase.name]) for before in phase.after]
            phases.append((j, phase))
            times.append(options.step_time_s)
    problem = FleetProblem(
        group_nodes=tuple(group.nodes for group in cluster.groups),
        slots=slots,
        jobs=tuple(JobTerms(job.weight, job.due_s) for job in jobs),
        tasks=tuple(tasks),
        edges=tuple(edges),
    )
    problem.check()
    notes = _assumptions(jobs, cluster, slots, storage_bytes_per_s)
    return Fleet(problem, tuple(jobs), cluster, tuple(phases), tuple(times), notes)


def describe(fleet: Fleet, schedule: Schedule) -> FleetSchedule:
    """A schedule in names, with what it means for each job."""
    runs: list[FleetRun] = []
    busy = dict.fromkeys((group.name for group in fleet.cluster.groups), 0.0)
    slot_seconds = 0.0
    for t, run in enumerate(schedule.runs):
        option = fleet.problem.tasks[t].options[run.option]
        job, phase = fleet.phases[t]
        group = fleet.cluster.groups[option.group]
        runs.append(
            FleetRun(
                job=fleet.jobs[job].name,
                phase=phase.name,
                group=group.name,
                first_node=run.first_node,
                nodes=option.nodes,
                slots=option.slots,
                start_s=run.start_s,
                setup_s=run.setup_s,
                end_s=run.end_s,
                step_time_s=fleet.step_time_s[t][run.option],
            )
        )
        busy[group.name] += option.nodes * option.run_s
        slot_seconds += option.slots * option.run_s
    makespan = schedule.makespan_s
    use = {
        group.name: min(1.0, busy[group.name] / (group.nodes * makespan)) if makespan else 0.0
        for group in fleet.cluster.groups
    }
    if fleet.problem.slots:
        use["slots"] = (
            min(1.0, slot_seconds / (fleet.problem.slots * makespan)) if makespan else 0.0
        )
    return FleetSchedule(
        makespan_s=makespan,
        weighted_tardiness_s=schedule.weighted_tardiness_s,
        runs=tuple(sorted(runs, key=lambda run: (run.start_s, run.job, run.phase))),
        jobs=tuple(
            _result(job, [run for run in runs if run.job == job.name]) for job in fleet.jobs
        ),
        utilisation=use,
    )


def _result(job: FleetJob, runs: list[FleetRun]) -> FleetJobResult:
    end = max(run.end_s for run in runs)
    return FleetJobResult(
        name=job.name,
        weight=job.weight,
        due_s=job.due_s,
        start_s=min(run.start_s for run in runs),
        end_s=end,
        tardiness_s=0.0 if job.due_s is None else max(0.0, end - job.due_s),
    )


def _within_slots(options: JobOptions, phase: FleetPhase, slots: int | None) -> JobOptions:
    """The shares that need no more slots than there are."""
    if slots is None:
        return options
    needs = [_slots(phase, nodes) for nodes in options.sizes]
    rows = [i for i, need in enumerate(needs) if need <= slots]
    if not rows:
        raise InfeasibleError(f"needs {min(needs):,} slots, the cluster has {slots:,}")
    return JobOptions(
        tuple(options.groups[i] for i in rows),
        tuple(options.sizes[i] for i in rows),
        tuple(options.step_time_s[i] for i in rows),
    )


def _options(
    options: JobOptions, phase: FleetPhase, cluster: Cluster, storage_bytes_per_s: float | None
) -> tuple[Option, ...]:
    read_bytes = phase.reload_bytes
    if read_bytes is None:
        read_bytes = 0.0 if phase.workload is None else float(checkpoint_bytes(phase.workload))
    return tuple(
        Option(
            group=group,
            nodes=nodes,
            run_s=phase.steps * step_s,
            setup_s=read_bytes / _read_bytes_per_s(cluster.groups[group], storage_bytes_per_s),
            slots=_slots(phase, nodes),
        )
        for group, nodes, step_s in zip(
            options.groups, options.sizes, options.step_time_s, strict=True
        )
    )


def _slots(phase: FleetPhase, nodes: int) -> int:
    return phase.slots + phase.slots_per_node * nodes


def checkpoint_bytes(workload: Workload) -> int:
    """Bytes of the workload's models, each distinct model once, in 16 bits."""
    distinct = {model.model_dump_json(): model for model in workload.models.values()}
    return sum(
        _CHECKPOINT_BYTES * int(count_parameters(model).total) for model in distinct.values()
    )


def _read_bytes_per_s(group: NodeGroup, storage_bytes_per_s: float | None) -> float:
    """How fast one node reads weights: its storage, and the links of its devices to the host."""
    links = group.devices_per_node * group.device.host_link_bandwidth_bytes_per_s
    return links if storage_bytes_per_s is None else min(links, storage_bytes_per_s)


def _weights(job: FleetJob, phase: FleetPhase) -> str:
    """What a phase leaves on its nodes, as a label that equal weights share.

    Training changes the weights, so other jobs that start from the same checkpoint reload it;
    the frozen base under low-rank adapters stays as it is.
    """
    if phase.weights is not None:
        return f"given: {phase.weights}"
    if phase.workload is None:
        return f"job: {job.name}"
    actor = phase.workload.models["actor"]
    if phase.workload.lora_rank > 0:
        return f"frozen: {actor.model_dump_json()} {phase.workload.train_dtype}"
    return f"job: {job.name}: {actor.model_dump_json()}"


def _assumptions(
    jobs: Sequence[FleetJob],
    cluster: Cluster,
    slots: int | None,
    storage_bytes_per_s: float | None,
) -> tuple[str, ...]:
    notes = list(cluster.assumptions)
    for job in jobs:
        for phase in job.phases:
            if phase.workload is not None:
                notes += [f"{job.name}: {line}" for line in phase.workload.assumptions]
    notes.append("a phase keeps its share from start to end; nodes hold no weights at first")
    if storage_bytes_per_s is None:
        notes.append("weights are read from host memory (the storage's bandwidth is not given)")
    else:
        notes.append(f"each node reads weights at {storage_bytes_per_s / 1e9:g} GB/s at most")
    if slots is None:
        notes.append("environment slots: as many as asked for (not given)")
    return tuple(dict.fromkeys(notes))
