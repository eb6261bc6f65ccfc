"""Which pairs of meshes may be disjoint together, and what sharing costs in memory.

A relation mask has one bit for each pair of meshes (`Instance.pairs`): 1 if the two have no device
in common. Contiguous meshes on a line have the Helly property (intervals that pairwise overlap have
a common point), so memory needs only cliques: meshes that pairwise share meet on one device.

Capacity likewise: meshes that are pairwise disjoint take the sum of their sizes. That is enough
when the graph of disjoint pairs is a comparability graph (Hoffman: they are superperfect), which up
to five meshes leaves out only the cycle of five; of its meshes at most two hold the same device, so
their sizes sum to at most twice the devices. Going along the line turns each disjoint pair into an
arrow, and round an odd cycle two arrows follow each other somewhere: some three neighbours lie one
after another and fit in the devices, which is what known sizes are checked for. With six and more
meshes a few relations may pass that no placement realises; the search excludes them one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise, permutations

from planner.search.placement.instance import Instance, Key
from planner.simulate.makespan import maximal_cliques

# Enough for any realistic number of meshes (five meshes have at most a few dozen maximal
# relations); it only stops a blow-up with ten and more, where the heuristic then sees a part.
_MOST_RELATIONS = 512


def capacity_sets(meshes: int) -> list[tuple[tuple[int, ...], list[tuple[int, int]], int]]:
    """Conditions of capacity: (meshes, pairs, layers).

    If all the pairs are disjoint, at most `layers` of the meshes hold any one device, so their
    sizes sum to at most `layers` times the devices. All sets of meshes, and all cycles of five.
    """
    found: list[tuple[tuple[int, ...], list[tuple[int, int]], int]] = []
    for size in range(2, meshes + 1):
        for subset in combinations(range(meshes), size):
            found.append((subset, list(combinations(subset, 2)), 1))
    for subset in combinations(range(meshes), 5):
        first, *rest = subset
        for order in permutations(rest):
            if order[0] < order[-1]:
                cycle = (first, *order, first)
                pairs = [(min(p), max(p)) for p in pairwise(cycle)]
                found.append((subset, pairs, 2))
    return found


class Relations:
    """Feasible relation masks of the meshes of one instance, remembered by mesh sizes."""

    def __init__(self, instance: Instance):
        self._devices = instance.group_devices
        self._n = len(instance.meshes)
        self._pairs = instance.pairs
        self._all = (1 << len(self._pairs)) - 1
        self._bit = {pair: 1 << i for i, pair in enumerate(self._pairs)}
        self._required = sum(self._bit[pair] for pair in instance.apart if pair[0] != pair[1])
        self._limits = [
            (_cycle(pairs) if layers == 2 else subset, sum(self._bit[p] for p in pairs), layers)
            for subset, pairs, layers in capacity_sets(self._n)
        ]
        # A sync that is faster between meshes that share devices is a reason to share them.
        self._inviting = sorted(
            {
                self._bit[min(s.trainer, s.engine), max(s.trainer, s.engine)]
                for s in instance.syncs
                if s.trainer != s.engine and s.shared_s < s.disjoint_s
            }
        )
        self._known: dict[tuple[Key, ...], list[int]] = {}
        self.truncated = False
        """Some list of relations was cut off (many meshes only): values may not be the best."""

    def maximal(self, keys: tuple[Key, ...]) -> list[int]:
        """Masks that are feasible for meshes of these groups and sizes, with as many disjoint
        pairs as possible; and the same with the pairs shared that a faster sync invites to share.

        Every other feasible mask shares more, so it orders more calls and needs more memory.
        """
        known = self._known.get(keys)
        if known is None:
            known = self._known[keys] = self._enumerate(keys)
        return known

    def weaker(self, keys: tuple[Key, ...], disjoint: int) -> list[int]:
        """The masks with one disjoint pair less that the problem allows."""
        free = disjoint & ~self._forced(keys)
        return [disjoint & ~bit for bit in self._bit.values() if free & bit]

    def _forced(self, keys: tuple[Key, ...]) -> int:
        """Pairs that are disjoint by the problem's rules or because their groups differ."""
        forced = self._required
        for pair, bit in self._bit.items():
            if keys[pair[0]][0] != keys[pair[1]][0]:
                forced |= bit
        return forced

    def _enumerate(self, keys: tuple[Key, ...]) -> list[int]:
        forced = self._forced(keys)
        too_big = [
            pairs for subset, pairs, layers in self._limits if self._exceeds(subset, layers, keys)
        ]
        found: list[int] = []
        for start in self._starts(self._all, forced):
            masks = _maximal_without(start, forced, too_big)
            self.truncated |= len(masks) >= _MOST_RELATIONS
            found.extend(masks)
        return list(dict.fromkeys(found))

    def _starts(self, allowed: int, forced: int) -> list[int]:
        starts = [allowed]
        for bit in self._inviting:
            if not forced & bit:
                starts += [mask & ~bit for mask in starts]
        return starts

    def _exceeds(self, subset: Sequence[int], layers: int, keys: tuple[Key, ...]) -> bool:
        """Whether the meshes cannot be disjoint: all pairs of them, or with two layers all pairs
        that are neighbours in the cycle."""
        if layers == 2:
            groups = {keys[mesh][0] for mesh in subset}
            if len(groups) > 1:
                return False
            sizes = [keys[mesh][1] for mesh in subset]
            least = min(sizes[i - 2] + sizes[i - 1] + sizes[i] for i in range(len(sizes)))
            return least > self._devices[groups.pop()]
        load: dict[int, int] = {}
        for mesh in subset:
            group, devices = keys[mesh]
            load[group] = load.get(group, 0) + devices
        return any(devices > self._devices[group] for group, devices in load.items())

    def shared_cliques(self, disjoint: int) -> list[list[int]]:
        """Maximal sets of meshes that pairwise share devices."""
        adjacent = [0] * self._n
        for (a, b), bit in self._bit.items():
            if not disjoint & bit:
                adjacent[a] |= 1 << b
                adjacent[b] |= 1 << a
        return [
            [i for i in range(self._n) if clique >> i & 1]
            for clique in maximal_cliques(self._n, adjacent)
        ]


def _cycle(pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The members of a cycle in its order, from the pairs of neighbours in theirs."""
    (first,) = set(pairs[0]) & set(pairs[-1])
    order = [first]
    for a, b in pairs[:-1]:
        order.append(b if a == order[-1] else a)
    return tuple(order)


def _maximal_without(start: int, forced: int, too_big: Sequence[int]) -> list[int]:
    """Maximal masks within `start`, containing `forced`, that contain none of `too_big`."""
    if forced & ~start:
        return []
    singles = [pairs for pairs in too_big if pairs & (pairs - 1) == 0]
    mask = start
    for bit in singles:
        mask &= ~bit
    if forced & ~mask:
        return []
    larger = [pairs for pairs in too_big if pairs & ~mask == 0]
    found: set[int] = set()
    stack = [mask]
    seen = {mask}
    while stack and len(found) < _MOST_RELATIONS:
        mask = stack.pop()
        broken = next((pairs for pairs in larger if pairs & ~mask == 0), None)
        if broken is None:
            found.add(mask)
            continue
        free = broken & ~forced
        while free:
            bit = free & -free
            free ^= bit
            if mask & ~bit not in seen:
                seen.add(mask & ~bit)
                stack.append(mask & ~bit)
    if len(found) >= _MOST_RELATIONS:
        return sorted(found)
    return sorted(m for m in found if not any(m != other and m & other == m for other in found))
