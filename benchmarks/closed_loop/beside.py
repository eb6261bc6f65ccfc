"""Reference kernels beside the runs: how the machine's load has changed since its profile."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from grid import REFERENCES

from planner.measure.bench.kernels import runner

_BATCH_S = 0.02
"""Long enough to be interrupted as often, for its length, as the steps are."""
_PRODUCTS = ("compute", "attention", "pipeline_bubble")
"""Parts that go with the first reference kernel, a product; the others with the second."""

Drift = tuple[float, float]


class Beside:
    """Reference kernels of this rank."""

    def __init__(self, machine: Any, profile_s: Mapping[Any, float]):
        """`profile_s`: seconds of the reference kernels in the profile."""
        self._clock = machine.clock
        self._profile_s = profile_s
        points = {point for pair in REFERENCES.values() for point in pair}
        self._runs = {point: runner(machine, point) for point in sorted(points, key=str)}
        self._counts = {point: self._count(run) for point, run in self._runs.items()}

    def drift(self, kind: str) -> Drift:
        """Times now over those of the profile: (products, everything else)."""
        first, second = (
            self._seconds(point) / self._profile_s[point] for point in REFERENCES[kind]
        )
        return first, second

    @staticmethod
    def scaled(parts_s: Mapping[str, float], drifts: Sequence[Drift]) -> float:
        """The sum of predicted parts under the load beside the runs (median of each kernel)."""
        products, others = (statistics.median(column) for column in zip(*drifts, strict=True))
        return sum(
            seconds * (products if name in _PRODUCTS else others)
            for name, seconds in parts_s.items()
        )

    def _seconds(self, point: Any) -> float:
        runs = self._counts[point]
        return self._clock.seconds(self._runs[point], runs) / runs

    def _count(self, run: Any) -> int:
        self._clock.seconds(run, 1)
        return max(round(_BATCH_S / self._clock.seconds(run, 1)), 1)
