"""Verifier time: streamed behind generation, so only what ends last is exposed."""

from __future__ import annotations

import pytest
from test_graphs import workload

from planner.schema import EnvironmentSpec, LengthDistribution
from planner.workload.environment import environment_s

EQUAL = LengthDistribution(kind="fixed", mean_tokens=400.0, max_tokens=400)
TWO = LengthDistribution(
    kind="histogram", mean_tokens=200.0, max_tokens=400, histogram=((100, 3.0), (400, 1.0))
)


def exposed_s(
    response: LengthDistribution, workers: int, generation_s: float | None = None
) -> float:
    w = workload(
        response_length=response, environment=EnvironmentSpec(latency_s=2.0, workers=workers)
    )
    return environment_s(w) if generation_s is None else environment_s(w, generation_s)


def test_equal_responses_are_all_scored_at_the_end() -> None:
    assert exposed_s(EQUAL, workers=64) == 2.0 * 512 / 64


def test_only_those_that_end_last_are_exposed() -> None:
    assert exposed_s(TWO, workers=64) == 2.0 * 128 / 64
    assert exposed_s(TWO, workers=1000) == 2.0


def test_a_single_longest_response_costs_one_latency() -> None:
    spread = LengthDistribution(mean_tokens=200.0, max_tokens=100_000)
    assert exposed_s(spread, workers=64) == 2.0


def test_a_pool_that_cannot_keep_up_has_a_backlog() -> None:
    # 512 responses x 2 s on 4 workers are 256 s of work, of which 100 s pass beside generation.
    assert exposed_s(TWO, workers=4, generation_s=100.0) == pytest.approx(256.0 - 100.0)
    assert exposed_s(TWO, workers=4, generation_s=10_000.0) == 2.0 * 128 / 4


def test_an_instant_verifier_costs_nothing() -> None:
    assert environment_s(workload()) == 0.0
