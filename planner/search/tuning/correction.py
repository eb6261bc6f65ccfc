"""What measurements say about the cost model: a factor for every stage, with a prior.

Every stage (a call, a weight sync, what lies outside of calls) of every configuration takes
``exp(z)`` times what the model says. The z have a Gaussian prior of mean zero whose covariance has
three parts: one that all stages of a kind share (the model is wrong about this cluster), one of the
stage (wrong about this workload) and one that is alike for alike strategies (wrong about what a
knob does). So three measurements move every prediction a little and none of them far, and
many take over. The scheme is that of Kennedy and O'Hagan (2001), "Bayesian calibration of computer
models", with log-normal factors.

Measured stages and steps are observed with noise. A step is a function of its stages, so the
posterior mode is found by Gauss-Newton steps; the step has a factor of its own for what the
schedule gets wrong. Outliers are given less weight (a Student-t likelihood by reweighting).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from planner.search.tuning.pricing import Point, elasticities

FloatArray = npt.NDArray[np.float64]

STEP = "step"
_ITERATIONS = 4
_DEGREES = 4.0
"""Of freedom of the Student-t likelihood."""
_LENGTH_SCALE = 2.0
"""Distance, in doublings of strategy fields, over which errors of the model are alike."""


@dataclass(frozen=True)
class Prior:
    """Standard deviations of the log of factors."""

    kind: float = 0.2
    """Shared by all stages of a kind."""
    stage: float = 0.1
    """Shared by all configurations of a stage."""
    strategy: float = 0.08
    """Alike for alike strategies of a stage."""
    step: float = 0.05
    """Of the step beside its stages, shared."""
    step_strategy: float = 0.02
    """Of the step beside its stages, alike for alike strategies."""


@dataclass(frozen=True)
class Observation:
    """What one run of a configuration showed."""

    point: Point
    step_s: float
    stages_s: Mapping[str, float] = field(default_factory=dict)
    """Stages, or several joined by "+", that the log names -> seconds."""
    noise: float = 0.03
    """Standard deviation of the log of a measured time."""


@dataclass(frozen=True)
class Estimate:
    """A configuration's step, corrected."""

    step_s: float
    deviation: float
    """Standard deviation of its log."""
    stages_s: dict[str, float]


class Correction:
    """The posterior after some observations; without any, the prior: the model itself."""

    def __init__(self, observations: Sequence[Observation], prior: Prior | None = None) -> None:
        self.prior = prior or Prior()
        self.observations = list(observations)
        self._rows: list[tuple[int, str]] = [
            (i, stage)
            for i, one in enumerate(self.observations)
            for stage in (*one.point.stages_s, STEP)
        ]
        self._place = {row: i for i, row in enumerate(self._rows)}
        self._of_kind: dict[str, list[int]] = {}
        self._of_stage: dict[str, list[int]] = {}
        for place, (_, stage) in enumerate(self._rows):
            self._of_kind.setdefault(self._kind(self._rows[place]), []).append(place)
            self._of_stage.setdefault(stage, []).append(place)
        self._features = {
            stage: np.array(
                [self.observations[self._rows[i][0]].point.features[stage] for i in places]
            )
            for stage, places in self._of_stage.items()
            if stage != STEP
        }
        self._solve()

    @property
    def factors(self) -> dict[str, float]:
        """Kind of stage -> measured over predicted, for strategies unlike those measured."""
        found = {}
        kinds = {kind for one in self.observations for kind in one.point.kinds.values()}
        for kind in sorted(kinds):
            cross = np.array([self.prior.kind**2 * (self._kind(row) == kind) for row in self._rows])
            found[kind] = math.exp(float(cross @ self._weights))
        return found

    def estimate(self, point: Point, *, deviation: bool = True) -> Estimate:
        """The step of a configuration; its deviation costs a schedule for each stage."""
        names = [*point.stages_s, STEP]
        z = np.zeros(len(names))
        cross = np.zeros((len(names), len(self._rows)))
        if self._rows:
            cross = np.array([self._cross(point, name) for name in names])
            z = cross @ self._weights
        factors = {name: math.exp(value) for name, value in zip(names[:-1], z, strict=False)}
        step_s = point.step_s(factors) * math.exp(z[-1])
        stages_s = {name: t * factors[name] for name, t in point.stages_s.items()}
        if not deviation:
            return Estimate(step_s, math.nan, stages_s)
        gradient = np.append(elasticities(point, factors), 1.0)
        own = np.array([[self._between(point, a, point, b) for b in names] for a in names])
        if self._rows:
            own = own - cross @ self._gain @ cross.T
        return Estimate(step_s, math.sqrt(max(0.0, float(gradient @ own @ gradient))), stages_s)

    def _solve(self) -> None:
        n = len(self._rows)
        self._weights = np.zeros(n)
        self._gain = np.zeros((n, n))
        if not n:
            return
        prior = np.array(
            [self._cross(self.observations[i].point, stage) for i, stage in self._rows]
        )
        z = np.zeros(n)
        inflation: FloatArray | None = None
        shares = [one.point.elasticities for one in self.observations]
        for iteration in range(_ITERATIONS):
            if iteration == _ITERATIONS // 2:
                # Which calls are on the critical path is looked at once more, nearer the mode.
                shares = [
                    elasticities(one.point, self._factors(i, z))
                    for i, one in enumerate(self.observations)
                ]
            jacobian, residual, noise = self._linearised(z, shares)
            if inflation is None:
                inflation = np.ones(len(residual))
            total = jacobian @ prior @ jacobian.T + np.diag(noise**2 * inflation)
            # Mode of the linear problem around z, from the prior mean of zero.
            target = residual + jacobian @ z
            inverse = np.linalg.inv(total)
            self._weights = jacobian.T @ (inverse @ target)
            self._gain = jacobian.T @ inverse @ jacobian
            z = prior @ self._weights
            left = (target - jacobian @ z) / noise
            inflation = (_DEGREES + left**2) / (_DEGREES + 1.0)
            inflation = np.maximum(inflation, 1.0)

    def _factors(self, index: int, z: FloatArray) -> dict[str, float]:
        names = self.observations[index].point.stages_s
        return {name: math.exp(z[self._place[index, name]]) for name in names}

    def _linearised(
        self, z: FloatArray, shares: Sequence[FloatArray]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Jacobian [observed, rows], log residual [observed] and noise [observed] at z."""
        place = self._place
        rows, residuals, noises = [], [], []
        for i, one in enumerate(self.observations):
            names = list(one.point.stages_s)
            factors = self._factors(i, z)
            for joined, seconds in one.stages_s.items():
                parts = [name for name in joined.split("+") if one.point.stages_s.get(name, 0) > 0]
                if not parts or seconds <= 0:
                    continue
                times = np.array([one.point.stages_s[name] * factors[name] for name in parts])
                row = np.zeros(len(z))
                for name, share in zip(parts, times / times.sum(), strict=True):
                    row[place[i, name]] = share
                rows.append(row)
                residuals.append(math.log(seconds / times.sum()))
                noises.append(one.noise)
            row = np.zeros(len(z))
            for name, share in zip(names, shares[i], strict=True):
                row[place[i, name]] = share
            row[place[i, STEP]] = 1.0
            step_s = one.point.step_s(factors) * math.exp(z[place[i, STEP]])
            rows.append(row)
            residuals.append(math.log(one.step_s / step_s))
            noises.append(one.noise)
        return np.array(rows), np.array(residuals), np.array(noises)

    def _kind(self, row: tuple[int, str]) -> str:
        index, stage = row
        return self.observations[index].point.kinds.get(stage, STEP)

    def _cross(self, point: Point, stage: str) -> FloatArray:
        """Prior covariance of one stage's z with all rows, [rows]."""
        p = self.prior
        found = np.zeros(len(self._rows))
        if stage == STEP:
            for i, one in enumerate(self.observations):
                alike = alike_plans(point, one.point)
                found[self._of_stage[STEP][i]] = p.step**2 + p.step_strategy**2 * alike
            return found
        found[self._of_kind.get(point.kinds[stage], [])] += p.kind**2
        rows = self._of_stage.get(stage)
        if rows is not None:
            distance = ((self._features[stage] - point.features[stage]) ** 2).sum(axis=1)
            found[rows] += p.stage**2 + p.strategy**2 * np.exp(-0.5 * distance / _LENGTH_SCALE**2)
        return found

    def _between(self, one: Point, stage: str, other: Point, with_stage: str) -> float:
        """Prior covariance of two stages' z."""
        p = self.prior
        if STEP in (stage, with_stage):
            if stage != with_stage:
                return 0.0
            return p.step**2 + p.step_strategy**2 * alike_plans(one, other)
        if one.kinds[stage] != other.kinds[with_stage]:
            return 0.0
        found = p.kind**2
        if stage == with_stage:
            found += p.stage**2
            found += p.strategy**2 * _alike(one.features[stage], other.features[stage])
        return found


def _alike(a: FloatArray, b: FloatArray) -> float:
    distance = float(((a - b) ** 2).sum())
    return math.exp(-0.5 * distance / _LENGTH_SCALE**2)


def alike_plans(one: Point, other: Point) -> float:
    if one.key == other.key:
        return 1.0
    shared = set(one.features) & set(other.features)
    if len(shared) < max(len(one.features), len(other.features)):
        return 0.0
    distance = sum(float(((one.features[n] - other.features[n]) ** 2).sum()) for n in shared)
    stale = float(one.assignment.staleness - other.assignment.staleness)
    return math.exp(-0.5 * (distance + stale**2) / _LENGTH_SCALE**2)
