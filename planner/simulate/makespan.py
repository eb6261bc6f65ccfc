"""The smallest makespan of calls with precedences and exclusive pairs, by branch and bound."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Values closer than this relative difference are equal: it only absorbs rounding of sums.
TOLERANCE = 1e-12


def reachable(n: int, arcs: Sequence[tuple[int, int]]) -> list[int]:
    """Bit mask of the calls after each call, transitively; raises ValueError on a cycle."""
    successors: list[list[int]] = [[] for _ in range(n)]
    indegree = [0] * n
    for a, b in arcs:
        successors[a].append(b)
        indegree[b] += 1
    order = [i for i in range(n) if indegree[i] == 0]
    for a in order:
        for b in successors[a]:
            indegree[b] -= 1
            if indegree[b] == 0:
                order.append(b)
    if len(order) != n:
        raise ValueError("the precedence of calls has a cycle")
    after = [0] * n
    for a in reversed(order):
        for b in successors[a]:
            after[a] |= after[b] | 1 << b
    return after


def best_makespan(
    durations: Sequence[float],
    arcs: Sequence[tuple[int, int]],
    conflicts: Sequence[tuple[int, int]],
    at_most_s: float = math.inf,
) -> tuple[float, list[float]] | None:
    """Minimal makespan and starts of calls 0..n-1; None if it is not below `at_most_s`.

    `arcs` are precedences, `conflicts` pairs that must not overlap. Exact: depth first over the
    order of one overlapping pair at a time, the pair whose better order costs most.
    """
    n = len(durations)
    if n == 0:
        return (0.0, []) if at_most_s > 0 else None
    if not all(math.isfinite(d) for d in durations):
        return None
    after = reachable(n, arcs)
    head, tail = _heads_and_tails(durations, after)
    open_pairs = [(a, b) for a, b in conflicts if not (after[a] >> b & 1 or after[b] >> a & 1)]
    search = _Makespan(durations, open_pairs, at_most_s)
    search.floor_s = _clique_bound(durations, after, conflicts, head, tail)
    if search.floor_s < at_most_s:
        search.visit(head, tail, after)
    if search.starts is None:
        return None
    return search.best_s, search.starts


def _heads_and_tails(
    durations: Sequence[float], after: Sequence[int]
) -> tuple[list[float], list[float]]:
    """Longest path before the start and after the end of each call, given the closure."""
    n = len(durations)
    order = sorted(range(n), key=lambda i: -after[i].bit_count())
    head, tail = [0.0] * n, [0.0] * n
    for i in order:
        for j in range(n):
            if after[i] >> j & 1:
                head[j] = max(head[j], head[i] + durations[i])
    for i in reversed(order):
        for j in range(n):
            if after[i] >> j & 1:
                tail[i] = max(tail[i], durations[j] + tail[j])
    return head, tail


class _Makespan:
    def __init__(
        self, durations: Sequence[float], pairs: Sequence[tuple[int, int]], at_most_s: float
    ):
        self.durations = durations
        self.pairs = pairs
        self.best_s = at_most_s
        self.starts: list[float] | None = None
        self.floor_s = 0.0

    def visit(self, head: list[float], tail: list[float], after: list[int]) -> None:
        """Explore the orders that extend the precedences `after`."""
        d = self.durations
        while True:
            value = max(h + x + t for h, x, t in zip(head, d, tail, strict=True))
            if value >= self.best_s * (1 - TOLERANCE):
                return
            choice = None
            choice_key = (-1.0, -1.0)
            forced = None
            for a, b in self.pairs:
                if after[a] >> b & 1 or after[b] >> a & 1:
                    continue
                if head[a] >= head[b] + d[b] or head[b] >= head[a] + d[a]:
                    continue
                first = max(value, head[a] + d[a] + d[b] + tail[b])
                second = max(value, head[b] + d[b] + d[a] + tail[a])
                limit = self.best_s * (1 - TOLERANCE)
                if first >= limit and second >= limit:
                    return
                if first >= limit or second >= limit:
                    forced = (b, a) if first >= limit else (a, b)
                    break
                key = (min(first, second), max(first, second))
                if key > choice_key:
                    choice_key = key
                    choice = (a, b) if first <= second else (b, a)
            if forced is not None:
                head, tail, after = self._ordered(*forced, head, tail, after)
                continue
            if choice is None:
                self.best_s, self.starts = value, list(head)
                return
            a, b = choice
            self.visit(*self._ordered(a, b, head, tail, after))
            if self.best_s <= self.floor_s * (1 + TOLERANCE):
                return
            head, tail, after = self._ordered(b, a, head, tail, after)

    def _ordered(
        self, a: int, b: int, head: list[float], tail: list[float], after: list[int]
    ) -> tuple[list[float], list[float], list[int]]:
        """State with the arc a -> b added."""
        d = self.durations
        head, tail, after = list(head), list(tail), list(after)
        gained = after[b] | 1 << b
        for i in range(len(d)):
            if i == a or after[i] >> a & 1:
                after[i] |= gained
        # An arc only lengthens paths through it: raise what follows b, and what precedes a.
        stack = [(b, head[a] + d[a])]
        while stack:
            i, start = stack.pop()
            if start > head[i]:
                head[i] = start
                end = start + d[i]
                mask = after[i]
                stack.extend((j, end) for j in range(len(d)) if mask >> j & 1 and head[j] < end)
        stack = [(a, d[b] + tail[b])]
        while stack:
            i, rest = stack.pop()
            if rest > tail[i]:
                tail[i] = rest
                longer = rest + d[i]
                stack.extend(
                    (j, longer) for j in range(len(d)) if after[j] >> i & 1 and tail[j] < longer
                )
        return head, tail, after


def maximal_cliques(n: int, adjacent: Sequence[int]) -> list[int]:
    """Bit masks of the maximal cliques of a small graph given as bit masks of neighbours."""
    cliques: list[int] = []

    def extend(clique: int, candidates: int, excluded: int) -> None:
        if not candidates and not excluded:
            cliques.append(clique)
            return
        pool = candidates | excluded
        pivot = max(
            (i for i in range(n) if pool >> i & 1),
            key=lambda i: (adjacent[i] & candidates).bit_count(),
        )
        rest = candidates & ~adjacent[pivot]
        for i in range(n):
            if rest >> i & 1:
                extend(clique | 1 << i, candidates & adjacent[i], excluded & adjacent[i])
                candidates &= ~(1 << i)
                excluded |= 1 << i

    extend(0, (1 << n) - 1, 0)
    return cliques


def _clique_bound(
    durations: Sequence[float],
    after: Sequence[int],
    conflicts: Sequence[tuple[int, int]],
    head: Sequence[float],
    tail: Sequence[float],
) -> float:
    """Lower bound: calls that run one at a time fill the time between a head and a tail."""
    n = len(durations)
    serial = [0] * n
    for a in range(n):
        for b in range(n):
            if after[a] >> b & 1:
                serial[a] |= 1 << b
                serial[b] |= 1 << a
    for a, b in conflicts:
        serial[a] |= 1 << b
        serial[b] |= 1 << a
    bound = max(h + d + t for h, d, t in zip(head, durations, tail, strict=True))
    for clique in maximal_cliques(n, serial):
        members = [i for i in range(n) if clique >> i & 1]
        for start in {head[i] for i in members}:
            late = [i for i in members if head[i] >= start]
            for rest in {tail[i] for i in late}:
                load = sum(durations[i] for i in late if tail[i] >= rest)
                bound = max(bound, start + load + rest)
    return bound
