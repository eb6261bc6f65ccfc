"""CP-SAT: improves the schedule and the bound until they meet, or the budget is spent.

One worker with a fixed seed does the same work on every run. It starts from a short memetic search.
Every solution of the model is evaluated as a schedule with true times.
"""

from __future__ import annotations

import math
from typing import Any

from planner.fleet import model as models
from planner.fleet.memetic import memetic
from planner.fleet.model import Model
from planner.fleet.optimizer import BudgetSpentError, Search

_START_EVALUATIONS = 60
"""Of the first search, for each task."""
_TICKS = 20_000
"""Ticks of the best makespan known, unless whole seconds (or more) are exact."""
_MOST_EXACT_TICKS = 500_000
_UNHURRIED = 60.0
"""Deterministic seconds of each solve when neither a budget nor a deadline ends it."""
_MOST_POINTS = 40
"""Points of the front that are proven one after another."""


def cp_sat(search: Search) -> None:
    """Prove the best schedule, or for "pareto" the front point by point."""
    try:
        _start(search)
        if search.objective == "pareto":
            search.front_proven = _front(search)
            return
        axis = 0 if search.objective == "makespan" else 1
        if not search.done:
            _solve(search, axis, parts=1)
        # Of the schedules that are equally good, one that is good in the other objective too.
        if search.best.key[1 - axis] > search.bounds[1 - axis]:
            _solve(search, 1 - axis, parts=4, most=(axis, search.best.key[axis]))
    except BudgetSpentError:
        return


def _start(search: Search) -> None:
    """A short memetic search: its best is the first solution, the horizon and the scale."""
    budget = _START_EVALUATIONS * len(search.problem.tasks)
    if search.budget is not None:
        budget = min(budget, max(1, search.budget // 2))
    warm = Search(
        search.problem,
        search.objective,
        budget=budget,
        clock=search.clock,
        seed=search.seed,
        bounds=(search.bounds[0], search.bounds[1]),
        gap=search.gap,
    )
    memetic(warm)
    search.evaluations += warm.evaluations
    for schedule in warm.front:
        search.offer(schedule)


def _front(search: Search) -> bool:
    """Both ends of the front, then the points between them; True when all are proven (in ticks)."""
    proven = _solve(search, 1, parts=4)
    proven = _solve(search, 0, parts=4) and proven
    tick_s = _tick(search)
    least = search.front[-1].weighted_tardiness_s
    makespan_s = search.front[0].makespan_s
    for _ in range(_MOST_POINTS):
        # The least tardiness with this makespan; then the least makespan with less tardiness.
        proven = _solve(search, 1, parts=4, most=(0, makespan_s)) and proven
        tardiness_s = min(
            each.weighted_tardiness_s for each in search.front if each.makespan_s <= makespan_s
        )
        if tardiness_s <= least:
            return proven
        before = tardiness_s - tick_s * 1e-3
        proven = _solve(search, 0, parts=4, most=(1, before), strict=True) and proven
        better = [each for each in search.front if each.weighted_tardiness_s < tardiness_s]
        if not better:
            return False
        makespan_s = better[0].makespan_s
    return False


def _tick(search: Search) -> float:
    """Seconds of a tick: the largest that divides all times, if it is not too short."""
    scale = search.front[-1].makespan_s
    times = models.times_s(search.problem)
    if all(time == int(time) for time in times):
        common = math.gcd(*(int(time) for time in times)) or 1
        if scale / common <= _MOST_EXACT_TICKS:
            return float(common)
    return max(search.front[0].makespan_s, 1e-9) / _TICKS


def _horizon_s(search: Search, axis: int, most: tuple[int, float] | None) -> float:
    """A time by which some best schedule ends."""
    if axis == 0:
        if most is None:
            return search.front[0].makespan_s
        return max(each.makespan_s for each in search.front)
    if most is not None:
        return most[1]
    # Placed one by one, tasks never wait longer than for all others.
    tasks = search.problem.tasks
    return max(task.release_s for task in tasks) + sum(
        max(option.run_s + option.setup_s for option in task.options) for task in tasks
    )


def _solve(
    search: Search,
    axis: int,
    *,
    parts: int,
    most: tuple[int, float] | None = None,
    strict: bool = False,
) -> bool:
    """Minimise one objective with the other at most `most`; True when proven (in ticks).

    `parts`: this solve may take one part of the time that is left. `strict`: the bound on the
    other objective is exclusive.
    """
    from ortools.sat.python import cp_model

    tick_s = _tick(search)
    model = models.build(search.problem, tick_s, _horizon_s(search, axis, most))
    limit = None
    if most is not None:
        units = models.unit_s(model, most[0])
        limit = (most[0], math.ceil(most[1] / units) - 1 if strict else models.up(most[1], units))
    models.minimise(model, axis, limit)
    known = [each for each in search.front if most is None or each.key[most[0]] <= most[1]]
    if known:
        models.hint(model, min(known, key=lambda each: each.key[axis]))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    # Without linear relaxations small fleets close 3 to 20 times faster (measured on nine phases).
    solver.parameters.linearization_level = 0
    solver.parameters.random_seed = search.seed % 2**31
    left = search.clock.left_s
    if left is not None:
        solver.parameters.max_time_in_seconds = max(left / parts, 1e-3)
    elif search.budget is None:
        solver.parameters.max_deterministic_time = _UNHURRIED / parts
    callback = _callback(search, model, until_done=most is None)
    if most is None:
        solver.best_bound_callback = lambda bound: _bound(search, model, solver, bound)
    with search.clock.watching(solver.stop_search):
        status = solver.solve(model.cp, callback)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"invalid fleet model: {model.cp.validate()}")
    if most is None and status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        search.raise_bound(
            axis, models.bound_s(model, min(solver.best_objective_bound, callback.least))
        )
    search.check_budget()
    return status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)


def _bound(search: Search, model: Model, solver: Any, bound: float) -> None:
    # When nothing is left below the best solution, the solver reports one unit above it, which may
    # be before it reports the solution: what is told on the way counts for one unit less.
    search.raise_bound(model.objective_axis, models.bound_s(model, bound - 1))
    if search.done:
        solver.stop_search()


def _callback(search: Search, model: Model, *, until_done: bool) -> Any:
    from ortools.sat.python import cp_model

    class Solutions(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        """Evaluates each solution of the model as a schedule."""

        least = math.inf
        """Objective of the best solution so far, in the model's units."""

        def on_solution_callback(self) -> None:
            self.least = min(self.least, self.objective_value)
            options, first_nodes = [], []
            for t, variants in enumerate(model.variants):
                option = next(each.option for each in variants if self.boolean_value(each.chosen))
                options.append(option)
                group = model.problem.tasks[t].options[option].group
                first_nodes.append(self.value(model.node[t][group]))
            place = {task: i for i, task in enumerate(model.problem.topological)}
            order = sorted(place, key=lambda t: (self.value(model.start[t]), place[t]))
            try:
                search.evaluate(options, order, first_nodes=first_nodes)
            except BudgetSpentError:
                self.stop_search()
                return
            if until_done and search.done:
                self.stop_search()

    return Solutions()
