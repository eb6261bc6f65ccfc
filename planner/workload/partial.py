"""Partial rollouts: responses that are unfinished when a batch is full go on in the next step.

Published as partial rollout (Kimi k1.5, arXiv:2501.12599), as in-flight updates with a staleness
threshold (verl's fully asynchronous trainer) and as active partial rollouts (APRIL, slime).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from planner.schema import LengthDistribution
from planner.workload.lengths import survival

_MOST_PERIODS = 4096.0
"""Steps that the longest response may span."""
_BISECTIONS = 60


@lru_cache(maxsize=256)
def period_tokens(distribution: LengthDistribution, longest: float, share: float) -> float:
    """Tokens that a running response generates in one step when `share` of a batch is carried over.

    In a steady state as many responses end in a step as start, n, and share x n still run at its
    end. A response of length L is seen by ceil(L / D) steps of D tokens, so n E[ceil(L / D)] =
    n (1 + share) run in a step: D solves sum over k >= 0 of P(L > k D) = 1 + share. Without a share
    D is `longest` (the batch drains); a large one gives a steady flow, D = E[L] / (share + 1/2).
    """
    low, high = longest / _MOST_PERIODS, longest
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        starts = np.arange(math.ceil(longest / middle)) * middle
        seen = float(survival(distribution, starts).sum())
        low, high = (middle, high) if seen > 1.0 + share else (low, middle)
    return high
