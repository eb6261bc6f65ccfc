"""The pool of CPU workers that scores responses as they come."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class Pool:
    """`workers` equal workers that take one response each for `latency_s`, first come first
    served; what is left of one batch delays the next."""

    def __init__(self, workers: int, latency_s: float) -> None:
        self.latency_s = latency_s
        self.workers = workers
        self.free_s: list[float] = []
        """When each worker that ever worked is free; a heap."""
        self.busy_s = 0.0

    def score(self, arrival_s: FloatArray) -> FloatArray:
        """When the responses that arrive at the given ascending times have their scores; [n]."""
        done = []
        for arrival in arrival_s.tolist():
            if len(self.free_s) < self.workers:
                done.append(arrival + self.latency_s)
                heapq.heappush(self.free_s, done[-1])
            else:
                done.append(max(arrival, self.free_s[0]) + self.latency_s)
                heapq.heapreplace(self.free_s, done[-1])
        self.busy_s += len(done) * self.latency_s
        return np.array(done)
