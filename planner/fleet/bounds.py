"""Lower bounds that need no search: no schedule of the problem ends earlier or is less late.

- *Critical path*: each job starts after its release and runs its longest chain of phases, each in
  the time of its fastest share, set-ups included where no schedule avoids them.
- *Area*: nodes x seconds. The tasks that cannot start before r need their area within what the
  groups offer from r to the makespan, and each task fits between its head and its tail; shares may
  be mixed, which makes it a linear programme. Slots count as one more resource.
"""

from __future__ import annotations

from planner.fleet.problem import FleetProblem, Key

_LP_TOLERANCE = 1e-6
"""The simplex solution may violate rows by about 1e-7, relative: the bound gives way by more."""
_MOST_HEADS = 8
"""Release times for which the area rows are stated; more add little."""


def heads(problem: FleetProblem) -> list[float]:
    """Earliest start of each task with unlimited resources, seconds."""
    found = [0.0] * len(problem.tasks)
    for t in problem.topological:
        before = [found[p] + _fastest(problem, p) for p in problem.predecessors[t]]
        found[t] = max([problem.tasks[t].release_s, *before])
    return found


def tails(problem: FleetProblem) -> list[float]:
    """Least time from the end of each task to the end of its last successor, seconds."""
    found = [0.0] * len(problem.tasks)
    for t in reversed(problem.topological):
        for p in problem.predecessors[t]:
            found[p] = max(found[p], found[t] + _fastest(problem, t))
    return found


def lower_bounds(problem: FleetProblem) -> Key:
    """Lower bounds on makespan and total weighted tardiness, seconds."""
    head = heads(problem)
    ends = [head[t] + _fastest(problem, t) for t in range(len(problem.tasks))]
    last = [0.0] * len(problem.jobs)
    for task, end in zip(problem.tasks, ends, strict=True):
        last[task.job] = max(last[task.job], end)
    tardiness = sum(
        job.weight * max(0.0, end - job.due_s)
        for job, end in zip(problem.jobs, last, strict=True)
        if job.due_s is not None
    )
    return max(max(ends), area_bound(problem, head, tails(problem))), tardiness


def area_bound(problem: FleetProblem, head: list[float], tail: list[float]) -> float:
    """The linear programme of the module's docstring: a lower bound on the makespan, seconds."""
    from ortools.linear_solver import pywraplp

    solver = pywraplp.Solver.CreateSolver("GLOP")
    infinity = solver.infinity()
    scale = max(head[t] + _fastest(problem, t) for t in range(len(problem.tasks))) or 1.0
    makespan = solver.NumVar(0, infinity, "makespan")  # in units of `scale`
    share = [[solver.NumVar(0, 1, "") for _ in task.options] for task in problem.tasks]
    for t, task in enumerate(problem.tasks):
        solver.Add(solver.Sum(share[t]) == 1)
        hold = [problem.least_s(t, option) / scale for option in task.options]
        length = solver.Sum([y * h for y, h in zip(share[t], hold, strict=True)])
        solver.Add(makespan >= length + (head[t] + tail[t]) / scale)
    capacities = dict(enumerate(problem.group_nodes))
    for r in _thresholds(head):
        later = [t for t in range(len(problem.tasks)) if head[t] >= r]
        for group, nodes in capacities.items():
            area = [
                share[t][o] * (option.nodes * problem.least_s(t, option) / scale)
                for t in later
                for o, option in enumerate(problem.tasks[t].options)
                if option.group == group
            ]
            if area:
                solver.Add(solver.Sum(area) <= nodes * (makespan - r / scale))
        if problem.slots:
            use = [
                share[t][o] * (option.slots * problem.least_s(t, option) / scale)
                for t in later
                for o, option in enumerate(problem.tasks[t].options)
                if option.slots
            ]
            if use:
                solver.Add(solver.Sum(use) <= problem.slots * (makespan - r / scale))
    solver.Minimize(makespan)
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return 0.0
    return float(makespan.solution_value()) * scale * (1 - _LP_TOLERANCE)


def _fastest(problem: FleetProblem, task: int) -> float:
    return min(problem.least_s(task, option) for option in problem.tasks[task].options)


def _thresholds(head: list[float]) -> list[float]:
    distinct = sorted(set(head))
    if len(distinct) <= _MOST_HEADS:
        return distinct
    step = (len(distinct) - 1) / (_MOST_HEADS - 1)
    return [distinct[round(i * step)] for i in range(_MOST_HEADS)]
