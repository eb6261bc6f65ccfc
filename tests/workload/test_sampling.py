"""How much is generated and trained on: rounds, acceptance, kept fraction, token budget."""

from __future__ import annotations

import numpy as np
import pytest
from algorithm_workloads import workload_for
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.schema import LengthDistribution
from planner.workload.sampling import (
    expected_rounds,
    generated_sequences,
    group_acceptance,
    trained_sequences,
    trained_token_variation,
    unused_share,
)

shares = st.floats(0.05, 1.0)


@given(st.floats(0.0, 1.0), st.integers(1, 64))
def test_a_group_is_kept_unless_all_its_samples_agree(rate: float, samples: int) -> None:
    expected = 1.0 - rate**samples - (1.0 - rate) ** samples
    assert group_acceptance({rate: 2.0}, samples) == pytest.approx(expected, abs=1e-9)


def test_acceptance_averages_over_the_pass_rates_and_a_band_keeps_fewer() -> None:
    rates = {0.0: 1.0, 0.5: 1.0, 1.0: 2.0}
    assert group_acceptance(rates, 2) == pytest.approx(0.25 * 0.5)
    assert group_acceptance({0.5: 1.0}, 4, low=0.2, high=0.8) == pytest.approx(14 / 16)
    assert group_acceptance({0.1: 1.0}, 8, low=0.2, high=0.8) < group_acceptance({0.1: 1.0}, 8)


def test_one_round_is_enough_when_everything_is_kept() -> None:
    assert expected_rounds(workload_for("dapo", acceptance=1.0, oversampling=1.0)) == 1.0


@pytest.mark.parametrize(("acceptance", "oversampling"), [(0.5, 1.0), (0.9, 1.0), (0.3, 3.0)])
def test_expected_rounds_against_drawing(acceptance: float, oversampling: float) -> None:
    w = workload_for("dapo", acceptance=acceptance, oversampling=oversampling)
    rng = np.random.default_rng(0)
    per_round = round(64 * oversampling)
    kept = rng.binomial(per_round, acceptance, size=(20_000, w.max_rounds)).cumsum(axis=1)
    rounds = 1 + (kept[:, :-1] < 64).sum(axis=1)
    assert expected_rounds(w) == pytest.approx(rounds.mean(), rel=0.01)


def test_few_rounds_bound_what_is_generated() -> None:
    w = workload_for("dapo", acceptance=0.01, oversampling=1.0, max_rounds=4)
    assert expected_rounds(w) == pytest.approx(4.0)


@given(shares, shares, st.floats(1.0, 4.0), st.integers(1, 10_000))
def test_lower_acceptance_generates_more(q: float, p: float, over: float, prompts: int) -> None:
    low, high = sorted((q, p))
    settings = {"oversampling": over, "prompts_per_step": prompts, "max_rounds": 50}
    more = workload_for("dapo", acceptance=low, **settings)
    less = workload_for("dapo", acceptance=high, **settings)
    assert generated_sequences(more) >= generated_sequences(less)
    assert trained_sequences(more, "actor") == trained_sequences(less, "actor") == 8 * prompts


@given(shares, st.integers(1, 2000))
def test_enough_is_generated_for_a_full_batch(q: float, prompts: int) -> None:
    w = workload_for(
        "dapo", acceptance=q, oversampling=1.0, prompts_per_step=prompts, max_rounds=1000
    )
    # Wald: the kept prompts of a stopped sum are rounds x mean, at least what was asked for.
    assert generated_sequences(w) * q >= w.sequences_per_step * (1 - 1e-9) - 1


@given(st.floats(0.01, 1.0), st.sampled_from([1, 2, 4]))
def test_the_kept_fraction_is_trained_on(kept: float, steps: int) -> None:
    w = workload_for("raft", kept_fraction=kept, optimizer_steps=steps)
    trained = trained_sequences(w, "actor")
    assert trained % steps == 0
    assert abs(trained - 512 * kept) <= steps
    assert unused_share(w) == pytest.approx(1 - trained / 512)


def test_replay_has_its_own_size_and_divides() -> None:
    w = workload_for("archer")
    assert trained_sequences(w, "critic") == 12_800
    assert trained_sequences(w, "actor") == 768
    with pytest.raises(InputError, match=r"100 sequences do not divide into 3.*replay_sequences"):
        trained_sequences(
            workload_for("archer", replay_sequences={"critic": 100}, critic_optimizer_steps=3),
            "critic",
        )


def test_a_token_budget_fixes_tokens_and_not_responses() -> None:
    w = workload_for("c3po")
    assert trained_sequences(w, "actor") == 2 * round(50_000 / 600)
    with pytest.raises(InputError, match=r"token_budget.*need 1,667 responses.*has 512"):
        trained_sequences(workload_for("c3po", token_budget=500_000), "actor")


def test_a_token_budget_removes_the_variation_of_lengths() -> None:
    """C3PO's tokens vary by what the last response exceeds the budget, GRPO's by all lengths."""
    settings = {
        "prompts_per_step": 64,
        "samples_per_prompt": 16,
        "optimizer_steps": 16,
        "prompt_length": LengthDistribution(kind="fixed", mean_tokens=100.0, max_tokens=100),
        "response_length": LengthDistribution(mean_tokens=6300.0, max_tokens=24_000, sigma=0.9),
    }
    grpo = workload_for("grpo", **settings)
    c3po = workload_for("c3po", **{**settings, "token_budget": 409_600, "optimizer_steps": 8})
    assert trained_token_variation(grpo) > 0.10
    assert trained_token_variation(c3po) < trained_token_variation(grpo) / 5
    per_rank = c3po.model_copy(update={"token_budget": 128 * 409_600, "prompts_per_step": 8192})
    assert trained_token_variation(per_rank) < 0.01


def test_variation_against_drawing() -> None:
    w = workload_for("c3po", token_budget=100_000, optimizer_steps=1)
    rng = np.random.default_rng(1)
    from planner.workload.lengths import quantile

    draws = quantile(w.response_length, rng.random((400, 400)))
    draws += quantile(w.prompt_length, rng.random((400, 400)))
    sums = draws.cumsum(axis=1)
    used = sums[np.arange(len(sums)), (sums < 100_000).sum(axis=1)]
    drawn = used.std() / used.mean()
    assert drawn <= trained_token_variation(w) <= 3 * drawn
