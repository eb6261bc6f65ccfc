"""Lengths of responses cut at a share: what is written before and after, and which are short.

A response longer than `cut_tokens` is interrupted there and goes on elsewhere: of all responses
`share` end before. The four parts are histograms whose means are exact, so tokens are conserved.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.schema import LengthDistribution
from planner.workload.lengths import limited_moment, quantile, survival

FloatArray = npt.NDArray[np.float64]

_POINTS = 256
_TAIL_POINTS = 160
_TAIL_RATIO = 0.9
"""Cells of the long responses hold nine tenths of what their neighbour does, down to 1 in 10^7, so
that the longest of any batch is met."""


class Split(NamedTuple):
    """The parts of a length distribution."""

    cut_tokens: int
    before: LengthDistribution
    """Tokens that every response has before the cut, min(L, cut)."""
    after: LengthDistribution
    """Those that the long ones have after it, L - cut given L > cut."""
    short: LengthDistribution
    """Whole lengths of those that end before the cut."""
    long: LengthDistribution
    """Whole lengths of the others."""


@lru_cache(maxsize=64)
def split_lengths(distribution: LengthDistribution, share: float) -> Split | None:
    """The parts when `share` of the responses end before the cut.

    None where so many responses have one length that no cut divides them nearly so.
    """
    cut = int(np.rint(quantile(distribution, share)))
    top = distribution.max_tokens
    ended = 1.0 - float(survival(distribution, cut))
    if abs(ended - share) > 0.02 or cut < 1 or cut >= top:
        return None
    whole = float(limited_moment(distribution, top, 1))
    before_mean = float(limited_moment(distribution, cut, 1))
    short_mean = (before_mean - cut * (1.0 - ended)) / ended
    after_mean = (whole - before_mean) / (1.0 - ended)

    body = np.asarray(quantile(distribution, ended * (np.arange(_POINTS) + 0.5) / _POINTS))
    level = (1.0 - ended) * _TAIL_RATIO ** np.arange(_TAIL_POINTS + 1)
    level[-1] = 0.0
    middle = np.asarray(quantile(distribution, 1.0 - (level[:-1] + level[1:]) / 2.0))
    weights = -np.diff(level)
    short = _histogram(body, np.ones(_POINTS), short_mean, cut)
    after = _histogram(middle - cut, weights, after_mean, top - cut)
    long = LengthDistribution(
        kind="histogram",
        mean_tokens=after.mean_tokens + cut,
        max_tokens=top,
        histogram=tuple((tokens + cut, weight) for tokens, weight in after.histogram),
    )
    total = sum(weight for _, weight in short.histogram)
    parts = [(tokens, ended * weight / total) for tokens, weight in short.histogram]
    at_cut = dict(parts).get(cut, 0.0) + 1.0 - ended
    parts = [pair for pair in parts if pair[0] < cut] + [(cut, at_cut)]
    before = LengthDistribution(
        kind="histogram",
        mean_tokens=sum(tokens * weight for tokens, weight in parts),
        max_tokens=cut,
        histogram=tuple(parts),
    )
    return Split(cut, before, after, short, long)


def lengthened(distribution: LengthDistribution, tokens: int) -> LengthDistribution:
    """The distribution with `tokens` more in every sequence."""
    mean = distribution.mean_tokens + tokens
    top = distribution.max_tokens + tokens
    if distribution.kind == "fixed":
        return distribution.model_copy(update={"mean_tokens": mean, "max_tokens": top})
    points = np.asarray(quantile(distribution, (np.arange(_POINTS) + 0.5) / _POINTS))
    return _histogram(points + tokens, np.ones(_POINTS), mean, top)


def _histogram(
    tokens: FloatArray, weights: FloatArray, mean: float, top: int
) -> LengthDistribution:
    """Whole lengths from 1 to `top` whose mean is `mean` as nearly as whole tokens allow."""
    scaled = tokens * (mean / np.average(tokens, weights=weights))
    whole = np.clip(np.rint(scaled), 1, top).astype(int)
    mass: dict[int, float] = {}
    for length, weight in zip(whole.tolist(), weights.tolist(), strict=True):
        if weight > 0.0:
            mass[length] = mass.get(length, 0.0) + weight
    found = sum(length * weight for length, weight in mass.items()) / sum(mass.values())
    return LengthDistribution(
        kind="histogram",
        mean_tokens=max(1.0, found),
        max_tokens=top,
        histogram=tuple(sorted(mass.items())),
    )
