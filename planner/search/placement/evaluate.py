"""The exact value of a choice of options: best relations, best order, real places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from planner.search.placement.instance import Instance, Key
from planner.search.placement.realise import realise
from planner.search.placement.relations import Relations
from planner.search.placement.screen import Screen
from planner.simulate.makespan import best_makespan
from planner.simulate.period import best_period


@dataclass(frozen=True)
class Plan:
    """A feasible plan in the search's own terms."""

    origin: tuple[int, ...]
    """Each unit's option as an index into the problem's own arrays (`Instance.rows` finds it)."""
    first: tuple[int, ...]
    """First device of each mesh."""
    disjoint: int
    """Mask of the pairs of meshes that share no device."""
    starts_s: tuple[float, ...]
    """Start of each event."""
    value_s: float
    """Makespan or period, without the fixed seconds."""


class Evaluator:
    """Evaluates choices on one instance; remembers relations and values."""

    def __init__(self, instance: Instance):
        self.instance = instance
        self.relations = Relations(instance)
        self._on_devices = [bool(meshes) for meshes in instance.event_meshes]
        events = range(len(instance.events))
        self._always: list[tuple[int, int]] = []
        self._sometimes: list[tuple[int, int, int]] = []
        for a, b in combinations(events, 2):
            if instance.staleness == 0 and instance.ordered(a, b):
                continue
            mask = 0
            always = False
            for x in instance.event_meshes[a]:
                for y in instance.event_meshes[b]:
                    always |= x == y
                    mask |= 0 if x == y else instance.bit(x, y)
            if always:
                self._always.append((a, b))
            elif mask:
                self._sometimes.append((a, b, mask))
        self._sync_bits = 0
        for sync in instance.syncs:
            if sync.trainer != sync.engine:
                self._sync_bits |= instance.bit(sync.trainer, sync.engine)
        self.screen = Screen(instance, self.relations, self.conflicts)
        self._conflicts: dict[int, tuple[tuple[int, int], ...]] = {}
        self._known: dict[tuple[int, ...], tuple[Plan | None, float]] = {}
        self.exact = True
        """No value so far is doubtful: every relation given up was proven impossible to realise."""

    def conflicts(self, disjoint: int) -> tuple[tuple[int, int], ...]:
        """Pairs of events that must not overlap: their meshes share devices."""
        known = self._conflicts.get(disjoint)
        if known is None:
            found = self._always + [(a, b) for a, b, mask in self._sometimes if mask & ~disjoint]
            known = self._conflicts[disjoint] = tuple(sorted(found))
        return known

    def schedule(
        self, choice: Sequence[int], disjoint: int, at_most_s: float = math.inf
    ) -> tuple[float, list[float]] | None:
        """Best value and starts under given relations; None if not below `at_most_s`."""
        instance = self.instance
        durations = instance.durations(choice, disjoint)
        conflicts = self.conflicts(disjoint)
        if instance.staleness == 0:
            return best_makespan(durations, instance.arcs, conflicts, at_most_s)
        return best_period(
            durations, instance.arcs, conflicts, instance.staleness, self._on_devices, at_most_s
        )

    def keys(self, choice: Sequence[int]) -> tuple[Key, ...] | None:
        """Group and size of each mesh; None if units that must share them differ."""
        keys = []
        for members in self.instance.meshes:
            found = {self.instance.options[u].key(choice[u]) for u in members}
            if len(found) != 1:
                return None
            keys.append(found.pop())
        return tuple(keys)

    def memory(self, choice: Sequence[int]) -> tuple[list[float], list[float], list[float]]:
        """Resident bytes, largest extra bytes of a call, and host bytes a node, of each mesh."""
        options = self.instance.options
        resident, extra, host = [], [], []
        for members in self.instance.meshes:
            resident.append(sum(float(options[u].resident_bytes[choice[u]]) for u in members))
            extra.append(max(float(options[u].extra_bytes[choice[u]]) for u in members))
            host.append(sum(float(options[u].host_bytes_per_node[choice[u]]) for u in members))
        return resident, extra, host

    def evaluate(self, choice: Sequence[int], at_most_s: float = math.inf) -> Plan | None:
        """The best plan with these options whose value is below `at_most_s`, or None.

        Optimal over contiguous placements, unless `exact` becomes False: then some relations were
        given up that a longer search might have realised.
        """
        choice = tuple(choice)
        plan, below_s = self._known.get(choice, (None, -math.inf))
        # A plan that was found is the best one; without one only values up to the limit are out.
        if plan is None and at_most_s > below_s:
            plan = self._evaluate(choice, at_most_s)
            self._known[choice] = plan, at_most_s
        return plan if plan is not None and plan.value_s < at_most_s else None

    def _evaluate(self, choice: Sequence[int], at_most_s: float) -> Plan | None:
        keys = self.keys(choice)
        if keys is None:
            return None
        memory = self.memory(choice)
        durations = self.instance.durations(choice, 0)
        best: Plan | None = None
        settled: set[tuple[tuple[tuple[int, int], ...], int]] = set()
        todo = self.screen.promising(keys, durations, memory)
        seen = set(self.relations.maximal(keys))
        while todo:
            floor_s, disjoint = todo.pop(0)
            if floor_s >= at_most_s:
                break
            # Relations that differ in nothing a schedule can feel have the same value.
            case = self.conflicts(disjoint), disjoint & self._sync_bits
            if case in settled:
                continue
            found = self.schedule(choice, disjoint, at_most_s)
            if found is None:
                settled.add(case)
                continue
            plan = self._realised(choice, keys, memory[2], disjoint, found)
            if plan is None:
                # No placement has all these pairs disjoint: try with one pair less.
                fewer = [m for m in self.relations.weaker(keys, disjoint) if m not in seen]
                seen.update(fewer)
                todo = sorted(todo + self.screen.promising(keys, durations, memory, fewer))
                continue
            settled.add(case)
            if plan.value_s < at_most_s:
                best, at_most_s = plan, plan.value_s
        self.exact &= not self.relations.truncated
        return best

    def _realised(
        self,
        choice: Sequence[int],
        keys: tuple[Key, ...],
        host: Sequence[float],
        disjoint: int,
        scheduled: tuple[float, list[float]],
    ) -> Plan | None:
        """A plan with real places under relations whose best schedule is known, or None if no
        places were found."""
        instance = self.instance
        touching = 0
        for s in instance.syncs:
            shared = not instance.is_disjoint(disjoint, s.trainer, s.engine)
            if s.trainer != s.engine and s.shared_s < s.disjoint_s and shared:
                # Two syncs may be between the same meshes.
                touching |= instance.bit(s.trainer, s.engine)
        places = realise(instance, keys, disjoint, touching, host)
        if places.first is None:
            self.exact &= places.exhaustive
            if touching:
                places = realise(instance, keys, disjoint, 0, host)
        if places.first is None:
            self.exact &= places.exhaustive
            return None
        actual = self._actual(keys, places.first)
        value, starts = scheduled
        if actual != disjoint:
            # More pairs may be disjoint than asked for, and a sync may take another time.
            value, starts = self.schedule(choice, actual) or scheduled
        origin = instance.origins(choice)
        return Plan(origin, places.first, actual, tuple(starts), value)

    def _actual(self, keys: Sequence[Key], first: Sequence[int]) -> int:
        mask = 0
        for bit, (a, b) in enumerate(self.instance.pairs):
            (group_a, size_a), (group_b, size_b) = keys[a], keys[b]
            apart = (
                group_a != group_b or first[a] + size_a <= first[b] or first[b] + size_b <= first[a]
            )
            mask |= apart << bit
        return mask
