"""Small random fleet problems, and the best schedules by trying everything."""

from __future__ import annotations

import itertools

import numpy as np

from planner.fleet.problem import FleetProblem, JobTerms, Key, Option, Task


def small_problem(seed: int, tasks: int = 4, nodes: int = 3) -> FleetProblem:
    """Up to `tasks` tasks of one to three jobs on one or two groups; all times are whole."""
    rng = np.random.default_rng(seed)
    groups = tuple(int(n) for n in rng.integers(1, nodes + 1, size=int(rng.integers(1, 3))))
    slots = int(rng.integers(2, 6)) if rng.random() < 0.5 else None
    jobs = int(rng.integers(1, 4))
    owners = sorted(int(job) for job in rng.integers(jobs, size=int(rng.integers(2, tasks + 1))))
    found = []
    for job in owners:
        every = [(g, n) for g, size in enumerate(groups) for n in range(1, size + 1)]
        count = int(rng.integers(1, min(len(every), 2) + 1))
        picked = sorted(int(i) for i in rng.choice(len(every), size=count, replace=False))
        options = tuple(
            Option(
                *every[i],
                run_s=float(rng.integers(1, 12)),
                setup_s=float(rng.integers(0, 6)),
                slots=int(rng.integers(0, 3)),
            )
            for i in picked
        )
        release = float(rng.choice([0, 0, rng.integers(1, 8)]))
        found.append(Task(job, int(rng.integers(2)), release, options))
    edges = tuple(
        (i, j)
        for i, j in itertools.combinations(range(len(owners)), 2)
        if owners[i] == owners[j] and rng.random() < 0.5
    )
    terms = tuple(
        JobTerms(
            float(rng.integers(1, 4)), float(rng.integers(2, 25)) if rng.random() < 0.8 else None
        )
        for _ in range(jobs)
    )
    return FleetProblem(groups, slots, terms, tuple(found), edges)


def large_problem(seed: int, jobs: int = 10) -> FleetProblem:
    """Ten jobs of one to three phases on one or two groups, with slots, set-ups and due dates.

    Run times follow Amdahl's law; some jobs share their weights.
    """
    rng = np.random.default_rng(seed)
    groups = (16, 8) if seed % 2 else (16,)
    slots = 24 if seed % 3 else None
    tasks: list[Task] = []
    edges: list[tuple[int, int]] = []
    terms: list[JobTerms] = []
    for job in range(jobs):
        weights = int(rng.integers(3)) if rng.random() < 0.4 else 3 + job
        release = float(rng.choice([0, 0, 0, rng.integers(1, 12)]))
        first, least_s = len(tasks), 0.0
        for phase in range(int(rng.integers(1, 4))):
            work = float(rng.lognormal(3.0, 0.7))
            serial = float(rng.uniform(0.02, 0.15))
            reload = float(rng.uniform(0.005, 0.025)) * work
            smallest, per_node = int(rng.choice([1, 1, 2, 4])), int(rng.choice([0, 0, 1, 2]))
            options = []
            for group, nodes in enumerate(groups):
                size = smallest
                while size <= nodes:
                    run = work / (1.0, 1.8)[group] * (serial + (1 - serial) / size)
                    need = 0 if slots is None else min(per_node * size, slots)
                    options.append(Option(group, size, run, reload, need))
                    size *= 2
            least_s += min(option.run_s for option in options)
            tasks.append(Task(job, weights, release, tuple(options)))
            if phase:
                edges.append((first if rng.random() < 0.3 else len(tasks) - 2, len(tasks) - 1))
        due = release + least_s * float(rng.uniform(1.2, 4))
        terms.append(JobTerms(float(rng.choice([1, 2, 5])), due if rng.random() < 0.8 else None))
    return FleetProblem(groups, slots, tuple(terms), tuple(tasks), tuple(edges))


def all_keys(problem: FleetProblem) -> list[Key]:
    """Both objectives of every semi-active schedule, by definition and second by second.

    Every order, share and place; each task starts at the first whole second at which its nodes
    and slots are free after all tasks placed before it on these nodes.
    """
    keys: set[Key] = set()
    count = len(problem.tasks)

    def extend(placed: dict[int, tuple[int, int, int, float, float, int]]) -> None:
        if len(placed) == count:
            last = [0.0] * len(problem.jobs)
            for t, (*_, end, _slots) in placed.items():
                job = problem.tasks[t].job
                last[job] = max(last[job], end)
            late = sum(
                job.weight * max(0.0, end - job.due_s)
                for job, end in zip(problem.jobs, last, strict=True)
                if job.due_s is not None
            )
            keys.add((max(last), late))
            return
        for t, task in enumerate(problem.tasks):
            before = [i for i, j in problem.edges if j == t]
            if t in placed or any(i not in placed for i in before):
                continue
            ready = max([task.release_s, *(placed[i][4] for i in before)])
            for option in task.options:
                for first in range(problem.group_nodes[option.group] - option.nodes + 1):
                    extend({**placed, t: _place(problem, placed, t, option, first, ready)})

    extend({})
    return sorted(keys)


def _place(
    problem: FleetProblem,
    placed: dict[int, tuple[int, int, int, float, float, int]],
    t: int,
    option: Option,
    first: int,
    ready: float,
) -> tuple[int, int, int, float, float, int]:
    start, loaded = ready, True
    for node in range(first, first + option.nodes):
        on_node = [
            (end, i)
            for i, (group, low, high, _, end, _) in placed.items()
            if group == option.group and low <= node < high
        ]
        if on_node:
            end, last = max(on_node)
            start = max(start, end)
            loaded = loaded and problem.tasks[last].weights == problem.tasks[t].weights
        else:
            loaded = False
    hold = option.run_s + (0.0 if loaded else option.setup_s)
    while problem.slots is not None and any(
        option.slots
        and option.slots
        + sum(slots for *_, begin, end, slots in placed.values() if begin <= second < end)
        > problem.slots
        for second in range(int(start), int(start + hold))
    ):
        start += 1
    return option.group, first, first + option.nodes, start, start + hold, option.slots


def front(keys: list[Key]) -> list[Key]:
    """The keys that no other beats in both objectives, by ascending makespan."""
    found: list[Key] = []
    for key in sorted(keys):
        if not found or key[1] < found[-1][1]:
            found.append(key)
    return found
