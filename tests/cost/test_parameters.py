"""Parameter counts equal the published ones, and follow the shapes they are made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog.models import catalogue, load_model
from planner.cost.parameters import (
    ParameterCounts,
    count_parameters,
    dense_layer_mask,
    kv_cache_bytes_per_token,
    moe_layer_mask,
    parameters_by_layer,
    window_layer_mask,
)
from planner.schema import MLASpec, ModelSpec, MoESpec, WindowSpec

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "cases" / "model_parameters.json").read_text()
)["models"]
TOLERANCE = 0.005
BILLION = 1e9
GIB = 2**30


def total_as_published(spec: ModelSpec, counts: ParameterCounts, convention: str) -> int:
    return {
        "main": counts.total,
        "no_embeddings": counts.total_without_embeddings,
        "mtp_no_embeddings": counts.total_without_embeddings + counts.mtp,
        "mtp_and_shared_copies": counts.total
        + counts.mtp
        + spec.mtp_layers * (counts.embedding + counts.head),
    }[convention]


def active_as_published(counts: ParameterCounts, convention: str) -> int:
    return {
        "all": counts.active,
        "no_input_embedding": counts.active_without_input_embedding,
        "no_embeddings": counts.active_without_embeddings,
    }[convention]


def prints_as(counted: float, figure: str) -> bool:
    """True when `counted`, rounded or cut off at the figure's last digit, is the figure."""
    unit = 10.0 ** -len(figure.partition(".")[2])
    difference = counted - float(figure)
    return abs(difference) <= unit / 2 or 0 <= difference < unit


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["model"])
def test_counts_are_the_published_ones(case: dict[str, Any]) -> None:
    """Totals within 0.5 %. Active counts within 0.5 % or, since most are printed with two
    digits, equal to the printed digits; one figure that no convention gives has its own bound."""
    spec = load_model(case["model"])
    counts = count_parameters(spec)
    total = total_as_published(spec, counts, case.get("total_counts", "main")) / BILLION
    assert total == pytest.approx(float(case["total_b"]), rel=TOLERANCE)
    if "active_b" not in case:
        return
    active = active_as_published(counts, case["active_counts"]) / BILLION
    near = abs(active / float(case["active_b"]) - 1) <= case.get("active_tolerance", TOLERANCE)
    assert near or prints_as(active, case["active_b"])


def test_every_catalogued_model_has_a_published_count_to_meet() -> None:
    assert {entry.id for entry in catalogue()} <= {case["model"] for case in CASES}


def test_a_grouped_query_layer_by_hand() -> None:
    """Llama-3.1-8B: q and o 4096 x 4096, k and v 4096 x 1024, three 4096 x 14336 matrices."""
    counts = count_parameters(load_model("meta-llama/Llama-3.1-8B"))
    assert counts.attention == 2 * 4096 * 4096 + 2 * 4096 * 1024
    assert counts.dense_ffn == 3 * 4096 * 14336
    assert counts.norms == 2 * 4096
    assert counts.embedding == counts.head == 128256 * 4096
    assert counts.total == counts.active == 8_030_261_248


def test_a_latent_attention_layer_by_hand() -> None:
    """DeepSeek-V3 (arXiv:2412.19437): 128 heads, ranks 1536 and 512, head parts 128, 64, 128."""
    counts = count_parameters(load_model("deepseek-ai/DeepSeek-V3"))
    down = 7168 * (1536 + 512 + 64) + 1536 + 512
    up = 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    assert (counts.attention, counts.attention_replicated) == (down + up, down)
    assert counts.expert == counts.shared_expert == 3 * 7168 * 2048
    assert counts.router == 256 * 7168 + 256
    assert (counts.num_dense_layers, counts.num_moe_layers) == (3, 58)
    assert counts.moe_layer.expert == 256 * counts.expert


def test_biases_sinks_and_query_key_norms_by_hand() -> None:
    oss = count_parameters(load_model("openai/gpt-oss-20b"))
    q, kv = 64 * 64, 8 * 64
    assert oss.attention == 2880 * (2 * q + 2 * kv) + q + 2 * kv + 2880 + 64
    assert oss.attention_replicated == 2880
    assert oss.expert == 3 * 2880 * 2880 + 2 * 2880 + 2880
    assert oss.router == 32 * 2880 + 32
    qwen = count_parameters(load_model("Qwen/Qwen3-32B"))
    assert qwen.attention_replicated == 2 * 128
    olmo = count_parameters(load_model("OLMo-2-32B"))
    assert olmo.attention == 5120 * 2 * (5120 + 1024) + 5120 + 1024
    plain = count_parameters(load_model("nvidia/Minitron-4B-Base"))
    assert plain.dense_ffn == 2 * 3072 * 9216
    assert plain.norms == 2 * 2 * 3072
    gated = count_parameters(load_model("Qwen/Qwen1.5-MoE-A2.7B"))
    assert gated.router == 60 * 2048 + 2048


def test_a_scalar_head_is_one_row() -> None:
    for name in ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-4B"):
        spec = load_model(name)
        lm, scalar = count_parameters(spec), count_parameters(spec, head="scalar")
        assert scalar.head == spec.hidden_size
        assert scalar.total == lm.total - lm.head + spec.hidden_size
    assert count_parameters(load_model("Qwen/Qwen3-4B")).head == 0


def test_masks_follow_the_layer_patterns() -> None:
    v3 = load_model("deepseek-ai/DeepSeek-V3")
    assert moe_layer_mask(v3).tolist() == [False] * 3 + [True] * 58
    assert np.array_equal(dense_layer_mask(v3), ~moe_layer_mask(v3))
    gemma = window_layer_mask(load_model("google/gemma-3-1b-pt"))
    assert gemma.tolist()[:12] == ([True] * 5 + [False]) * 2
    assert window_layer_mask(load_model("mistralai/Mistral-7B-v0.1")).all()
    assert not window_layer_mask(load_model("Qwen/Qwen3-32B")).any()


def test_cache_of_a_token() -> None:
    """Llama-3.1-8B keeps 128 KiB a token; DeepSeek-V3 576 elements a layer, once."""
    llama = kv_cache_bytes_per_token(load_model("meta-llama/Llama-3.1-8B"), 2)
    assert (llama.full, llama.windowed, llama.window_tokens) == (128 * 1024, 0, None)
    v3 = load_model("deepseek-ai/DeepSeek-V3")
    assert kv_cache_bytes_per_token(v3, 2).full == 61 * 576 * 2
    assert kv_cache_bytes_per_token(v3, 1).full == 61 * 576
    oss = kv_cache_bytes_per_token(load_model("openai/gpt-oss-20b"), 2)
    assert oss.full == oss.windowed == 12 * 2 * 8 * 64 * 2
    assert oss.window_tokens == 128


@st.composite
def specs(draw: st.DrawFn) -> ModelSpec:
    """Any consistent architecture of moderate size."""

    def size(most: int = 512) -> int:
        return draw(st.integers(1, most))

    layers, kv, flag = size(40), size(8), st.booleans()
    mla = None
    if draw(flag):
        mla = MLASpec(
            q_lora_rank=draw(st.none() | st.integers(1, 64)),
            kv_lora_rank=size(),
            qk_nope_head_dim=size(),
            qk_rope_head_dim=size(),
            v_head_dim=size(),
        )
    moe = None
    if draw(flag):
        experts = size(16)
        moe = MoESpec(
            num_experts=experts,
            top_k=draw(st.integers(1, experts)),
            expert_ffn_size=size(),
            shared_ffn_size=draw(st.integers(0, 64)),
            shared_gate=draw(flag),
            first_dense_layers=draw(st.integers(0, layers - 1)),
            layer_interval=draw(st.integers(1, 4)),
            router_bias=draw(flag),
        )
    window = WindowSpec(size_tokens=size(), full_attention_every=draw(st.integers(0, 6)))
    return ModelSpec(
        name="m",
        architecture="custom",
        hidden_size=size(),
        num_layers=layers,
        num_heads=kv * size(4),
        num_kv_heads=kv,
        head_dim=size(),
        ffn_size=size(),
        vocab_size=size(),
        tie_embeddings=draw(flag),
        mlp=draw(st.sampled_from(["gated", "plain"])),
        attention="mla" if mla else "gqa",
        qkv_bias=draw(flag),
        output_bias=draw(flag),
        mlp_bias=draw(flag),
        qk_norm=draw(st.sampled_from(["none", "head", "full"])),
        norms_per_layer=draw(st.integers(1, 4)),
        norm_bias=draw(flag),
        attention_sinks=draw(flag),
        mla=mla,
        moe=moe,
        window=draw(st.none() | st.just(window)),
        mtp_layers=draw(st.integers(0, 2)),
    )


@settings(max_examples=150, deadline=None)
@given(specs())
def test_the_pieces_sum_to_the_whole(spec: ModelSpec) -> None:
    counts = count_parameters(spec)
    by_layer = parameters_by_layer(spec)
    assert all(part.shape == (spec.num_layers,) for part in by_layer.values())
    layers = sum(part.sum() for part in by_layer.values())
    assert layers == counts.layers
    assert counts.total == counts.embedding + layers + counts.final_norm + counts.head
    assert counts.num_dense_layers + counts.num_moe_layers == spec.num_layers
    assert 0 < counts.active_without_embeddings <= counts.active <= counts.total
    assert min(counts.dense_layer.tensor_parallel, counts.dense_layer.replicated) >= 0
    everything = kv_cache_bytes_per_token(spec, 2)
    assert (
        everything.full + everything.windowed
        == kv_cache_bytes_per_token(spec.model_copy(update={"window": None}), 2).full
    )


@settings(max_examples=100, deadline=None)
@given(specs(), st.integers(1, 5))
def test_counts_grow_linearly_with_the_layers(spec: ModelSpec, times: int) -> None:
    """A model of n times the layers has n times the layer parameters (no dense prefix)."""
    uniform = spec.model_copy(
        update={
            "moe": spec.moe
            and spec.moe.model_copy(update={"first_dense_layers": 0, "layer_interval": 1})
        }
    )
    longer = uniform.model_copy(update={"num_layers": uniform.num_layers * times})
    one, many = count_parameters(uniform), count_parameters(longer)
    assert many.layers == times * one.layers
    assert many.active - one.active == (times - 1) * (
        one.active - one.embedding - one.head - one.final_norm
    )
    assert many.mtp == one.mtp


@settings(max_examples=100, deadline=None)
@given(specs())
def test_a_token_that_visits_every_expert_uses_the_whole_model(spec: ModelSpec) -> None:
    if spec.moe is not None:
        all_experts = spec.moe.model_copy(update={"top_k": spec.moe.num_experts})
        spec = spec.model_copy(update={"moe": all_experts})
    counts = count_parameters(spec)
    assert counts.active == counts.total
