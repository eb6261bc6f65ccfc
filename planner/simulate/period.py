"""The smallest period of a cyclic schedule of one iteration's calls.

Every call repeats once a period P. Two calls that share a device must not overlap modulo P: for
some integer j, end_a <= start_b + j P and end_b <= start_a + (1 - j) P. With the integers chosen,
the smallest P is a maximal cycle ratio (work round a cycle over the periods it spans), found by
raising P to the ratio of a violated cycle until none is left. Branch and bound chooses them.

Reference for cyclic scheduling as cycle ratios: Hanen and Munier, "A study of the cyclic scheduling
problem on parallel processors", Discrete Applied Mathematics 57 (1995).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from planner.simulate.makespan import maximal_cliques, reachable

# Rounding allowance, relative to the period.
_SLACK = 1e-9
# Nodes of the search after which a better bound is worth its cost (about as many nodes).
_PATIENCE = 40

Arc = tuple[int, int, float, int]
"""(a, b, w, k): start_b >= start_a + w - k P."""
Arcs = tuple[tuple[Arc, ...], ...]
"""For each call the arcs that leave it."""
Origins = list[Arc | None]
"""The arc that last raised each call's start."""
Solved = tuple[float, list[float], Origins]
"""A period, the earliest starts under it, and what holds them there."""


def best_period(
    durations: Sequence[float],
    arcs: Sequence[tuple[int, int]],
    conflicts: Sequence[tuple[int, int]],
    staleness: int,
    on_devices: Sequence[bool],
    at_most_s: float = math.inf,
) -> tuple[float, list[float]] | None:
    """Minimal period and starts of calls 0..n-1; None if it is not below `at_most_s`.

    `arcs` are precedences within an iteration, `conflicts` pairs that share a device; a call that
    runs `on_devices` does not overlap itself. The iteration lasts at most (1 + staleness) periods
    from its first start to its last end.
    """
    if not durations:
        return (0.0, []) if at_most_s > 0 else None
    if not all(math.isfinite(d) for d in durations):
        return None
    floor_s = load_bound(durations, conflicts, on_devices)
    search = _Period(durations, arcs, conflicts, staleness, at_most_s, floor_s)
    n = len(durations)
    # Call n is the beginning of the iteration; everything lies within 1 + staleness periods of it.
    fixed: list[Arc] = [(a, b, durations[a], 0) for a, b in arcs]
    fixed += [(n, i, 0.0, 0) for i in range(n)]
    fixed += [(i, n, durations[i], staleness + 1) for i in range(n)]
    search.begin(fixed)
    if search.tired:
        # Places a whole period apart are alike to all but the latency, so telling them apart takes
        # long. Without latency there are two orders a pair, and that is nearly always the answer.
        packed = _packed(durations, conflicts, floor_s, search.best_s)
        search.tired, search.patience = False, math.inf
        if packed is not None:
            search.floor_s, residues = packed
            starts = _lifted(durations, arcs, residues, search.floor_s)
            lasts = max(s + d for s, d in zip(starts, durations, strict=True)) - min(starts)
            if lasts <= (1 + staleness) * search.floor_s * (1 + _SLACK):
                search.best_s, search.starts = search.floor_s, starts
            else:
                search.begin(fixed)
    if search.starts is None:
        return None
    first = min(search.starts)
    return search.best_s, [start - first for start in search.starts]


def load_bound(
    durations: Sequence[float], conflicts: Sequence[tuple[int, int]], on_devices: Sequence[bool]
) -> float:
    """Largest total duration of calls that pairwise share devices: no period can be smaller."""
    n = len(durations)
    adjacent = [0] * n
    for a, b in conflicts:
        adjacent[a] |= 1 << b
        adjacent[b] |= 1 << a
    best = 0.0
    for clique in maximal_cliques(n, adjacent):
        members = [i for i in range(n) if clique >> i & 1 and on_devices[i]]
        best = max(best, sum(durations[i] for i in members))
    return best


def _packed(
    durations: Sequence[float],
    conflicts: Sequence[tuple[int, int]],
    floor_s: float,
    at_most_s: float,
) -> tuple[float, list[float]] | None:
    """Smallest period of the conflicts alone (no precedence, no latency) and each call's place in
    it; None if it is not below `at_most_s`. The longest call begins the period.
    """
    n = len(durations)
    anchor = max(range(n), key=lambda i: durations[i])
    fixed: list[Arc] = [(n, i, 0.0, 0) for i in range(n)] + [(i, n, 0.0, 1) for i in range(n)]
    fixed.append((anchor, n, 0.0, 0))
    search = _Period(durations, (), conflicts, 0, at_most_s, floor_s)
    search.patience = math.inf
    search.begin(fixed)
    return None if search.starts is None else (search.best_s, search.starts)


def _lifted(
    durations: Sequence[float],
    arcs: Sequence[tuple[int, int]],
    residues: Sequence[float],
    period_s: float,
) -> list[float]:
    """Earliest starts at the given places in the period that respect the precedences."""
    starts = list(residues)
    for _ in durations:
        for a, b in arcs:
            late = (starts[a] + durations[a] - starts[b]) / period_s
            if late > _SLACK:
                starts[b] += math.ceil(late - _SLACK) * period_s
    return starts


class _Period:
    def __init__(
        self,
        durations: Sequence[float],
        arcs: Sequence[tuple[int, int]],
        conflicts: Sequence[tuple[int, int]],
        staleness: int,
        at_most_s: float,
        floor_s: float,
    ):
        self.durations = durations
        self.conflicts = conflicts
        # |start_a - start_b| < (1 + staleness) P bounds the integer of a pair; where the data
        # orders a before b, b starts no earlier than a ends (unless both last no time at all).
        after = reachable(len(durations), arcs)
        shifts = sorted(range(-staleness, staleness + 2), key=lambda j: (abs(2 * j - 1), j))
        self.shifts = {
            (a, b): [
                j
                for j in shifts
                if durations[a] + durations[b] <= 0
                or (not (after[a] >> b & 1 and j > 0) and not (after[b] >> a & 1 and j < 1))
            ]
            for a, b in conflicts
        }
        self.best_s = at_most_s
        self.floor_s = floor_s
        self.starts: list[float] | None = None
        self.nodes = 0
        self.patience: float = _PATIENCE
        self.tired = False
        """Gave up after `patience` nodes; a better floor may end the search at once."""

    def visit(self, arcs: Arcs, solved: Solved) -> None:
        """Explore the choices that extend `arcs`; `solved` is the smallest period under them."""
        self.nodes += 1
        self.tired |= self.nodes > self.patience
        period_s, starts, _ = solved
        if self.tired or period_s >= self.best_s * (1 - _SLACK):
            return
        pair = self._violated(period_s, starts)
        if pair is None:
            self.best_s, self.starts = period_s, starts[:-1]
            return
        a, b = pair
        d = self.durations
        children = []
        for rank, j in enumerate(self.shifts[pair]):
            longer = _extended(arcs, ((a, b, d[a], j), (b, a, d[b], 1 - j)))
            limit_s = self.best_s * (1 - _SLACK)
            child = _smallest_period(longer, solved, limit_s, [a, b])
            if child is not None:
                children.append((child[0], sum(child[1]), rank, longer, child))
        for value, _, _, longer, child in sorted(children, key=lambda c: c[:3]):
            if value >= self.best_s * (1 - _SLACK):
                return
            self.visit(longer, child)
            if self.tired or self.best_s <= self.floor_s * (1 + _SLACK):
                return

    def begin(self, fixed: Sequence[Arc]) -> None:
        """Search from the arcs that always hold."""
        n = len(self.durations) + 1
        arcs = _extended(tuple(() for _ in range(n)), fixed)
        limit_s = self.best_s * (1 - _SLACK)
        free: Solved = self.floor_s, [0.0] * n, [None] * n
        solved = _smallest_period(arcs, free, limit_s, list(range(n)))
        if solved is not None:
            self.visit(arcs, solved)

    def _violated(self, period_s: float, starts: Sequence[float]) -> tuple[int, int] | None:
        """The pair that overlaps longest modulo the period, or None."""
        worst, choice = _SLACK * period_s, None
        durations = self.durations
        for a, b in self.conflicts:
            lag = (starts[b] - starts[a]) % period_s if period_s > 0 else 0.0
            if durations[a] - lag <= worst and lag + durations[b] - period_s <= worst:
                continue
            # Rounding may leave a lag a whole period away from the one that fits.
            overlap = min(
                max(durations[a] - x, x + durations[b] - period_s)
                for x in (lag - period_s, lag, lag + period_s)
            )
            if overlap > worst:
                worst, choice = overlap, (a, b)
        return choice


def _extended(arcs: Arcs, more: Sequence[Arc]) -> Arcs:
    """The arcs and some more."""
    longer = list(arcs)
    for arc in more:
        longer[arc[0]] = (*longer[arc[0]], arc)
    return tuple(longer)


def _smallest_period(
    arcs: Arcs, known: Solved, limit_s: float, changed: list[int]
) -> Solved | None:
    """Smallest period >= that of `known` that satisfies all arcs, and the earliest starts under it.

    `known` satisfies all arcs but some that leave the calls in `changed`. None: no period below
    `limit_s` satisfies the arcs.
    """
    period_s, starts, origins = known
    if period_s >= limit_s:
        return None
    n = len(starts)
    current, origin, todo = list(starts), list(origins), changed
    while True:
        cycle = _raise(arcs, period_s, current, origin, todo)
        if cycle is None:
            return period_s, current, origin
        work = sum(arc[2] for arc in cycle)
        periods = sum(arc[3] for arc in cycle)
        if periods <= 0 or work / periods <= period_s:
            return None
        period_s = work / periods
        if period_s >= limit_s:
            return None
        # A longer period moves the arcs that span periods back: start afresh from the beginning.
        current, origin, todo = [0.0] * n, [None] * n, list(range(n))


def _raise(
    arcs: Arcs, period_s: float, current: list[float], origin: Origins, todo: list[int]
) -> list[Arc] | None:
    """Raise the starts until all arcs hold, beginning with those that leave `todo`.

    Longest paths with a queue (Bellman 1958, Moore 1959). Arcs that raised the starts one after the
    other and close a cycle cannot all hold: it is returned, else None. Cycles are looked for at
    every raise (Cherkassky and Goldberg, "Negative-cycle detection algorithms", Mathematical
    Programming 85, 1999: walking to the root).
    """
    n = len(current)
    times = [0] * n
    slack = _SLACK * period_s
    waiting = [False] * n
    queue = deque(todo)
    for node in todo:
        waiting[node] = True
    while queue:
        a = queue.popleft()
        waiting[a] = False
        begin = current[a] - slack
        for arc in arcs[a]:
            b = arc[1]
            start = begin + arc[2] - arc[3] * period_s
            if start > current[b]:
                current[b] = start + slack
                origin[b] = arc
                cycle = _cycle(origin, b)
                if cycle is not None:
                    return cycle
                times[b] += 1
                # Many improvements without a cycle are each within rounding.
                if times[b] <= n * n and not waiting[b]:
                    waiting[b] = True
                    queue.append(b)
    return None


def _cycle(origin: Origins, node: int) -> list[Arc] | None:
    """The cycle through `node` among the arcs that last raised each start, if there is one."""
    cycle: list[Arc] = []
    at = node
    while True:
        arc = origin[at]
        if arc is None or len(cycle) > len(origin):
            return None
        cycle.append(arc)
        at = arc[0]
        if at == node:
            return cycle
