"""Sampled prompts and responses of one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.schema import LengthDistribution, Workload
from planner.workload.lengths import lognormal_mu, support

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Sequences of one step, samples of one prompt side by side; arrays of shape [sequences]."""

    prompt: IntArray
    """Prompt tokens."""
    response: IntArray
    """Response tokens, at least one."""


def sample_lengths(
    distribution: LengthDistribution, count: int, rng: np.random.Generator
) -> IntArray:
    """`count` independent lengths in whole tokens, at least one and at most the cap; [count].

    A lognormal is cut at the cap, as in the analytic model (`workload.lengths`), so that its mean
    after the cut is `mean_tokens`.
    """
    if distribution.kind == "lognormal":
        mu = lognormal_mu(
            float(distribution.mean_tokens), float(distribution.max_tokens), distribution.sigma
        )
        # Clipped before the exponential: mu is infinite when the mean is the cap.
        log = np.minimum(
            mu + distribution.sigma * rng.standard_normal(count), _log_cap(distribution)
        )
        drawn = np.exp(log)
    else:
        tokens, probability = support(distribution)
        drawn = rng.choice(tokens, size=count, p=probability)
    # A fractional length is rounded at random, so that the mean stays what it is.
    whole = np.floor(drawn)
    whole += rng.random(count) < drawn - whole
    return np.clip(whole, 1, distribution.max_tokens).astype(np.int64)


def sample_batch(workload: Workload, sequences: int, rng: np.random.Generator) -> Batch:
    """`sequences` responses; those to one prompt share its length."""
    samples = workload.samples_per_prompt
    prompts = sample_lengths(workload.prompt_length, -(-sequences // samples), rng)
    return Batch(
        prompt=np.repeat(prompts, samples)[:sequences],
        response=sample_lengths(workload.response_length, sequences, rng),
    )


def _log_cap(distribution: LengthDistribution) -> float:
    return float(np.log(distribution.max_tokens))
