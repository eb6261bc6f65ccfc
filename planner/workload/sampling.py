"""How many responses a step generates and trains on: dynamic sampling, selection, token budgets.

Dynamic sampling (DAPO, arXiv:2503.14476) drops prompts whose responses all score alike, so that a
step generates more than it trains on: in rounds of `prompts_per_step` x `oversampling` prompts,
until `prompts_per_step` are kept or `max_rounds` is reached.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from statistics import NormalDist

from planner.errors import InputError
from planner.schema import Workload
from planner.workload.lengths import limited_moment

_NEVER = 1e-12
"""Probability of another round below which no more are counted."""
_EXACT_TRIALS = 5_000
"""Up to here binomial probabilities are summed; beyond, the normal limit is as good."""


def group_acceptance(
    pass_rates: Mapping[float, float], samples: int, *, low: float = 0.0, high: float = 1.0
) -> float:
    """Share of prompts whose group is kept: some but not all of `samples` responses pass.

    `pass_rates` maps pass rates in 0..1 to weights: q = 1 - E[x^n + (1 - x)^n]. With `low` and
    `high`, groups count as kept when their share of passes lies strictly between the two.
    """
    total = math.fsum(pass_rates.values())
    kept = 0.0
    for rate, weight in pass_rates.items():
        inside = math.fsum(
            _binomial(samples, passes, rate)
            for passes in range(samples + 1)
            if low < passes / samples < high
        )
        kept += weight / total * inside
    return kept


def round_prompts(workload: Workload) -> int:
    """Prompts generated in one round."""
    return math.ceil(workload.prompts_per_step * workload.oversampling * (1 - 1e-12))


def expected_rounds(workload: Workload) -> float:
    """Rounds of generation in a step on average: the sum over r of P(too few kept after r)."""
    return _expected_rounds(
        workload.prompts_per_step,
        round_prompts(workload),
        workload.acceptance,
        workload.max_rounds,
    )


@lru_cache(maxsize=256)
def _expected_rounds(wanted: int, per_round: int, acceptance: float, most: int) -> float:
    rounds = 1.0
    for done in range(1, most):
        again = _fewer_than(wanted, done * per_round, acceptance)
        rounds += again
        if again < _NEVER:
            break
    return rounds


def generated_sequences(workload: Workload) -> int:
    """Responses that a step generates in all its rounds, on average, rounded."""
    per_round = round_prompts(workload) * workload.samples_per_prompt
    return max(1, round(per_round * expected_rounds(workload)))


def optimizer_steps(workload: Workload, role: str) -> int:
    """Optimizer steps of a role in one epoch."""
    if role == "critic" and workload.critic_optimizer_steps is not None:
        return workload.critic_optimizer_steps
    return workload.optimizer_steps


def trained_sequences(workload: Workload, role: str) -> int:
    """Responses that a role trains on in one epoch; a multiple of its optimizer steps.

    Raises InputError when the step's whole batch, or the replayed one, does not divide.
    """
    steps = optimizer_steps(workload, role)
    field = "critic_optimizer_steps" if role == "critic" else "optimizer_steps"
    replayed = workload.replay_sequences.get(role)
    whole = workload.sequences_per_step if replayed is None else replayed
    if replayed is None and (workload.kept_fraction < 1.0 or workload.token_budget is not None):
        # What is left after selection is a mean, so the steps share it as it comes.
        return steps * max(1, round(_selected(workload, steps) / steps))
    if whole % steps != 0:
        raise InputError(
            f"{whole} sequences do not divide into {steps} optimizer steps",
            where=field,
            remedy="Give a divisor of prompts x samples."
            if replayed is None
            else f"Give a divisor of replay_sequences.{role}.",
        )
    return whole


def unused_share(workload: Workload) -> float:
    """Share of the generated responses that the actor does not train on."""
    trained = trained_sequences(workload, "actor")
    return max(0.0, 1.0 - trained / generated_sequences(workload))


def trained_token_variation(workload: Workload) -> float:
    """Standard deviation over mean of the tokens of one optimizer step of the actor.

    Independent lengths: that of one response over the square root of their number. With a token
    budget, responses are taken until the budget is reached, so what varies is by how much the last
    one exceeds it: a residual life, with E[R] = E[L^2] / 2 E[L] and E[R^2] = E[L^3] / 3 E[L];
    bounded here through E[L^3] <= cap x E[L^2].
    """
    growth = workload.context_growth
    response, prompt = workload.response_length, workload.prompt_length
    cap = workload.max_sequence_tokens
    mean_r = float(limited_moment(response, response.max_tokens, 1)) * growth
    square_r = float(limited_moment(response, response.max_tokens, 2)) * growth**2
    mean_p = float(limited_moment(prompt, prompt.max_tokens, 1))
    square_p = float(limited_moment(prompt, prompt.max_tokens, 2))
    mean = mean_p + mean_r
    square = square_p + 2.0 * mean_p * mean_r + square_r
    if workload.token_budget is not None:
        residual = square / (2.0 * mean)
        spread = math.sqrt(max(cap * square / (3.0 * mean) - residual**2, 0.0))
        return spread / (workload.token_budget + residual)
    each = trained_sequences(workload, "actor") / optimizer_steps(workload, "actor")
    return math.sqrt(max(square - mean**2, 0.0)) / (mean * math.sqrt(each))


def _selected(workload: Workload, steps: int) -> float:
    available = workload.sequences_per_step * workload.kept_fraction
    if workload.token_budget is None:
        return available
    used = steps * workload.token_budget / workload.mean_sequence_tokens
    if used > available * (1.0 + 1e-9):
        raise InputError(
            f"{steps} optimizer steps of {workload.token_budget:,} tokens need {used:,.0f} "
            f"responses of {workload.mean_sequence_tokens:,.0f} tokens, but a step has "
            f"{available:,.0f}",
            where="token_budget",
            remedy="Lower the budget, or generate more responses.",
        )
    return used


def _fewer_than(wanted: int, trials: int, probability: float) -> float:
    """P(Binomial(trials, probability) < wanted)."""
    if probability >= 1.0:
        return 1.0 if trials < wanted else 0.0
    if trials < wanted:
        return 1.0
    if trials <= _EXACT_TRIALS:
        return min(1.0, math.fsum(_binomial(trials, kept, probability) for kept in range(wanted)))
    deviation = math.sqrt(trials * probability * (1.0 - probability))
    return NormalDist(trials * probability, deviation).cdf(wanted - 0.5)


def _binomial(trials: int, hits: int, probability: float) -> float:
    """P(Binomial(trials, probability) = hits), in logarithms against underflow."""
    if probability <= 0.0 or probability >= 1.0:
        return float(hits == (trials if probability >= 1.0 else 0))
    ways = math.lgamma(trials + 1) - math.lgamma(hits + 1) - math.lgamma(trials - hits + 1)
    log_odds = hits * math.log(probability) + (trials - hits) * math.log1p(-probability)
    return math.exp(ways + log_odds)
