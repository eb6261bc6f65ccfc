"""All classes of plans solved on a sub-cluster, with options that are priced once for all sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np

from planner.search.candidates import mesh_sizes
from planner.search.infeasible import Attempt
from planner.search.options import UnitOptions, options_key, unit_options
from planner.search.placement import PlacementResult, solve_placement
from planner.search.placement.bounds import plain_bound, step_bound
from planner.search.placement.clock import CancelledError, Clock
from planner.search.placement.instance import compile_instance
from planner.search.placement.reduce import below
from planner.search.problem import PlacementProblem, Unit
from planner.search.problems import class_instance, placement_problem, problem_of
from planner.search.relaxed import least_times
from planner.search.scope import Scope
from planner.search.sizes import Size, contains, on_size, whole
from planner.search.variants import solve_variant
from planner.simulate.bounds import work_depth_bound_s
from planner.simulate.instance import Instance
from planner.workload.units import CallUnit

# Pricing a unit's options on one mesh size takes about this long (1,024 H100, 70B PPO), and a
# deadline must leave as much again for the search. Up to so many sizes nothing is left out.
_PRICING_S = 0.0125
_PRICING_SHARE = 0.5
_FEW_SIZES = 6
# In a hurry: mesh sizes that are priced of each unit, of those with a bound up to so many times
# the least one.
_PROMISING_SIZES = 4
_NEAR = 1.1
_ALTERNATIVE_GAP = 0.03
"""Proof of the best plan of a class (asynchronous, say) that another class beats."""
_THREADS = 2


@dataclass(frozen=True)
class SizeResult:
    """What is known of the plans on one sub-cluster."""

    size: Size
    attempts: tuple[Attempt, ...]
    """The classes that were solved."""
    bound_s: float
    """No plan on the sub-cluster has a shorter step; inf when there is none."""


def _order(scope: Scope) -> tuple[bool, int]:
    return scope.is_variant, -scope.staleness


def _form(scope: Scope) -> Hashable:
    """What tells the classes of one space apart."""
    return scope.placement, scope.staleness, scope.engine_apart, scope.copied, scope.fusions


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
        # Variants last: with a good plan known, most are refuted at once.
        self.wanted = sorted(wanted, key=_order)
        self.clock = clock
        self.cancel = cancel
        self.gap = gap
        self.solutions = solutions
        self._all = list(wanted)
        self._least: dict[Hashable, Unit] = {}
        self._promised_s: dict[Hashable, float] = {}
        self.partial = self._must_hurry()
        """Only promising mesh sizes are priced; bounds come from the least times of the calls."""
        self._few = False
        if self.partial:
            self._begin_with_least()
        self.results: dict[Size, SizeResult] = {}
        self._options: dict[Hashable, UnitOptions] = {}
        self._problems: dict[int, tuple[Instance, dict[str, UnitOptions], PlacementProblem]] = {}
        self._floor_s: dict[Size, float] = {}

    def _must_hurry(self) -> bool:
        """Whether pricing every mesh size may take most of the time up to the deadline.

        It depends on the deadline and the problem, not on how fast the machine is just now.
        """
        if self.clock.limit_s is None:
            return False
        space = self.wanted[0].space
        sizes = sum(len(mesh_sizes(group, space)) for group in self.instance.cluster.groups)
        pricing_s = _PRICING_S * sizes * len(self.instance.units)
        return sizes > _FEW_SIZES and pricing_s > _PRICING_SHARE * self.clock.limit_s

    def _begin_with_least(self) -> None:
        """Classes by what they promise; without those that only refine another one."""
        size = whole(self.instance.cluster)
        plain = [scope for scope in self.wanted if not scope.is_variant]
        self.wanted = sorted(plain, key=lambda scope: self._promise_s(scope, size))

    def _promise_s(self, scope: Scope, size: Size) -> float:
        """No plan of the class on a sub-cluster has a shorter step, from the least times alone."""
        key = _form(scope), size
        if key not in self._promised_s:
            scope = replace(scope, few_sizes=False)
            instance = class_instance(self.instance, scope)
            bound_s = work_depth_bound_s(instance, scope.staleness)
            try:
                problem = self._least_problem(instance, scope)
            except CancelledError:
                return bound_s
            least = step_bound(compile_instance(on_size(problem, size))) + instance.fixed_s
            self._promised_s[key] = max(bound_s, least)
        return self._promised_s[key]

    def _least_problem(self, instance: Instance, scope: Scope) -> PlacementProblem:
        units = {}
        for unit in instance.units:
            key = options_key(instance, scope, unit)
            if key not in self._least:
                self._least[key] = least_times(instance, scope, unit, self.clock.check)
            units[unit.name] = self._least[key]
        return problem_of(instance, scope, units)

    def _promising(self, instance: Instance, scope: Scope) -> dict[str, tuple[int, ...]]:
        """A few mesh sizes of each unit that plans near the class's bound can have."""
        least = compile_instance(self._least_problem(instance, scope))
        near = below(least, _NEAR * step_bound(least))
        found = {}
        for unit, rows in zip(instance.units, near.options, strict=True):
            sizes = np.unique(rows.devices)
            some = np.unique(np.linspace(0, len(sizes) - 1, _PROMISING_SIZES).round().astype(int))
            found[unit.name] = tuple(sizes[some].tolist()) if len(sizes) else ()
        return found

    @property
    def least_s(self) -> float:
        """No step is shorter whatever the devices: the CPU workers' pool and the fixed seconds."""
        return self.instance.pool_s + self.instance.fixed_s

    @property
    def priced(self) -> list[UnitOptions]:
        """Options of all units and classes priced so far, each once."""
        return list(self._options.values())

    def options(self, instance: Instance, scope: Scope, unit: CallUnit) -> UnitOptions:
        """A unit's options; `instance` is that of the class (`class_instance`)."""
        key = options_key(instance, scope, unit)
        if key not in self._options:
            self._options[key] = unit_options(instance, scope, unit, self.clock.check)
        return self._options[key]

    def problem(self, index: int) -> tuple[Instance, dict[str, UnitOptions], PlacementProblem]:
        """Instance, options and placement problem of a class on the whole cluster."""
        if index not in self._problems:
            scope = self.wanted[index]
            instance = class_instance(self.instance, scope)
            only: dict[str, tuple[int, ...]] = {}
            if self.partial and not self._few:
                only = self._promising(instance, scope)
            options = {
                unit.name: self.options(
                    instance, replace(scope, only_devices=only.get(unit.name, ())), unit
                )
                for unit in instance.units
            }
            problem = placement_problem(instance, scope, options)
            self._problems[index] = instance, options, problem
        return self._problems[index]

    def floor_s(self, size: Size) -> float:
        """No plan on a sub-cluster of this size has a shorter step.

        The larger of the closed-form bound of its options and of what is proven of the
        sub-clusters that contain it.
        """
        if size not in self._floor_s:
            self._floor_s[size] = max(self.least_s, self._closed_form_s(size))
        proven = [each.bound_s for each in self.results.values() if contains(each.size, size)]
        return max(self._floor_s[size], *proven, self.least_s)

    def _closed_form_s(self, size: Size) -> float:
        # The weaker bound: a sub-cluster is also searched for the plans that leave some of its
        # devices free, whose score may be better than the sub-cluster's own promise.
        bounds = []
        try:
            for index, scope in enumerate(self._all if self.partial else self.wanted):
                if self.partial:
                    instance = class_instance(self.instance, scope)
                    problem = self._least_problem(instance, scope)
                else:
                    problem = self.problem(index)[2]
                bounds.append(plain_bound(compile_instance(on_size(problem, size))))
        except CancelledError:
            return 0.0
        return min(bounds, default=math.inf) + self.instance.fixed_s

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
        looks = self._side_by_side(size, at_most_s, solutions)
        for index, scope in enumerate(self.wanted):
            if self.partial and best_s < math.inf and self._promise_s(scope, size) >= best_s:
                break
            try:
                instance, options, whole = self.problem(index)
            except CancelledError:
                break
            problem = on_size(whole, size)
            left = self.clock.left_s
            deadline_s = None if left is None else max(0.01, left / (parts * (count - index)))
            first = not any(each.result.solutions for each in solved)
            # A class that cannot hold the best plan is still shown: its own best, roughly proven.
            # A variant of one that was solved is not.
            gaps = [self.gap] if first else [max(self.gap, _ALTERNATIVE_GAP), self.gap]
            limit_s = at_most_s
            if scope.is_variant and not first:
                gaps, limit_s = [self.gap], best_s * (1 - self.gap)
            for gap in gaps:
                result = looks.get((index, gap)) or (
                    solve_variant if scope.is_variant else solve_placement
                )(
                    problem,
                    top=solutions or self.solutions,
                    deadline_s=deadline_s,
                    gap=gap,
                    cancel=self.cancel,
                    upper_bound_s=limit_s if math.isfinite(limit_s) else None,
                )
                if result.bound_s >= best_s * (1 - self.gap):
                    break
            solved.append(Attempt(scope, options, result, instance))
            bounds.append(self._promise_s(scope, size) if self.partial else result.bound_s)
            if result.solutions:
                best_s = min(best_s, result.solutions[0].step_time_s)
            stopped = self.clock.stop()
            if self.clock.cancelled or (stopped and any(each.result.solutions for each in solved)):
                break
        found = any(each.result.solutions for each in solved)
        if self.partial and not found and not self.clock.cancelled:
            # Nothing fits on these sizes: others must be tried before saying so.
            if self._few:
                self.partial = False
                self.wanted = sorted(self._all, key=_order)
            else:
                self._few = True
                self.wanted = [replace(scope, few_sizes=True) for scope in self.wanted]
            self._problems.clear()
            return self.solve(size, at_most_s=at_most_s, parts=parts, solutions=solutions)
        known = [] if self.partial else [_form(scope) for scope in self.wanted[: len(solved)]]
        if self.clock.cancelled and not found:
            # Nobody waits for a bound without a plan.
            bounds.append(0.0)
        else:
            bounds += [self._floor_of(each, size) for each in self._all if _form(each) not in known]
        bound_s = max(min(bounds, default=math.inf), self.least_s)
        self.results[size] = SizeResult(size, tuple(solved), bound_s)
        return self.results[size]

    def _floor_of(self, scope: Scope, size: Size) -> float:
        """Bound of a class that was not solved."""
        if self.partial and not self.clock.cancelled:
            return self._promise_s(scope, size)
        return work_depth_bound_s(class_instance(self.instance, scope), scope.staleness)

    def _price(self, scopes: Sequence[Scope]) -> None:
        """Price the units of the classes, two at a time: they do not depend on each other."""
        todo: dict[Hashable, tuple[Instance, Scope, CallUnit]] = {}
        for scope in scopes:
            instance = class_instance(self.instance, scope)
            for unit in instance.units:
                key = options_key(instance, scope, unit)
                if key not in self._options:
                    todo.setdefault(key, (instance, scope, unit))
        with ThreadPoolExecutor(_THREADS) as threads:
            if any(scope.placement == "free" for scope in scopes):
                # Nearly all of these need the solver, which takes half a second to import.
                threads.submit(import_module, "ortools.sat.python.cp_model")
            # Units of more calls, those that train, take longest.
            order = sorted(todo, key=lambda key: -len(todo[key][2].calls))
            found = {
                key: threads.submit(unit_options, *todo[key], self.clock.check) for key in order
            }
            try:
                for key in todo:
                    self._options[key] = found[key].result()
            except CancelledError:
                threads.shutdown(cancel_futures=True)
                raise

    def _side_by_side(
        self, size: Size, at_most_s: float, solutions: int
    ) -> dict[tuple[int, float], PlacementResult]:
        """First results of the classes that are no variants, by class and gap, two at a time.

        They do not depend on each other, so threads change nothing but the time. With a deadline
        they run in turn, as each then has its share of the time left.
        """
        plain = [index for index, scope in enumerate(self.wanted) if not scope.is_variant]
        if self.clock.limit_s is not None:
            return {}
        try:
            self._price([self.wanted[index] for index in plain])
            if len(plain) < 2:
                return {}
            problems = {index: on_size(self.problem(index)[2], size) for index in plain}
        except CancelledError:
            return {}
        gaps = {index: max(self.gap, _ALTERNATIVE_GAP) for index in plain} | {0: self.gap}

        def first(index: int) -> PlacementResult:
            return solve_placement(
                problems[index],
                top=solutions or self.solutions,
                gap=gaps[index],
                cancel=self.cancel,
                upper_bound_s=at_most_s if math.isfinite(at_most_s) else None,
            )

        with ThreadPoolExecutor(_THREADS) as threads:
            results = list(threads.map(first, plain))
        return {(index, gaps[index]): each for index, each in zip(plain, results, strict=True)}
