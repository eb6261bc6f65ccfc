"""From decisions to a schedule: tasks are placed one by one, each as early as it can start.

Reference: serial schedule generation, Kolisch and Hartmann (1999), here with contiguous nodes and
set-up times. Placing the tasks of any feasible schedule in order of their starts, with its options
and nodes, gives a schedule in which no task ends later: an optimal schedule is among the decoded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from planner.fleet.problem import FleetProblem, Run, Schedule, objectives

_NOTHING = -1
"""Weights of a node that has run nothing yet."""


def decode(
    problem: FleetProblem,
    options: Sequence[int],
    order: Sequence[int],
    ranks: Sequence[int] | None = None,
    first_nodes: Sequence[int] | None = None,
) -> Schedule:
    """The schedule of the tasks placed in `order`.

    Parameters: `options` index of each task's option; `order` all tasks (one that stands before a
    predecessor draws it forward); `ranks` which of its places each task takes: 0 the one where it
    ends first, 1 the next, the last when there are fewer; `first_nodes` each task's first node,
    instead of a choice by rank.
    """
    lines = [_Line(nodes) for nodes in problem.group_nodes]
    pool = None if problem.slots is None else _Pool(problem.slots)
    runs: list[Run | None] = [None] * len(problem.tasks)
    ends = [0.0] * len(problem.tasks)
    for index in in_precedence(problem, order):
        task = problem.tasks[index]
        option = task.options[options[index]]
        ready = max([task.release_s, *(ends[p] for p in problem.predecessors[index])])
        line = lines[option.group]
        places = [first_nodes[index]] if first_nodes is not None else line.places(option.nodes)
        found = []
        for first in places:
            free_s, idle, same = line.look(first, option.nodes, task.weights, ready)
            setup = 0.0 if same else option.setup_s
            hold = setup + option.run_s
            start = free_s
            if pool is not None and option.slots:
                start = pool.earliest(free_s, hold, option.slots)
            idle += (start - free_s) * option.nodes
            found.append((start + hold, idle, first, start, setup))
        rank = 0 if ranks is None else ranks[index]
        if rank and len(found) > 1:
            found.sort()
            end, _, first, start, setup = found[min(rank, len(found) - 1)]
        else:
            end, _, first, start, setup = min(found)
        line.take(first, option.nodes, end, task.weights)
        if pool is not None and option.slots:
            pool.take(start, end, option.slots)
        ends[index] = end
        runs[index] = Run(options[index], first, start, setup, end)
    makespan, tardiness = objectives(problem, ends)
    return Schedule(tuple(run for run in runs if run is not None), makespan, tardiness)


def in_precedence(problem: FleetProblem, order: Sequence[int]) -> list[int]:
    """`order` with the predecessors of each task drawn before it."""
    if not problem.edges:
        return list(order)
    placed: dict[int, None] = {}
    rank = {task: place for place, task in enumerate(problem.topological)}
    for task in order:
        if task in placed:
            continue
        for before in sorted(problem.ancestors[task], key=rank.__getitem__):
            placed.setdefault(before)
        placed[task] = None
    return list(placed)


class _Line:
    """The nodes of one group: ranges that became free together, with the weights left on them."""

    def __init__(self, nodes: int):
        self.nodes = nodes
        self.edges = [0, nodes]
        """Range i holds the nodes from edges[i] up to edges[i + 1]."""
        self.free_s = [0.0]
        self.weights = [_NOTHING]

    def places(self, nodes: int) -> list[int]:
        """First nodes worth trying: flush with the start or the end of a range.

        Among them is one of earliest start: any place can move down to the start of the range
        that its first node is in, without touching another range.
        """
        last = self.nodes - nodes
        starts = {edge for edge in self.edges if edge <= last}
        starts.update(edge - nodes for edge in self.edges if edge >= nodes)
        return sorted(starts)

    def look(
        self, first: int, nodes: int, weights: int, ready_s: float
    ) -> tuple[float, float, bool]:
        """Earliest start, node-seconds left idle before it, and whether all hold `weights`."""
        end = first + nodes
        edges = self.edges
        index = bisect_right(edges, first) - 1
        start = ready_s
        same = True
        idle_from = 0.0
        while first < end:
            free_s = self.free_s[index]
            if free_s > start:
                start = free_s
            if self.weights[index] != weights:
                same = False
            index += 1
            after = min(end, edges[index])
            idle_from += free_s * (after - first)
            first = after
        return start, start * nodes - idle_from, same

    def take(self, first: int, nodes: int, end_s: float, weights: int) -> None:
        """Occupy the range until `end_s`; its nodes hold `weights` from then on."""
        end = first + nodes
        low = bisect_right(self.edges, first) - 1
        high = low
        while self.edges[high + 1] < end:
            high += 1
        edges, free_s, held = [first], [end_s], [weights]
        if self.edges[low] < first:
            edges.insert(0, self.edges[low])
            free_s.insert(0, self.free_s[low])
            held.insert(0, self.weights[low])
        if end < self.edges[high + 1]:
            edges.append(end)
            free_s.append(self.free_s[high])
            held.append(self.weights[high])
        self.edges[low : high + 1] = edges
        self.free_s[low : high + 1] = free_s
        self.weights[low : high + 1] = held


class _Pool:
    """Slots in use over time, as a step function."""

    def __init__(self, slots: int):
        self.slots = slots
        self.times_s = [0.0]
        self.used = [0]
        """Slots in use from times_s[i] to times_s[i + 1]; the last lasts for ever."""

    def earliest(self, ready_s: float, hold_s: float, slots: int) -> float:
        """First time from `ready_s` on at which `slots` are free for `hold_s` seconds."""
        most = self.slots - slots
        start = ready_s
        index = bisect_right(self.times_s, start) - 1
        while index < len(self.times_s) and self.times_s[index] < start + hold_s:
            if self.used[index] > most:
                start = self.times_s[index + 1]
            index += 1
        return start

    def take(self, start_s: float, end_s: float, slots: int) -> None:
        """Use `slots` from start to end."""
        if end_s <= start_s:
            return
        low, high = self._cut(start_s), self._cut(end_s)
        for index in range(low, high):
            self.used[index] += slots

    def _cut(self, time_s: float) -> int:
        index = bisect_right(self.times_s, time_s) - 1
        if self.times_s[index] == time_s:
            return index
        self.times_s.insert(index + 1, time_s)
        self.used.insert(index + 1, self.used[index])
        return index + 1
