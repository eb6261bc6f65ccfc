"""Moments of sequence lengths: what packed attention and token counts need of a distribution."""

from __future__ import annotations

from dataclasses import dataclass

from planner.schema import LengthDistribution, Workload
from planner.workload.lengths import limited_moment


@dataclass(frozen=True)
class LengthMoments:
    """First two moments of a length in tokens."""

    mean: float
    """E[L], tokens."""
    mean_square: float
    """E[L^2], tokens^2: causal attention over packed sequences costs in proportion to it."""


def length_moments(distribution: LengthDistribution) -> LengthMoments:
    """Moments after clipping at the cap; exact for every kind."""
    cap = distribution.max_tokens
    return LengthMoments(
        mean=float(limited_moment(distribution, cap, 1)),
        mean_square=float(limited_moment(distribution, cap, 2)),
    )


def sequence_moments(workload: Workload) -> LengthMoments:
    """Moments of prompt + trajectory, taken as independent.

    Answers of an environment come in proportion to the response.
    """
    prompt = length_moments(workload.prompt_length)
    response = length_moments(workload.response_length)
    growth = workload.context_growth
    mean, mean_square = growth * response.mean, growth**2 * response.mean_square
    return LengthMoments(
        mean=prompt.mean + mean,
        mean_square=prompt.mean_square + 2.0 * prompt.mean * mean + mean_square,
    )
