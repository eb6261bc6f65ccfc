"""All classes of plans solved on a sub-cluster, with options that are priced once for all sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields

from planner.search.infeasible import Attempt
from planner.search.options import Scope, UnitOptions, depends_on_staleness, unit_options
from planner.search.placement import solve_placement
from planner.search.placement.bounds import step_bound
from planner.search.placement.clock import Clock
from planner.search.placement.instance import compile_instance
from planner.search.problem import PlacementProblem
from planner.search.problems import placement_problem
from planner.search.sizes import Size, contains, on_size
from planner.simulate.bounds import work_depth_bound_s
from planner.simulate.instance import Instance
from planner.workload.units import CallUnit

_ALTERNATIVE_GAP = 0.03
"""Proof of the best plan of a class (asynchronous, say) that another class beats."""


@dataclass(frozen=True)
class SizeResult:
    """What is known of the plans on one sub-cluster."""

    size: Size
    attempts: tuple[Attempt, ...]
    """The classes that were solved."""
    bound_s: float
    """No plan on the sub-cluster has a shorter step; inf when there is none."""


class SizeSearch:
    """Solves sub-clusters of one instance, one after another."""

    def __init__(
        self,
        instance: Instance,
        wanted: Sequence[Scope],
        *,
        gap: float,
        solutions: int,
        clock: Clock,
        cancel: Callable[[], bool] | None = None,
    ):
        self.instance = instance
        # Asynchronous classes first: where they win, which is often, the others need a rough proof.
        self.wanted = sorted(wanted, key=lambda scope: -scope.staleness)
        self.clock = clock
        self.cancel = cancel
        self.gap = gap
        self.solutions = solutions
        self.results: dict[Size, SizeResult] = {}
        self._options: dict[Hashable, UnitOptions] = {}
        self._problems: dict[int, tuple[dict[str, UnitOptions], PlacementProblem]] = {}
        self._floor_s: dict[Size, float] = {}

    @property
    def least_s(self) -> float:
        """No step is shorter whatever the devices: the CPU workers' pool and the fixed seconds."""
        return self.instance.pool_s + self.instance.fixed_s

    @property
    def priced(self) -> list[UnitOptions]:
        """Options of all units and classes priced so far, each once."""
        return list(self._options.values())

    def options(self, scope: Scope, unit: CallUnit) -> UnitOptions:
        """A unit's options; those of a trainer are the same at every staleness as a rule."""
        matters = depends_on_staleness(self.instance, scope, unit)
        rest = {f.name: getattr(scope, f.name) for f in fields(scope)}
        del rest["space"]
        key = (unit.name, *(rest | ({} if matters else {"staleness": None})).values())
        if key not in self._options:
            self._options[key] = unit_options(self.instance, scope, unit)
        return self._options[key]

    def problem(self, index: int) -> tuple[dict[str, UnitOptions], PlacementProblem]:
        """Options and placement problem of a class on the whole cluster."""
        if index not in self._problems:
            scope = self.wanted[index]
            options = {unit.name: self.options(scope, unit) for unit in self.instance.units}
            self._problems[index] = options, placement_problem(self.instance, scope, options)
        return self._problems[index]

    def floor_s(self, size: Size) -> float:
        """No plan on a sub-cluster of this size has a shorter step.

        The larger of the closed-form bound of its options and of what is proven of the
        sub-clusters that contain it.
        """
        if size not in self._floor_s:
            bounds = [
                step_bound(compile_instance(on_size(problem, size))) + self.instance.fixed_s
                for _, problem in (self.problem(index) for index in range(len(self.wanted)))
            ]
            self._floor_s[size] = max(self.least_s, min(bounds, default=math.inf))
        proven = [each.bound_s for each in self.results.values() if contains(each.size, size)]
        return max(self._floor_s[size], *proven, self.least_s)

    def solve(
        self, size: Size, *, at_most_s: float = math.inf, parts: int = 1, solutions: int = 0
    ) -> SizeResult:
        """All classes on a sub-cluster; only plans below `at_most_s` are of interest.

        `parts` is how many searches of this length the time left should last for; `solutions` the
        number of plans of each class, by default as many as the search was made for.
        """
        solved: list[Attempt] = []
        bounds: list[float] = []
        best_s = at_most_s
        count = len(self.wanted)
        for index, scope in enumerate(self.wanted):
            options, whole = self.problem(index)
            problem = on_size(whole, size)
            left = self.clock.left_s
            deadline_s = None if left is None else max(0.01, left / (parts * (count - index)))
            first = not any(each.result.solutions for each in solved)
            # A class that cannot hold the best plan is still shown: its own best, roughly proven.
            gaps = [self.gap] if first else [max(self.gap, _ALTERNATIVE_GAP), self.gap]
            for gap in gaps:
                result = solve_placement(
                    problem,
                    top=solutions or self.solutions,
                    deadline_s=deadline_s,
                    gap=gap,
                    cancel=self.cancel,
                    upper_bound_s=at_most_s if math.isfinite(at_most_s) else None,
                )
                if result.bound_s >= best_s * (1 - self.gap):
                    break
            solved.append(Attempt(scope, options, result))
            bounds.append(result.bound_s)
            if result.solutions:
                best_s = min(best_s, result.solutions[0].step_time_s)
            stopped = self.clock.stop()
            if self.clock.cancelled or (stopped and any(each.result.solutions for each in solved)):
                break
        unsolved = self.wanted[len(solved) :]
        bounds += [work_depth_bound_s(self.instance, scope.staleness) for scope in unsolved]
        bound_s = max(min(bounds, default=math.inf), self.least_s)
        self.results[size] = SizeResult(size, tuple(solved), bound_s)
        return self.results[size]
