"""The interface that all optimizers share: problem, objective, budget, seed -> outcome.

An optimizer is called once with a `Search`. It evaluates schedules through it, and returns when it
is done; `Search.evaluate` raises `BudgetSpentError` when the budget is, which ends the optimizer
where it stands. Everything evaluated is kept in the search: the front of both objectives, which
holds the best of each, the bounds, and the trace.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from planner.fleet.decode import decode
from planner.fleet.problem import FleetProblem, Key, Schedule
from planner.search.placement.clock import Clock

Objective = Literal["makespan", "tardiness", "pareto"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)


class BudgetSpentError(Exception):
    """The budget is spent, the deadline reached, or the caller cancelled."""


@dataclass(frozen=True)
class Progress:
    """One point of the trace: an evaluation that improved what is known."""

    evaluations: int
    makespan_s: float
    """Least makespan known."""
    weighted_tardiness_s: float
    """Least total weighted tardiness known."""


@dataclass(frozen=True)
class Outcome:
    """What an optimizer found."""

    schedules: tuple[Schedule, ...]
    """The best schedule; for "pareto" the front, by ascending makespan."""
    makespan_bound_s: float
    tardiness_bound_s: float
    front_proven: bool
    """Each point of the front is proven, to within a tick of the model ("pareto" only)."""
    evaluations: int
    trace: tuple[Progress, ...]
    stopped: str
    """Why it ended: "done", "budget", "deadline" or "cancelled"."""


class Search:
    """What is known so far, and how much of the budget is left."""

    def __init__(
        self,
        problem: FleetProblem,
        objective: Objective,
        *,
        budget: int | None,
        clock: Clock,
        seed: int,
        bounds: Key,
        gap: float = 0.0,
        callback: Callable[[Progress], None] | None = None,
    ):
        self.problem = problem
        self.objective = objective
        self.budget = budget
        self.clock = clock
        self.seed = seed
        self.gap = gap
        """Relative distance to the bound that counts as proven."""
        self.rng = random.Random(seed)
        self.bounds = list(bounds)
        self.front: list[Schedule] = []
        """Schedules that none evaluated beats in both objectives, by ascending makespan."""
        self.front_proven = False
        self.evaluations = 0
        self.trace: list[Progress] = []
        self.stopped = "done"
        self._callback = callback

    @property
    def spent(self) -> float:
        """Part of the budget or of the time that is used, 0 to 1; 0 when neither is limited."""
        parts = [0.0]
        if self.budget is not None:
            parts.append(self.evaluations / self.budget)
        if self.clock.limit_s is not None:
            parts.append(self.clock.wall_s / self.clock.limit_s)
        return min(1.0, max(parts))

    @property
    def best(self) -> Schedule:
        """The best schedule known by the search's objective (by makespan for "pareto")."""
        return self.front[-1] if self.objective == "tardiness" else self.front[0]

    @property
    def done(self) -> bool:
        """Whether the best schedule is within the gap of the bound; never for "pareto"."""
        if self.objective == "pareto" or not self.front:
            return False
        axis = 0 if self.objective == "makespan" else 1
        return self.best.key[axis] * (1 - self.gap) <= self.bounds[axis] * (1 + 1e-9)

    def evaluate(
        self,
        options: Sequence[int],
        order: Sequence[int],
        ranks: Sequence[int] | None = None,
        first_nodes: Sequence[int] | None = None,
    ) -> Schedule:
        """The schedule of these decisions; raises BudgetSpentError when none may be evaluated."""
        self.check_budget()
        schedule = decode(self.problem, options, order, ranks, first_nodes)
        self.evaluations += 1
        self.offer(schedule)
        return schedule

    def check_budget(self) -> None:
        """Raise BudgetSpentError unless one more evaluation is allowed.

        The first evaluation always is, so that there is an answer.
        """
        if not self.front:
            return
        if self.budget is not None and self.evaluations >= self.budget:
            self.stopped = "budget"
        elif self.clock.stop():
            self.stopped = "cancelled" if self.clock.cancelled else "deadline"
        else:
            return
        raise BudgetSpentError

    def raise_bound(self, axis: int, bound_s: float) -> None:
        """Learn a lower bound on the makespan (axis 0) or on the tardiness (axis 1)."""
        self.bounds[axis] = max(self.bounds[axis], bound_s)

    def outcome(self) -> Outcome:
        """The result so far."""
        schedules = tuple(self.front) if self.objective == "pareto" else (self.best,)
        return Outcome(
            schedules=schedules,
            makespan_bound_s=min(self.bounds[0], self.front[0].makespan_s),
            tardiness_bound_s=min(self.bounds[1], self.front[-1].weighted_tardiness_s),
            front_proven=self.front_proven,
            evaluations=self.evaluations,
            trace=tuple(self.trace),
            stopped=self.stopped,
        )

    def offer(self, schedule: Schedule) -> None:
        """Keep a schedule if no known one is at least as good in both objectives."""
        makespan, tardiness = schedule.key
        for known in self.front:
            if known.makespan_s <= makespan and known.weighted_tardiness_s <= tardiness:
                return
        before = (self.front[0].key, self.front[-1].key) if self.front else None
        kept = [
            known
            for known in self.front
            if known.makespan_s < makespan or known.weighted_tardiness_s < tardiness
        ]
        self.front = sorted([*kept, schedule], key=lambda each: each.key)
        if before != (self.front[0].key, self.front[-1].key):
            point = Progress(
                self.evaluations, self.front[0].makespan_s, self.front[-1].weighted_tardiness_s
            )
            self.trace.append(point)
            if self._callback is not None:
                self._callback(point)


Optimizer = Callable[[Search], None]
