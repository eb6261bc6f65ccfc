"""Robust times: warm-up, batches long enough for the clock, the median and the spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

_WARM_UPS = 2
_LEAST_BATCHES, _MOST_BATCHES = 5, 41
_MOST_RUNS = 10_000


class Clock(Protocol):
    """Times batches of runs on a device."""

    shortest_batch_s: float
    """Batches below this are too short for the clock."""

    def seconds(self, run: Callable[[], None], runs: int) -> float:
        """Seconds of `runs` runs, finished ones."""
        ...


class HostClock:
    """For devices on which a call returns when its work is done.

    `read` is `time.perf_counter`, or `time.process_time` for a process of one thread: then other
    work on a shared processor does not count, except for the caches that it takes.
    """

    shortest_batch_s = 1e-3

    def __init__(self, read: Callable[[], float] = time.perf_counter):
        self._read = read

    def seconds(self, run: Callable[[], None], runs: int) -> float:
        """Seconds of `runs` runs."""
        start = self._read()
        for _ in range(runs):
            run()
        return self._read() - start


@dataclass(frozen=True)
class Timing:
    """Seconds of one run over several batches."""

    median_s: float
    spread: float
    """Distance between the quartiles over the median."""
    batches: int


def summary(seconds: Sequence[float]) -> Timing:
    """Median and relative distance between the quartiles."""
    ordered = sorted(seconds)
    middle = statistics.median(ordered)
    quarter, n = len(ordered) // 4, len(ordered)
    distance = ordered[n - 1 - quarter] - ordered[quarter]
    return Timing(middle, distance / middle if middle > 0.0 else 0.0, n)


def timed(
    run: Callable[[], None],
    clock: Clock,
    budget_s: float,
    agree: Callable[[float], float] = lambda seconds: seconds,
) -> Timing:
    """The time of one run, in at most about `budget_s` seconds (a slow run takes five batches).

    `agree` makes all ranks of a collective take the same estimate, and so as many runs.
    """
    clock.seconds(run, _WARM_UPS)
    once = max(agree(clock.seconds(run, 1)), 1e-9)
    runs = int(min(max(clock.shortest_batch_s / once, 1), _MOST_RUNS))
    batches = int(budget_s / (once * runs))
    batches = min(max(batches, _LEAST_BATCHES), _MOST_BATCHES)
    return summary([clock.seconds(run, runs) / runs for _ in range(batches)])
