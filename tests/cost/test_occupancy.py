"""Occupancy of a draining batch: exact cases, conservation of tokens, and a plain simulation."""

from __future__ import annotations

import numpy as np
import pytest
from generation_inputs import fixed, histogram, lognormal
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.occupancy import carried_age, carry_over, drain_batch, length_cells
from planner.schema import LengthDistribution
from planner.workload.lengths import quantile


def tau(running, kv_tokens):
    return 5e-3 + 2e-5 * running + 2e-9 * running * kv_tokens


def predicted_s(dist: LengthDistribution, samples: int, replicas: int, slots: int) -> float:
    cells = length_cells(dist, samples)
    sequences = np.array([np.ceil(samples / replicas)])
    occupancy = drain_batch(cells, sequences, np.array([float(slots)]), samples / sequences)
    return float((occupancy.steps * tau(occupancy.running, 100 + occupancy.age)).sum())


def simulated_s(dist: LengthDistribution, samples: int, replicas: int, slots: int) -> float:
    """Mean over batches of the slowest replica's time; responses start in order, as slots free."""
    rng = np.random.default_rng(3)
    slowest = []
    for _ in range(100):
        lengths = np.maximum(np.round(quantile(dist, rng.random(samples))), 1.0)
        slowest.append(max(_replica_s(lengths[r::replicas], slots) for r in range(replicas)))
    return float(np.mean(slowest))


def _replica_s(waiting: np.ndarray, slots: int) -> float:
    left, age, time = waiting[:slots].copy(), np.zeros(min(slots, len(waiting))), 0.0
    waiting = waiting[slots:]
    while len(left):
        steps = left.min()
        time += steps * tau(len(left), 100 + age.mean() + steps / 2)
        left, age = left - steps, age + steps
        left, age = left[left > 0], age[left > 0]
        start = waiting[: slots - len(left)]
        waiting = waiting[len(start) :]
        left, age = np.concatenate([left, start]), np.concatenate([age, np.zeros(len(start))])
    return time


@pytest.mark.parametrize(
    ("dist", "samples", "replicas", "slots"),
    [
        (lognormal(3200.0, 4096), 512, 8, 1024),
        (lognormal(3200.0, 4096), 512, 8, 48),
        (lognormal(3200.0, 4096), 512, 2, 32),
        (lognormal(600.0, 8192), 512, 8, 1024),
        (lognormal(600.0, 8192), 512, 8, 32),
        (lognormal(600.0, 8192), 512, 4, 16),
        (lognormal(2000.0, 16384, 1.2), 512, 2, 32),
        (histogram((200, 3.0), (1000, 1.0)), 256, 4, 24),
    ],
)
def test_agrees_with_a_simulation(dist, samples, replicas, slots) -> None:
    assert predicted_s(dist, samples, replicas, slots) == pytest.approx(
        simulated_s(dist, samples, replicas, slots), rel=0.1
    )


def test_equal_lengths_run_in_whole_waves() -> None:
    """64 responses in 16, 24, 48 or 64 places: 4, 3, 2 waves or one, and no drain to speak of."""
    cells = length_cells(fixed(1000.0), 64)
    slots = np.array([16.0, 24.0, 48.0, 64.0])
    occupancy = drain_batch(cells, np.full(4, 64.0), slots, np.ones(4))
    np.testing.assert_allclose(occupancy.steps.sum(axis=1), [4000, 3000, 2000, 1000], rtol=1e-6)
    np.testing.assert_allclose(occupancy.running[1, -1], 16.0)


def test_a_place_for_every_response_leaves_the_survival_curve() -> None:
    dist = histogram((100, 2.0), (200, 1.0), (400, 1.0))
    cells = length_cells(dist, 64)
    occupancy = drain_batch(cells, np.array([64.0]), np.array([64.0]), np.ones(1))
    assert occupancy.steps[0, 0] == 0.0
    assert occupancy.running[0, [1, 17, 33]].tolist() == [64.0, 32.0, 16.0]


@settings(max_examples=60, deadline=None)
@given(
    mean=st.floats(20.0, 1000.0),
    sigma=st.floats(0.2, 1.5),
    sequences=st.integers(8, 500),
    slots=st.integers(1, 500),
)
def test_tokens_are_conserved(mean, sigma, sequences, slots) -> None:
    """Full and draining steps together generate every token; the last response may add some."""
    cells = length_cells(lognormal(mean, 1000, sigma), sequences)
    occupancy = drain_batch(
        cells, np.array([float(sequences)]), np.array([float(slots)]), np.ones(1)
    )
    tokens = float((occupancy.steps * occupancy.running).sum())
    exact = sequences * cells.mean
    assert tokens >= 0.99 * exact - 0.3 * cells.longest
    assert tokens <= 1.01 * exact + cells.longest


def test_more_replicas_have_a_fuller_fullest_one() -> None:
    cells = length_cells(lognormal(300.0, 1000), 512)
    occupancy = drain_batch(cells, np.full(2, 32.0), np.full(2, 32.0), np.array([1.0, 16.0]))
    assert (occupancy.running[1] >= occupancy.running[0]).all()
    assert occupancy.running[1, 20] > occupancy.running[0, 20]


@settings(max_examples=40, deadline=None)
@given(
    mean=st.floats(20, 3000),
    sigma=st.floats(0.2, 2.0),
    share=st.floats(0.01, 4.0),
    sequences=st.integers(1, 512),
    slots=st.integers(1, 600),
)
def test_partial_rollouts_generate_a_batch_of_tokens(mean, sigma, share, sequences, slots) -> None:
    dist = LengthDistribution(mean_tokens=mean, max_tokens=4096, sigma=sigma)
    cells = length_cells(dist, sequences)
    places = np.minimum(float(slots), (1.0 + share) * sequences)
    occupancy = carry_over(dist, cells, share, np.array([float(sequences)]), np.atleast_1d(places))
    tokens = float((occupancy.steps * occupancy.running).sum())
    # At least one response runs in each step, which only a nearly idle engine does not have.
    assert tokens >= sequences * cells.mean * (1.0 - 1e-6)
    if occupancy.running.min() > 1.0:
        assert tokens == pytest.approx(sequences * cells.mean)
    assert occupancy.running.max() <= max(float(places), 1.0) * (1.0 + 1e-9)
    assert 0.0 <= carried_age(dist, cells, share) <= cells.longest
