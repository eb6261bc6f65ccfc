"""Whether a schedule obeys the problem, checked from the definition and not from how it was made.

Every schedule that leaves the package passes this check; a violation is a defect of an optimizer.
"""

from __future__ import annotations

from planner.fleet.problem import FleetProblem, Run, Schedule, objectives

_RELATIVE = 1e-9
"""Rounding of sums of times."""


def violations(problem: FleetProblem, schedule: Schedule) -> list[str]:
    """What is wrong with a schedule, a sentence each; empty when it is feasible."""
    slack = _RELATIVE * max(1.0, schedule.makespan_s)
    found: list[str] = []
    if len(schedule.runs) != len(problem.tasks):
        return [f"{len(schedule.runs)} runs for {len(problem.tasks)} tasks"]
    for t, (task, run) in enumerate(zip(problem.tasks, schedule.runs, strict=True)):
        option = task.options[run.option]
        if not 0 <= run.first_node <= problem.group_nodes[option.group] - option.nodes:
            found.append(f"task {t} lies outside its group")
        if run.start_s < task.release_s - slack:
            found.append(f"task {t} starts before its release")
        if abs(run.end_s - run.start_s - run.setup_s - option.run_s) > slack:
            found.append(f"task {t} does not last as long as its share takes")
        needed = 0.0 if _holds_weights(problem, schedule, t, slack) else option.setup_s
        if run.setup_s < needed - slack:
            found.append(f"task {t} does not pay its set-up")
    for first, then in problem.edges:
        if schedule.runs[then].start_s < schedule.runs[first].end_s - slack:
            found.append(f"task {then} starts before task {first} ends")
    for i in range(len(problem.tasks)):
        for j in range(i):
            if _share_nodes(problem, schedule, i, j) and _overlap(
                schedule.runs[i], schedule.runs[j], slack
            ):
                found.append(f"tasks {j} and {i} use one node at a time")
    found += _slots(problem, schedule, slack)
    key = objectives(problem, [run.end_s for run in schedule.runs])
    if max(abs(a - b) for a, b in zip(key, schedule.key, strict=True)) > slack:
        found.append("the objectives are not those of the runs")
    return found


def _range(problem: FleetProblem, schedule: Schedule, task: int) -> tuple[int, int, int]:
    run = schedule.runs[task]
    option = problem.tasks[task].options[run.option]
    return option.group, run.first_node, run.first_node + option.nodes


def _share_nodes(problem: FleetProblem, schedule: Schedule, i: int, j: int) -> bool:
    group_i, first_i, end_i = _range(problem, schedule, i)
    group_j, first_j, end_j = _range(problem, schedule, j)
    return group_i == group_j and first_i < end_j and first_j < end_i


def _overlap(a: Run, b: Run, slack: float) -> bool:
    return min(a.end_s, b.end_s) - max(a.start_s, b.start_s) > slack


def _holds_weights(problem: FleetProblem, schedule: Schedule, task: int, slack: float) -> bool:
    """Whether the last task before `task` on each of its nodes left the same weights."""
    _, first, end = _range(problem, schedule, task)
    start = schedule.runs[task].start_s
    for node in range(first, end):
        last: tuple[float, float] | None = None
        weights = None
        for other in range(len(problem.tasks)):
            run = schedule.runs[other]
            _, low, high = _range(problem, schedule, other)
            if other == task or not _share_nodes(problem, schedule, task, other):
                continue
            ended = (run.end_s, run.start_s)
            if low <= node < high and run.end_s <= start + slack and (last is None or ended > last):
                last, weights = ended, problem.tasks[other].weights
        if weights != problem.tasks[task].weights:
            return False
    return True


def _slots(problem: FleetProblem, schedule: Schedule, slack: float) -> list[str]:
    if problem.slots is None:
        return []
    found = []
    taken = [
        task.options[run.option].slots
        for task, run in zip(problem.tasks, schedule.runs, strict=True)
    ]
    for t, run in enumerate(schedule.runs):
        used = sum(
            slots
            for other, slots in zip(schedule.runs, taken, strict=True)
            if other.start_s <= run.start_s + slack and other.end_s > run.start_s + slack
        )
        if used > problem.slots:
            found.append(f"{used} slots of {problem.slots} are in use when task {t} starts")
    return found
