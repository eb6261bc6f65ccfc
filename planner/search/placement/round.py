"""One integer model, built, solved, and its solutions evaluated as real plans.

The model's durations and memory are rounded down, and it asks only for plans that beat the best one
by more than the gap. Every solution is evaluated with true durations, bytes and places. One solver
worker with a fixed seed, stopped by bounds and solutions but not by time, does the same work on
every run.
"""

from __future__ import annotations

import math
from typing import Any

from planner.search.placement.evaluate import Evaluator
from planner.search.placement.instance import Instance
from planner.search.placement.objective import load_model, step_model
from planner.search.placement.relative import Model, chosen, forbid
from planner.search.placement.state import Search

# Below this part of the value that the ticks were made for, they are remade.
_COARSE = 0.95


class Round:
    """One model and what its solution brought."""

    def __init__(
        self,
        instance: Instance,
        search: Search,
        tick_s: float,
        memory_parts: int,
        excluded: list[tuple[tuple[int, ...], float]],
        loads_only: bool,
    ):
        self.instance = instance
        self.search = search
        self.tick_s = tick_s
        self.memory_parts = memory_parts
        self.loads_only = loads_only
        self.excluded = excluded
        self.target_s = search.target_s
        self.evaluator = Evaluator(instance)
        self.unreal: list[tuple[tuple[int, ...], float]] = []
        """Choices (original options) that are no plans, or worse ones than rounding explains; with
        the value to count for them in the bound: inf if their true value is known exactly."""
        self.was_coarse = False
        """The best value fell so far that the round's ticks were too long for it."""

    @staticmethod
    def tick(instance: Instance, search: Search, ticks: int) -> float:
        """Seconds of a tick: a part of the best value, or without a plan of the bound."""
        scale = search.target_s
        if not math.isfinite(scale):
            scale = search.bound_s if search.bound_s > 0 else _longest(instance)
        return scale / ticks if scale > 0 else 1.0

    def run(self) -> bool:
        """Solve; False if the clock stopped it before the end."""
        from ortools.sat.python import cp_model

        model = self._model()
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
            return True
        self._raise_bound(self._true(solver.best_objective_bound))
        return bool(status == cp_model.OPTIMAL) or self.search.done

    def _model(self) -> Model:
        horizon = self.target_s if math.isfinite(self.target_s) else _longest(self.instance)
        # The model's period is rounded up to whole ticks, a makespan is whole anyway.
        most = math.floor(horizon / self.tick_s) + (self.instance.staleness > 0)
        least = min(math.floor(self.search.bound_s / self.tick_s), most)
        build = load_model if self.loads_only else step_model
        model = build(self.instance, self.tick_s, self.memory_parts, most, least)
        for origin, _ in self.excluded:
            self._forbid(model, origin)
        return model

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
        # On the way OR-Tools (9.15) may report a tick above the optimum, when nothing is left
        # below a solution that it has yet to hand out.
        self._raise_bound(self._true(bound_ticks - 1))
        if self.search.done:
            solver.stop_search()

    def solution(self, choice: list[int], objective_ticks: float) -> None:
        """Evaluate a solution of the model as a real plan."""
        plan = self.evaluator.evaluate(choice)
        self.search.offer(plan)
        # Rounding explains one tick for each event; a load model promises nothing about values.
        slack = math.inf if self.loads_only else len(self.instance.events) + 1
        if plan is None or plan.value_s > (objective_ticks + slack) * self.tick_s:
            value = math.inf if self.evaluator.exact else objective_ticks * self.tick_s
            self.unreal.append((self.instance.origins(choice), value))

    def _forbid(self, model: Model, origin: tuple[int, ...]) -> None:
        try:
            rows = self.instance.rows(origin)
        except ValueError:
            return  # One of its options is pruned, so the choice is excluded already.
        forbid(model, rows)


def _callback(current: Round, model: Model) -> Any:
    from ortools.sat.python import cp_model

    class Solutions(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        """Hands each solution of the model to the round."""

        def on_solution_callback(self) -> None:
            choice = chosen(model, self.boolean_value)
            current.solution(choice, self.objective_value)
            if current.search.done or current.search.clock.stop():
                self.stop_search()

    return Solutions()


def _longest(instance: Instance) -> float:
    """Time of everything one after another with the slowest options: no plan needs more."""
    calls = sum(
        float(instance.options[unit].time_s[:, column].max())
        for unit, column in zip(instance.call_unit, instance.call_column, strict=True)
    )
    return calls + sum(instance.host_s) + sum(max(s.shared_s, s.disjoint_s) for s in instance.syncs)
