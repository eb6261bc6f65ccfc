"""Tail batching: short rounds against drawn ones, their shares, and what they save."""

from __future__ import annotations

import numpy as np
import pytest
from algorithm_workloads import workload_for
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import planner
from planner.catalog.workloads import problem_from
from planner.schema import LengthDistribution, Workload
from planner.workload.lengths import quantile
from planner.workload.tail_batching import race_lengths, round_tokens, rounds_of

CAP = 8192


def lengths(mean: float = 1000.0, sigma: float = 1.0) -> LengthDistribution:
    return LengthDistribution(mean_tokens=mean, max_tokens=CAP, sigma=sigma)


@pytest.mark.parametrize(("samples", "launched"), [(1, 1), (1, 3), (8, 8), (8, 10)])
@pytest.mark.parametrize("prompts", [1.1, 1.5])
def test_a_short_round_is_a_drawn_one(samples: int, launched: int, prompts: float) -> None:
    rng = np.random.default_rng(7)
    started = 3000
    drawn = np.asarray(quantile(lengths(), rng.random((started, launched))))
    done = np.sort(drawn, axis=1)[:, samples - 1]
    end = np.sort(done)[round(started / prompts) - 1]
    run = np.minimum(np.minimum(drawn, done[:, None]), end)
    found = race_lengths(lengths(), samples, launched, prompts)
    assert round_tokens(lengths(), samples, launched, prompts) == pytest.approx(end, rel=0.05)
    assert found.histogram[-1][0] == pytest.approx(end, rel=0.05)
    assert found.mean_tokens == pytest.approx(run.mean(), rel=0.03)


def test_without_spare_samples_a_single_one_ends_at_its_quantile() -> None:
    """One sample a prompt: the order statistic of rank 1 / prompts."""
    assert round_tokens(lengths(), 1, 1, 1.25) == pytest.approx(float(quantile(lengths(), 0.8)))


def test_one_in_five_rounds_is_long_when_a_quarter_more_is_started() -> None:
    workload = with_tail(prompts=1.25, samples=1.5)
    short, long = rounds_of(workload)
    assert (short.share, long.share) == pytest.approx((0.8, 0.2))
    # Four short rounds leave four quarters of a batch for the fifth.
    assert short.share * 0.25 == pytest.approx(long.share)
    assert short.sequences == 80 * 12
    assert long.sequences == 64 * 8
    assert long.workload.response_length == workload.response_length


@settings(max_examples=30, deadline=None)
@given(st.floats(1.01, 4.0), st.floats(1.01, 4.0), st.integers(8, 24))
def test_more_started_means_shorter_rounds(a: float, b: float, launched: int) -> None:
    low, high = sorted((a, b))
    ends = [round_tokens(lengths(), 8, launched, each) for each in (low, high)]
    assert ends[1] <= ends[0] * (1 + 1e-9)
    more = round_tokens(lengths(), 8, launched + 4, low)
    assert more <= ends[0] * (1 + 1e-9)


def with_tail(**tail: float) -> Workload:
    workload = workload_for("grpo", max_staleness=0)
    return Workload.model_validate({**workload.model_dump(), "tail_batching": tail})


def test_what_it_excludes_is_refused() -> None:
    for name, value in (("partial_rollout", 0.2), ("acceptance", 0.5), ("oversampling", 2.0)):
        with pytest.raises(ValidationError, match=f"tail_batching excludes {name}"):
            workload_for("grpo", tail_batching={"prompts": 1.25}, **{name: value})


def test_planned_steps_are_shorter_and_stay_on_policy() -> None:
    """Published: 2.03 to 2.56 times a synchronous step on 128 H800 (arXiv:2509.21009).

    Training and the guessed lengths take part of that here; the tail of generation is what goes.
    """
    read = problem_from(preset="rollpacker-14b")
    whole = read.workload.model_copy(update={"tail_batching": None})
    with_tails, plain = (
        planner.plan(workload, read.cluster, space="verl-megatron", top=1)
        for workload in (read.workload, whole)
    )
    fast, slow = with_tails.plans[0], plain.plans[0]
    assert fast.staleness == slow.staleness == 0
    assert slow.step_time_s > 1.5 * fast.step_time_s
    tails = [plan.calls["generate"].time_parts_s["tail"] for plan in (slow, fast)]
    assert tails[0] > 2.0 * tails[1]
    assert any(
        note.startswith("tail batching: 80% of the steps") for note in with_tails.assumptions
    )
