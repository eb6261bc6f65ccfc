"""The matrices of one transformer layer as one device holds them, and parameters per stage.

Tensor parallelism splits the attention heads, the feed-forward width and the vocabulary; key-value
heads are repeated when there are fewer of them than ranks; latent (MLA) down-projections and
routers are whole on every rank. Routed experts are spread over `ep` ranks and each is split by
`etp`. Expressions follow the Megatron papers (arXiv:1909.08053, 2104.04473); MLA in its naive form
from DeepSeek-V2 (arXiv:2405.04434).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import FloatArray
from planner.cost.parameters import moe_layer_mask, window_layer_mask
from planner.schema import ModelSpec

# Megatron-LM rounds the vocabulary up to a multiple of this times the tensor-parallel degree.
_VOCABULARY_ALIGNMENT = 128


@dataclass(frozen=True)
class Gemm:
    """A weight matrix on one device: [k, n], arrays of the shape of the tensor-parallel degrees."""

    n: FloatArray
    k: FloatArray
    local_tokens: bool = False
    """True when, under sequence parallelism, a rank multiplies its own share of the tokens."""

    @property
    def parameters(self) -> FloatArray:
        """Elements of the matrix."""
        return self.n * self.k


def moe_layers(model: ModelSpec) -> int:
    """Layers with routed experts."""
    return int(moe_layer_mask(model).sum())


def windowed_share(model: ModelSpec) -> float:
    """Share of layers with sliding-window attention."""
    return float(window_layer_mask(model).mean())


def qk_head_dim(model: ModelSpec) -> int:
    """Size of one query/key head, elements."""
    if model.mla is None:
        return model.head_dim
    return model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim


def v_head_dim(model: ModelSpec) -> int:
    """Size of one value head, elements."""
    return model.head_dim if model.mla is None else model.mla.v_head_dim


def heads_per_rank(model: ModelSpec, tp: npt.ArrayLike) -> FloatArray:
    """Query heads of one tensor-parallel rank."""
    return model.num_heads / np.asarray(tp, dtype=np.float64)


def kv_heads_per_rank(model: ModelSpec, tp: npt.ArrayLike) -> FloatArray:
    """Key-value heads of one rank; at least one, because a head is not split but repeated."""
    return np.maximum(model.num_kv_heads / np.asarray(tp, dtype=np.float64), 1.0)


def attention_gemms(model: ModelSpec, tp: npt.ArrayLike) -> list[Gemm]:
    """Projections of one attention layer on one tensor-parallel rank."""
    degree = np.asarray(tp, dtype=np.float64)
    one = np.ones_like(degree)
    hidden = model.hidden_size * one
    heads = heads_per_rank(model, degree)
    if model.mla is None:
        kv_heads = kv_heads_per_rank(model, degree)
        return [
            Gemm(n=(heads + 2.0 * kv_heads) * model.head_dim, k=hidden),
            Gemm(n=hidden, k=heads * model.head_dim),
        ]
    mla = model.mla
    qk = qk_head_dim(model)
    gemms = [
        Gemm(n=(mla.kv_lora_rank + mla.qk_rope_head_dim) * one, k=hidden, local_tokens=True),
        Gemm(n=heads * (mla.qk_nope_head_dim + mla.v_head_dim), k=mla.kv_lora_rank * one),
        Gemm(n=hidden, k=heads * mla.v_head_dim),
    ]
    if mla.q_lora_rank is None:
        return [Gemm(n=heads * qk, k=hidden), *gemms]
    return [
        Gemm(n=mla.q_lora_rank * one, k=hidden, local_tokens=True),
        Gemm(n=heads * qk, k=mla.q_lora_rank * one),
        *gemms,
    ]


def ffn_gemms(model: ModelSpec, width: int, tp: npt.ArrayLike) -> list[Gemm]:
    """Up (gate and up together) and down projection of a feed-forward of `width`, in this order."""
    degree = np.asarray(tp, dtype=np.float64)
    hidden = model.hidden_size * np.ones_like(degree)
    inner = width / degree
    return [Gemm(n=up_matrices(model) * inner, k=hidden), Gemm(n=hidden, k=inner)]


def up_matrices(model: ModelSpec) -> int:
    """Matrices before the activation: 2 when gated, else 1."""
    return 2 if model.mlp == "gated" else 1


def attention_parameters(model: ModelSpec, tp: npt.ArrayLike) -> FloatArray:
    """Matrix parameters of one attention layer on one rank."""
    return _sum(gemm.parameters for gemm in attention_gemms(model, tp))


def dense_ffn_parameters(model: ModelSpec, tp: npt.ArrayLike) -> FloatArray:
    """Parameters of one dense feed-forward on one rank."""
    return _sum(gemm.parameters for gemm in ffn_gemms(model, model.ffn_size, tp))


def moe_shared_parameters(model: ModelSpec, tp: npt.ArrayLike) -> FloatArray:
    """Router and shared experts of one MoE layer on one rank (replicated like dense weights)."""
    degree = np.asarray(tp, dtype=np.float64)
    if model.moe is None:
        return np.zeros_like(degree)
    router = model.hidden_size * model.moe.num_experts * np.ones_like(degree)
    if not model.moe.shared_ffn_size:
        return router
    shared = ffn_gemms(model, model.moe.shared_ffn_size, degree)
    return router + _sum(gemm.parameters for gemm in shared)


def expert_parameters(model: ModelSpec, ep: npt.ArrayLike, etp: npt.ArrayLike) -> FloatArray:
    """Routed experts of one MoE layer on one rank."""
    ranks = np.asarray(ep, dtype=np.float64) * np.asarray(etp, dtype=np.float64)
    if model.moe is None:
        return np.zeros_like(ranks)
    one = (up_matrices(model) + 1) * model.hidden_size * model.moe.expert_ffn_size
    return model.moe.num_experts * one / ranks


def vocabulary_per_rank(model: ModelSpec, tp: npt.ArrayLike) -> FloatArray:
    """Rows of the embedding or the head on one rank, padded as Megatron does (128 x tp)."""
    degree = np.asarray(tp, dtype=np.float64)
    block = _VOCABULARY_ALIGNMENT * degree
    padded = np.ceil(model.vocab_size / block) * block
    return np.where(degree > 1, padded, model.vocab_size) / degree


def _sum(terms: Iterable[FloatArray]) -> FloatArray:
    return np.asarray(np.sum(np.stack(list(terms)), axis=0))
