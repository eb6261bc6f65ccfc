"""The fleet problem: what its optimizers decide, free of workloads and devices.

A *task* is one phase of a job. It runs once, without interruption, in one of its *options*: a
number of nodes of one node group and the time that it takes there. The nodes are a contiguous
range. A task whose nodes do not all hold its weights reloads them first, which is a set-up time
that depends on what ran there before. Tasks also take *slots* (CPU or environment workers) of one
pool. Nodes and slots are held from the start of the set-up to the end of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Option:
    """One share that a task can have."""

    group: int
    """Node group, index into `FleetProblem.group_nodes`."""
    nodes: int
    run_s: float
    """Duration without the set-up, seconds."""
    setup_s: float
    """Reload of the weights when the nodes do not hold them all, seconds."""
    slots: int = 0


@dataclass(frozen=True)
class Task:
    """One phase of a job."""

    job: int
    weights: int
    """What stays on the nodes: tasks of the same number need no reload after one another."""
    release_s: float
    options: tuple[Option, ...]


@dataclass(frozen=True)
class JobTerms:
    """What one job asks for."""

    weight: float = 1.0
    due_s: float | None = None
    """Seconds from now; tardiness counts from here. None: any time will do."""


@dataclass(frozen=True)
class FleetProblem:
    """Tasks, precedence, and the resources that they share."""

    group_nodes: tuple[int, ...]
    slots: int | None
    """Slots of the cluster; None: as many as asked for."""
    jobs: tuple[JobTerms, ...]
    tasks: tuple[Task, ...]
    edges: tuple[tuple[int, int], ...] = ()
    """Task -> task that starts when it has ended; acyclic."""

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Direct predecessors of each task."""
        before: list[list[int]] = [[] for _ in self.tasks]
        for first, then in self.edges:
            before[then].append(first)
        return tuple(tuple(sorted(set(tasks))) for tasks in before)

    @cached_property
    def topological(self) -> tuple[int, ...]:
        """The tasks, each after its predecessors. ValueError for a cycle."""
        placed: dict[int, None] = {}
        open_tasks = list(range(len(self.tasks)))
        while open_tasks:
            ready = [t for t in open_tasks if all(p in placed for p in self.predecessors[t])]
            if not ready:
                raise ValueError("precedence is cyclic")
            placed.update(dict.fromkeys(ready))
            open_tasks = [t for t in open_tasks if t not in placed]
        return tuple(placed)

    @cached_property
    def ancestors(self) -> tuple[frozenset[int], ...]:
        """All tasks that end before each task can start."""
        found: list[frozenset[int]] = [frozenset()] * len(self.tasks)
        for task in self.topological:
            before = self.predecessors[task]
            found[task] = frozenset(before).union(*(found[p] for p in before))
        return tuple(found)

    @cached_property
    def must_load(self) -> tuple[bool, ...]:
        """Whether each task pays its set-up in every schedule.

        It does when no task that may run before it leaves the same weights behind.
        """
        return tuple(
            not any(
                other.weights == task.weights and i != t and t not in self.ancestors[i]
                for i, other in enumerate(self.tasks)
            )
            for t, task in enumerate(self.tasks)
        )

    def least_s(self, task: int, option: Option) -> float:
        """The shortest time that `task` can hold its nodes with `option`, seconds."""
        return option.run_s + (option.setup_s if self.must_load[task] else 0.0)

    def check(self) -> None:
        """Raise ValueError for a problem that contradicts itself."""
        if not self.tasks:
            raise ValueError("there is no task")
        for t, task in enumerate(self.tasks):
            if not task.options:
                raise ValueError(f"task {t} has no option")
            if not 0 <= task.job < len(self.jobs):
                raise ValueError(f"task {t} belongs to job {task.job}, which is unknown")
            for option in task.options:
                if not 0 <= option.group < len(self.group_nodes):
                    raise ValueError(f"task {t} names group {option.group}, which is unknown")
                if not 1 <= option.nodes <= self.group_nodes[option.group]:
                    raise ValueError(f"task {t} asks for {option.nodes} nodes of a smaller group")
                if self.slots is not None and option.slots > self.slots:
                    raise ValueError(f"task {t} asks for {option.slots} slots of {self.slots}")
                if min(option.run_s, option.setup_s, option.slots, task.release_s) < 0:
                    raise ValueError(f"task {t} has a negative time or number of slots")
        _ = self.topological


Key = tuple[float, float]
"""Makespan and total weighted tardiness, seconds."""


@dataclass(frozen=True)
class Run:
    """When and where one task runs."""

    option: int
    first_node: int
    start_s: float
    """Start of the set-up, or of the run when there is none."""
    setup_s: float
    end_s: float


@dataclass(frozen=True)
class Schedule:
    """One run for each task, and what they come to."""

    runs: tuple[Run, ...]
    makespan_s: float
    weighted_tardiness_s: float

    @property
    def key(self) -> Key:
        """Both objectives."""
        return self.makespan_s, self.weighted_tardiness_s


def objectives(problem: FleetProblem, end_s: list[float]) -> Key:
    """Makespan and total weighted tardiness of tasks that end at `end_s`, seconds."""
    last = [0.0] * len(problem.jobs)
    for task, end in zip(problem.tasks, end_s, strict=True):
        last[task.job] = max(last[task.job], end)
    tardiness = sum(
        job.weight * max(0.0, end - job.due_s)
        for job, end in zip(problem.jobs, last, strict=True)
        if job.due_s is not None
    )
    return max(end_s), tardiness
