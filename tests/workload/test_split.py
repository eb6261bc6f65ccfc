"""Lengths cut in two: tokens are conserved, and the longest responses stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.schema import LengthDistribution
from planner.workload.lengths import expected_maximum, limited_moment, quantile
from planner.workload.split import lengthened, split_lengths

CAP = 16384


def mean(distribution: LengthDistribution) -> float:
    return float(limited_moment(distribution, distribution.max_tokens, 1))


@settings(max_examples=40, deadline=None)
@given(st.floats(100, 5000), st.floats(0.3, 1.5), st.sampled_from([0.5, 0.75, 0.9]))
def test_tokens_are_conserved(tokens: float, sigma: float, share: float) -> None:
    whole = LengthDistribution(mean_tokens=tokens, max_tokens=CAP, sigma=sigma)
    parts = split_lengths(whole, share)
    if parts is None:
        return
    assert mean(parts.before) + (1 - share) * mean(parts.after) == pytest.approx(tokens, rel=0.01)
    assert share * mean(parts.short) + (1 - share) * mean(parts.long) == pytest.approx(
        tokens, rel=0.02
    )
    assert mean(parts.long) == pytest.approx(mean(parts.after) + parts.cut_tokens, rel=1e-6)
    for part in parts[1:]:
        assert part.mean_tokens == pytest.approx(mean(part), rel=1e-3)


def test_parts_are_those_of_drawn_lengths() -> None:
    whole = LengthDistribution(mean_tokens=1000.0, max_tokens=CAP, sigma=1.0)
    drawn = np.asarray(quantile(whole, np.random.default_rng(3).random(200_000)))
    parts = split_lengths(whole, 0.75)
    assert parts is not None
    assert parts.cut_tokens == pytest.approx(np.quantile(drawn, 0.75), rel=0.01)
    for part, kept in (
        (parts.short, drawn[drawn <= parts.cut_tokens]),
        (parts.long, drawn[drawn > parts.cut_tokens]),
        (parts.before, np.minimum(drawn, parts.cut_tokens)),
    ):
        assert mean(part) == pytest.approx(kept.mean(), rel=0.01)
    # A quarter of the responses, and all of the tail.
    longest = float(expected_maximum(whole, 8192))
    assert float(expected_maximum(parts.long, 2048)) == pytest.approx(longest, rel=0.02)


def test_equal_lengths_cannot_be_cut() -> None:
    fixed = LengthDistribution(kind="fixed", mean_tokens=500.0, max_tokens=500)
    assert split_lengths(fixed, 0.75) is None
    assert lengthened(fixed, 20).mean_tokens == 520.0
    varied = LengthDistribution(mean_tokens=500.0, max_tokens=2000)
    assert mean(lengthened(varied, 300)) == pytest.approx(800.0, rel=0.01)
