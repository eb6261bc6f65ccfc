"""Parameter counts of a model, split the way that parallel training and serving split them.

All functions are exact integer sums over the weight shapes of a ModelSpec; they hold for one
model, so nothing here depends on a strategy. Checked against published counts in
tests/cost/test_parameters.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from planner.cost.arrays import BoolArray, FloatArray
from planner.schema import MLASpec, ModelSpec

Head = Literal["lm", "scalar"]


@dataclass(frozen=True)
class LayerParameters:
    """Parameters of one layer, by who holds them."""

    tensor_parallel: int
    """Split over the tensor-parallel group: head projections, feed-forward, shared expert."""
    replicated: int
    """Whole on every tensor-parallel rank: norms, router, latent down-projections, biases that
    follow a reduction."""
    expert: int
    """All routed experts together, split over the expert-parallel groups; 0 in a dense layer."""

    @property
    def total(self) -> int:
        """Parameters of the whole layer."""
        return self.tensor_parallel + self.replicated + self.expert


@dataclass(frozen=True)
class ParameterCounts:
    """Parameters of one model, in elements. Pieces are of one layer unless the name says else."""

    embedding: int
    """Input embedding, vocabulary x hidden size."""
    head: int
    """Output head beside the embedding: 0 when tied, hidden size for a scalar head."""
    final_norm: int
    attention: int
    """Projections with biases, query-key norms and sinks."""
    attention_replicated: int
    """The part of `attention` that every tensor-parallel rank holds whole."""
    norms: int
    """The block's norms of hidden size."""
    dense_ffn: int
    dense_ffn_replicated: int
    """The part of `dense_ffn` that every tensor-parallel rank holds whole (its output bias)."""
    expert: int
    """One routed expert."""
    routed_experts: int
    """All routed experts of one MoE layer."""
    active_experts: int
    """The routed experts that one token visits in one MoE layer."""
    shared_expert: int
    """Shared experts of one MoE layer together, without their gate."""
    router: int
    """Router with its bias, and the shared expert's gate."""
    num_dense_layers: int
    num_moe_layers: int
    mtp: int
    """All multi-token-prediction layers together, without the embedding and head that they share
    with the main model. Not part of `total`: RL training drops them."""

    @property
    def dense_layer(self) -> LayerParameters:
        """One layer with a dense feed-forward."""
        kept = self.attention_replicated + self.norms + self.dense_ffn_replicated
        return LayerParameters(self.attention + self.norms + self.dense_ffn - kept, kept, 0)

    @property
    def moe_layer(self) -> LayerParameters:
        """One layer with routed experts."""
        kept = self.attention_replicated + self.norms + self.router
        sharded = self.attention - self.attention_replicated + self.shared_expert
        return LayerParameters(sharded, kept, self.routed_experts)

    @property
    def layers(self) -> int:
        """All layers together, without embedding, final norm and head."""
        return (
            self.num_dense_layers * self.dense_layer.total
            + self.num_moe_layers * self.moe_layer.total
        )

    @property
    def total(self) -> int:
        """The whole model."""
        return self.embedding + self.layers + self.final_norm + self.head

    @property
    def total_without_embeddings(self) -> int:
        """`total` without the input embedding and the head."""
        return self.layers + self.final_norm

    @property
    def active(self) -> int:
        """Parameters that take part in one token, both embedding matrices counted whole."""
        return self.total - self.num_moe_layers * (self.routed_experts - self.active_experts)

    @property
    def active_without_input_embedding(self) -> int:
        """`active` without the input embedding, of which a token reads one row.

        A tied embedding stays: it is the head as well.
        """
        return self.active - (self.embedding if self.head else 0)

    @property
    def active_without_embeddings(self) -> int:
        """`active` without the input embedding and the head."""
        return self.active - self.embedding - self.head


@dataclass(frozen=True)
class KVCacheBytes:
    """Key-value cache bytes that one token of one sequence adds, over all layers of a kind."""

    full: float
    """Layers that keep every token."""
    windowed: float
    """Layers that keep at most `window_tokens` tokens."""
    window_tokens: int | None
    """Size of the window; None when no layer has one."""


def count_parameters(spec: ModelSpec, head: Head = "lm") -> ParameterCounts:
    """Exact parameter counts of `spec` from its weight shapes.

    `head` is the language-model head, or one row for a critic or reward model ("scalar"; its
    scalar bias, where a framework adds one, is not counted).
    """
    norm = spec.hidden_size * (2 if spec.norm_bias else 1)
    attention, attention_replicated = _latent(spec, spec.mla) if spec.mla else _grouped_query(spec)
    bias = spec.hidden_size if spec.mlp_bias else 0
    moe = spec.moe
    expert = _feed_forward(spec, moe.expert_ffn_size) if moe else 0
    router = 0
    if moe:
        router = moe.num_experts * (spec.hidden_size + (1 if moe.router_bias else 0))
        router += spec.hidden_size if moe.shared_gate else 0
    num_moe = int(moe_layer_mask(spec).sum())
    embedding = spec.vocab_size * spec.hidden_size
    counts = ParameterCounts(
        embedding=embedding,
        head=spec.hidden_size if head == "scalar" else 0 if spec.tie_embeddings else embedding,
        final_norm=norm,
        attention=attention,
        attention_replicated=attention_replicated,
        norms=spec.norms_per_layer * norm,
        dense_ffn=_feed_forward(spec, spec.ffn_size),
        dense_ffn_replicated=bias,
        expert=expert,
        routed_experts=expert * (moe.num_experts if moe else 0),
        active_experts=expert * (moe.top_k if moe else 0),
        shared_expert=_feed_forward(spec, moe.shared_ffn_size)
        if moe and moe.shared_ffn_size
        else 0,
        router=router,
        num_dense_layers=spec.num_layers - num_moe,
        num_moe_layers=num_moe,
        mtp=0,
    )
    return replace(counts, mtp=spec.mtp_layers * _mtp_layer(spec, counts, norm))


def parameters_by_layer(spec: ModelSpec) -> dict[str, FloatArray]:
    """Parameters of each layer as arrays of shape [num_layers]; exact below 2**53.

    Keys are the fields of LayerParameters: tensor_parallel, replicated, expert.
    """
    counts = count_parameters(spec)
    dense, moe, is_moe = counts.dense_layer, counts.moe_layer, moe_layer_mask(spec)
    return {
        part: np.where(is_moe, float(getattr(moe, part)), float(getattr(dense, part)))
        for part in ("tensor_parallel", "replicated", "expert")
    }


def kv_elements_per_layer(spec: ModelSpec) -> int:
    """Cache elements that one token adds in one layer.

    Keys and values of every key-value head; for MLA the latent and the shared rotary key once
    (arXiv:2405.04434, section 2.1).
    """
    if spec.mla:
        return spec.mla.kv_lora_rank + spec.mla.qk_rope_head_dim
    return 2 * spec.num_kv_heads * spec.head_dim


def kv_cache_bytes_per_token(spec: ModelSpec, kv_bytes: float) -> KVCacheBytes:
    """Cache bytes of one token, full and windowed layers apart; `kv_bytes` is per element."""
    windowed = int(window_layer_mask(spec).sum())
    one_layer = kv_elements_per_layer(spec) * kv_bytes
    return KVCacheBytes(
        full=one_layer * (spec.num_layers - windowed),
        windowed=one_layer * windowed,
        window_tokens=spec.window.size_tokens if spec.window else None,
    )


def moe_layer_mask(spec: ModelSpec) -> BoolArray:
    """True for the layers that have routed experts, shape [num_layers]."""
    layer = np.arange(spec.num_layers)
    if spec.moe is None:
        return np.zeros(spec.num_layers, dtype=np.bool_)
    in_turn = (layer + 1) % spec.moe.layer_interval == 0
    return np.asarray((layer >= spec.moe.first_dense_layers) & in_turn)


def dense_layer_mask(spec: ModelSpec) -> BoolArray:
    """True for the layers that have a dense feed-forward, shape [num_layers]."""
    return ~moe_layer_mask(spec)


def window_layer_mask(spec: ModelSpec) -> BoolArray:
    """True for the layers that attend to a sliding window only, shape [num_layers]."""
    if spec.window is None:
        return np.zeros(spec.num_layers, dtype=np.bool_)
    every = spec.window.full_attention_every
    if every == 0:
        return np.ones(spec.num_layers, dtype=np.bool_)
    return np.asarray((np.arange(spec.num_layers) + 1) % every != 0)


def _feed_forward(spec: ModelSpec, width: int) -> int:
    """One feed-forward of inner width `width`: gate (if gated), up and down, with biases."""
    inner = 2 if spec.mlp == "gated" else 1
    weights = (inner + 1) * spec.hidden_size * width
    return weights + (inner * width + spec.hidden_size if spec.mlp_bias else 0)


def _grouped_query(spec: ModelSpec) -> tuple[int, int]:
    """Attention of MHA, GQA or MQA: all parameters, and those whole on every rank."""
    query = spec.num_heads * spec.head_dim
    key_value = 2 * spec.num_kv_heads * spec.head_dim
    sharded = spec.hidden_size * (2 * query + key_value)
    sharded += query + key_value if spec.qkv_bias else 0
    sharded += spec.num_heads if spec.attention_sinks else 0
    replicated = spec.hidden_size if spec.output_bias else 0
    replicated += 2 * spec.head_dim if spec.qk_norm == "head" else 0
    sharded += query + key_value // 2 if spec.qk_norm == "full" else 0
    return sharded + replicated, replicated


def _latent(spec: ModelSpec, mla: MLASpec) -> tuple[int, int]:
    """Attention of MLA (arXiv:2405.04434): all parameters, and those whole on every rank.

    Down-projections with their norms are whole on every rank; up-projections split by head.
    """
    hidden, heads = spec.hidden_size, spec.num_heads
    query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    down = mla.kv_lora_rank + mla.qk_rope_head_dim
    replicated = hidden * down + mla.kv_lora_rank
    sharded = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    sharded += heads * mla.v_head_dim * hidden
    if mla.q_lora_rank is None:
        sharded += hidden * query + (query if spec.qkv_bias else 0)
    else:
        replicated += hidden * mla.q_lora_rank + mla.q_lora_rank
        replicated += mla.q_lora_rank if spec.qkv_bias else 0
        sharded += mla.q_lora_rank * query
    replicated += down if spec.qkv_bias else 0
    replicated += hidden if spec.output_bias else 0
    sharded += heads if spec.attention_sinks else 0
    return sharded + replicated, replicated


def _mtp_layer(spec: ModelSpec, counts: ParameterCounts, norm: int) -> int:
    """One multi-token-prediction layer (DeepSeek-V3, arXiv:2412.19437, section 2.2).

    A block like the model's last, a projection of two hidden states to one, and three norms.
    """
    block = counts.moe_layer if counts.num_moe_layers else counts.dense_layer
    return block.total + 2 * spec.hidden_size**2 + 3 * norm
