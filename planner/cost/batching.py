"""Microbatches: how many, and how many tokens and sequences one of them holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np

from planner.cost.arrays import FloatArray, IntArray, StrategyArrays
from planner.cost.context import CallContext
from planner.cost.lengths import LengthMoments, sequence_moments
from planner.schema import Call

_FLOAT_SLACK = 1e-9  # keeps a product that should be a whole number from rounding below it


@dataclass(frozen=True)
class Batch:
    """Microbatches of one call under u strategies; arrays of shape [u].

    Sequences and tokens are averages over the microbatches of one data-parallel rank, so their
    product with the number of microbatches is the rank's whole batch.
    """

    steps: int
    """Optimizer steps of the call, all epochs together (1 for a forward call)."""
    microbatches: IntArray
    """Microbatches per optimizer step and data-parallel rank."""
    sequences: FloatArray
    """Sequences in one microbatch."""
    tokens: FloatArray
    """Tokens of one microbatch on one context-parallel rank, padding included."""
    peak_tokens: FloatArray
    """The most tokens that a microbatch may hold on one context-parallel rank."""
    attention_tokens: FloatArray
    """Length at which attention is priced: E[s^2] / E[s] when packed, the maximum when padded."""
    attention_sequences: FloatArray
    """Sequences of that length with the same sum of squared lengths as the microbatch."""
    imbalance: FloatArray
    """Excess of the fullest data-parallel rank over the mean when sequences are dealt at random."""

    def take(self, index: IntArray) -> Batch:
        """The rows that an index array selects."""
        rows = {
            item.name: getattr(self, item.name)[index]
            for item in fields(self)
            if item.name != "steps"
        }
        return replace(self, **rows)


def is_scalar_head(call: Call) -> bool:
    """True when the model ends in a scalar head (critic, reward model)."""
    return call.role in ("critic", "reward") or call.output in ("values", "rewards")


def response_share(context: CallContext) -> float:
    """Share of tokens that belong to responses: only these need logits."""
    workload = context.workload
    return workload.response_length.mean_tokens / workload.mean_sequence_tokens


def form_batch(context: CallContext, s: StrategyArrays) -> Batch:
    """Microbatches of a train or forward call.

    With packing, floor(efficiency x budget / mean length) sequences share the token budget
    `micro_batch_sequences` x maximum length (constant `packing_efficiency`; equal lengths pack
    without loss). Without, `micro_batch_sequences` sequences are padded to the maximum, or keep
    their own lengths (`context.unpadded`).
    """
    call, workload = context.call, context.workload
    steps_per_epoch = max(call.optimizer_steps, 1)
    moments = sequence_moments(workload)
    maximum = workload.max_sequence_tokens
    rank_sequences = np.ceil(call.sequences / (steps_per_epoch * s.dp) - _FLOAT_SLACK)
    # Clean and noisy copies of a sequence share a microbatch; each is as long as the sequence.
    views = workload.training_views

    packed = np.floor(
        s.micro_batch_sequences
        * (maximum / moments.mean * _packing_efficiency(context, moments) + _FLOAT_SLACK)
    )
    most = np.where(s.packing, np.maximum(packed, 1.0), s.micro_batch_sequences)
    most = np.minimum(most, rank_sequences)
    microbatches = np.ceil(rank_sequences / most - _FLOAT_SLACK)
    sequences = rank_sequences / microbatches

    budget = np.minimum(s.micro_batch_sequences, rank_sequences) * maximum
    own_lengths = s.packing
    if context.unpadded:
        own_lengths = np.ones_like(s.packing)
        fullest = _fullest(moments, most, microbatches * steps_per_epoch * s.dp)
        budget = np.where(s.packing, budget, np.minimum(budget, fullest))
    square = np.where(own_lengths, moments.mean_square, float(maximum) ** 2)
    mean = np.where(own_lengths, moments.mean, float(maximum))
    length = square / mean
    return Batch(
        steps=steps_per_epoch * call.epochs,
        microbatches=microbatches.astype(np.int64),
        sequences=sequences,
        tokens=views * sequences * mean / s.cp,
        peak_tokens=views * budget / s.cp,
        attention_tokens=length,
        attention_sequences=views * sequences * square / length**2,
        imbalance=np.where(own_lengths, _imbalance(moments, rank_sequences, s.dp), 0.0),
    )


def _packing_efficiency(context: CallContext, moments: LengthMoments) -> float:
    if moments.mean_square <= moments.mean**2 * (1.0 + _FLOAT_SLACK):
        return 1.0
    return context.framework.value("packing_efficiency")


def _fullest(moments: LengthMoments, sequences: FloatArray, count: FloatArray) -> FloatArray:
    """Tokens of the fullest of `count` microbatches of so many independent lengths: the sums are
    nearly normal, and the largest of n normals lies about sqrt(2 ln n) deviations up."""
    deviation = math.sqrt(max(moments.mean_square - moments.mean**2, 0.0))
    above = np.sqrt(2.0 * np.log(np.maximum(count, 1.0)) * sequences)
    return np.asarray(sequences * moments.mean + deviation * above)


def _imbalance(moments: LengthMoments, rank_sequences: FloatArray, dp: IntArray) -> FloatArray:
    """(E[max over ranks] - mean) / mean of the sum of `rank_sequences` independent lengths.

    The sum is nearly normal, and the largest of n normals lies about sqrt(2 ln n) deviations up.
    """
    variance = max(moments.mean_square - moments.mean**2, 0.0)
    deviation = math.sqrt(variance) / moments.mean / np.sqrt(rank_sequences)
    return np.asarray(deviation * np.sqrt(2.0 * np.log(np.maximum(dp, 1))))
