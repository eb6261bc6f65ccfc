"""Exact solution, without a solver, of problems whose device calls run one at a time.

Two forms cover the common launchers: all units on one mesh (colocated), and two meshes such that
any two events either share a mesh or are ordered by the data (generation apart from training; a
critic would run beside the actor only on its own mesh, which is a third). Then the step time is a
sum, whatever the order, and choosing the options is a small problem over fronts of (time, memory).

Asynchronous steps of these forms are bounded by the load of each mesh instead; the bound is checked
with an exact schedule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from planner.search.placement.evaluate import Evaluator, Plan
from planner.search.placement.fronts import (
    Front,
    Value,
    fastest_mix,
    grow,
    least_times,
    priced,
    unit_fronts,
)
from planner.search.placement.instance import FloatArray, Instance, IntArray, Key

# Pairs of sizes on shared devices for which a good choice is looked for before the exact search.
_QUICK_CASES = 24
MOST_MESHES = 2
"""Problems of more meshes have neither form."""


@dataclass(frozen=True)
class ChainOutcome:
    """What the special case proves: `bound_s` holds for all plans (inf: there is none)."""

    plan: Plan | None
    bound_s: float
    method: str


def solve_chain(instance: Instance, evaluator: Evaluator) -> ChainOutcome | None:
    """Best plan and bound if the problem has one of the two forms, else None.

    The bound equals the plan's value except where host calls or the latency limit of an
    asynchronous step interfere; then the caller must go on with the general search.
    """
    if not 1 <= len(instance.meshes) <= MOST_MESHES or any(
        len(rows) == 0 for rows in instance.options
    ):
        return None
    if instance.staleness == 0 and not _serial(instance):
        return None
    sets = _event_sets(instance)
    found: tuple[float, list[int]] | None
    if len(instance.meshes) == 1:
        found = fastest_mix(instance, 0, sets, _objective(instance, sets, False), exact=True)
    else:
        found = _TwoMeshes(instance, sets).best()
    method = "chain" if instance.staleness == 0 else "pools"
    if found is None:
        return ChainOutcome(None, math.inf, method)
    bound_s, choice = found
    return ChainOutcome(evaluator.evaluate(choice), bound_s, method)


def _serial(instance: Instance) -> bool:
    """Whether any two events on devices share a mesh or are ordered by the data."""
    on_devices = [e for e, meshes in enumerate(instance.event_meshes) if meshes]
    return all(
        instance.ordered(a, b) or instance.event_meshes[a] & instance.event_meshes[b]
        for a, b in combinations(on_devices, 2)
    )


def _event_sets(instance: Instance) -> list[frozenset[int]]:
    """Sets of device calls whose total times decide: all of them, and for each host call those
    that cannot run beside it (its ancestors and descendants)."""
    calls = range(instance.n_calls)
    sets = [frozenset(calls)]
    if instance.staleness == 0:
        for k in range(len(instance.host_s)):
            host = instance.n_calls + k
            sets.append(frozenset(e for e in calls if instance.ordered(e, host)))
    return list(dict.fromkeys(sets))


def _objective(instance: Instance, sets: list[frozenset[int]], disjoint: bool) -> Value:
    """Lower bound of the makespan from the totals of the sets, [..., sets] -> [...]."""
    first = instance.n_calls + len(instance.host_s)
    sync_s = [
        s.disjoint_s if disjoint and s.trainer != s.engine else s.shared_s for s in instance.syncs
    ]
    # Seconds besides the set's calls on each path: all syncs, or one host call and those after it.
    paths: list[tuple[int, float]] = [(0, sum(sync_s))]
    # A cyclic schedule runs host calls beside the next iteration: they do not bound the period.
    hosts = instance.host_s if instance.staleness == 0 else ()
    for k, host_s in enumerate(hosts):
        host = instance.n_calls + k
        members = frozenset(e for e in range(instance.n_calls) if instance.ordered(e, host))
        if members in sets:
            later = sum(x for i, x in enumerate(sync_s) if instance.ordered(host, first + i))
            paths.append((sets.index(members), host_s + later))

    def value(totals: FloatArray) -> FloatArray:
        result: FloatArray = totals[..., paths[0][0]] + paths[0][1]
        for column, seconds in paths[1:]:
            result = np.maximum(result, totals[..., column] + seconds)
        return result

    return value


@dataclass(frozen=True)
class _Case:
    """Sizes of the two meshes and whether they are disjoint, with a lower bound of the value."""

    promise: float
    disjoint: bool
    keys: tuple[Key, Key]


class _TwoMeshes:
    """Best options of two meshes: a good choice first, then every case that could beat it."""

    def __init__(self, instance: Instance, sets: list[frozenset[int]]):
        self.instance = instance
        self.parts = [unit_fronts(instance, mesh, sets) for mesh in range(2)]
        self.together = _objective(instance, sets, False)
        self._beside = _objective(instance, sets, True)
        self.least = [
            {key: least_times(parts).sum(axis=0) for key, parts in fronts.items()}
            for fronts in self.parts
        ]
        self.value = math.inf
        self.rows: tuple[list[int], list[int]] | None = None
        self.grown: list[dict[Key, Front | None]] = [{}, {}]

    def best(self) -> tuple[float, list[int]] | None:
        """The smallest value and the row of every unit's option, or None if nothing fits."""
        cases = sorted(self._cases(), key=lambda c: (c.promise, not c.disjoint, c.keys))
        quick = [
            {
                key: priced(self.instance, key[0], parts, lambda t: t[..., 0])
                for key, parts in fronts.items()
            }
            for fronts in self.parts
        ]
        tried = 0
        for case in cases:
            if case.promise >= self.value or tried >= _QUICK_CASES:
                break
            if case.disjoint:
                a, b = (quick[m][case.keys[m]] for m in range(2))
                if a is not None and b is not None:
                    self._offer(float(self.beside(a[2], b[2])), a[1].tolist(), b[1].tolist())
                continue
            tried += 1
            found = priced(self.instance, case.keys[0][0], self._joint(case), self.together)
            if found is not None:
                self._offer_joint(found[0], found[1])
        for case in cases:
            if case.promise >= self.value:
                break
            self._solve(case)
        if self.rows is None:
            return None
        choice = [0] * len(self.instance.units)
        for mesh, rows in enumerate(self.rows):
            for unit, row in zip(self.instance.meshes[mesh], rows, strict=True):
                choice[unit] = row
        return self.value, choice

    def beside(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Value of disjoint meshes from their totals, which broadcast."""
        if self.instance.staleness == 0:
            return self._beside(a + b)
        syncs = self.instance.syncs
        own = [sum(s.shared_s for s in syncs if s.trainer == s.engine == m) for m in range(2)]
        both = sum(s.disjoint_s for s in syncs if s.trainer != s.engine)
        return both + np.maximum(a[..., 0] + own[0], b[..., 0] + own[1])

    def _cases(self) -> list[_Case]:
        cases = []
        for keys in product(self.parts[0], self.parts[1]):
            a, b = (self.least[m][keys[m]] for m in range(2))
            if self._room(keys):
                cases.append(_Case(float(self.beside(a, b)), True, keys))
            if keys[0][0] == keys[1][0] and (0, 1) not in self.instance.apart:
                cases.append(_Case(float(self.together(a + b)), False, keys))
        return cases

    def _room(self, keys: tuple[Key, Key]) -> bool:
        """Whether meshes of these sizes can be disjoint."""
        (group_a, size_a), (group_b, size_b) = keys
        return group_a != group_b or size_a + size_b <= self.instance.group_devices[group_a]

    def _solve(self, case: _Case) -> None:
        if not case.disjoint:
            group = case.keys[0][0]
            front = grow(self.instance, group, self._joint(case), self.together, self.value)
            if front is not None:
                values = self.together(front.time_s)
                k = int(values.argmin())
                self._offer_joint(float(values[k]), front.rows[k])
            return
        a, b = self._front(0, case.keys[0]), self._front(1, case.keys[1])
        if a is None or b is None:
            return
        values = self.beside(a.time_s[:, None, :], b.time_s[None, :, :])
        i, j = divmod(int(values.argmin()), len(b))
        self._offer(float(values[i, j]), a.rows[i].tolist(), b.rows[j].tolist())

    def _front(self, mesh: int, key: Key) -> Front | None:
        """Combinations of one mesh that can be of use beside some size of the other."""
        if key not in self.grown[mesh]:
            beside = [
                least
                for other, least in self.least[1 - mesh].items()
                if self._room((key, other) if mesh == 0 else (other, key))
            ]
            rest = np.min(beside, axis=0)

            def value(totals: FloatArray) -> FloatArray:
                return self.beside(totals, rest) if mesh == 0 else self.beside(rest, totals)

            front = grow(self.instance, key[0], self.parts[mesh][key], value, self.value)
            self.grown[mesh][key] = front
        return self.grown[mesh][key]

    def _joint(self, case: _Case) -> list[Front]:
        return self.parts[0][case.keys[0]] + self.parts[1][case.keys[1]]

    def _offer_joint(self, value: float, rows: IntArray) -> None:
        first = len(self.instance.meshes[0])
        self._offer(value, rows[:first].tolist(), rows[first:].tolist())

    def _offer(self, value: float, first: list[int], second: list[int]) -> None:
        if value < self.value:
            self.value, self.rows = value, (first, second)
