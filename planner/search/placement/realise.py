"""From relations to devices: a contiguous, aligned place for every mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from planner.search.placement.instance import Instance, Key

# Places tried before giving up. A few dozen suffice unless the relations cannot be realised.
_MOST_TRIES = 20_000


@dataclass(frozen=True)
class Places:
    """Outcome of a realisation."""

    first: tuple[int, ...] | None
    """First device of each mesh in its group, or None if no place was found."""
    exhaustive: bool
    """When none was found: none exists (False: the search gave up)."""


def realise(
    instance: Instance,
    keys: Sequence[Key],
    disjoint: int,
    touching: int,
    host_bytes: Sequence[float],
) -> Places:
    """Places for all meshes such that the pairs of `disjoint` share no device.

    Pairs in the mask `touching` must share at least one device; all other pairs may share or not.
    `host_bytes` is what each mesh needs on each of its nodes.
    """
    first: list[int] = [0] * len(keys)
    for group in sorted({key[0] for key in keys}):
        members = [i for i, key in enumerate(keys) if key[0] == group]
        search = _Line(instance, group, members, keys, disjoint, touching, host_bytes)
        if not search.place(0):
            return Places(None, search.exhaustive)
        for mesh, start in search.first.items():
            first[mesh] = start
    return Places(tuple(first), True)


class _Line:
    """Depth-first placement of the meshes of one group, larger ones first."""

    def __init__(
        self,
        instance: Instance,
        group: int,
        members: list[int],
        keys: Sequence[Key],
        disjoint: int,
        touching: int,
        host_bytes: Sequence[float],
    ):
        self.size = {i: keys[i][1] for i in members}
        self.align = {i: partial(instance.align, keys[i]) for i in members}
        self.order = sorted(members, key=lambda i: (-self.size[i], i))
        self.total = instance.group_devices[group]
        self.per_node = instance.group_devices_per_node[group]
        self.host = host_bytes
        self.host_limit = instance.group_host_bytes[group]
        pairs = instance.pairs
        inside = [(k, p) for k, p in enumerate(pairs) if p[0] in self.size and p[1] in self.size]
        self.apart = {p for k, p in inside if disjoint >> k & 1}
        self.touch = {p for k, p in inside if touching >> k & 1}
        self.first: dict[int, int] = {}
        self.tries = 0
        self.exhaustive = True
        self.starts = self._starts()

    def place(self, depth: int) -> bool:
        """Place the meshes from `depth` on; True when all have a place."""
        if depth == len(self.order):
            return True
        mesh = self.order[depth]
        for start in self.starts[mesh]:
            self.tries += 1
            if self.tries > _MOST_TRIES:
                self.exhaustive = False
                return False
            if not self._allowed(mesh, start):
                continue
            self.first[mesh] = start
            if self._host_fits() and self.place(depth + 1):
                return True
            del self.first[mesh]
        return False

    def _starts(self) -> dict[int, list[int]]:
        """For each mesh, the first devices worth trying.

        Any placement can be pushed to the left until every mesh is held: by the beginning, by the
        end of a mesh that it must not meet (or of one whose nodes have no host memory left for it),
        or by a mesh to its right that it must touch. Chains of such holds give all the starts.
        """
        reached: dict[tuple[int, int], set[int]] = {}
        todo = [(1 << k, mesh, 0) for k, mesh in enumerate(self.order)]
        while todo:
            used, mesh, start = todo.pop()
            known = reached.setdefault((used, mesh), set())
            if start in known or start + self.size[mesh] > self.total:
                continue
            known.add(start)
            end = start + self.size[mesh]
            for k, other in enumerate(self.order):
                if used >> k & 1:
                    continue
                holds = {end, -(-end // self.per_node) * self.per_node}
                if (min(mesh, other), max(mesh, other)) in self.touch:
                    holds.add(max(0, start - self.size[other] + 1))
                todo += [(used | 1 << k, other, self.align[other](hold)) for hold in holds]
        starts: dict[int, set[int]] = {mesh: set() for mesh in self.order}
        for (_, mesh), found in reached.items():
            starts[mesh] |= found
        return {mesh: sorted(found) for mesh, found in starts.items()}

    def _allowed(self, mesh: int, start: int) -> bool:
        end = start + self.size[mesh]
        for other, first in self.first.items():
            pair = (min(mesh, other), max(mesh, other))
            overlap = start < first + self.size[other] and first < end
            if overlap and pair in self.apart:
                return False
            if not overlap and pair in self.touch:
                return False
        return True

    def _host_fits(self) -> bool:
        """Host memory of every node that a placed mesh begins on (where the most holders meet)."""
        if sum(self.host[i] for i in self.first) <= self.host_limit:
            return True
        for begin in self.first.values():
            node = begin // self.per_node
            held = sum(
                self.host[i]
                for i, start in self.first.items()
                if start // self.per_node <= node <= (start + self.size[i] - 1) // self.per_node
            )
            if held > self.host_limit:
                return False
        return True
