"""Work of forward and backward passes, FLOP (one multiplication and one addition are two).

Counts depend on the model and the lengths alone, never on a strategy: they are the useful work.
Per token and layer (arXiv:2104.04473 for the dense form; grouped heads, experts and latent
attention counted from the matrices):

* each weight matrix [k, n]: 2 k n;
* attention scores and values over c visible tokens: 2 heads (d_qk + d_v) c, and a causal sequence
  of s tokens sees s (s + 1) / 2 pairs;
* backward: twice the forward (input and weight gradients).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import FloatArray
from planner.cost.lengths import LengthMoments
from planner.cost.shapes import (
    attention_parameters,
    dense_ffn_parameters,
    moe_layers,
    moe_shared_parameters,
    qk_head_dim,
    up_matrices,
    v_head_dim,
    windowed_share,
)
from planner.schema import ModelSpec

BACKWARD_OVER_FORWARD = 2.0
"""Input and weight gradient each cost one forward product."""


def causal_pairs(mean_square_tokens: npt.ArrayLike, mean_tokens: npt.ArrayLike) -> FloatArray:
    """Expected query-key pairs of a causal sequence: E[s (s + 1) / 2]; broadcasts."""
    return np.asarray((np.asarray(mean_square_tokens) + np.asarray(mean_tokens)) / 2.0)


def windowed_pairs(
    mean_square_tokens: npt.ArrayLike, mean_tokens: npt.ArrayLike, window_tokens: float
) -> FloatArray:
    """Pairs when a token sees at most `window_tokens`, itself included; broadcasts.

    Exact for equal lengths. For unequal ones the share of pairs that the window keeps is taken at
    the length of the sequence in which an average token lives, E[s^2] / E[s].
    """
    length = np.asarray(mean_square_tokens) / np.asarray(mean_tokens)
    seen = np.minimum(length, window_tokens)
    kept = seen * length - seen * (seen - 1.0) / 2.0
    share = kept / (length * (length + 1.0) / 2.0)
    return np.asarray(causal_pairs(mean_square_tokens, mean_tokens) * share)


def layer_kind_parameters(model: ModelSpec, kind: str) -> float:
    """Matrix parameters that one token meets in a "dense" or a "moe" layer (top-k experts)."""
    attention = float(attention_parameters(model, 1))
    if kind == "dense" or model.moe is None:
        return attention + float(dense_ffn_parameters(model, 1))
    width = model.moe.top_k * model.moe.expert_ffn_size
    routed = (up_matrices(model) + 1) * model.hidden_size * width
    return attention + float(moe_shared_parameters(model, 1)) + routed


def last_product_share(model: ModelSpec, kind: str) -> float:
    """Share of a layer's matrix work that its last product, the down projection, does."""
    width = model.ffn_size
    if kind == "moe" and model.moe is not None:
        width = model.moe.top_k * model.moe.expert_ffn_size
    return model.hidden_size * width / layer_kind_parameters(model, kind)


def layer_matrix_parameters(model: ModelSpec) -> float:
    """Matrix parameters that one token meets in all layers together."""
    expert_layers = moe_layers(model)
    dense = (model.num_layers - expert_layers) * layer_kind_parameters(model, "dense")
    return dense + (expert_layers * layer_kind_parameters(model, "moe") if expert_layers else 0.0)


def attention_flop(model: ModelSpec, moments: LengthMoments) -> float:
    """Forward work of the attention cores of all layers for one sequence."""
    per_pair = 2.0 * model.num_heads * (qk_head_dim(model) + v_head_dim(model))
    share = windowed_share(model)
    pairs = (1.0 - share) * causal_pairs(moments.mean_square, moments.mean)
    if model.window is not None:
        pairs += share * windowed_pairs(moments.mean_square, moments.mean, model.window.size_tokens)
    return float(model.num_layers * per_pair * pairs)


def head_flop_per_token(model: ModelSpec, *, scalar_head: bool) -> float:
    """Forward work of the output head for one token."""
    return 2.0 * model.hidden_size * (1 if scalar_head else model.vocab_size)


def forward_flop(
    model: ModelSpec, moments: LengthMoments, head_tokens: float, *, scalar_head: bool
) -> float:
    """Forward work of one sequence; the head runs on `head_tokens` of its tokens."""
    return (
        2.0 * layer_matrix_parameters(model) * moments.mean
        + attention_flop(model, moments)
        + head_flop_per_token(model, scalar_head=scalar_head) * head_tokens
    )


def train_flop(
    model: ModelSpec, moments: LengthMoments, head_tokens: float, *, scalar_head: bool
) -> float:
    """Forward and backward work of one sequence, without recomputation."""
    return (1.0 + BACKWARD_OVER_FORWARD) * forward_flop(
        model, moments, head_tokens, scalar_head=scalar_head
    )
