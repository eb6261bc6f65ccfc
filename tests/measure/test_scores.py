"""Error figures on series whose answer is known by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.measure.scores import Score, kendall_tau, summarise, top1_regret


def score(measured: float, predicted: float, group: str = "g", metric: str = "step_time") -> Score:
    return Score(metric, measured, predicted, group)


def test_figures_of_three_cases() -> None:
    one = summarise([score(10, 11), score(10, 8), score(10, 10)], skipped=2)
    assert one.n == 3
    assert one.skipped == 2
    assert one.mape == pytest.approx(0.1)
    assert one.median_ape == pytest.approx(0.1)
    assert one.bias == pytest.approx(-0.1 / 3)


def test_nothing_scored_has_no_figures() -> None:
    assert summarise([], skipped=4).mape is None
    assert summarise([], skipped=4).skipped == 4


def test_tau_counts_pairs() -> None:
    # Of three pairs two agree: (2 - 1) / 3.
    assert kendall_tau(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])) == pytest.approx(1 / 3)
    # tau-b leaves pairs that tie in one series out of that side's norm.
    tied = kendall_tau(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    assert tied == pytest.approx(2 / np.sqrt(2 * 3))
    assert kendall_tau(np.ones(3), np.array([1.0, 2.0, 3.0])) is None


@given(st.lists(st.integers(1, 1000), min_size=3, max_size=12, unique=True))
def test_a_monotone_prediction_ranks_perfectly(values: list[int]) -> None:
    measured = np.array(values, dtype=np.float64)
    assert kendall_tau(measured, measured**2) == pytest.approx(1.0)
    assert kendall_tau(measured, -measured) == pytest.approx(-1.0)
    assert top1_regret(measured, measured * 3.0) == 0.0


def test_regret_is_the_loss_of_the_strategy_ranked_first() -> None:
    assert top1_regret(np.array([10.0, 12.0]), np.array([2.0, 1.0])) == pytest.approx(0.2)


def test_ranks_are_compared_within_groups_of_three() -> None:
    small = [score(1, 2, "a"), score(2, 1, "a")]
    assert summarise(small).kendall_tau is None
    large = [score(t, t, "b") for t in (1.0, 2.0, 3.0)]
    both = summarise(small + large)
    assert both.kendall_tau == 1.0
    assert both.ranked_groups == 1


def test_of_throughput_more_is_better() -> None:
    rates = [score(m, p, metric="throughput") for m, p in ((100, 90), (50, 60), (25, 20))]
    one = summarise(rates)
    assert one.kendall_tau == 1.0
    assert one.top1_regret == 0.0


def test_verdicts_are_right_or_wrong() -> None:
    one = summarise([score(1, 1, metric="fits"), score(0, 1, metric="fits")])
    assert one.mape == 0.5
    assert one.kendall_tau is None
