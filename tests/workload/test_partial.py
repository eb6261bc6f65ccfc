"""Partial rollouts: the steady state against a plain simulation, and its limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.schema import LengthDistribution
from planner.workload.lengths import expected_maximum, quantile
from planner.workload.partial import period_tokens

CAP = 8192


def lengths(mean: float, sigma: float = 1.0) -> LengthDistribution:
    return LengthDistribution(mean_tokens=mean, max_tokens=CAP, sigma=sigma)


def simulated_period(dist: LengthDistribution, batch: int, share: float) -> float:
    """Tokens that a running response gets in a step, token by token, after a warm-up."""
    rng = np.random.default_rng(5)
    left = np.empty(0)
    periods = []
    for step in range(60):
        # The batch and what goes beyond it are in flight; a step ends with the batch-th response.
        fresh = round(batch * (1.0 + share)) - len(left)
        drawn = np.maximum(np.round(quantile(dist, rng.random(fresh))), 1.0)
        left = np.concatenate([left, drawn])
        tokens = np.sort(left)[batch - 1]
        left = left[left > tokens] - tokens
        if step >= 20:
            periods.append(tokens)
    return float(np.mean(periods))


@pytest.mark.parametrize("share", [0.1, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("sigma", [0.6, 1.2])
def test_the_steady_state_is_that_of_a_simulation(share: float, sigma: float) -> None:
    dist = lengths(1000.0, sigma)
    longest = float(expected_maximum(dist, 4096))
    simulated = simulated_period(dist, 4096, share)
    assert period_tokens(dist, longest, share) == pytest.approx(simulated, rel=0.05)


@settings(max_examples=50, deadline=None)
@given(mean=st.floats(50, 4000), sigma=st.floats(0.2, 2.0), share=st.floats(1e-3, 16.0))
def test_a_larger_share_shortens_the_step_down_to_a_steady_flow(
    mean: float, sigma: float, share: float
) -> None:
    dist = lengths(mean, sigma)
    longest = float(expected_maximum(dist, 1024))
    period = period_tokens(dist, longest, share)
    assert 0.0 < period <= longest
    assert period_tokens(dist, longest, 2.0 * share) <= period
    # ceil(x) lies between x and x + 1.
    assert mean / (1.0 + share) * 0.98 <= period
    if share > 1.0:
        assert period <= mean / share * 1.02


def test_equal_lengths_leave_nothing_to_carry_over() -> None:
    dist = LengthDistribution(kind="fixed", mean_tokens=500, max_tokens=500)
    assert period_tokens(dist, 500.0, 0.5) == pytest.approx(500.0)
    assert period_tokens(dist, 500.0, 1.0) == pytest.approx(250.0)
