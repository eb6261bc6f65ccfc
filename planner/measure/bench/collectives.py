"""Collectives over groups of ranks, inside a node and across nodes (NCCL or gloo).

Groups of n ranks of a node are disjoint and run at the same time, as in a model. Across nodes the
ranks of equal number of all nodes form a group, so that every network interface is busy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.measure.bench.machine import Machine
from planner.measure.bench.points import Point

Run = Callable[[], Any]


class Groups:
    """The process groups of a job, made when first asked for (on all ranks in the same order)."""

    def __init__(self, machine: Machine):
        self._machine = machine
        self._known: dict[tuple[bool, int], tuple[Any, list[int]]] = {}

    def of(self, members: int, *, across: bool) -> tuple[Any, list[int]]:
        """(this rank's group, its ranks) of `members` ranks."""
        key = (across, members)
        if key not in self._known:
            self._known[key] = self._make(members, across)
        return self._known[key]

    def _make(self, members: int, across: bool) -> tuple[Any, list[int]]:
        world, node = self._machine.world, self._machine.node_ranks
        if across:
            sets = [[base + node * i for i in range(members)] for base in range(node)]
        else:
            # Ranks of a node that fill no whole group stay out.
            whole = node // members * members
            sets = [
                list(range(start + first, start + first + members))
                for start in range(0, world, node)
                for first in range(0, whole, members)
            ]
        mine: tuple[Any, list[int]] = (None, [])
        for ranks in sets:
            group = self._machine.torch.distributed.new_group(ranks)
            if self._machine.rank in ranks:
                mine = group, ranks
        return mine


def collective_runner(machine: Machine, groups: Groups, point: Point) -> Run | None:
    """A function that takes part in one collective; None for a rank that is not in a group.

    `elements` of the shape are those of the full buffer: the reduced tensor, the gathered result,
    the tensor before scattering, what one rank sends in an all-to-all, one message.
    """
    members, elements = point.shape
    across = point.kernel.startswith("across_")
    group, ranks = groups.of(members, across=across)
    if not ranks:
        return None
    dist = machine.torch.distributed
    whole = machine.torch.ones(elements, device=machine.device, dtype=machine.dtype)
    part = machine.torch.ones(
        max(elements // members, 1), device=machine.device, dtype=machine.dtype
    )
    kernel = point.kernel.removeprefix("across_")
    if kernel == "all_reduce":
        # A maximum keeps the figures finite however often it runs.
        return lambda: dist.all_reduce(whole, op=dist.ReduceOp.MAX, group=group)
    if kernel == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, part, group=group)
    if kernel == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(part, whole, op=dist.ReduceOp.MAX, group=group)
    if kernel == "all_to_all":
        other = machine.torch.empty_like(whole)
        return lambda: dist.all_to_all_single(other, whole, group=group)
    first, second = ranks[0], ranks[1]
    if machine.rank not in (first, second):
        return lambda: None

    def there_and_back() -> None:
        if machine.rank == first:
            dist.send(whole, second, group=group)
            dist.recv(whole, second, group=group)
        else:
            dist.recv(whole, first, group=group)
            dist.send(whole, first, group=group)

    return there_and_back


MESSAGES = {"send_recv": 2}
"""Messages one after another in one run of a kernel (1 for the others)."""
