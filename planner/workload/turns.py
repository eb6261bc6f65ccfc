"""Trajectories of several turns: what is prefilled again, and how long answers keep them waiting.

A trajectory alternates between the policy, which writes `response_length` tokens in all, and an
environment, whose answers add `observation_tokens` each. Before turn k the context is

    c_k = prompt + k x (response / turns) + (k - 1) x observation;

the engine prefills the answer and the share of c_k that its prefix cache has lost: in all linear in
the turns with a perfect cache and quadratic without one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from planner.schema import EnvironmentSpec, LengthDistribution, Workload
from planner.schema.workload import CallLengths
from planner.workload.lengths import limited_moment

_EULER = 0.5772156649015329


@dataclass(frozen=True)
class TurnPrefill:
    """Prefill of one mean trajectory after its first turn."""

    new_tokens: float
    """Tokens of the environment's answers."""
    repeated_tokens: float
    """Tokens that the prefix cache had lost."""
    new_pairs: float
    """Query-key pairs of the answers' tokens with all tokens before them."""
    repeated_pairs: float
    """Those of the lost tokens."""
    longest_tokens: float
    """Context at the last turn."""

    @property
    def tokens(self) -> float:
        """All tokens prefilled."""
        return self.new_tokens + self.repeated_tokens


def answers(workload: Workload) -> float:
    """Answers of the environment in one trajectory, on average: one between two turns."""
    return workload.turns.mean - 1.0


def later_prefill(workload: Workload) -> TurnPrefill:
    """What the turns after the first prefill, for one trajectory of mean lengths."""
    turns = workload.turns
    count = answers(workload)
    if count <= 0.0:
        return TurnPrefill(0.0, 0.0, 0.0, 0.0, 0.0)
    k = np.arange(1.0, math.ceil(count) + 1.0)
    # Half an answer on average is an answer in half of the trajectories.
    weight = np.clip(count - k + 1.0, 0.0, 1.0)
    prompt, response = _mean(workload.prompt_length), _mean(workload.response_length)
    context = prompt + k * response / turns.mean + (k - 1.0) * turns.observation_tokens
    lost = (1.0 - turns.prefix_cache_hit) * context
    new = np.full_like(context, turns.observation_tokens)
    # The lost tokens are the last ones of the context: caches are lost from the end.
    return TurnPrefill(
        new_tokens=float((weight * new).sum()),
        repeated_tokens=float((weight * lost).sum()),
        new_pairs=float((weight * new * (context + new / 2.0)).sum()),
        repeated_pairs=float((weight * lost * (context - lost / 2.0)).sum()),
        longest_tokens=float(context[-1] + new[-1]),
    )


def waiting_s_per_token(workload: Workload) -> float:
    """Seconds that a trajectory waits for answers, for each token that its policy writes."""
    waiting = answers(workload) * workload.turns.environment.latency_s
    return waiting / _mean(workload.response_length)


def waiting_tail_s(workload: Workload, trajectories: float) -> float:
    """Extra wait of the slowest of `trajectories`, seconds: 0 when every answer takes the mean.

    The larger of two estimates of the largest sum of a trajectory's answers: a lognormal with the
    sum's mean and variance (Fenton 1960), and one slowest answer among otherwise mean ones, which
    is the rule for heavy tails. Above the truth where the slowest is not also the longest.
    """
    environment = workload.turns.environment
    count = answers(workload)
    if count <= 0.0 or environment.latency_s <= 0.0 or environment.latency_sigma <= 0.0:
        return 0.0
    shape, latency_s = environment.latency_sigma, environment.latency_s
    sigma = math.sqrt(math.log1p(math.expm1(shape**2) / max(count, 1.0)))
    together = largest_lognormal(count * latency_s, sigma, trajectories) - count * latency_s
    one = largest_lognormal(latency_s, shape, count * trajectories) - latency_s
    return max(together, one)


def largest_lognormal(mean: float, sigma: float, draws: float) -> float:
    """Expected largest of `draws` lognormals of that mean, about; at least the mean.

    The quantile at which the limit law of maxima has its mean (Gumbel 1958).
    """
    if sigma <= 0.0 or draws <= 1.0:
        return mean
    deviation = NormalDist().inv_cdf(1.0 - math.exp(-_EULER) / draws)
    return mean * max(1.0, math.exp(sigma * deviation - sigma**2 / 2.0))


def answer_pool_s(workload: Workload, trajectories: float) -> float:
    """Seconds that the environment's workers need for all answers of so many trajectories."""
    environment = workload.turns.environment
    return answers(workload) * trajectories * environment.latency_s / environment.workers


def needed_workers(environment: EnvironmentSpec, answers_in_all: float, seconds: float) -> float:
    """Answers that are worked on at the same time when `answers_in_all` fall into `seconds`.

    Little's law: throughput x latency. Fewer workers hold the step up.
    """
    return answers_in_all * environment.latency_s / seconds


def turn_lengths(workload: Workload) -> CallLengths:
    """One turn as a sequence of its own: the context before it, and what the policy then writes.

    For calls that see turns and not trajectories. Every turn of a mean trajectory is as likely.
    """
    turns = workload.turns
    count = max(1, round(turns.mean))
    prompt, response = _mean(workload.prompt_length), _mean(workload.response_length)
    each = max(1.0, response / turns.mean)
    before = prompt + np.arange(count) * (each + turns.observation_tokens)
    most = max(1, math.ceil(workload.response_length.max_tokens / turns.mean))
    ends = sorted({max(1, round(float(tokens))) for tokens in before})
    return CallLengths(
        prompt_length=LengthDistribution(
            kind="histogram",
            mean_tokens=max(1.0, min(float(np.mean(ends)), ends[-1])),
            max_tokens=max(ends[-1], workload.max_sequence_tokens - most),
            histogram=tuple((tokens, 1.0) for tokens in ends),
        ),
        response_length=workload.response_length.model_copy(
            update={"mean_tokens": min(each, most), "max_tokens": most, **_one_turn(workload, most)}
        ),
    )


def _one_turn(workload: Workload, most: int) -> dict[str, object]:
    """Shape of one turn's length: the trajectory's, scaled; a histogram becomes its mean."""
    if workload.response_length.kind != "histogram":
        return {}
    return {"kind": "fixed", "histogram": ()}


def answer_lengths(workload: Workload) -> CallLengths:
    """What a model that plays the environment sees: it writes the answers and reads the turns."""
    turns = workload.turns
    written = max(1.0, answers(workload) * turns.observation_tokens)
    read = _mean(workload.response_length) / turns.mean
    return CallLengths(
        prompt_length=workload.prompt_length,
        response_length=LengthDistribution(
            kind="fixed", mean_tokens=written, max_tokens=math.ceil(written)
        ),
        samples_per_prompt=1,
        turns=turns.model_copy(
            update={
                "mean": max(1.0, answers(workload)),
                "observation_tokens": read,
                "environment": EnvironmentSpec(),
            }
        ),
    )


def _mean(lengths: LengthDistribution) -> float:
    return float(limited_moment(lengths, lengths.max_tokens, 1))
