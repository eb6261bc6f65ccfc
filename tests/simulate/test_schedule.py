"""The best order of calls: agrees with brute force, and respects what it is given."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.simulate.schedule import (
    DeviceRange,
    best_schedule,
    mesh_conflicts,
    schedule_on_meshes,
)


def random_case(
    seed: int, n: int, *, zero: bool = True
) -> tuple[dict[str, float], list[tuple[str, str]], list[tuple[str, str]]]:
    rng = np.random.default_rng(seed)
    names = [f"c{i}" for i in range(n)]
    low = 0 if zero else 1
    durations = {name: float(rng.integers(low, 8)) for name in names}
    edges, conflicts = [], []
    for a, b in itertools.combinations(names, 2):
        if rng.random() < 0.3:
            edges.append((a, b))
        if rng.random() < 0.5:
            conflicts.append((a, b))
    return durations, edges, conflicts


def brute_makespan(durations, edges, conflicts) -> float:
    """Every permutation, each call as early as its predecessors and its rivals before it allow."""
    names = list(durations)
    before = set(edges)
    rivals = {frozenset(pair) for pair in conflicts}
    best = math.inf
    for order in itertools.permutations(names):
        position = {name: i for i, name in enumerate(order)}
        if any(position[a] > position[b] for a, b in before):
            continue
        end: dict[str, float] = {}
        for name in order:
            start = max(
                (
                    end[other]
                    for other in end
                    if (other, name) in before or frozenset((other, name)) in rivals
                ),
                default=0.0,
            )
            end[name] = start + durations[name]
        best = min(best, max(end.values()))
    return best


def assert_valid(schedule, durations, edges, conflicts) -> None:
    start = schedule.start_s
    end = {name: start[name] + durations[name] for name in durations}
    for a, b in edges:
        assert start[b] >= end[a] - 1e-6
    for a, b in conflicts:
        assert start[b] >= end[a] - 1e-6 or start[a] >= end[b] - 1e-6
    assert max(end.values()) == pytest.approx(schedule.step_time_s)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_makespan_equals_brute_force(seed: int, n: int) -> None:
    durations, edges, conflicts = random_case(seed, n)
    schedule = best_schedule(durations, edges, conflicts)
    assert schedule is not None
    assert_valid(schedule, durations, edges, conflicts)
    assert schedule.step_time_s == pytest.approx(brute_makespan(durations, edges, conflicts))


def brute_period(durations, edges, conflicts, staleness: int) -> float:
    """Every choice of shifts of the conflicting pairs; smallest feasible P by bisection."""
    names = list(durations)
    index = {name: i for i, name in enumerate(names)}
    d = [durations[name] for name in names]
    n = len(d)

    def feasible(period: float, shifts: tuple[int, ...]) -> bool:
        weight = np.full((n, n), -np.inf)
        for i in range(n):
            for j in range(n):
                # start_j >= start_i + weight: everything within (1 + k) periods of any start.
                weight[i, j] = d[i] - (1 + staleness) * period
        for a, b in edges:
            i, j = index[a], index[b]
            weight[i, j] = max(weight[i, j], d[i])
        for (a, b), shift in zip(conflicts, shifts, strict=True):
            i, j = index[a], index[b]
            weight[i, j] = max(weight[i, j], d[i] - shift * period)
            weight[j, i] = max(weight[j, i], d[j] - (1 - shift) * period)
        for m in range(n):
            weight = np.maximum(weight, weight[:, m, None] + weight[None, m, :])
        return bool((np.diag(weight) <= 1e-9).all())

    best = sum(d)
    floor = max(d)
    for shifts in itertools.product(range(-staleness, staleness + 2), repeat=len(conflicts)):
        if not feasible(best, shifts):
            continue
        low, high = floor, best
        if feasible(floor, shifts):
            best = floor
            continue
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if feasible(middle, shifts) else (middle, high)
        best = high
    return best


@pytest.mark.parametrize("patience", [0, 40])
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 4), staleness=st.integers(1, 2))
@settings(max_examples=30, deadline=None)
def test_period_equals_brute_force(patience: int, seed: int, n: int, staleness: int) -> None:
    durations, edges, conflicts = random_case(seed, n, zero=False)
    conflicts = conflicts[: 4 if staleness == 1 else 2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.simulate.period._PATIENCE", patience)
        schedule = best_schedule(durations, edges, conflicts, staleness=staleness)
    assert schedule is not None
    expected = brute_period(durations, edges, conflicts, staleness)
    assert schedule.step_time_s == pytest.approx(expected, rel=1e-6)
    assert_periodic(schedule, durations, edges, conflicts, staleness)


@given(st.integers(0, 2**32 - 1), st.integers(3, 8))
@settings(max_examples=30, deadline=None)
def test_long_iterations_overlap_as_they_may(seed: int, staleness: int) -> None:
    durations, edges, conflicts = random_case(seed, 8)
    began = time.perf_counter()
    schedule = best_schedule(durations, edges, conflicts, staleness=staleness)
    assert time.perf_counter() - began < 5
    assert schedule is not None
    assert_periodic(schedule, durations, edges, conflicts, staleness)


def assert_periodic(schedule, durations, edges, conflicts, staleness: int) -> None:
    period, start = schedule.step_time_s, schedule.start_s
    for a, b in edges:
        assert start[b] >= start[a] + durations[a] - 1e-6 * period
    for a, b in conflicts:
        for shift in range(-staleness - 1, staleness + 2):
            again = start[b] + shift * period
            assert (
                again >= start[a] + durations[a] - 1e-6 * period
                or again + durations[b] <= start[a] + 1e-6 * period
            )
    last = max(start[name] + durations[name] for name in durations)
    assert last <= (1 + staleness) * period * (1 + 1e-6)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_more_staleness_never_makes_the_period_longer(seed: int) -> None:
    durations, edges, conflicts = random_case(seed, 6)
    values = [
        best_schedule(durations, edges, conflicts, staleness=k).step_time_s for k in (0, 1, 2)
    ]
    assert values[1] <= values[0] * (1 + 1e-9)
    assert values[2] <= values[1] * (1 + 1e-9)


def test_ppo_of_ten_calls_on_shared_devices_is_a_chain() -> None:
    names = [f"c{i}" for i in range(10)]
    durations = {name: 1.0 + i for i, name in enumerate(names)}
    pairs = list(itertools.combinations(names, 2))
    for staleness in (0, 1, 4):
        schedule = best_schedule(durations, [("c0", "c5")], pairs, staleness=staleness)
        assert schedule is not None
        assert schedule.step_time_s == pytest.approx(sum(durations.values()))


def test_generation_beside_training_halves_the_period() -> None:
    durations = {"generate": 10.0, "train": 8.0, "sync": 1.0}
    edges = [("generate", "train"), ("train", "sync")]
    conflicts = [("generate", "sync"), ("train", "sync")]
    assert best_schedule(durations, edges, conflicts).step_time_s == pytest.approx(19.0)
    one_late = best_schedule(durations, edges, conflicts, staleness=1)
    assert one_late.step_time_s == pytest.approx(11.0)


def test_a_host_call_may_outlast_the_period() -> None:
    durations = {"generate": 4.0, "verify": 7.0, "train": 4.0}
    edges = [("generate", "verify"), ("verify", "train")]
    schedule = best_schedule(durations, edges, [], staleness=3, host_calls={"verify"})
    assert schedule.step_time_s == pytest.approx(4.0)
    assert best_schedule(durations, edges, [], staleness=3).step_time_s == pytest.approx(7.0)


def test_nothing_is_returned_at_or_above_the_limit() -> None:
    durations, pairs = {"a": 2.0, "b": 3.0}, [("a", "b")]
    for staleness in (0, 1):
        assert best_schedule(durations, [], pairs, staleness=staleness, at_most_s=5.0) is None
        assert best_schedule(durations, [], pairs, staleness=staleness, at_most_s=5.1) is not None


def test_infinite_durations_have_no_schedule() -> None:
    assert best_schedule({"a": math.inf}, [], []) is None
    with pytest.raises(ValueError, match="finite"):
        schedule_on_meshes({"a": math.inf}, [], {})


def test_cycles_are_refused() -> None:
    with pytest.raises(ValueError, match="cycle"):
        best_schedule({"a": 1.0, "b": 1.0}, [("a", "b"), ("b", "a")], [])


def test_meshes_conflict_where_they_overlap() -> None:
    meshes = {
        "a": [DeviceRange(0, 0, 8)],
        "b": [DeviceRange(0, 8, 8)],
        "c": [DeviceRange(1, 0, 8)],
        "sync": [DeviceRange(0, 4, 4), DeviceRange(1, 4, 8)],
        "host": [],
    }
    assert mesh_conflicts(meshes) == [("a", "sync"), ("c", "sync")]
    durations = {"a": 3.0, "b": 4.0, "c": 5.0, "sync": 1.0, "host": 9.0}
    schedule = schedule_on_meshes(durations, [], meshes)
    assert schedule.step_time_s == pytest.approx(9.0)
    assert_valid(schedule, durations, [], mesh_conflicts(meshes))
