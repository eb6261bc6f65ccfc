"""ModelSpec: a transformer's architecture, enough to count parameters, FLOPs and bytes."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from planner.schema.base import Name, NonNegativeInt, PositiveFloat, PositiveInt, Schema

MAX_LAYERS = 10_000
"""Layers that a ModelSpec may have: far above any model, and small enough for arrays of them."""


# Far above any model, so that a slip is refused where it is given and products stay within floats.
Width = Annotated[int, Field(gt=0, le=2**26)]
"""Elements of a vector or inner layer."""
Heads = Annotated[int, Field(gt=0, le=2**16)]
Experts = Annotated[int, Field(gt=0, le=2**16)]
Vocabulary = Annotated[int, Field(gt=0, le=2**28)]
PositionTokens = Annotated[int, Field(gt=0, le=2**31)]


class MLASpec(Schema):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434). All sizes in elements."""

    q_lora_rank: Width | None = None
    """Rank of the query down-projection; null when queries are projected directly."""
    kv_lora_rank: Width
    """Rank of the compressed key-value latent."""
    qk_nope_head_dim: Width
    """Size of each head's query/key part without rotary embedding."""
    qk_rope_head_dim: Width
    """Size of the rotary part; the key's is shared by all heads."""
    v_head_dim: Width
    """Size of each value head."""


class MoESpec(Schema):
    """Mixture-of-experts feed-forward layers."""

    num_experts: Experts
    """Routed experts in each MoE layer."""
    top_k: Experts
    """Routed experts that each token visits."""
    expert_ffn_size: Width
    """Inner width of one routed expert, elements."""
    shared_ffn_size: NonNegativeInt = 0
    """Inner width of all shared experts of a layer together, elements; 0 without any."""
    shared_gate: bool = False
    """True when a learned scalar gate multiplies the shared expert (Qwen2-MoE)."""
    first_dense_layers: NonNegativeInt = 0
    """Leading layers that have a dense feed-forward instead."""
    layer_interval: PositiveInt = 1
    """Every how many layers one is MoE (1: all after the first dense ones): layer i, from 0, is
    MoE when i >= first_dense_layers and (i + 1) % layer_interval == 0."""
    expert_groups: Experts = 1
    """Groups that the experts are divided into, in order; 1: routing knows no groups."""
    groups_per_token: Experts = 1
    """Groups that each token's experts may lie in (DeepSeek's node-limited routing)."""
    router_bias: bool = False
    """True when the router has a bias or correction term of num_experts elements."""

    @model_validator(mode="after")
    def _top_k_within_experts(self) -> Self:
        if self.top_k > self.num_experts:
            raise ValueError(f"top_k {self.top_k} exceeds num_experts {self.num_experts}")
        if self.groups_per_token > self.expert_groups:
            raise ValueError(
                f"groups_per_token {self.groups_per_token} exceeds expert_groups "
                f"{self.expert_groups}"
            )
        if self.num_experts % self.expert_groups:
            raise ValueError(
                f"expert_groups {self.expert_groups} do not divide num_experts {self.num_experts}"
            )
        reach = self.groups_per_token * self.num_experts // self.expert_groups
        if self.expert_groups > 1 and reach < self.top_k:
            raise ValueError(
                f"groups_per_token {self.groups_per_token} of {self.expert_groups} groups reach "
                f"{reach} experts, top_k is {self.top_k}"
            )
        return self


class WindowSpec(Schema):
    """Sliding-window attention on part of the layers."""

    size_tokens: PositiveInt
    """Tokens that a windowed layer attends to."""
    full_attention_every: NonNegativeInt
    """Every how many layers one has full attention: 2 = alternate, 6 = 5 local : 1 global,
    0 = no layer has full attention. Layer i, from 0, is full when (i + 1) % every == 0."""


class ModelSpec(Schema):
    """A decoder-only transformer. Sizes are in elements; counts are whole numbers."""

    name: Name
    """The name shown in plans, for example "Qwen/Qwen3-32B"."""
    architecture: Name
    """Hugging Face `model_type`, for example "qwen3_moe"; "custom" when given by hand."""
    hidden_size: Width
    """Width of the residual stream, elements."""
    num_layers: Annotated[int, Field(gt=0, le=MAX_LAYERS)]
    """Transformer blocks, multi-token-prediction layers not counted."""
    num_heads: Heads
    """Query heads."""
    num_kv_heads: Heads
    """Key-value heads (equal to num_heads for MHA and for MLA)."""
    head_dim: Width
    """Size of one query/key head (for MLA: nope + rope parts)."""
    ffn_size: Width
    """Inner width of the dense feed-forward layers, elements."""
    vocab_size: Vocabulary
    """Rows of the embedding matrix."""
    tie_embeddings: bool = False
    """True when the output head shares the input embedding."""
    mlp: Literal["gated", "plain"] = "gated"
    """gated: three matrices (SwiGLU, GeGLU); plain: two (GELU, squared ReLU)."""
    attention: Literal["gqa", "mla"] = "gqa"
    """gqa: key-value heads of their own (MHA and MQA included); mla: a shared latent."""
    qkv_bias: bool = False
    """True when the query, key and value projections have biases."""
    output_bias: bool = False
    """True when the attention output projection has a bias."""
    mlp_bias: bool = False
    """True when the feed-forward (or expert) matrices have biases."""
    qk_norm: Literal["none", "head", "full"] = "none"
    """Norm on queries and keys: per head (Qwen3, Gemma-3) or over the whole projection (OLMo-2)."""
    norms_per_layer: PositiveInt = 2
    """Norm layers of size hidden_size in each block (4 for Gemma-2/3 and GLM-4-0414)."""
    norm_bias: bool = False
    """True when norms have a bias beside their scale (LayerNorm)."""
    attention_sinks: bool = False
    """True when each head has a learned sink logit (gpt-oss)."""
    mla: MLASpec | None = None
    """Sizes of latent attention; null unless attention is "mla"."""
    moe: MoESpec | None = None
    """Mixture-of-experts layers; null for a dense model."""
    window: WindowSpec | None = None
    """Sliding-window attention; null when all layers attend to the whole sequence."""
    mtp_layers: NonNegativeInt = 0
    """Multi-token-prediction layers shipped beside the main model; not part of it in RL."""
    max_position: PositionTokens = 131072
    """Longest sequence that the model supports, tokens."""
    published_total_parameters: PositiveFloat | None = None
    """Parameter count that the publisher states; null when unknown."""
    published_active_parameters: PositiveFloat | None = None
    """Parameters active for each token as the publisher states; null when unknown."""
    source: str | None = None
    """Where the architecture was read; null when unknown."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.num_heads % self.num_kv_heads != 0:
            raise ValueError(
                f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}"
            )
        if (self.attention == "mla") != (self.mla is not None):
            raise ValueError('attention "mla" needs the field `mla`, and only then')
        if self.moe is not None and self.moe.first_dense_layers >= self.num_layers:
            raise ValueError(
                f"moe.first_dense_layers {self.moe.first_dense_layers} leaves no MoE layer "
                f"of num_layers {self.num_layers}"
            )
        return self
