"""Depth and lower bounds: what no execution of a strategy can beat.

Brent (1974) bounds a schedule of work W and depth D on p processors by max(W / p, D); with memory
traffic Q this becomes max(W / (p peak), Q / (p bandwidth), D x latency). The depth counts the
dependent kernels and collectives along the critical path of the strategy, its serial microbatches
included.
"""

from __future__ import annotations

import numpy as np

from planner.cost.arrays import DTYPES, BoolArray, FloatArray, StrategyArrays
from planner.cost.context import CallContext

# Dependent kernels of one layer's forward pass: norm, query-key-value product, rotary embedding
# with attention, output product, norm, up product, activation, down product.
_DENSE_ROUNDS = 8
# A mixture-of-experts layer routes (2), permutes (1), un-permutes (1) and shares (1) besides.
_MOE_ROUNDS = 13
# Final norm, head product, and three passes of the loss (maximum, sum, result).
HEAD_ROUNDS = 5
BACKWARD_ROUNDS = 2
"""Rounds of a backward pass over those of the forward pass."""


def layer_rounds(kind: str, s: StrategyArrays) -> FloatArray:
    """Dependent kernels and collectives of one layer's forward pass, shape [n]."""
    base = _MOE_ROUNDS if kind == "moe" else _DENSE_ROUNDS
    rounds = np.full(len(s), float(base))
    if kind == "moe":
        rounds += 2.0 * (s.ep > 1) + 1.0 * (s.tp > 1)
    else:
        rounds += 2.0 * (s.tp > 1)
    return np.asarray(rounds + 1.0 * (s.cp > 1))


def peak_flop_per_s(context: CallContext, s: StrategyArrays) -> FloatArray:
    """Peak of one device at the strategy's dtype, shape [n]; bf16's if it lacks the dtype."""
    peaks = context.group.device.peak_flop_per_s
    return np.array([peaks.get(name, peaks["bf16"]) for name in DTYPES])[s.dtype]


def can_run(context: CallContext, s: StrategyArrays) -> BoolArray:
    """True where the device computes in the strategy's dtype, shape [n]."""
    peaks = context.group.device.peak_flop_per_s
    return np.array([name in peaks for name in DTYPES])[s.dtype]


def bound_s(
    context: CallContext,
    s: StrategyArrays,
    useful_flop: FloatArray,
    traffic_bytes: FloatArray,
    depth: FloatArray,
) -> FloatArray:
    """max(useful work / peak, traffic / bandwidth, depth x kernel latency), seconds, shape [n]."""
    device = context.group.device
    work = useful_flop / (s.devices * peak_flop_per_s(context, s))
    moved = traffic_bytes / (s.devices * device.memory_bandwidth_bytes_per_s)
    return np.maximum(np.maximum(work, moved), depth * device.kernel_latency_s)
