"""Small inputs for the tests of generation: kernels with formulas that a reader can recompute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.catalog.frameworks import load_framework
from planner.catalog.hardware import parse_cluster
from planner.cost.arrays import StrategyArrays
from planner.cost.context import CallContext
from planner.cost.kernel_tables import load_kernels
from planner.schema import LengthDistribution, ModelSpec, MoESpec, Workload
from planner.workload.calls import generate

GEMM_START_S = 4e-6
GEMM_ROW_S = 2e-8
ATTENTION_START_S = 5e-6
ATTENTION_TOKEN_S = 3e-9  # for each running sequence and cached token
ALL_REDUCE_S = 6e-6


@dataclass(frozen=True)
class AffineKernels:
    """Kernel times that grow linearly with rows and cached tokens, whatever the shapes are."""

    name: str = "affine"
    is_own: bool = True

    def gemm_s(self, m, n, k, dtype="bf16"):
        return GEMM_START_S + GEMM_ROW_S * np.asarray(m) + 0.0 * np.asarray(n) * np.asarray(k)

    def decode_attention_s(
        self, batch, context, heads, kv_heads, head_dim, kv_dtype="bf16", window=None
    ):
        seen = np.asarray(context) if window is None else np.minimum(context, window)
        return ATTENTION_START_S + ATTENTION_TOKEN_S * np.asarray(batch) * seen + 0.0 * heads

    def prefill_attention_s(self, batch, tokens, heads, kv_heads, head_dim, window=None):
        return 1e-6 + 0.0 * np.asarray(batch) * heads

    def moe_s(self, tokens, hidden, inner, top_k, experts, moe_tp, moe_ep, dtype="bf16"):
        return 1e-5 + GEMM_ROW_S * np.asarray(tokens) / moe_ep + 0.0 * np.asarray(moe_tp)

    def collective_s(self, kind, devices, nbytes):
        return 2 * ALL_REDUCE_S + 0.0 * np.asarray(devices) * nbytes

    def all_reduce_decode_s(self, devices, nbytes):
        return ALL_REDUCE_S + 0.0 * np.asarray(devices) * nbytes


TINY = ModelSpec(
    name="tiny",
    architecture="custom",
    hidden_size=256,
    num_layers=4,
    num_heads=8,
    num_kv_heads=4,
    head_dim=32,
    ffn_size=512,
    vocab_size=1024,
    max_position=10**6,
)
TINY_MOE = TINY.model_copy(
    update={"name": "tiny-moe", "moe": MoESpec(num_experts=8, top_k=2, expert_ffn_size=128)}
)


def lognormal(mean: float, cap: int, sigma: float = 0.9) -> LengthDistribution:
    return LengthDistribution(mean_tokens=mean, max_tokens=cap, sigma=sigma)


def fixed(tokens: float) -> LengthDistribution:
    return LengthDistribution(kind="fixed", mean_tokens=tokens, max_tokens=int(tokens))


def histogram(*pairs: tuple[int, float]) -> LengthDistribution:
    total = sum(weight for _, weight in pairs)
    return LengthDistribution(
        kind="histogram",
        mean_tokens=sum(tokens * weight for tokens, weight in pairs) / total,
        max_tokens=pairs[-1][0],
        histogram=pairs,
    )


def context(
    model: ModelSpec = TINY,
    *,
    response: LengthDistribution,
    prompt: LengthDistribution | None = None,
    prompts: int = 8,
    samples: int = 8,
    staleness: int = 0,
    cluster: str = "h100:8x8",
    engine: str = "vllm-nemo-rl",
    constants: dict[str, float] | None = None,
    measured: bool = False,
    **workload: object,
) -> CallContext:
    """A generate call on AffineKernels, or on the device's measured table."""
    w = Workload.model_validate(
        {
            "name": "test",
            "algorithm": "grpo",
            "models": {"actor": model},
            "prompts_per_step": prompts,
            "samples_per_prompt": samples,
            "prompt_length": prompt or fixed(100.0),
            "response_length": response,
            **workload,
        }
    )
    group = parse_cluster(cluster).groups[0]
    profile = load_framework(engine)
    changed = {
        name: profile.constants[name].model_copy(update={"value": value})
        for name, value in (constants or {}).items()
    }
    profile = profile.model_copy(update={"constants": {**profile.constants, **changed}})
    kernels = load_kernels(group.device) if measured else AffineKernels()
    return CallContext(
        call=generate(w),
        model=model,
        workload=w,
        group=group,
        framework=profile,
        engine=profile,
        kernels=kernels,  # type: ignore[arg-type]
        trained=False,
        staleness=staleness,
    )


def strategies(**columns: object) -> StrategyArrays:
    rows = max(len(np.atleast_1d(column)) for column in columns.values())
    return StrategyArrays.from_columns(columns, rows)  # type: ignore[arg-type]
