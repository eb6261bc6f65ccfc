"""Time of the attention core (scores, softmax, values) over packed or padded sequences."""

from __future__ import annotations

import numpy as np

from planner.cost.arrays import FloatArray, StrategyArrays
from planner.cost.batching import Batch
from planner.cost.context import CallContext
from planner.cost.distinct import distinct
from planner.cost.flops import windowed_pairs
from planner.cost.shapes import (
    heads_per_rank,
    kv_heads_per_rank,
    qk_head_dim,
    v_head_dim,
    windowed_share,
)

# FlashAttention's backward does 2.5 times the forward work (arXiv:2307.08691) at 0.8 to 0.9 of
# the forward rate in published kernel benchmarks.
_FLASH_BACKWARD = 2.9
FLASH_BACKWARD_WORK = 2.5
"""Work of the backward core over the forward: four products and the scores once more."""

# Latent attention tables are measured with DeepSeek's head sizes (arXiv:2412.19437).
_TABLE_MLA_HEAD = 192 + 128

# Bytes that masking, softmax and dropout move for each score, backward over forward (counted:
# 15 against 11).
_UNFUSED_BACKWARD_BYTES = 15.0 / 11.0


def attention_core_s(
    context: CallContext, s: StrategyArrays, batch: Batch
) -> tuple[FloatArray, FloatArray]:
    """(forward, backward) seconds of one layer's core for one microbatch, each of shape [u].

    Averaged over full and sliding-window layers. Context parallelism divides the work evenly
    (zig-zag order or head-wise), except for what `cp_slowdown_per_doubling` says of smaller
    kernels and merging in a ring.
    """
    first, inverse = distinct(s.tp, batch.attention_tokens, batch.attention_sequences)
    tp = s.tp[first]
    length = batch.attention_tokens[first]
    sequences = batch.attention_sequences[first]
    compute = _unfused_s if context.framework.value("attention_unfused") else _flash_s
    forward, backward = compute(context, tp.astype(np.float64), length, sequences)
    ring = 1.0 + context.framework.value("cp_slowdown_per_doubling") * np.log2(s.cp / s.ulysses)
    share = ring / s.cp
    return forward[inverse] * share, backward[inverse] * share


def _flash_s(
    context: CallContext, tp: FloatArray, length: FloatArray, sequences: FloatArray
) -> tuple[FloatArray, FloatArray]:
    window = context.model.window
    share = windowed_share(context.model)
    forward = (1.0 - share) * _core_s(context, tp, length, sequences, None)
    if window is not None:
        forward += share * _core_s(context, tp, length, sequences, window.size_tokens)
    return forward, forward * _FLASH_BACKWARD


def _core_s(
    context: CallContext,
    tp: FloatArray,
    length: FloatArray,
    sequences: FloatArray,
    window: int | None,
) -> FloatArray:
    """Measured prefill kernel, at least the work at peak (or at the framework's kernel's rate)."""
    model, device = context.model, context.group.device
    heads = heads_per_rank(model, tp)
    head_size = qk_head_dim(model) + v_head_dim(model)
    if model.mla is not None:
        table = context.kernels.mla_prefill_s(sequences, length, heads)
        table = table * head_size / _TABLE_MLA_HEAD
    else:
        table = context.kernels.prefill_attention_s(
            sequences, length, heads, kv_heads_per_rank(model, tp), model.head_dim, window
        )
    pairs = windowed_pairs(length**2, length, window or np.inf)
    work = 2.0 * heads * head_size * pairs * sequences
    limit = context.framework.value("attention_max_flop_per_s")
    peak = device.peak_flop_per_s["bf16"]
    slowed = table * context.framework.value("attention_slowdown")
    return np.asarray(np.maximum(slowed, work / (min(limit, peak) if limit else peak)))


def _unfused_s(
    context: CallContext, tp: FloatArray, length: FloatArray, sequences: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Plain batched products (no flash kernel), as in 2022 Megatron: dense s x s scores."""
    model, device, framework = context.model, context.group.device, context.framework
    scores = sequences * heads_per_rank(model, tp) * length**2
    head_size = qk_head_dim(model) + v_head_dim(model)
    peak = device.peak_flop_per_s["bf16"] * framework.value("unfused_share_of_peak")
    products = 2.0 * scores * head_size / peak
    per_byte = 1.0 / (device.memory_bandwidth_bytes_per_s * device.memory_efficiency)
    moved = scores * framework.value("unfused_traffic_bytes") * per_byte
    forward = products + moved
    backward = 2.0 * products + moved * _UNFUSED_BACKWARD_BYTES
    return forward, backward
