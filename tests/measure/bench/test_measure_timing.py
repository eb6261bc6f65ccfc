"""Medians, spreads, and how often a kernel runs."""

from __future__ import annotations

import time

import pytest

from planner.measure.bench.points import grids, points
from planner.measure.bench.timing import HostClock, summary, timed


class FakeClock:
    """A device on which a run takes `run_s`, every tenth batch ten times as long."""

    shortest_batch_s = 1e-3

    def __init__(self, run_s: float):
        self.run_s, self.batches, self.elapsed_s = run_s, 0, 0.0

    def seconds(self, run: object, runs: int) -> float:
        self.batches += 1
        taken = self.run_s * runs * (10.0 if self.batches % 10 == 0 else 1.0)
        self.elapsed_s += taken
        return taken


@pytest.mark.parametrize("run_s", [1e-7, 1e-5, 1e-3, 0.2])
def test_outliers_do_not_move_the_median(run_s: float) -> None:
    clock = FakeClock(run_s)
    assert timed(lambda: None, clock, budget_s=0.1).median_s == pytest.approx(run_s)


def test_the_budget_bounds_the_time() -> None:
    clock = FakeClock(1e-4)
    result = timed(lambda: None, clock, budget_s=0.02)
    assert 5 <= result.batches <= 20
    assert clock.elapsed_s < 0.1


def test_ranks_that_agree_run_equally_often() -> None:
    fast, slow = FakeClock(1e-4), FakeClock(3e-4)
    for clock in (fast, slow):
        timed(lambda: None, clock, 0.05, agree=lambda seconds: 2e-4)
    assert fast.batches == slow.batches


def test_summary_of_known_figures() -> None:
    result = summary([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (result.median_s, result.batches) == (3.0, 5)
    assert result.spread == pytest.approx(2.0 / 3.0)


def test_processor_time_does_not_count_waiting() -> None:
    waiting = HostClock(time.process_time).seconds(lambda: time.sleep(0.05), 1)
    assert waiting < 0.04 < HostClock().seconds(lambda: time.sleep(0.05), 1)


def test_points_are_distinct_and_only_several_ranks_have_collectives() -> None:
    for kind in ("cpu", "cuda"):
        for quick in (True, False):
            grid = grids(kind, quick=quick)  # type: ignore[arg-type]
            alone = list(points(kind, grid))  # type: ignore[arg-type]
            many = list(points(kind, grid, node_ranks=8, nodes=2))  # type: ignore[arg-type]
            assert len({point.key for point in many}) == len(many)
            assert not any(point.is_collective for point in alone)
            inside = {p.shape[0] for p in many if p.kernel == "all_reduce"}
            assert inside == {2, 4, 8}
            assert {p.shape[0] for p in many if p.kernel == "across_all_gather"} == {2}
