"""Training and forward calls: the analytic cost, with the sampled tokens in place of the mean."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import CallCosts, StrategyArrays
from planner.cost.batching import form_batch
from planner.cost.context import CallContext
from planner.cost.lengths import sequence_moments
from planner.schema import Strategy

FloatArray = npt.NDArray[np.float64]

_FIXED = ("dp_comm", "optimizer", "reallocation")
"""Parts that do not depend on the tokens of a batch."""


class BatchCall:
    """One training or forward call of a plan.

    Parts that grow with the tokens are scaled by sampled over expected tokens. The wait for the
    fullest data-parallel rank, an expectation in the analytic model, is that of the sampled
    sequences dealt at random to the ranks.
    """

    def __init__(self, context: CallContext, strategy: Strategy, costs: CallCosts) -> None:
        row = StrategyArrays.from_strategies([strategy])
        batch = form_batch(context, row)
        parts = {name: float(value[0]) for name, value in costs.time_parts_s.items()}
        straggler_s, imbalance_s = parts.pop("straggler", 0.0), parts.pop("imbalance", 0.0)
        self.offload_s = parts.pop("offload", 0.0)
        self.fixed_s = sum(parts.get(name, 0.0) for name in _FIXED)
        self.scaled_s = sum(parts.values()) - self.fixed_s
        before = self.fixed_s + self.scaled_s + imbalance_s
        self.straggler = straggler_s / before if before > 0 else 0.0
        # A budget of tokens is filled whatever the lengths, and padding fills every sequence.
        self.packed = bool(strategy.packing) and context.workload.token_budget is None
        # Imbalance part over (schedule x excess): the share of the wait that is not hidden.
        expected = float(batch.imbalance[0])
        self.wait = (
            imbalance_s / (self.scaled_s * expected) if expected * self.scaled_s > 0 else 0.0
        )
        self.steps = batch.steps // context.call.epochs
        self.ranks = int(strategy.dp)
        self.mean_tokens = sequence_moments(context.workload).mean
        self.bound_s = float(costs.bound_s[0])

    def time_s(self, tokens: FloatArray, rng: np.random.Generator) -> float:
        """Seconds for sequences of the given tokens, [sequences]."""
        ratio, excess = 1.0, 0.0
        if self.packed:
            ratio = float(tokens.mean()) / self.mean_tokens
            excess = self._excess(tokens, rng) if self.wait > 0 else 0.0
        busy_s = self.scaled_s * ratio * (1.0 + self.wait * excess) + self.fixed_s
        return busy_s * (1.0 + self.straggler) + self.offload_s

    def _excess(self, tokens: FloatArray, rng: np.random.Generator) -> float:
        """Tokens of the fullest rank over the mean, less one; the mean of the optimizer steps."""
        parts = self.steps * self.ranks
        rank = np.arange(len(tokens)) * parts // len(tokens)
        sums = np.bincount(rank, weights=rng.permutation(tokens), minlength=parts)
        by_step = sums.reshape(self.steps, self.ranks)
        return float(by_step.max(axis=1).sum() / by_step.mean(axis=1).sum() - 1.0)
