"""Distributions of prompt and response lengths: exact moments, quantiles, expected maxima.

Lengths are continuous (tokens as float); every function is vectorised over its second argument.
A clipped lognormal is `min(X, max_tokens)` with `ln X ~ Normal(mu, sigma)`: the cap holds an atom,
as a response that reaches the token limit is cut there. `mu` is solved so that the mean *after*
clipping is `mean_tokens`, because that is the mean which training logs report.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from planner.schema import LengthDistribution

FloatArray = npt.NDArray[np.float64]

_NORMAL = NormalDist()
_BISECTIONS = 200
"""Halvings of the interval of mu: enough for full double precision from any start."""
_MAXIMUM_GRID = 1024
_GRID_SIGMAS = 9.0
"""Points of the integral for the expected maximum, from so many sigmas below the median; errors
stay below 0.1 % for sigma <= 2."""


@lru_cache(maxsize=1024)
def lognormal_mu(mean_tokens: float, max_tokens: float, sigma: float) -> float:
    """Location mu with E[min(X, max_tokens)] = mean_tokens; +inf when the mean is the cap.

    Closed form of the clipped mean, solved by bisection (it increases in mu).
    """
    if mean_tokens >= max_tokens * (1.0 - 1e-12):
        return math.inf
    # Clipping only lowers the mean, so mu is at least that of the unclipped lognormal.
    low = math.log(mean_tokens) - sigma**2 / 2.0
    high = math.log(max_tokens) + 10.0 * sigma
    while _clipped_moment(1, high, sigma, max_tokens) < mean_tokens:
        high += 10.0 * sigma
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if _clipped_moment(1, middle, sigma, max_tokens) < mean_tokens:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def limited_moment(
    distribution: LengthDistribution, limit_tokens: npt.ArrayLike, order: int
) -> FloatArray:
    """E[min(L, limit)^order] for order 1 or 2; the shape of `limit_tokens`, tokens^order.

    With limit = max_tokens this is the ordinary moment; its derivative in the limit gives the
    survival function, so differences over an interval are exact integrals of survival.
    """
    limit = np.minimum(np.asarray(limit_tokens, dtype=np.float64), distribution.max_tokens)
    limit = np.maximum(limit, 0.0)
    if distribution.kind == "lognormal":
        mu = _mu(distribution)
        if math.isinf(mu):
            return np.asarray(limit**order)
        flat = [_clipped_moment(order, mu, distribution.sigma, x) for x in limit.ravel()]
        return np.asarray(flat, dtype=np.float64).reshape(limit.shape)
    tokens, probability = support(distribution)
    clipped = np.minimum(tokens, limit[..., None]) ** order
    return np.asarray((clipped * probability).sum(axis=-1))


def survival(distribution: LengthDistribution, tokens: npt.ArrayLike) -> FloatArray:
    """P(L > tokens), the shape of `tokens`: the share of samples that generate one more token."""
    x = np.asarray(tokens, dtype=np.float64)
    if distribution.kind == "lognormal":
        mu = _mu(distribution)
        inside = x < distribution.max_tokens
        if math.isinf(mu):
            return inside.astype(np.float64)
        sigma = distribution.sigma
        flat = [_normal_cdf((mu - math.log(v)) / sigma) if v > 0 else 1.0 for v in x.ravel()]
        return np.asarray(np.where(inside, np.asarray(flat).reshape(x.shape), 0.0))
    points, probability = support(distribution)
    above = ((points > x[..., None]) * probability).sum(axis=-1)
    return np.asarray(np.minimum(above, 1.0))


def quantile(distribution: LengthDistribution, probability: npt.ArrayLike) -> FloatArray:
    """Smallest length with P(L <= length) >= probability, tokens; the shape of `probability`."""
    p = np.asarray(probability, dtype=np.float64)
    if distribution.kind == "lognormal":
        mu = _mu(distribution)
        cap = float(distribution.max_tokens)
        if math.isinf(mu):
            return np.full(p.shape, cap)
        log_cap = math.log(cap)
        flat = [_lognormal_quantile(v, mu, distribution.sigma, log_cap) for v in p.ravel()]
        return np.asarray(flat, dtype=np.float64).reshape(p.shape)
    points, weights = support(distribution)
    cumulative = np.cumsum(weights)
    # The last step is one up to rounding; a probability of one must still find the last point.
    index = np.searchsorted(cumulative * (1.0 + 1e-12), p, side="left")
    return np.asarray(points[np.minimum(index, len(points) - 1)])


def expected_maximum(distribution: LengthDistribution, samples: npt.ArrayLike) -> FloatArray:
    """E[longest of `samples` independent lengths], tokens; the shape of `samples` (each >= 1).

    The integral over x of 1 - (1 - P(L > x))^samples; exact for fixed lengths and histograms.
    """
    n = np.maximum(np.asarray(samples, dtype=np.float64), 1.0)[..., None]
    if distribution.kind == "lognormal":
        x = _logarithmic_grid(distribution)
        below = np.minimum(survival(distribution, x), 1.0 - np.finfo(float).eps)
        # The last point is the cap, which is reached with the probability just below it.
        below[-1] = below[-2]
        left = -np.expm1(n * np.log1p(-below))
        middle = (left[..., 1:] + left[..., :-1]) / 2.0
        return np.asarray(x[0] + (middle * np.diff(x)).sum(axis=-1))
    points, weights = support(distribution)
    cumulative = np.minimum(np.cumsum(weights), 1.0)
    cumulative[-1] = 1.0
    reached = cumulative**n
    mass = np.diff(reached, axis=-1, prepend=0.0)
    return np.asarray((mass * points).sum(axis=-1))


def _logarithmic_grid(distribution: LengthDistribution) -> FloatArray:
    """Lengths from one that practically every sample exceeds up to the cap."""
    mu, log_cap = _mu(distribution), math.log(distribution.max_tokens)
    low = min(mu - _GRID_SIGMAS * distribution.sigma, log_cap - 1e-9)
    grid = np.exp(np.linspace(low, log_cap, _MAXIMUM_GRID))
    grid[-1] = distribution.max_tokens
    return np.asarray(grid)


def top_length(distribution: LengthDistribution) -> float:
    """The longest length that occurs, tokens: the cap, or the last point of the support."""
    if distribution.kind == "lognormal":
        return float(distribution.max_tokens)
    return float(support(distribution)[0][-1])


def support(distribution: LengthDistribution) -> tuple[FloatArray, FloatArray]:
    """(lengths, probabilities) of a fixed or histogram distribution, ascending, shape [k]."""
    if distribution.kind == "fixed":
        return np.array([distribution.mean_tokens]), np.array([1.0])
    pairs = np.asarray(distribution.histogram, dtype=np.float64)
    return pairs[:, 0], pairs[:, 1] / pairs[:, 1].sum()


def _mu(distribution: LengthDistribution) -> float:
    return lognormal_mu(
        float(distribution.mean_tokens), float(distribution.max_tokens), distribution.sigma
    )


def _clipped_moment(order: int, mu: float, sigma: float, limit: float) -> float:
    """E[min(X, limit)^order] of a lognormal: the partial moment plus the atom at the limit."""
    if limit <= 0.0:
        return 0.0
    z = (math.log(limit) - mu) / sigma
    body = _normal_cdf(z - order * sigma)
    # In logarithms, because the factor overflows where `body` is tiny.
    exponent = order * mu + (order * sigma) ** 2 / 2.0
    partial = math.exp(exponent + math.log(body)) if body > 0.0 else 0.0
    return float(partial + limit**order * _normal_cdf(-z))


def _normal_cdf(z: float) -> float:
    """P(standard normal <= z), accurate in both tails."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def _lognormal_quantile(p: float, mu: float, sigma: float, log_cap: float) -> float:
    if p <= 0.0:
        return 0.0
    if p >= 1.0:
        return math.exp(log_cap)
    return math.exp(min(mu + sigma * _NORMAL.inv_cdf(p), log_cap))
