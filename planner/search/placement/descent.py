"""A good plan quickly: coordinate descent over the meshes' options, every value exact.

It gives the exact search its first upper bound (which sets the tick and prunes options). It depends
on nothing but its input: no randomness, and the clock only cuts it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.search.placement.bounds import Bounds, EventTables
from planner.search.placement.evaluate import Evaluator, Plan
from planner.search.placement.fronts import fastest_mix, priced, unit_fronts
from planner.search.placement.instance import FloatArray, Instance, IntArray
from planner.search.placement.state import Search

# A move must gain this part of the step time: less may be rounding.
_LEAST_GAIN = 1e-9
# Moves of one mesh that are evaluated exactly before going on to the next mesh, and rounds over all
# meshes: more of either gains little (the solver takes over).
_TRIES = 12
_ROUNDS = 6
# Weight of a limit that a start should respect if any option does.
_PENALTY_S = 1e12


@dataclass(frozen=True)
class Alternatives:
    """What one mesh can be changed to whatever it is now; k alternatives."""

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
        self.alternatives = [
            _alone(instance, members[0]) if len(members) == 1 else _joined(instance, mesh)
            for mesh, members in enumerate(instance.meshes)
        ]

    def moves(self, choice: Sequence[int], mesh: int) -> IntArray:
        """Rows that a mesh's units can be changed to; shape [k, units].

        A lone unit takes any of its options. Of units that share a mesh either all change to a good
        combination for another size, or one changes to another option of the same size.
        """
        rows = self.alternatives[mesh].rows
        members = self.instance.meshes[mesh]
        if len(members) == 1:
            return rows
        now = np.array([choice[u] for u in members], dtype=np.int64)
        group, devices = self.instance.options[members[0]].key(choice[members[0]])
        parts = [rows]
        for k, unit in enumerate(members):
            options = self.instance.options[unit]
            same = np.flatnonzero((options.group == group) & (options.devices == devices))
            changed = np.tile(now, (len(same), 1))
            changed[:, k] = same
            parts.append(changed)
        return np.concatenate(parts)

    def run(self, search: Search) -> None:
        """Descend from every start; offer all plans met to the search."""
        begun: set[tuple[int, ...]] = set()
        if search.best is not None and self.instance.has(search.best.origin):
            begun.add(tuple(self.instance.rows(search.best.origin)))
            self.improve_best(search)
        for start in self._starts():
            if search.clock.stop() and search.best is not None:
                return
            if tuple(start) in begun:
                continue
            begun.add(tuple(start))
            plan = self.evaluator.evaluate(start) or self._repaired(start)
            search.offer(plan)
            if plan is not None and not search.proven:
                self.improve(plan, search)

    def improve_best(self, search: Search) -> None:
        """Descend from the best plan known."""
        if search.best is not None:
            self.improve(search.best, search)

    def improve(self, plan: Plan, search: Search) -> Plan:
        """Change one mesh at a time while that helps."""
        for _ in range(_ROUNDS):
            before = plan.value_s
            for mesh in range(len(self.alternatives)):
                if search.clock.stop():
                    return plan
                plan = self._best_move(plan, mesh)
                search.offer(plan)
            if plan.value_s >= before * (1 - _LEAST_GAIN):
                break
        return plan

    def moved(self, choice: Sequence[int], mesh: int, rows: IntArray) -> list[int]:
        """The choice with one mesh's units changed to the given rows."""
        result = list(choice)
        for unit, option in zip(self.instance.meshes[mesh], rows.tolist(), strict=True):
            result[unit] = option
        return result

    def lower_bounds(self, choice: Sequence[int], mesh: int, moves: IntArray) -> FloatArray:
        """Lower bound of each move of one mesh, the other meshes as chosen; shape [k]."""
        duration_s, area = self.tables.rows(len(moves))
        members = self.instance.meshes[mesh]
        for unit, rows in enumerate(self.instance.options):
            index = moves[:, members.index(unit)] if unit in members else [choice[unit]]
            self.tables.fill(unit, rows.take(index), duration_s, area)
        return self.bounds.evaluate(duration_s, area)

    def _best_move(self, plan: Plan, mesh: int) -> Plan:
        limit = plan.value_s * (1 - _LEAST_GAIN)
        choice = self.instance.rows(plan.origin)
        moves = self.moves(choice, mesh)
        lower = self.lower_bounds(choice, mesh, moves)
        for k in np.argsort(lower, kind="stable")[:_TRIES].tolist():
            if lower[k] >= limit:
                break
            found = self.evaluator.evaluate(self.moved(choice, mesh, moves[k]), limit)
            if found is not None:
                plan, limit = found, found.value_s * (1 - _LEAST_GAIN)
        return plan

    def _starts(self) -> list[list[int]]:
        """Choices to begin from: fastest options; fastest in half the devices; side by side, each
        with its part of the devices by work; nothing left resident; and least memory."""
        total = sum(self.instance.group_devices)
        work = [float((moves.sum_s * moves.devices).min()) for moves in self.alternatives]
        part = [max(1.0, total * w / sum(work)) if sum(work) > 0 else 1.0 for w in work]
        known = self.alternatives
        costs = (
            [k.sum_s for k in known],
            [k.sum_s + _PENALTY_S * (2 * k.devices > total) for k in known],
            [k.sum_s + _PENALTY_S * (k.devices > p) for k, p in zip(known, part, strict=True)],
            [k.sum_s + k.resident_bytes for k in known],
            [k.sum_s + k.peak_bytes for k in known],
        )
        return [self._choice([int(np.argmin(cost)) for cost in picks]) for picks in costs]

    def _choice(self, picks: Sequence[int]) -> list[int]:
        choice = [0] * len(self.instance.units)
        for mesh, row in enumerate(picks):
            choice = self.moved(choice, mesh, self.alternatives[mesh].rows[row])
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

        for mesh in sorted(range(len(self.alternatives)), key=lambda m: (-kept(m), m)):
            known = self.alternatives[mesh]
            least = int(np.argmin(known.resident_bytes + known.sum_s))
            choice = self.moved(choice, mesh, known.rows[least])
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
    calls = [frozenset(range(instance.n_calls))]
    found = fastest_mix(joined, 0, calls, lambda totals: totals[..., 0], exact=False)
    return [] if found is None else [found[1]]


def _alone(instance: Instance, unit: int) -> Alternatives:
    options = instance.options[unit]
    return Alternatives(
        np.arange(len(options))[:, None],
        options.devices,
        options.time_s.sum(axis=1),
        options.resident_bytes,
        options.resident_bytes + options.extra_bytes,
    )


def _joined(instance: Instance, mesh: int) -> Alternatives:
    """Good combinations of a mesh's units for each size."""
    members = instance.meshes[mesh]
    fronts = unit_fronts(instance, mesh, [frozenset(range(instance.n_calls))])
    rows, devices = [], []
    for key, parts in fronts.items():
        smallest = [
            part.take([int(np.argmin(cost))])
            for part in parts
            for cost in (part.resident_bytes, part.resident_bytes + part.extra_bytes)
        ]
        mixes = [np.concatenate([p.rows[0] for p in smallest[k::2]]) for k in range(2)]
        found = priced(instance, key[0], parts, lambda totals: totals[..., 0])
        if found is not None:
            mixes.insert(0, found[1])
        rows += mixes
        devices += [key[1]] * len(mixes)
    table = np.array(rows, dtype=np.int64).reshape(len(rows), len(members))
    options = [instance.options[u].take(table[:, k]) for k, u in enumerate(members)]
    resident = np.sum([o.resident_bytes for o in options], axis=0)
    return Alternatives(
        table,
        np.array(devices, dtype=np.int64),
        np.sum([o.time_s.sum(axis=1) for o in options], axis=0),
        resident,
        resident + np.max([o.extra_bytes for o in options], axis=0),
    )
