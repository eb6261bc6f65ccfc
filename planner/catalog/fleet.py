"""Fleet files: the jobs that share a cluster. Paths in a file are relative to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.catalog.data import load_yaml, validate
from planner.catalog.fleet_check import check_fleet
from planner.catalog.fleet_file import FleetFile, JobFile, PhaseFile
from planner.catalog.hardware import cluster_from, parse_cluster
from planner.catalog.hardware_files import GIB
from planner.catalog.workloads import problem_from
from planner.errors import InputError
from planner.schema import Cluster, FleetJob

_HOUR_S = 3600.0
_PHASE_KEYS = tuple(key for key in PhaseFile.model_fields if key != "name")


@dataclass(frozen=True)
class FleetInput:
    """Jobs, a cluster, and what the file says about the search (None: not given)."""

    jobs: tuple[FleetJob, ...]
    cluster: Cluster
    slots: int | None = None
    storage_bytes_per_s: float | None = None
    objective: str | None = None
    optimizer: str | None = None
    budget: int | None = None
    deadline_s: float | None = None
    seed: int | None = None


def load_fleet(path: str | Path) -> FleetInput:
    """Jobs and cluster from a fleet file such as examples/fleet.yaml.

    Raises InputError naming the file and the field, what was given and what would be right.
    """
    path = Path(path)
    source = str(path)
    content = load_yaml(path)
    if not isinstance(content, dict):
        raise InputError(
            "is empty" if content is None else "is not a mapping of keys to values",
            where=source,
            remedy="Start from examples/fleet.yaml.",
        )
    file = validate(FleetFile, content, source)
    cluster = _cluster(file.cluster, source, path.parent)
    jobs = tuple(
        _job(job, i, cluster, f"{source}: jobs[{i}]", path.parent)
        for i, job in enumerate(file.jobs)
    )
    check_fleet(jobs, cluster, file.slots, source)
    return FleetInput(
        jobs=jobs,
        cluster=cluster,
        slots=file.slots,
        storage_bytes_per_s=None if file.storage_gb_s is None else file.storage_gb_s * 1e9,
        objective=file.objective,
        optimizer=file.optimizer,
        budget=file.budget,
        deadline_s=file.deadline_s,
        seed=file.seed,
    )


def _cluster(reference: str | dict[str, Any] | None, source: str, folder: Path) -> Cluster:
    if reference is None:
        raise InputError(
            "missing field",
            where=f"{source}: cluster",
            remedy="Write NAME:NODESxDEVICES (h100:8x8), or the path of a cluster file.",
        )
    if isinstance(reference, dict):
        return cluster_from(reference, f"{source}: cluster", "cluster")
    if reference.lower().endswith((".yaml", ".yml", ".json")):
        return parse_cluster(folder / reference)
    return parse_cluster(reference)


def _job(job: JobFile, index: int, cluster: Cluster, where: str, folder: Path) -> FleetJob:
    if job.phases is not None:
        own = [key for key in _PHASE_KEYS if key in job.model_fields_set]
        if own:
            raise InputError(
                f"{', '.join(own)} beside phases",
                where=where,
                remedy="Give these keys to each phase.",
            )
        phases = [
            _phase(phase, f"phase{i + 1}", cluster, f"{where}.phases[{i}]", folder)
            for i, phase in enumerate(job.phases)
        ]
    else:
        phases = [{**_phase(job, "run", cluster, where, folder), "name": "run"}]
    fields = {
        "name": job.name or f"job{index + 1}",
        "phases": phases,
        "release_s": job.release_h * _HOUR_S,
        "due_s": None if job.due_h is None else job.due_h * _HOUR_S,
        "weight": job.weight,
    }
    return validate(FleetJob, fields, where)


def _phase(
    phase: PhaseFile, name: str, cluster: Cluster, where: str, folder: Path
) -> dict[str, Any]:
    """The fields of a FleetPhase, as plain values."""
    if phase.steps is None:
        raise InputError("missing field", where=f"{where}.steps", remedy="Add `steps`.")
    if (phase.problem is None) == (phase.step_times is None):
        raise InputError(
            "neither a problem nor step times" if phase.problem is None else "both are given",
            where=f"{where}.problem",
            remedy="Give the path of a problem file, or measured `step_times`.",
        )
    fields: dict[str, Any] = {
        "name": phase.name or name,
        "steps": phase.steps,
        "after": phase.after,
        "groups": phase.groups,
        "nodes": phase.nodes,
        "slots": phase.slots,
        "slots_per_node": phase.slots_per_node,
        "weights": phase.weights,
        "reload_bytes": None if phase.reload_gib is None else phase.reload_gib * GIB,
    }
    if phase.problem is not None:
        problem = problem_from(folder / phase.problem)
        fields["workload"] = problem.workload.model_dump(mode="json")
        fields["space"] = problem.space
    else:
        fields["step_times"] = [
            {
                "group": group,
                "nodes": _nodes(nodes, f"{where}.step_times.{group}"),
                "step_time_s": s,
            }
            for group, times in (phase.step_times or {}).items()
            for nodes, s in times.items()
        ]
    return fields


def _nodes(text: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6 or int(text) < 1:
        raise InputError(
            f"a number of nodes must be a whole number, given {text!r}",
            where=where,
            remedy="Write it as 4: 120.5 (nodes: seconds of a step).",
        )
    return int(text)
