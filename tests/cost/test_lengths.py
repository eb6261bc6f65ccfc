"""Moments of sequences: prompt and response are independent."""

from __future__ import annotations

import pytest
from generation_inputs import context, fixed, histogram, lognormal

from planner.cost.lengths import length_moments, sequence_moments


def test_moments_of_each_kind() -> None:
    assert length_moments(fixed(300.0)).mean_square == 300.0**2
    two = length_moments(histogram((100, 1.0), (300, 1.0)))
    assert (two.mean, two.mean_square) == (200.0, (100.0**2 + 300.0**2) / 2)
    clipped = length_moments(lognormal(400.0, 1000))
    assert clipped.mean == pytest.approx(400.0, rel=1e-9)
    assert 400.0**2 < clipped.mean_square < 400.0 * 1000.0


def test_sequence_moments_by_enumeration() -> None:
    prompt, response = histogram((10, 1.0), (30, 1.0)), histogram((100, 3.0), (500, 1.0))
    workload = context(prompt=prompt, response=response).workload
    totals = [
        (p + r, wp * wr) for p, wp in ((10, 0.5), (30, 0.5)) for r, wr in ((100, 0.75), (500, 0.25))
    ]
    moments = sequence_moments(workload)
    assert moments.mean == pytest.approx(sum(t * w for t, w in totals))
    assert moments.mean_square == pytest.approx(sum(t * t * w for t, w in totals))
