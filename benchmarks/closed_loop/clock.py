"""Seconds of a program of two processes that exchange messages.

On a GPU, and with `--clock wall`, time is wall time. On a CPU that others share, wall time tells
about the others. There each process reads its own processor time, and whoever waits for a message
takes over the sender's clock if that is later (logical clocks, Lamport 1978): the result is the
time on two processors of its own. Exchanging the clocks is not counted. What this leaves out is the
operating system's time to wake a waiting process.
"""

from __future__ import annotations

import time
from typing import Any


class StepClock:
    """A clock of this rank; ranks of one step call the same methods in the same order."""

    def __init__(self, machine: Any, kind: str):
        self._machine = machine
        self._is_logical = kind == "processor"
        self._read = time.process_time if self._is_logical else time.perf_counter
        self._ahead_s = 0.0
        self._start_s = 0.0

    def now(self) -> float:
        """Seconds on this rank's clock; on a GPU, after its work is done."""
        if self._machine.kind == "cuda":
            self._machine.torch.cuda.synchronize()
        return self._read() + self._ahead_s

    def start(self, ranks: int) -> None:
        """Begin a step; all `ranks` together."""
        if ranks > 1:
            self._machine.torch.distributed.barrier()
        self._start_s = self.now()

    def elapsed(self) -> float:
        """Seconds since the step began, on this rank."""
        return self.now() - self._start_s

    def meet(self) -> None:
        """Before a collective: nobody goes on until the last has come."""
        if self._is_logical:
            before = self._read()
            torch = self._machine.torch
            latest = torch.tensor([before + self._ahead_s - self._start_s], dtype=torch.float64)
            torch.distributed.all_reduce(latest, op=torch.distributed.ReduceOp.MAX)
            self._set(float(latest))

    def sent(self, peer: int, pending: list[Any]) -> None:
        """After sending a message: its time goes with it."""
        if self._is_logical:
            before = self._read()
            stamp = self._machine.torch.tensor([self.elapsed()], dtype=self._machine.torch.float64)
            pending.append((self._machine.torch.distributed.isend(stamp, peer), stamp))
            self._ahead_s -= self._read() - before

    def received(self, peer: int, took_s: float) -> None:
        """After receiving a message in `took_s` seconds of own work: it was there at its stamp."""
        if self._is_logical:
            before = self._read()
            stamp = self._machine.torch.zeros(1, dtype=self._machine.torch.float64)
            self._machine.torch.distributed.recv(stamp, peer)
            arrived = float(stamp) + took_s
            mine = before + self._ahead_s - self._start_s
            self._set(max(mine, arrived))

    def _set(self, elapsed_s: float) -> None:
        """Continue at `elapsed_s`; what exchanging the clocks took is not counted."""
        self._ahead_s = elapsed_s + self._start_s - self._read()
