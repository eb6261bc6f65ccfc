"""The pool of CPU workers that scores responses as they come."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from planner.schema import EnvironmentSpec

FloatArray = npt.NDArray[np.float64]


class Pool:
    """Equal workers that take one response each, first come first served.

    A score takes the mean latency, or a lognormal one of that mean. What is left of one batch
    delays the next.
    """

    def __init__(self, environment: EnvironmentSpec, rng: np.random.Generator) -> None:
        self.environment, self.rng = environment, rng
        self.workers = environment.workers
        self.free_s: list[float] = []
        """When each worker that ever worked is free; a heap."""
        self.busy_s = 0.0

    def score(self, arrival_s: FloatArray) -> FloatArray:
        """When the responses that arrive at the given ascending times have their scores; [n]."""
        latency_s = np.full(len(arrival_s), self.environment.latency_s)
        if self.environment.latency_sigma > 0:
            sigma = self.environment.latency_sigma
            latency_s *= np.exp(sigma * self.rng.standard_normal(len(latency_s)) - sigma**2 / 2.0)
        done = []
        for arrival, takes in zip(arrival_s.tolist(), latency_s.tolist(), strict=True):
            if len(self.free_s) < self.workers:
                done.append(arrival + takes)
                heapq.heappush(self.free_s, done[-1])
            else:
                done.append(max(arrival, self.free_s[0]) + takes)
                heapq.heapreplace(self.free_s, done[-1])
        self.busy_s += float(latency_s.sum())
        return np.array(done)
