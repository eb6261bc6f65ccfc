"""Predicted against published step times: a few rows that any change of physics would move."""

from __future__ import annotations

from typing import Any

import pytest
from training_contexts import LLAMA_8B, LLAMA_70B, arrays, context, fixed, framework, model

from planner.cost.forward import forward_cost
from planner.cost.train import train_cost
from planner.schema import LengthDistribution, MoESpec, Strategy

BRIDGE = "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md"

LLAMA_405B = model(
    name="Llama-3.1-405B", hidden_size=16384, num_layers=126, num_heads=128, ffn_size=53248
)
QWEN3_235B = model(
    name="Qwen3-235B-A22B",
    num_layers=94,
    num_heads=64,
    num_kv_heads=4,
    ffn_size=12288,
    vocab_size=151936,
    moe=MoESpec(num_experts=128, top_k=8, expert_ffn_size=1536),
)
GPT_22B = model(
    name="GPT-22B",
    hidden_size=6144,
    num_layers=48,
    num_heads=64,
    num_kv_heads=64,
    head_dim=96,
    ffn_size=24576,
    vocab_size=51200,
    tie_embeddings=True,
    mlp="plain",
)
MEGATRON_2022 = {
    "gemm_efficiency": 0.93,
    "attention_unfused": 1,
    "elementwise_factor": 1.0,
    "tp_exposed_share": 1.0,
    "dp_overlap": 0.0,
}

# (model, cluster, tokens, sequences, strategy, changed constants, measured seconds)
ROWS: dict[str, tuple[Any, str, int, int, dict[str, Any], dict[str, float], float]] = {
    "405B on 1024 H100, fp8 (26.06)": (
        LLAMA_405B,
        "h100:128x8",
        8192,
        1536,
        {"tp": 8, "pp": 8, "vpp": 8, "cp": 2, "dp": 8, "sequence_parallel": True, "dtype": "fp8"},
        {},
        37.69,
    ),
    "70B on 64 H100, fp8 (26.04.01)": (
        LLAMA_70B,
        "h100:8x8",
        8192,
        256,
        {"tp": 4, "pp": 8, "vpp": 5, "dp": 2, "sequence_parallel": True, "dtype": "fp8"},
        {},
        19.69,
    ),
    "70B on 64 GB200, mxfp8 (26.04.01)": (
        LLAMA_70B,
        "gb200-nvl72:16x4",
        8192,
        256,
        {"tp": 2, "pp": 4, "vpp": 5, "dp": 8, "sequence_parallel": True, "dtype": "fp8"},
        {},
        8.83,
    ),
    "8B on 8 B200, fp8 (25.11)": (
        LLAMA_8B,
        "b200:1x8",
        8192,
        128,
        {"dp": 8, "micro_batch_sequences": 2, "dtype": "fp8"},
        {},
        4.28,
    ),
    "235B-A22B on 256 H100, fp8 (26.04.01)": (
        QWEN3_235B,
        "h100:32x8",
        4096,
        8192,
        {
            "tp": 2,
            "pp": 8,
            "vpp": 4,
            "ep": 32,
            "dp": 16,
            "sequence_parallel": True,
            "dtype": "fp8",
        },
        {},
        76.56,
    ),
    # Megatron-LM, arXiv:2205.05198 table 4: full recomputation, no flash attention.
    "22B on 8 A100 (2022)": (
        GPT_22B,
        "a100:1x8",
        2048,
        4,
        {"tp": 8, "dp": 1, "zero_stage": 0, "micro_batch_sequences": 4, "recompute": "full"},
        MEGATRON_2022,
        1.42,
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_published_pretraining_step(row):
    spec, cluster, tokens, sequences, strategy, constants, measured_s = ROWS[row]
    ctx = context(
        spec,
        cluster=cluster,
        sequences=sequences,
        prompt=fixed(1),
        response=fixed(tokens - 1),
        profile=framework("megatron", **constants),
    )
    chosen = Strategy(**{"packing": False, "zero_stage": 1, **strategy})
    assert train_cost(ctx, arrays(chosen)).time_s[0] == pytest.approx(measured_s, rel=0.12)


@pytest.mark.parametrize(
    ("profile", "zero_stage", "train_s", "logprob_s", "logprob_batch"),
    [("nemo-rl", 1, 28.0, 18.0, 4), ("nemo-rl-dtensor", 3, 38.0, 19.0, 2)],
)
def test_published_stage_times_of_an_rl_step(
    profile, zero_stage, train_s, logprob_s, logprob_batch
):
    # NeMo RL v0.3 announcement: Llama-3.1-8B GRPO on 8 H100, 2,048 samples of 795 tokens (prompts
    # of about 110), 4 optimizer steps; log-probs of the policy and of the reference together.
    lengths = {
        "sequences": 2048,
        "prompt": fixed(110),
        "response": LengthDistribution(mean_tokens=795.0, max_tokens=3986),
        "cluster": "h100:1x8",
        "profile": profile,
    }
    train = train_cost(
        context(optimizer_steps=4, **lengths), arrays(Strategy(dp=8, zero_stage=zero_stage))
    )
    assert train.time_s[0] == pytest.approx(train_s, rel=0.2)
    logprobs = forward_cost(
        context(kind="forward", **lengths),
        arrays(Strategy(dp=8, zero_stage=zero_stage, micro_batch_sequences=logprob_batch)),
    )
    assert 2 * logprobs.time_s[0] == pytest.approx(logprob_s, rel=0.25)
