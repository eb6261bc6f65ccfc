"""A good plan quickly: coordinate descent over the meshes' options, every value exact.

It gives the exact search its first upper bound (which sets the tick and prunes options). It depends
on nothing but its input: no randomness, and the clock only cuts it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.search.placement.bounds import Bounds, EventTables
from planner.search.placement.driver import Search
from planner.search.placement.evaluate import Evaluator, Plan
from planner.search.placement.fronts import Front, fastest_mix, mesh_fronts
from planner.search.placement.instance import FloatArray, Instance, IntArray, Options

# A move must gain this part of the step time: less may be rounding.
_LEAST_GAIN = 1e-9
# Moves of one mesh that are evaluated exactly before going on to the next mesh, and rounds over all
# meshes: more of either gains little (the solver takes over).
_TRIES = 12
_ROUNDS = 6
# Weight of a limit that a start should respect if any option does.
_PENALTY_S = 1e12


@dataclass(frozen=True)
class Moves:
    """Alternatives of one mesh, k of them, with what the starts look at."""

    rows: IntArray
    """Rows of the mesh's units' options; shape [k, units]."""
    devices: IntArray
    sum_s: FloatArray
    resident_bytes: FloatArray
    peak_bytes: FloatArray


class Descent:
    """Coordinate descent on one instance; every mesh must have an alternative."""

    def __init__(self, instance: Instance, evaluator: Evaluator):
        self.instance = instance
        self.evaluator = evaluator
        self.bounds = Bounds(instance)
        self.tables = EventTables(instance)
        # A lone unit moves through all its options; sharing units through their useful mixes.
        self.moves = [
            _alone(instance.options[members[0]])
            if len(members) == 1
            else _joined(mesh_fronts(instance, mesh, [frozenset(range(instance.n_calls))]))
            for mesh, members in enumerate(instance.meshes)
        ]

    def run(self, search: Search) -> None:
        """Descend from every start; offer all plans met to the search."""
        begun: set[tuple[int, ...]] = set()
        if search.best is not None:
            begun.add(search.best.choice)
            self.improve(search.best, search)
        for start in self._starts():
            if search.clock.stop() and search.best is not None:
                return
            if tuple(start) in begun:
                continue
            begun.add(tuple(start))
            plan = self.evaluator.evaluate(start) or self._repaired(start)
            search.offer(plan)
            if plan is not None and not search.done:
                self.improve(plan, search)

    def improve(self, plan: Plan, search: Search) -> Plan:
        """Change one mesh at a time while that helps."""
        for _ in range(_ROUNDS):
            before = plan.value_s
            for mesh in range(len(self.moves)):
                if search.clock.stop():
                    return plan
                plan = self._best_move(plan, mesh)
                search.offer(plan)
            if plan.value_s >= before * (1 - _LEAST_GAIN):
                break
        return plan

    def moved(self, choice: Sequence[int], mesh: int, row: int) -> list[int]:
        """The choice with one mesh changed to one of its alternatives."""
        result = list(choice)
        units = self.instance.meshes[mesh]
        for unit, option in zip(units, self.moves[mesh].rows[row].tolist(), strict=True):
            result[unit] = option
        return result

    def lower_bounds(self, choice: Sequence[int], mesh: int) -> FloatArray:
        """Lower bound of each move of one mesh, the other meshes as chosen; shape [moves]."""
        moves = self.moves[mesh]
        duration_s, area = self.tables.rows(len(moves.rows))
        members = self.instance.meshes[mesh]
        for unit, rows in enumerate(self.instance.options):
            index = moves.rows[:, members.index(unit)] if unit in members else [choice[unit]]
            self.tables.fill(unit, rows.take(index), duration_s, area)
        return self.bounds.evaluate(duration_s, area)

    def _best_move(self, plan: Plan, mesh: int) -> Plan:
        limit = plan.value_s * (1 - _LEAST_GAIN)
        lower = self.lower_bounds(plan.choice, mesh)
        for row in np.argsort(lower, kind="stable")[:_TRIES].tolist():
            if lower[row] >= limit:
                break
            choice = self.moved(plan.choice, mesh, row)
            found = self.evaluator.evaluate(choice, limit)
            if found is not None:
                plan, limit = found, found.value_s * (1 - _LEAST_GAIN)
        return plan

    def _starts(self) -> list[list[int]]:
        """Choices to begin from: fastest options; fastest in half the devices; side by side, each
        with its part of the devices by work; nothing left resident; and least memory."""
        total = sum(self.instance.group_devices)
        work = [float((moves.sum_s * moves.devices).min()) for moves in self.moves]
        part = [max(1.0, total * w / sum(work)) if sum(work) > 0 else 1.0 for w in work]
        costs = (
            [m.sum_s for m in self.moves],
            [m.sum_s + _PENALTY_S * (2 * m.devices > total) for m in self.moves],
            [m.sum_s + _PENALTY_S * (m.devices > p) for m, p in zip(self.moves, part, strict=True)],
            [m.sum_s + m.resident_bytes for m in self.moves],
            [m.sum_s + m.peak_bytes for m in self.moves],
        )
        return [self._choice([int(np.argmin(cost)) for cost in picks]) for picks in costs]

    def _choice(self, picks: Sequence[int]) -> list[int]:
        choice = [0] * len(self.instance.units)
        for mesh, row in enumerate(picks):
            choice = self.moved(choice, mesh, row)
        return choice

    def _repaired(self, start: list[int]) -> Plan | None:
        """The first plan found by changing meshes, those that keep most first, to what keeps
        least."""
        choice = list(start)

        def kept(mesh: int) -> float:
            return sum(
                float(self.instance.options[u].resident_bytes[choice[u]])
                for u in self.instance.meshes[mesh]
            )

        for mesh in sorted(range(len(self.moves)), key=lambda m: (-kept(m), m)):
            moves = self.moves[mesh]
            choice = self.moved(choice, mesh, int(np.argmin(moves.resident_bytes + moves.sum_s)))
            plan = self.evaluator.evaluate(choice)
            if plan is not None:
                return plan
        return None


def all_together(instance: Instance) -> list[list[int]]:
    """The fastest choice with all units on the same devices, if there is one (and it may be)."""
    if instance.apart or len(instance.meshes) == 1:
        return []
    joined = replace(
        instance,
        meshes=(tuple(range(len(instance.units))),),
        mesh_of=(0,) * len(instance.units),
    )
    found = fastest_mix(joined, 0, [frozenset(range(instance.n_calls))], lambda t: t[:, 0])
    return [] if found is None else [found[1]]


def _alone(rows: Options) -> Moves:
    return Moves(
        np.arange(len(rows))[:, None],
        rows.devices,
        rows.time_s.sum(axis=1),
        rows.resident_bytes,
        rows.resident_bytes + rows.extra_bytes,
    )


def _joined(fronts: dict[tuple[int, int], Front]) -> Moves:
    parts = list(fronts.values())
    if not parts:
        empty = np.zeros(0)
        return Moves(np.zeros((0, 1), dtype=np.int64), empty.astype(np.int64), empty, empty, empty)
    return Moves(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([np.full(len(f), key[1], dtype=np.int64) for key, f in fronts.items()]),
        np.concatenate([part.time_s[:, 0] for part in parts]),
        np.concatenate([part.resident_bytes for part in parts]),
        np.concatenate([part.resident_bytes + part.extra_bytes for part in parts]),
    )
