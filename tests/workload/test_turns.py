"""Trajectories of several turns: prefill against a loop, waiting, Little's law."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from algorithm_workloads import workload_for
from hypothesis import given
from hypothesis import strategies as st

from planner.schema import EnvironmentSpec, LengthDistribution, TurnSpec, Workload
from planner.workload.environment import environment_s
from planner.workload.turns import (
    answer_lengths,
    answer_pool_s,
    answers,
    later_prefill,
    needed_workers,
    turn_lengths,
    waiting_s_per_token,
    waiting_tail_s,
)


def dialogue(turns: float, *, each: float = 100.0, hit: float = 1.0, **spec: Any) -> Workload:
    """`turns` turns of `each` tokens after a prompt of 200, answers of 50 tokens."""
    return workload_for(
        "agentic",
        prompt_length=LengthDistribution(kind="fixed", mean_tokens=200.0, max_tokens=200),
        response_length=LengthDistribution(
            kind="fixed", mean_tokens=each * turns, max_tokens=math.ceil(each * turns)
        ),
        turns=TurnSpec(mean=turns, observation_tokens=50.0, prefix_cache_hit=hit, **spec),
    )


@given(st.integers(1, 40), st.floats(0.0, 1.0))
def test_prefill_against_a_loop_over_tokens(turns: int, hit: float) -> None:
    w = dialogue(float(turns), hit=hit)
    tokens = pairs = 0.0
    context = 200.0
    for _ in range(turns - 1):
        context += 100.0
        lost = (1.0 - hit) * context
        tokens += lost + 50.0
        pairs += sum(context - lost + i for i in range(round(lost)))
        pairs += sum(context + i for i in range(50))
        context += 50.0
    later = later_prefill(w)
    assert later.tokens == pytest.approx(tokens)
    assert later.new_pairs + later.repeated_pairs == pytest.approx(pairs, rel=0.01, abs=5000)


def test_prefill_is_linear_with_a_prefix_cache_and_quadratic_without() -> None:
    def tokens(turns: float, hit: float) -> float:
        return later_prefill(dialogue(turns, hit=hit)).tokens

    assert tokens(41.0, 1.0) / tokens(21.0, 1.0) == pytest.approx(2.0)
    assert tokens(201.0, 0.0) / tokens(101.0, 0.0) == pytest.approx(4.0, rel=0.05)


@given(st.floats(1.0, 30.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_better_cache_never_prefills_more(turns: float, a: float, b: float) -> None:
    low, high = sorted((a, b))
    less, more = (later_prefill(dialogue(turns, hit=hit)) for hit in (high, low))
    assert less.tokens <= more.tokens + 1e-9
    assert less.new_tokens == more.new_tokens == pytest.approx(50.0 * (turns - 1.0))


def test_one_turn_is_a_single_answer() -> None:
    w = workload_for("grpo")
    assert (w.context_growth, answers(w), waiting_s_per_token(w)) == (1.0, 0.0, 0.0)
    assert later_prefill(w).tokens == 0.0
    assert w.max_sequence_tokens == 2500
    assert w.mean_sequence_tokens == 600.0


def test_answers_grow_the_context() -> None:
    w = dialogue(5.0)
    assert w.mean_sequence_tokens == pytest.approx(200 + 500 + 4 * 50)
    assert w.max_sequence_tokens == 900


def test_a_turn_and_an_answer_as_sequences_of_their_own() -> None:
    w = dialogue(4.0)
    turn, answer = turn_lengths(w), answer_lengths(w)
    assert [tokens for tokens, _ in turn.prompt_length.histogram] == [200, 350, 500, 650]
    assert turn.response_length.mean_tokens == 100.0
    assert answer.response_length.mean_tokens == 150.0
    assert (answer.turns.mean, answer.turns.observation_tokens) == (3.0, 100.0)


def test_waiting_and_workers_follow_littles_law() -> None:
    w = dialogue(5.0, environment=EnvironmentSpec(latency_s=2.0, workers=16))
    assert waiting_s_per_token(w) == pytest.approx(4 * 2.0 / 500)
    assert answer_pool_s(w, 512) == pytest.approx(4 * 512 * 2.0 / 16)
    slow = EnvironmentSpec(latency_s=20.0)
    assert needed_workers(slow, 2048, 100.0) == 10 * needed_workers(
        EnvironmentSpec(latency_s=2.0), 2048, 100.0
    )
    # With exactly that many workers the pool keeps up to the second.
    exact = EnvironmentSpec(latency_s=2.0, workers=round(needed_workers(slow, 2048, 100.0) / 10))
    assert answer_pool_s(dialogue(5.0, environment=exact), 512) == pytest.approx(100.0, rel=0.02)


def test_the_slowest_trajectory_against_drawing() -> None:
    spec = EnvironmentSpec(latency_s=2.0, latency_sigma=1.0)
    w = dialogue(11.0, environment=spec)
    rng = np.random.default_rng(0)
    waits = rng.lognormal(math.log(2.0) - 0.5, 1.0, size=(400, 512, 10)).sum(axis=2)
    drawn = waits.max(axis=1).mean() - 20.0
    assert waiting_tail_s(w, 512) == pytest.approx(drawn, rel=0.25)
    assert waiting_tail_s(dialogue(11.0, environment=EnvironmentSpec(latency_s=2.0)), 512) == 0.0


def test_slow_scores_at_the_end_are_exposed() -> None:
    """With equal lengths all responses are scored at once: the slowest of them counts."""
    equal = LengthDistribution(kind="fixed", mean_tokens=400.0, max_tokens=400)

    def exposed(sigma: float) -> float:
        spec = EnvironmentSpec(latency_s=2.0, workers=512, latency_sigma=sigma)
        return environment_s(workload_for("grpo", response_length=equal, environment=spec))

    assert exposed(0.0) == 2.0
    assert 2.0 < exposed(0.5) < exposed(1.0)
