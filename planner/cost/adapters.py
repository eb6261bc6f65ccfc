"""Low-rank adapters (LoRA, arXiv:2106.09685): trainable elements beside frozen weights."""

from __future__ import annotations

import numpy as np

from planner.cost.arrays import FloatArray, StrategyArrays
from planner.cost.pipeline import KINDS, STAGES, Stages
from planner.cost.shapes import up_matrices
from planner.schema import ModelSpec


def adapter_parameters(
    model: ModelSpec, rank: int, s: StrategyArrays, stages: Stages
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Adapter elements on one device of each stage: (dense, of routed experts), arrays [n].

    Every projection of [k, n] has rank x (k + n) elements; all projections of attention and
    feed-forwards carry adapters, embedding, head and router none. Split like their matrices.
    """
    dense_layer = rank * (_attention_sides(model) + _ffn_sides(model, model.ffn_size))
    moe_layer, expert = 0.0, 0.0
    if model.moe is not None:
        shared = model.moe.shared_ffn_size
        moe_layer = rank * (_attention_sides(model) + (_ffn_sides(model, shared) if shared else 0))
        one = rank * _ffn_sides(model, model.moe.expert_ffn_size)
        expert = float(model.moe.num_experts * one)
    layer = {"dense": dense_layer, "moe": moe_layer}
    dense = {
        stage: np.asarray(sum(stages.layers[stage][kind] * layer[kind] for kind in KINDS)) / s.tp
        for stage in STAGES
    }
    experts = {stage: stages.layers[stage]["moe"] * expert / (s.ep * s.etp) for stage in STAGES}
    return dense, experts


def _attention_sides(model: ModelSpec) -> float:
    """Sum of both sides of the attention projections."""
    hidden, query = model.hidden_size, model.num_heads * model.head_dim
    if model.mla is None:
        return float(4 * hidden + 2 * query + 2 * model.num_kv_heads * model.head_dim)
    mla = model.mla
    down = mla.kv_lora_rank + mla.qk_rope_head_dim
    up = model.num_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    sides = hidden + down + mla.kv_lora_rank + up + model.num_heads * mla.v_head_dim + hidden
    if mla.q_lora_rank is None:
        return float(sides + hidden + query)
    return float(sides + hidden + 2 * mla.q_lora_rank + query)


def _ffn_sides(model: ModelSpec, width: int) -> float:
    return float((up_matrices(model) + 1) * (model.hidden_size + width))
