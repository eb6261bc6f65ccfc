"""Activation bytes: what one token leaves behind in a layer, and how many microbatches wait.

Two-byte elements that a flash-attention layer keeps for its backward pass, per token on one device
(arXiv:2205.05198 gives the form for plain attention and feed-forward; grouped heads, gated
feed-forwards and experts counted the same way):

* inputs of two norms and two residuals: 4 h, divided by tp only under sequence parallelism;
* queries, keys, values and the output projection's input: d (2 a + 2 g) / tp;
* feed-forward: gate, up and their product, 3 f / tp (plain: 2 f / tp);
* routed experts: dispatched copies k h, and k times the expert's feed-forward.

Layers run eagerly from Hugging Face's code keep more when nothing is recomputed: each norm its
input in fp32 and its result before the weight (4 h for the two), a gated feed-forward silu(gate)
beside gate, up and their product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.arrays import DUALPIPE, RECOMPUTE, SCHEDULES, FloatArray, StrategyArrays
from planner.cost.context import CallContext
from planner.cost.pipeline import KINDS, Stages
from planner.cost.shapes import (
    heads_per_rank,
    kv_heads_per_rank,
    moe_layers,
    qk_head_dim,
    up_matrices,
    v_head_dim,
)

ZB_H2 = SCHEDULES.index("zb-h2")
_WORD_BYTES = 2.0
_BLOCK_HIDDEN_WORDS = 4.0
_CHECKPOINT_HIDDEN_WORDS = 1.0
_EAGER_NORM_WORDS = 4.0
"""Hidden vectors that two eager norms keep beyond their inputs: fp32 instead of bf16, and the
normalised vector before its weight."""


@dataclass(frozen=True)
class TokenBytes:
    """Bytes that one token of a device's microbatch keeps; arrays of shape [n]."""

    layer: dict[str, FloatArray]
    """In one layer of each kind when nothing is recomputed."""
    copies: FloatArray
    """The part of an MoE layer that is tokens copied for their experts."""
    checkpoint: FloatArray
    """In one layer when the whole layer is recomputed."""
    eager: dict[str, FloatArray]
    """What eager code keeps besides `layer`. Not part of a layer at work, whose factor was measured
    with it."""


def token_bytes(
    context: CallContext, s: StrategyArrays, attention_tokens: FloatArray
) -> TokenBytes:
    """Activation bytes per token and layer; sequences have `attention_tokens` tokens."""
    model = context.model
    split = np.where(s.sequence_parallel, s.tp, 1)
    heads = heads_per_rank(model, s.tp)
    pair = qk_head_dim(model) + v_head_dim(model)
    words = _BLOCK_HIDDEN_WORDS * model.hidden_size / split + heads * pair
    if model.mla is None:
        words = words + kv_heads_per_rank(model, s.tp) * pair
    else:
        # Keys and values of every head, and the latents that no rank splits.
        latent = (model.mla.q_lora_rank or 0) + model.mla.kv_lora_rank
        words = words + heads * pair + latent + model.mla.qk_rope_head_dim
    attention = words * _WORD_BYTES
    masks = context.framework.value("dropout_mask_bytes")
    if masks:
        attention = attention + masks * model.hidden_size / split
    copies = np.zeros(len(s))
    if context.framework.value("attention_unfused"):
        scores = heads * attention_tokens * context.framework.value("unfused_score_bytes")
        attention = attention + np.where(s.recompute == RECOMPUTE.index("none"), scores, 0.0)
    matrices = up_matrices(model) + 1
    layer = {"dense": attention + matrices * model.ffn_size / s.tp * _WORD_BYTES}
    if model.moe is not None:
        moe = model.moe
        # A rank that holds all experts gets each of its tokens' copies, whatever the routing.
        imbalance = np.where(s.ep > 1, context.framework.value("moe_imbalance"), 1.0)
        routed = moe.top_k * imbalance / s.tp
        copies = routed * s.etp * model.hidden_size * _WORD_BYTES
        copies = copies * context.framework.value("dispatch_copies")
        if context.framework.value("dispatch_gathers_tokens"):
            # Each rank keeps the tokens of all ranks that share the experts.
            copies = copies + s.ep * s.etp / s.tp * model.hidden_size * _WORD_BYTES
        inner = routed * matrices * moe.expert_ffn_size
        inner = inner * context.framework.value("expert_intermediates")
        shared = matrices * moe.shared_ffn_size / s.tp
        layer["moe"] = attention + copies + (inner + shared) * _WORD_BYTES
    eager = context.framework.value("eager_layers")
    norms = eager * _EAGER_NORM_WORDS * model.hidden_size / split
    gates = eager * (up_matrices(model) - 1)
    more = {"dense": (norms + gates * model.ffn_size / s.tp) * _WORD_BYTES}
    if model.moe is not None:
        kept = model.moe.top_k * model.moe.expert_ffn_size + model.moe.shared_ffn_size
        more["moe"] = (norms + gates * kept / s.tp) * _WORD_BYTES
    return TokenBytes(
        layer={kind: np.asarray(value) for kind, value in layer.items()},
        copies=np.asarray(copies),
        eager={kind: np.asarray(value) for kind, value in more.items()},
        checkpoint=_CHECKPOINT_HIDDEN_WORDS * model.hidden_size * _WORD_BYTES / split,
    )


def waiting_microbatches(s: StrategyArrays, microbatches: FloatArray, stage: str) -> FloatArray:
    """Microbatches whose activations a stage holds at its peak, in units of the whole stage.

    1F1B: stage i of p holds p - i. Interleaved in v chunks: 2 (p - i - 1) + (v - 1) p + 1 chunks
    of 1 / v stage each (arXiv:2104.04473, 2205.05198). Zero bubble H1 as 1F1B, H2 twice that less
    one (arXiv:2401.10241); DualPipe p + 1 everywhere (arXiv:2412.19437). Never more than there are.
    """
    behind = {"first": s.pp - 1, "middle": s.pp - 2, "last": np.zeros_like(s.pp)}[stage]
    behind = np.maximum(behind, 0)
    chunks = np.where(s.vpp > 1, 2 * behind + (s.vpp - 1) * s.pp + 1, behind + 1)
    held = chunks / s.vpp
    if s.pipeline_schedule.any():
        h2, dual = s.pipeline_schedule == ZB_H2, s.pipeline_schedule == DUALPIPE
        held = np.select([h2, dual], [2.0 * held - 1.0, s.pp + 1.0], held)
    return np.asarray(np.minimum(held, microbatches))


def stage_layer_bytes(tokens: TokenBytes, stages: Stages, stage: str) -> FloatArray:
    """Bytes of one token in all layers of a stage when nothing is recomputed, shape [n]."""
    held = stages.layers[stage]
    kept = {kind: bytes_ + tokens.eager[kind] for kind, bytes_ in tokens.layer.items()}
    return np.asarray(sum(held[kind] * bytes_ for kind, bytes_ in kept.items()))


def live_layer_bytes(
    context: CallContext, tokens: TokenBytes, stages: Stages, stage: str, factor: float = 1.0
) -> FloatArray:
    """Bytes of one token in the largest layer of a stage while it is at work, shape [n].

    `factor` multiplies what the layer keeps (gradients and temporaries in a backward pass) except
    the copies for experts, whose number `dispatch_copies` is already that of a live layer.
    """
    held = stages.layers[stage]
    live = []
    for kind in KINDS:
        if kind == "moe" and not moe_layers(context.model):
            continue
        copies = tokens.copies if kind == "moe" else 0.0
        bytes_ = (tokens.layer[kind] - copies) * factor + copies
        live.append(np.where(held[kind] > 0, bytes_, 0.0))
    return np.asarray(np.max(np.stack(live), axis=0))
