"""The Pareto filter: it agrees with the definition, and never loses the best plan."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.search.pareto import dominated_by, non_dominated, pareto_mask


def by_definition(rows: np.ndarray) -> np.ndarray:
    n = len(rows)
    mask = np.ones(n, dtype=bool)
    for i in range(n):
        for j in range(n):
            if (rows[j] <= rows[i]).all() and ((rows[j] < rows[i]).any() or j < i):
                mask[i] = False
    return mask


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 5), st.integers(2, 6))
@settings(max_examples=150, deadline=None)
def test_front_is_exactly_the_definition(seed: int, n: int, d: int, levels: int) -> None:
    rows = np.random.default_rng(seed).integers(0, levels, size=(n, d)).astype(float)
    np.testing.assert_array_equal(non_dominated(rows), by_definition(rows))


@pytest.mark.parametrize("n", [700, 1500])
def test_front_is_the_definition_beyond_one_block(n: int) -> None:
    rng = np.random.default_rng(n)
    rows = rng.integers(0, 9, size=(n, 4)).astype(float)
    cover = (rows[:, None, :] <= rows[None, :, :]).all(axis=2)
    strict = cover & (rows[:, None, :] < rows[None, :, :]).any(axis=2)
    earlier_twin = np.triu(cover & cover.T, 1).any(axis=0)
    expected = ~strict.any(axis=0) & ~earlier_twin
    np.testing.assert_array_equal(non_dominated(rows), expected)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 60), st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_dominated_by_is_strict_and_within_a_key(seed: int, n: int, m: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 4, size=(n, d)).astype(float)
    others = rng.integers(0, 4, size=(m, d)).astype(float)
    key, other_key = rng.integers(0, 3, size=n), rng.integers(0, 3, size=m)
    expected = [
        any(
            key[i] == other_key[j] and (others[j] <= rows[i]).all() and (others[j] < rows[i]).any()
            for j in range(m)
        )
        for i in range(n)
    ]
    assert dominated_by(rows, key, others, other_key).tolist() == expected


def test_first_of_identical_rows_is_kept() -> None:
    rows = np.array([[2.0, 1.0], [1.0, 2.0], [1.0, 2.0], [2.0, 1.0], [3.0, 3.0]])
    assert non_dominated(rows).tolist() == [True, True, False, False, False]


def test_a_table_without_columns_keeps_one_row() -> None:
    assert non_dominated(np.empty((3, 0))).tolist() == [True, False, False]
    assert non_dominated(np.empty((0, 3))).tolist() == []


def table(seed: int, n: int, calls: int, levels: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "devices": 2 ** rng.integers(0, 3, size=n),
        "time_s": rng.integers(1, levels, size=(n, calls)).astype(float),
        "resident_bytes": rng.integers(0, levels, size=n).astype(float),
        "peak_bytes": rng.integers(1, levels, size=(n, calls)).astype(float),
        "host_bytes": rng.integers(0, 2, size=n).astype(float),
    }


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_best_value_under_any_limits_and_weights_survives(seed: int, n: int, calls: int) -> None:
    columns = table(seed, n, calls, 7)
    mask = pareto_mask(**columns)
    rng = np.random.default_rng(seed + 1)
    peak = columns["peak_bytes"].max(axis=1)
    for _ in range(20):
        weights = rng.random(calls)
        fits = (
            (columns["devices"] == 2 ** rng.integers(0, 3))
            & (columns["resident_bytes"] <= rng.integers(0, 7))
            & (peak <= rng.integers(1, 7))
            & (columns["host_bytes"] <= rng.integers(0, 2))
        )
        if fits.any():
            cost = columns["time_s"] @ weights
            assert (fits & mask).any()
            assert cost[fits & mask].min() == pytest.approx(cost[fits].min())


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_across_sizes_keeps_a_candidate_that_fits_in_every_larger_place(seed: int, n: int) -> None:
    columns = table(seed, n, 2, 5)
    wide = pareto_mask(**columns, across_sizes=True)
    narrow = pareto_mask(**columns)
    assert not (wide & ~narrow).any()
    stack = np.column_stack(
        [
            columns["devices"],
            columns["time_s"],
            columns["resident_bytes"],
            columns["peak_bytes"].max(axis=1),
            columns["host_bytes"],
        ]
    )
    for i in range(n):
        assert (stack[wide] <= stack[i]).all(axis=1).any()


def test_sizes_and_groups_are_kept_apart() -> None:
    kept = pareto_mask(
        [8, 8, 16, 8],
        [[1.0], [2.0], [3.0], [4.0]],
        [1.0, 1.0, 1.0, 1.0],
        [[1.0], [1.0], [1.0], [1.0]],
        [0.0, 0.0, 0.0, 0.0],
        group=[0, 0, 0, 1],
    )
    assert kept.tolist() == [True, False, True, True]


def test_candidates_that_cannot_run_are_dropped() -> None:
    kept = pareto_mask(
        [8, 8, 8],
        [[np.inf, 1.0], [1.0, np.nan], [2.0, 2.0]],
        [0.0, 0.0, 0.0],
        [[1.0, 1.0]] * 3,
        [0.0] * 3,
    )
    assert kept.tolist() == [False, False, True]


def test_one_hundred_thousand_candidates_take_well_under_a_second() -> None:
    rng = np.random.default_rng(0)
    n = 120_000
    devices = 8 * 2 ** rng.integers(0, 8, size=n)
    work = 100 * (1 + rng.random((n, 2))) / devices[:, None]
    # A real trade-off: less memory costs time.
    resident = rng.random(n) * 60
    times = work * (1 + (60 - resident)[:, None] / 100)
    peak = resident[:, None] + 20 * rng.random((n, 2))
    began = time.perf_counter()
    mask = pareto_mask(devices, times, resident, peak, np.zeros(n))
    assert 0 < mask.sum() < n / 10
    assert time.perf_counter() - began < 2.0
