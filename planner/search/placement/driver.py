"""Runs CP-SAT until the best plan is proven to be within the gap, or the clock stops it.

Each round builds the model in ticks of a fraction of the best value known, with durations rounded
down, and asks only for plans that beat that value by more than the gap. Every solution is
evaluated with true durations and real places. One solver worker with a fixed seed, stopped by
bounds and solutions but not by time, does the same work on every run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from planner.search.placement.clock import Clock
from planner.search.placement.evaluate import Evaluator, Plan
from planner.search.placement.instance import Instance
from planner.search.placement.objective import load_model, step_model
from planner.search.placement.reduce import below, by_load
from planner.search.placement.relative import Model, chosen, forbid

# Ticks of the best known value: at 1,000 rounding costs 0.15 to 0.3 % on a chain of five calls,
# at 500 more than the usual gap, and 2,000 take about twice the time (measured).
_TICKS = 1000
_MOST_TICKS = 64_000
# Below this part of the value that the ticks were made for, they are remade.
_COARSE = 0.95
# A solution that turns out this many ticks worse for each event than the model said is not a matter
# of rounding: its relations cannot be realised.
_TICKS_PER_EVENT = 1


@dataclass
class Search:
    """State of the search: the best plan and the proven bound, fixed seconds excluded."""

    gap: float
    limit_s: float
    """Only plans below this are of interest (inf: all)."""
    clock: Clock
    seed: int
    bound_s: float = 0.0
    best: Plan | None = None
    seen: dict[tuple[int, ...], Plan] = field(default_factory=dict)
    """Best plan found for each choice of original options."""

    def offer(self, plan: Plan | None) -> bool:
        """Keep a plan; whether it is the best so far."""
        if plan is None:
            return False
        known = self.seen.get(plan.origin)
        if known is None or plan.value_s < known.value_s:
            self.seen[plan.origin] = plan
        if self.best is None or plan.value_s < self.best.value_s:
            self.best = plan
            return True
        return False

    @property
    def target_s(self) -> float:
        """Plans at or above this need not be found."""
        best = math.inf if self.best is None else self.best.value_s * (1 - self.gap)
        return min(best, self.limit_s)

    @property
    def done(self) -> bool:
        """The best plan is within the gap of the bound (or nothing of interest is left)."""
        return self.bound_s >= self.target_s

    def raise_bound(self, bound_s: float) -> None:
        """Record a valid lower bound."""
        self.bound_s = max(self.bound_s, bound_s)


def prove(instance: Instance, search: Search) -> bool:
    """Improve and prove until done; False if the clock stopped it.

    On return without a best plan, `search.bound_s` is inf if the problem has no plan at all.
    """
    if instance.staleness:
        if not _rounds(instance, search, loads_only=True):
            return False
        if search.done:
            return True
    return _rounds(instance, search, loads_only=False)


def _rounds(instance: Instance, search: Search, *, loads_only: bool) -> bool:
    ticks = _TICKS
    excluded: list[tuple[tuple[int, ...], float]] = []
    while not search.done:
        target = search.target_s
        reduced = below(instance, target)
        if any(len(rows) == 0 for rows in reduced.options):
            search.raise_bound(target)
            continue
        if loads_only:
            reduced = by_load(reduced)
        round_ = _Round(reduced, search, target, ticks, excluded, loads_only)
        if not round_.run():
            return False
        excluded.extend(round_.unreal)
        if round_.unreal or round_.was_coarse:
            continue
        if loads_only or ticks >= _MOST_TICKS:
            return True
        ticks *= 2
    return True


class _Round:
    """One model, solved once."""

    def __init__(
        self,
        instance: Instance,
        search: Search,
        target_s: float,
        ticks: int,
        excluded: list[tuple[tuple[int, ...], float]],
        loads_only: bool,
    ):
        self.instance = instance
        self.search = search
        self.target_s = target_s
        self.loads_only = loads_only
        self.evaluator = Evaluator(instance)
        self.excluded = excluded
        self.unreal: list[tuple[tuple[int, ...], float]] = []
        self.was_coarse = False
        """The best value fell so far that the round's ticks were too long for it."""
        horizon = target_s if math.isfinite(target_s) else _longest(instance)
        # Without a plan the horizon says nothing about the scale; the bound does.
        scale = horizon if math.isfinite(target_s) or search.bound_s <= 0 else search.bound_s
        self.tick_s = scale / ticks if scale > 0 else 1.0
        # The model's period is rounded up to whole ticks, a makespan is whole anyway.
        self.most = math.floor(horizon / self.tick_s) + (instance.staleness > 0)
        self.least = min(math.floor(search.bound_s / self.tick_s), self.most)

    def run(self) -> bool:
        """Solve; False if the clock stopped it."""
        from ortools.sat.python import cp_model

        build = load_model if self.loads_only else step_model
        model = build(self.instance, self.tick_s, self.most, self.least)
        for origin, _ in self.excluded:
            self._forbid(model, origin)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = self.search.seed
        # Without LP the synchronous model closes 2 to 5 times faster; the period needs its load
        # bound (both measured).
        solver.parameters.linearization_level = 1 if self.instance.staleness else 0
        left = self.search.clock.left_s
        if left is not None:
            solver.parameters.max_time_in_seconds = max(left, 1e-3)
        solver.best_bound_callback = lambda bound: self._bound(solver, bound)
        with self.search.clock.watching(solver.stop_search):
            status = solver.solve(model.cp, _callback(self, model))
        self.was_coarse = self.search.target_s < self.target_s * _COARSE
        if status == cp_model.MODEL_INVALID:
            raise RuntimeError(f"invalid placement model: {model.cp.validate()}")
        if status == cp_model.INFEASIBLE:
            self._raise_bound(self.target_s)
        elif status == cp_model.OPTIMAL:
            self._raise_bound(self._true(solver.best_objective_bound))
        else:
            self._raise_bound(self._true(solver.best_objective_bound))
            return self.search.done
        return True

    def _true(self, bound_ticks: float) -> float:
        """Seconds that a bound in ticks proves.

        A longest path is a sum of whole ticks, so every plan's makespan in the model is at most its
        true value. A period may be a fraction of ticks, which the model rounds up.
        """
        lost = 1 if self.instance.staleness else 0
        return max(0.0, bound_ticks - lost) * self.tick_s

    def _raise_bound(self, bound_s: float) -> None:
        # Plans at the target or above were not asked for; excluded choices have their own values,
        # which the best plan already beats or equals, or were doubtful and count here.
        doubtful = min((value for _, value in [*self.excluded, *self.unreal]), default=math.inf)
        self.search.raise_bound(min(bound_s, self.target_s, doubtful))

    def _bound(self, solver: Any, bound_ticks: float) -> None:
        self._raise_bound(self._true(bound_ticks))
        if self.search.done:
            solver.stop_search()

    def solution(self, choice: list[int], objective_ticks: float) -> None:
        """Evaluate a solution of the model as a real plan."""
        plan = self.evaluator.evaluate(choice)
        self.search.offer(plan)
        if self.loads_only:
            return
        slack = (len(self.instance.events) + 1) * _TICKS_PER_EVENT
        if plan is None or plan.value_s > (objective_ticks + slack) * self.tick_s:
            # The choice is settled: its best value is known, unless placement was given up.
            value = math.inf if self.evaluator.exact else objective_ticks * self.tick_s
            origin = tuple(
                int(rows.origin[row])
                for rows, row in zip(self.instance.options, choice, strict=True)
            )
            self.unreal.append((origin, value))

    def _forbid(self, model: Model, origin: tuple[int, ...]) -> None:
        rows = []
        for options, index in zip(self.instance.options, origin, strict=True):
            found = (options.origin == index).nonzero()[0]
            if len(found) == 0:
                return
            rows.append(int(found[0]))
        forbid(model, rows)


def _callback(round_: _Round, model: Model) -> Any:
    from ortools.sat.python import cp_model

    class Solutions(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        """Hands each solution of the model to the round."""

        def on_solution_callback(self) -> None:
            choice = chosen(model, self.boolean_value)
            round_.solution(choice, self.objective_value)
            if round_.search.done or round_.search.clock.stop():
                self.stop_search()

    return Solutions()


def _longest(instance: Instance) -> float:
    """Time of everything one after another with the slowest options: no plan needs more."""
    calls = sum(
        float(instance.options[unit].time_s[:, column].max())
        for unit, column in zip(instance.call_unit, instance.call_column, strict=True)
    )
    return calls + sum(instance.host_s) + sum(max(s.shared_s, s.disjoint_s) for s in instance.syncs)
