"""Error figures of predictions: percentage errors, rank correlation, regret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

SMALLEST_RANKED_GROUP = 3
"""Ranks are compared in groups of at least this many strategies."""
HIGHER_IS_BETTER = ("throughput",)
"""Metrics of which a planner wants more; all others are costs."""
VERDICTS = ("fits",)
"""Metrics that are right or wrong."""


@dataclass(frozen=True)
class Score:
    """A scored figure, reduced to what the error figures need."""

    metric: str
    measured: float
    predicted: float
    strategy_group: str

    @property
    def ape(self) -> float:
        """|predicted / measured - 1|; 0 or 1 for verdicts."""
        if self.metric in VERDICTS:
            return float(round(self.measured) != round(self.predicted))
        return abs(self.predicted / self.measured - 1.0)


@dataclass(frozen=True)
class Summary:
    """Error figures of one metric over a set of cases; fractions."""

    n: int
    mape: float | None
    median_ape: float | None
    p90_ape: float | None
    bias: float | None
    """Mean of predicted / measured - 1."""
    kendall_tau: float | None
    """Mean over the strategy groups of at least three; None without any."""
    top1_regret: float | None
    """Mean over the same groups."""
    ranked_groups: int
    skipped: int
    """Complete cases that could not be predicted."""


def summarise(scores: Sequence[Score], skipped: int = 0) -> Summary:
    """The figures of scores that share a metric."""
    if not scores:
        return Summary(0, None, None, None, None, None, None, 0, skipped)
    errors = np.array([score.ape for score in scores])
    ratios = np.array([_signed(score) for score in scores])
    taus, regrets = _ranks(scores)
    return Summary(
        n=len(scores),
        mape=float(errors.mean()),
        median_ape=float(np.median(errors)),
        p90_ape=float(np.quantile(errors, 0.9)),
        bias=float(ratios.mean()),
        kendall_tau=float(np.mean(taus)) if taus else None,
        top1_regret=float(np.mean(regrets)) if regrets else None,
        ranked_groups=len(regrets),
        skipped=skipped,
    )


def kendall_tau(one: FloatArray, other: FloatArray) -> float | None:
    """Kendall's tau-b of two series of equal length; None when either is constant.

    tau-b = (concordant - discordant) / sqrt(pairs untied in one x pairs untied in the other).
    """
    upper = np.triu_indices(len(one), k=1)
    a = np.sign(one[:, None] - one[None, :])[upper]
    b = np.sign(other[:, None] - other[None, :])[upper]
    untied = np.sqrt(float(np.count_nonzero(a)) * float(np.count_nonzero(b)))
    return float((a * b).sum() / untied) if untied else None


def top1_regret(measured_cost: FloatArray, predicted_cost: FloatArray) -> float:
    """Measured cost of the strategy ranked first over the measured best, minus 1."""
    return float(measured_cost[int(np.argmin(predicted_cost))] / measured_cost.min() - 1.0)


def _signed(score: Score) -> float:
    if score.metric in VERDICTS:
        return score.predicted - score.measured
    return score.predicted / score.measured - 1.0


def _ranks(scores: Sequence[Score]) -> tuple[list[float], list[float]]:
    groups: dict[str, list[Score]] = {}
    for score in scores:
        if score.metric not in VERDICTS:
            groups.setdefault(score.strategy_group, []).append(score)
    taus: list[float] = []
    regrets: list[float] = []
    for members in groups.values():
        if len(members) < SMALLEST_RANKED_GROUP:
            continue
        measured = np.array([_cost(one.metric, one.measured) for one in members])
        predicted = np.array([_cost(one.metric, one.predicted) for one in members])
        tau = kendall_tau(measured, predicted)
        if tau is not None:
            taus.append(tau)
        regrets.append(top1_regret(measured, predicted))
    return taus, regrets


def _cost(metric: str, value: float) -> float:
    return 1.0 / value if metric in HIGHER_IS_BETTER else value
