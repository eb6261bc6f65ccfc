"""Fit the constants of profiles to measured cases, cross-validated by leaving out whole groups.

Minimises the sum over cases of weight x robust(log(predicted / measured)) plus a weak prior that
holds a constant which the cases say little about in the middle of its plausible range; one that
no case responds to keeps its value.
Gauss-Newton steps on a numerical Jacobian with reweighted residuals; bounds are the ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from planner.catalog.frameworks import (
    lineage,
    load_framework,
    overridden,
    own_constants,
)
from planner.errors import InputError
from planner.measure.case import Prediction, Reader
from planner.measure.fit_cases import FitCase, fit_cases, pricer, residual
from planner.measure.readers import all_readers

FloatArray = npt.NDArray[np.float64]

# Residuals beyond this (log time) pull with constant force instead of growing force, so that a
# tenth of bad rows does not decide the fit.
_ROBUST_SCALE = 0.05
# A constant at the edge of its range costs as much as one case that is off by this much.
_PRIOR_SCALE = 0.05
_MAX_STEPS = 12
_INNER_STEPS = 20
_DIFFERENCE = 0.02
"""Step of the numerical Jacobian, share of a constant's range."""
_SMALLEST_GAIN = 1e-4
# Large groups weigh less per row: rows of one model on one device share their error.
_GROUP_POWER = 0.5
# Nearer to an end of its range than this share of it, a constant is at the edge.
_EDGE = 0.01
INTERVAL_SHARE = 0.8
NORMAL_80 = 1.2816
"""80 % of a normal distribution lies within this many standard deviations."""


@dataclass(frozen=True)
class LeftOut:
    """A case predicted by constants that were fitted without its group."""

    case: FitCase
    prediction: Prediction

    @property
    def residual(self) -> float:
        """log(predicted / measured) of the fitted figure."""
        return residual(self.case.metric, self.prediction)


@dataclass(frozen=True)
class Fitted:
    """Fitted constants and how well they predict cases they were not fitted to."""

    values: dict[str, dict[str, float]]
    """Profile -> constant -> value."""
    before: dict[str, dict[str, float]]
    cases: int
    groups: int
    error_in_sample: float
    """Mean absolute percentage error, a fraction."""
    error_left_out: float
    """The same with each group predicted by constants fitted without it."""
    relative_error: dict[str, float]
    """Profile -> spread of log(predicted / measured) of left-out cases, normal-equivalent."""
    coverage: float
    """Share of left-out cases inside the 80 % interval that the other groups' spread gives."""
    left_out: tuple[LeftOut, ...] = ()
    at_edge: tuple[tuple[str, str], ...] = ()
    """(profile, constant) that ended at an end of its plausible range: a term may be missing."""


@dataclass(frozen=True)
class _Parameter:
    profile: str
    name: str
    start: float
    low: float
    high: float


def fit(
    paths: Sequence[Path],
    profiles: Sequence[str],
    *,
    constants: Sequence[str] | None = None,
    metric: str | None = None,
    readers: tuple[Reader, ...] | None = None,
) -> Fitted:
    """Fit the constants that the profiles' own files mark `fitted` (or `constants`) jointly.

    Cases are the complete, unflagged ones that one of the profiles (or one that inherits from it)
    prices; `metric` picks the figure (default: the reader's main one). Raises InputError when
    there is nothing to fit or nothing to fit to.
    """
    parameters = _parameters(profiles, constants)
    cases = fit_cases(paths, profiles, metric, all_readers() if readers is None else readers)
    if not cases:
        raise InputError(f"no case is priced by {', '.join(profiles)}")
    start = np.array([(p.start - p.low) / (p.high - p.low) for p in parameters])
    problem = _Problem(parameters, cases)
    x, residuals, jacobian = problem.solve(start)
    found: dict[int, Prediction] = {}
    names = _folds(cases)
    for group in dict.fromkeys(names):
        out = names == group
        other = problem.refit(x, residuals, jacobian, ~out) if not out.all() else x
        rows = np.flatnonzero(out)
        found |= dict(zip(rows.tolist(), problem.predictions(other, rows), strict=True))
    ones = tuple(LeftOut(case, found[index]) for index, case in enumerate(cases))
    left_out = np.array([one.residual for one in ones])
    return Fitted(
        values=problem.values(x),
        before=problem.values(start),
        cases=len(cases),
        groups=len(set(names)),
        error_in_sample=_mape(residuals),
        error_left_out=_mape(left_out),
        relative_error=_spreads(cases, left_out, profiles),
        coverage=_coverage(names, left_out),
        left_out=ones,
        at_edge=tuple(
            (parameter.profile, parameter.name)
            for parameter, share, responds in zip(parameters, x, problem.responds, strict=True)
            if responds and not _EDGE < share < 1.0 - _EDGE
        ),
    )


def _folds(cases: Sequence[FitCase]) -> npt.NDArray[np.str_]:
    """What is left out together: groups; with one group alone, cases that differ in strategy."""
    names = np.array([case.group for case in cases])
    if len(set(names)) > 1:
        return names
    return np.array([case.strategy_group for case in cases])


def spread(residuals: FloatArray) -> float:
    """Standard deviation of the normal distribution with the same 80 % interval about zero."""
    return float(np.quantile(np.abs(residuals), INTERVAL_SHARE) / NORMAL_80)


class _Problem:
    """Residuals of all cases as a function of the normalised constants (0 = low, 1 = high)."""

    def __init__(self, parameters: Sequence[_Parameter], cases: Sequence[FitCase]) -> None:
        self.parameters = parameters
        self.cases = cases
        sizes: dict[str, int] = {}
        for case in cases:
            sizes[case.group] = sizes.get(case.group, 0) + 1
        weights = np.array([sizes[case.group] ** -_GROUP_POWER for case in cases])
        self.weights = weights / weights.mean()
        self._price_all: Callable[[], list[Prediction]] | None = None
        self.responds = np.ones(len(parameters), dtype=np.bool_)
        """Constants on which some case depends."""

    def values(self, x: FloatArray) -> dict[str, dict[str, float]]:
        values: dict[str, dict[str, float]] = {}
        for parameter, share in zip(self.parameters, x, strict=True):
            value = parameter.low + float(share) * (parameter.high - parameter.low)
            values.setdefault(parameter.profile, {})[parameter.name] = value
        return values

    def predictions(self, x: FloatArray, rows: npt.NDArray[np.int64]) -> list[Prediction]:
        """Of some rows."""
        run = pricer([self.cases[row] for row in rows])
        with overridden(self.values(x)):
            return run()

    def residuals(self, x: FloatArray) -> FloatArray:
        """log(predicted / measured) of the cases."""
        if self._price_all is None:
            self._price_all = pricer(self.cases)
        with overridden(self.values(x)):
            found = self._price_all()
        return np.array(
            [residual(case.metric, one) for case, one in zip(self.cases, found, strict=True)]
        )

    def jacobian(self, x: FloatArray, residuals: FloatArray) -> FloatArray:
        """Numerical derivatives, [cases, constants]."""
        columns = []
        for index in range(len(x)):
            step = _DIFFERENCE if x[index] <= 0.5 else -_DIFFERENCE
            moved = x.copy()
            moved[index] += step
            columns.append((self.residuals(moved) - residuals) / step)
        return np.stack(columns, axis=1)

    def objective(self, x: FloatArray, residuals: FloatArray) -> float:
        """Robust sum of residuals plus the prior."""
        z = residuals / _ROBUST_SCALE
        loss = float((self.weights * 2.0 * (np.sqrt(1.0 + z**2) - 1.0)).sum())
        free = 2.0 * x[self.responds] - 1.0
        return loss + float(((free * _PRIOR_SCALE / _ROBUST_SCALE) ** 2).sum())

    def solve(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Damped Gauss-Newton from `x`: the minimum, its residuals and its Jacobian."""
        residuals = self.residuals(x)
        jacobian = self.jacobian(x, residuals)
        self.responds = np.abs(jacobian).max(axis=0) > 0.0
        best = self.objective(x, residuals)
        every = np.ones(len(residuals), dtype=np.bool_)
        for _ in range(_MAX_STEPS):
            target = self.refit(x, residuals, jacobian, every)
            share = 1.0
            while share > 0.05:
                trial = x + share * (target - x)
                trial_residuals = self.residuals(trial)
                value = self.objective(trial, trial_residuals)
                if value < best * (1.0 - _SMALLEST_GAIN):
                    break
                share *= 0.4
            else:
                break
            x, residuals, best = trial, trial_residuals, value
            jacobian = self.jacobian(x, residuals)
        return x, residuals, jacobian

    def refit(
        self,
        x: FloatArray,
        residuals: FloatArray,
        jacobian: FloatArray,
        rows: npt.NDArray[np.bool_],
    ) -> FloatArray:
        """Minimum over the chosen rows of the linear model about `x`, within the bounds."""
        j, r, w = jacobian[rows], residuals[rows], self.weights[rows]
        now = x.copy()
        for _ in range(_INNER_STEPS):
            current = r + j @ (now - x)
            pull = w / np.sqrt(1.0 + (current / _ROBUST_SCALE) ** 2) / _ROBUST_SCALE**2
            now = _bounded_minimum(x, j, r, pull, np.flatnonzero(self.responds))
        return now


def _bounded_minimum(
    x: FloatArray,
    j: FloatArray,
    r: FloatArray,
    pull: FloatArray,
    free: npt.NDArray[np.int64],
) -> FloatArray:
    """argmin of sum pull (r + j (y - x))^2 + prior(y) with 0 <= y <= 1: coordinate descent.

    `free` are the coordinates that may move.
    """
    prior = (_PRIOR_SCALE / _ROBUST_SCALE) ** 2
    hessian = j.T @ (pull[:, None] * j)
    linear = j.T @ (pull * (r - j @ x))
    diagonal = np.diag(hessian) + 4.0 * prior
    y = x.copy()
    for _ in range(200):
        before = y.copy()
        for k in free:
            rest = hessian[k] @ y - hessian[k, k] * y[k]
            y[k] = min(max((2.0 * prior - linear[k] - rest) / diagonal[k], 0.0), 1.0)
        if np.abs(y - before).max() < 1e-6:
            break
    return y


def _parameters(profiles: Sequence[str], constants: Sequence[str] | None) -> list[_Parameter]:
    parameters: list[_Parameter] = []
    for profile in profiles:
        loaded = load_framework(profile)
        own = own_constants(profile)
        for name, constant in loaded.constants.items():
            wanted = name in constants if constants else constant.fitted
            if name in own and wanted:
                if constant.high <= constant.low:
                    raise InputError(f"{profile}: the range of {name} is empty")
                parameters.append(
                    _Parameter(profile, name, constant.value, constant.low, constant.high)
                )
    if not parameters:
        raise InputError(
            f"nothing to fit in {', '.join(profiles)}",
            remedy="Mark constants of the profile's own file `fitted: true`, or name some.",
        )
    return parameters


def _mape(residuals: FloatArray) -> float:
    return float(np.abs(np.expm1(residuals)).mean())


def _spreads(
    cases: Sequence[FitCase], left_out: FloatArray, profiles: Sequence[str]
) -> dict[str, float]:
    """By profile, over the cases that it prices itself (or, without any, through heirs)."""
    result: dict[str, float] = {}
    for profile in profiles:
        own = np.array([case.framework == profile for case in cases])
        if not own.any():
            own = np.array([profile in lineage(case.framework) for case in cases])
        if own.any():
            result[profile] = spread(left_out[own])
    return result


def _coverage(names: npt.NDArray[np.str_], left_out: FloatArray) -> float:
    """Cases within the interval whose width comes from the other groups alone."""
    inside = 0
    for group in dict.fromkeys(names):
        out = names == group
        others = left_out if out.all() else left_out[~out]
        inside += int((np.abs(left_out[out]) <= NORMAL_80 * spread(others)).sum())
    return inside / len(names)
