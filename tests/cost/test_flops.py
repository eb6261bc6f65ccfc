"""Useful work: hand counts, published formulas, brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_contexts import DEEPSEEK_V3, GPT_OSS_20B, LLAMA_8B, LLAMA_70B, QWEN3_30B, model

from planner.cost.flops import (
    attention_flop,
    causal_pairs,
    forward_flop,
    layer_kind_parameters,
    layer_matrix_parameters,
    train_flop,
    windowed_pairs,
)
from planner.cost.lengths import LengthMoments
from planner.cost.shapes import attention_gemms, ffn_gemms, kv_heads_per_rank


def of_length(tokens: float) -> LengthMoments:
    return LengthMoments(mean=tokens, mean_square=tokens**2)


def whole_forward(spec, tokens: float) -> float:
    return forward_flop(spec, of_length(tokens), tokens, scalar_head=False)


def test_one_dense_layer_by_hand():
    # Llama-8B: q 4096x4096, k and v 4096x1024 each, o 4096x4096, three matrices 4096x14336.
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    feed_forward = 3 * 4096 * 14336
    assert layer_kind_parameters(LLAMA_8B, "dense") == attention + feed_forward


def test_one_moe_layer_counts_visited_experts_and_router():
    attention = 2 * 2048 * 4096 + 2 * 2048 * 512
    experts = 8 * 3 * 2048 * 768
    router = 2048 * 128
    assert layer_kind_parameters(QWEN3_30B, "moe") == attention + experts + router


def test_latent_attention_is_counted_in_its_naive_form():
    # q down 7168x1536 and up 1536x(128x192); kv down 7168x576 and up 512x(128x256); o 16384x7168.
    attention = 7168 * 1536 + 1536 * 24576 + 7168 * 576 + 512 * 32768 + 16384 * 7168
    dense = attention + 3 * 7168 * 18432
    assert layer_kind_parameters(DEEPSEEK_V3, "dense") == dense
    moe = attention + 7168 * 256 + 3 * 7168 * (8 * 2048 + 2048)
    assert layer_matrix_parameters(DEEPSEEK_V3) == 3 * dense + 58 * moe


@pytest.mark.parametrize(
    ("spec", "tokens", "expected"),
    [
        (LLAMA_8B, 8192, 1.406e14),
        (LLAMA_70B, 8192, 1.227e15),
        (
            model(
                hidden_size=3584,
                num_layers=28,
                num_heads=28,
                num_kv_heads=4,
                ffn_size=18944,
                vocab_size=152064,
            ),
            16384,
            2.856e14,
        ),
    ],
    ids=["Llama-8B", "Llama-70B", "Qwen2.5-7B"],
)
def test_forward_work_of_known_models(spec, tokens, expected):
    assert whole_forward(spec, tokens) == pytest.approx(expected, rel=2e-3)


def test_full_recomputation_matches_the_formula_of_narayanan_et_al():
    # arXiv:2104.04473: 96 B s L h^2 (1 + s / 6h + V / 16 L h) with recomputation, every query
    # multiplied by every key.
    layers, hidden, vocabulary, tokens = 96, 12288, 51200, 2048
    gpt3 = model(
        hidden_size=hidden,
        num_layers=layers,
        num_heads=96,
        num_kv_heads=96,
        ffn_size=4 * hidden,
        vocab_size=vocabulary,
        mlp="plain",
    )
    core = attention_flop(gpt3, of_length(tokens)) * 2 * tokens / (tokens + 1)
    matrices = 2 * layer_matrix_parameters(gpt3) * tokens
    head = 2 * hidden * vocabulary * tokens
    published = (
        96
        * tokens
        * layers
        * hidden**2
        * (1 + tokens / (6 * hidden) + vocabulary / (16 * layers * hidden))
    )
    assert 4 * (matrices + core) + 3 * head == pytest.approx(published, rel=1e-9)


@given(st.integers(1, 300), st.integers(1, 300))
def test_pairs_of_equal_lengths_are_exact(tokens, window):
    brute = sum(min(i + 1, window) for i in range(tokens))
    assert windowed_pairs(tokens**2, tokens, window) == pytest.approx(brute)
    assert causal_pairs(tokens**2, tokens) == pytest.approx(tokens * (tokens + 1) / 2)


def test_windowed_layers_stop_growing_with_the_square():
    full = GPT_OSS_20B.model_copy(update={"window": None})
    short, long = of_length(100), of_length(8192)
    assert attention_flop(GPT_OSS_20B, short) == pytest.approx(attention_flop(full, short))
    assert 0.5 < attention_flop(GPT_OSS_20B, long) / attention_flop(full, long) < 0.52


def test_attention_grows_with_the_mean_square_not_the_mean():
    uneven = LengthMoments(mean=1000.0, mean_square=2e6)
    even = of_length(1000.0)
    ratio = attention_flop(LLAMA_8B, uneven) / attention_flop(LLAMA_8B, even)
    assert ratio == pytest.approx((2e6 + 1e3) / (1e6 + 1e3))


def test_training_is_three_forward_passes_and_a_scalar_head_is_nearly_free():
    moments = of_length(2048)
    forward = forward_flop(LLAMA_8B, moments, 2048, scalar_head=False)
    assert train_flop(LLAMA_8B, moments, 2048, scalar_head=False) == 3 * forward
    scalar = forward_flop(LLAMA_8B, moments, 2048, scalar_head=True)
    assert forward - scalar == 2 * 4096 * (128256 - 1) * 2048


def test_tensor_parallel_ranks_share_all_products_until_heads_run_out():
    one = sum(g.parameters for g in attention_gemms(LLAMA_8B, np.array([1.0])))
    eight = sum(g.parameters for g in attention_gemms(LLAMA_8B, np.array([8.0])))
    assert eight * 8 == one
    sixteen = sum(g.parameters for g in attention_gemms(LLAMA_8B, np.array([16.0])))
    assert sixteen * 16 == one + 16 * 4096 * 128  # eight key and eight value heads twice
    assert kv_heads_per_rank(LLAMA_8B, 16) == 1
    up, down = ffn_gemms(LLAMA_8B, 14336, np.array([2.0]))
    assert up.parameters == 2 * down.parameters == 2 * 4096 * 7168
