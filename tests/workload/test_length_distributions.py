"""Length distributions: the clipped mean is exact, moments, quantiles and maxima agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.schema import LengthDistribution
from planner.workload.lengths import (
    expected_maximum,
    limited_moment,
    lognormal_mu,
    quantile,
    survival,
    top_length,
)

lognormals = st.builds(
    lambda cap, share, sigma: LengthDistribution(
        mean_tokens=max(cap * share, 1.0), max_tokens=cap, sigma=sigma
    ),
    st.integers(1, 10**6),
    st.floats(1e-4, 1.0),
    st.floats(0.05, 5.0),
)
histograms = st.lists(
    st.tuples(st.integers(1, 5000), st.floats(0.01, 10.0)),
    min_size=1,
    max_size=20,
    unique_by=lambda pair: pair[0],
).map(
    lambda pairs: LengthDistribution(
        kind="histogram",
        mean_tokens=1.0,
        max_tokens=max(tokens for tokens, _ in pairs),
        histogram=tuple(sorted(pairs)),
    )
)


@given(lognormals)
def test_mean_after_clipping_is_the_mean_that_was_asked_for(dist: LengthDistribution) -> None:
    assert float(limited_moment(dist, dist.max_tokens, 1)) == pytest.approx(
        dist.mean_tokens, rel=1e-9
    )


def test_clipped_mean_against_sampling() -> None:
    dist = LengthDistribution(mean_tokens=600.0, max_tokens=2048, sigma=1.2)
    mu = lognormal_mu(600.0, 2048.0, 1.2)
    draws = np.minimum(np.exp(np.random.default_rng(0).normal(mu, 1.2, 2_000_000)), 2048.0)
    assert draws.mean() == pytest.approx(600.0, rel=3e-3)
    assert (draws**2).mean() == pytest.approx(float(limited_moment(dist, 2048, 2)), rel=5e-3)
    assert (draws == 2048.0).mean() == pytest.approx(float(survival(dist, 2047.999)), rel=2e-2)


def test_an_uncapped_lognormal_has_the_textbook_mu() -> None:
    assert lognormal_mu(100.0, 1e12, 0.5) == pytest.approx(math.log(100.0) - 0.125, rel=1e-9)


def test_mean_at_the_cap_is_the_cap() -> None:
    dist = LengthDistribution(mean_tokens=512.0, max_tokens=512)
    assert quantile(dist, [0.0, 0.5, 1.0]).tolist() == [512.0, 512.0, 512.0]
    assert survival(dist, [511.0, 512.0]).tolist() == [1.0, 0.0]


@given(st.one_of(lognormals, histograms), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_quantile_and_survival_are_inverse(
    dist: LengthDistribution, p: float, share: float
) -> None:
    length = float(quantile(dist, p))
    assert 0.0 <= length <= top_length(dist) * (1 + 1e-12)
    # P(L <= Q(p)) >= p, up to rounding of the quantile itself.
    assert 1.0 - float(survival(dist, length * (1 + 1e-9))) >= p - 1e-6
    x = share * dist.max_tokens
    assert 0.0 <= float(survival(dist, x)) <= 1.0


@given(st.one_of(lognormals, histograms))
def test_limited_moments_integrate_survival(dist: LengthDistribution) -> None:
    edges = np.linspace(0.0, dist.max_tokens, 33)
    mean_survival = np.diff(limited_moment(dist, edges, 1)) / np.diff(edges)
    assert (mean_survival <= survival(dist, edges[:-1]) + 1e-9).all()
    assert (mean_survival >= survival(dist, edges[1:]) - 1e-9).all()
    second = limited_moment(dist, edges, 2)
    assert (np.diff(second) >= -1e-9 * max(second[-1], 1.0)).all()


@given(st.one_of(lognormals, histograms), st.integers(1, 10**5))
def test_expected_maximum_is_between_mean_and_cap_and_grows(
    dist: LengthDistribution, samples: int
) -> None:
    one, some, more = expected_maximum(dist, [1, samples, 2 * samples])
    mean = float(limited_moment(dist, dist.max_tokens, 1))
    assert one == pytest.approx(mean, rel=0.005)
    assert one <= some * (1 + 1e-9) <= more * (1 + 1e-9) ** 2
    assert more <= top_length(dist) * (1 + 1e-12)


def test_expected_maximum_against_sampling() -> None:
    dist = LengthDistribution(mean_tokens=600.0, max_tokens=8192)
    draws = quantile(dist, np.random.default_rng(1).random((2000, 64)))
    assert float(expected_maximum(dist, 64)) == pytest.approx(draws.max(axis=1).mean(), rel=0.02)


def test_expected_maximum_of_two_points_is_exact() -> None:
    dist = LengthDistribution(
        kind="histogram", mean_tokens=150.0, max_tokens=200, histogram=((100, 1.0), (200, 3.0))
    )
    assert expected_maximum(dist, [1, 2]).tolist() == [175.0, 200.0 - 100.0 / 16.0]


def test_someone_reaches_the_cap_in_a_large_batch() -> None:
    dist = LengthDistribution(mean_tokens=819.2, max_tokens=4096)
    assert float(expected_maximum(dist, 512)) == pytest.approx(4096, rel=1e-3)
