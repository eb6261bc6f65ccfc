"""Which relations of a choice are worth a schedule: memory and a floor of the value, in bulk.

For each list of mesh sizes the relations and their cliques are laid out as arrays once, so that a
choice of options is screened against all of them with a few array operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from planner.search.placement.instance import BoolArray, FloatArray, Instance, IntArray, Key
from planner.search.placement.relations import Relations
from planner.simulate.makespan import maximal_cliques


@dataclass(frozen=True)
class _Table:
    """Relations of one list of mesh sizes, m of them."""

    masks: tuple[int, ...]
    holders: FloatArray
    """Cliques of meshes that share a device, all relations in a row; shape [h, meshes]."""
    memory: FloatArray
    """Device memory of each clique's group; shape [h]."""
    host: FloatArray
    holders_at: IntArray
    """First clique of each relation; shape [m]."""
    serial: FloatArray
    """Cliques of events that run one at a time; shape [s, events]."""
    serial_at: IntArray
    sync_s: FloatArray
    """Durations of the syncs under each relation; shape [m, syncs]."""
    relation: IntArray
    """Relation of each serial clique; shape [s]."""


class Screen:
    """Screens choices on one instance."""

    def __init__(
        self,
        instance: Instance,
        relations: Relations,
        conflicts: Callable[[int], Sequence[tuple[int, int]]],
    ):
        self.instance = instance
        self.relations = relations
        self._conflicts = conflicts
        self._tables: dict[tuple[Key, ...], _Table] = {}
        self._serial: dict[int, list[int]] = {}
        self._holders: dict[int, list[int]] = {}

    def promising(
        self,
        keys: tuple[Key, ...],
        durations_s: Sequence[float],
        memory: tuple[Sequence[float], Sequence[float], Sequence[float]],
        masks: Sequence[int] | None = None,
    ) -> list[tuple[float, int]]:
        """(floor of the value, relation mask) of the relations that fit, lowest floor first.

        `memory` is resident, extra and host bytes by mesh; `masks` the relations to screen, by
        default all maximal ones. The floor is the largest total time of events that run one at a
        time, which includes every chain of dependencies when the step is synchronous.
        """
        if masks is None:
            table = self._tables.get(keys)
            if table is None:
                table = self._tables[keys] = self._lay_out(keys, self.relations.maximal(keys))
        else:
            table = self._lay_out(keys, masks)
        if not table.masks:
            return []
        fits = self._fits(table, memory)
        first_sync = len(self.instance.events) - table.sync_s.shape[1]
        base = np.asarray(durations_s[:first_sync], dtype=np.float64)
        load = table.serial[:, :first_sync] @ base
        load += (table.serial[:, first_sync:] * table.sync_s[table.relation]).sum(axis=1)
        floor = np.maximum.reduceat(load, table.serial_at)
        order = np.argsort(floor, kind="stable")
        return [(float(floor[k]), table.masks[k]) for k in order.tolist() if fits[k]]

    def _fits(
        self, table: _Table, memory: tuple[Sequence[float], Sequence[float], Sequence[float]]
    ) -> BoolArray:
        resident, extra, host = (np.asarray(x, dtype=np.float64) for x in memory)
        need = table.holders @ resident + (table.holders * extra).max(axis=1)
        short = (need > table.memory) | (table.holders @ host > table.host)
        fits: BoolArray = ~np.logical_or.reduceat(short, table.holders_at)
        return fits

    def _lay_out(self, keys: tuple[Key, ...], masks: Sequence[int]) -> _Table:
        instance = self.instance
        events, meshes = len(instance.events), len(instance.meshes)
        holders = [self._holding(mask) for mask in masks]
        serial = [self._one_at_a_time(mask) for mask in masks]
        groups = [
            keys[(clique & -clique).bit_length() - 1][0] for part in holders for clique in part
        ]
        sync_s = [
            [
                s.disjoint_s if instance.is_disjoint(mask, s.trainer, s.engine) else s.shared_s
                for s in instance.syncs
            ]
            for mask in masks
        ]
        return _Table(
            tuple(masks),
            _bits([clique for part in holders for clique in part], meshes),
            np.array([instance.group_memory_bytes[g] for g in groups]),
            np.array([instance.group_host_bytes[g] for g in groups]),
            _starts(holders),
            _bits([clique for part in serial for clique in part], events),
            _starts(serial),
            np.array(sync_s, dtype=np.float64).reshape(len(masks), len(instance.syncs)),
            np.repeat(np.arange(len(masks)), [len(part) for part in serial]),
        )

    def _holding(self, mask: int) -> list[int]:
        """Bit masks of the maximal sets of meshes that pairwise share devices."""
        known = self._holders.get(mask)
        if known is None:
            known = [sum(1 << m for m in c) for c in self.relations.shared_cliques(mask)]
            self._holders[mask] = known
        return known

    def _one_at_a_time(self, mask: int) -> list[int]:
        """Bit masks of the maximal sets of events of which no two overlap."""
        known = self._serial.get(mask)
        if known is not None:
            return known
        instance = self.instance
        n = len(instance.events)
        adjacent = [0] * n
        pairs = list(self._conflicts(mask))
        if instance.staleness == 0:
            pairs += [(a, b) for a, b in combinations(range(n), 2) if instance.ordered(a, b)]
        for a, b in pairs:
            adjacent[a] |= 1 << b
            adjacent[b] |= 1 << a
        known = self._serial[mask] = maximal_cliques(n, adjacent)
        if instance.staleness:
            # A call that uses no device may overlap itself in the next iteration.
            busy = sum(1 << e for e, meshes in enumerate(instance.event_meshes) if meshes)
            known[:] = [clique & busy for clique in known]
        return known


def _bits(masks: Sequence[int], width: int) -> FloatArray:
    return np.array(
        [[float(mask >> k & 1) for k in range(width)] for mask in masks], dtype=np.float64
    ).reshape(len(masks), width)


def _starts(parts: Sequence[Sequence[int]]) -> IntArray:
    lengths = [len(part) for part in parts]
    return np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
