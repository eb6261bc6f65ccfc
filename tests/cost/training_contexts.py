"""Contexts, strategies and models that the tests of training and forward costs share."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from planner.catalog.frameworks import load_framework
from planner.catalog.hardware import parse_cluster
from planner.cost.arrays import CallCosts, StrategyArrays
from planner.cost.context import CallContext
from planner.cost.kernel_tables import load_kernels
from planner.cost.kernels import KernelTable
from planner.schema import (
    Call,
    FrameworkProfile,
    LengthDistribution,
    MLASpec,
    ModelSpec,
    MoESpec,
    NodeGroup,
    Strategy,
    WindowSpec,
    Workload,
)


def model(**changes: Any) -> ModelSpec:
    """Llama-3.1-8B unless changed."""
    shape: dict[str, Any] = {
        "name": "test",
        "architecture": "custom",
        "hidden_size": 4096,
        "num_layers": 32,
        "num_heads": 32,
        "num_kv_heads": 8,
        "head_dim": 128,
        "ffn_size": 14336,
        "vocab_size": 128256,
        "max_position": 1_000_000,
    }
    return ModelSpec(**{**shape, **changes})


LLAMA_8B = model(name="Llama-3.1-8B")
LLAMA_70B = model(
    name="Llama-3.1-70B", hidden_size=8192, num_layers=80, num_heads=64, ffn_size=28672
)
QWEN3_4B = model(
    name="Qwen3-4B",
    hidden_size=2560,
    num_layers=36,
    num_heads=32,
    num_kv_heads=8,
    ffn_size=9728,
    vocab_size=151936,
    tie_embeddings=True,
    qk_norm="head",
)
QWEN3_30B = model(
    name="Qwen3-30B-A3B",
    hidden_size=2048,
    num_layers=48,
    num_heads=32,
    num_kv_heads=4,
    ffn_size=6144,
    vocab_size=151936,
    qk_norm="head",
    moe=MoESpec(num_experts=128, top_k=8, expert_ffn_size=768),
)
DEEPSEEK_V3 = model(
    name="DeepSeek-V3",
    hidden_size=7168,
    num_layers=61,
    num_heads=128,
    num_kv_heads=128,
    head_dim=192,
    ffn_size=18432,
    vocab_size=129280,
    attention="mla",
    mla=MLASpec(
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
    ),
    moe=MoESpec(
        num_experts=256,
        top_k=8,
        expert_ffn_size=2048,
        shared_ffn_size=2048,
        first_dense_layers=3,
    ),
)
GPT_OSS_20B = model(
    name="gpt-oss-20b",
    hidden_size=2880,
    num_layers=24,
    num_heads=64,
    num_kv_heads=8,
    head_dim=64,
    ffn_size=2880,
    vocab_size=201088,
    moe=MoESpec(num_experts=32, top_k=4, expert_ffn_size=2880),
    window=WindowSpec(size_tokens=128, full_attention_every=2),
)


@cache
def _cluster(name: str) -> tuple[NodeGroup, KernelTable]:
    group = parse_cluster(name).groups[0]
    return group, load_kernels(group.device)


def framework(name: str, **values: float) -> FrameworkProfile:
    """A shipped profile with some constants changed."""
    profile = load_framework(name)
    constants = dict(profile.constants)
    for key, value in values.items():
        constants[key] = constants[key].model_copy(update={"value": float(value)})
    return profile.model_copy(update={"constants": constants})


def fixed(tokens: int) -> LengthDistribution:
    """All sequences equally long."""
    return LengthDistribution(kind="fixed", mean_tokens=float(tokens), max_tokens=tokens)


def context(
    spec: ModelSpec = LLAMA_8B,
    *,
    kind: str = "train",
    role: str = "actor",
    output: str | None = None,
    cluster: str = "h100:16x8",
    sequences: int = 512,
    prompt: LengthDistribution | None = None,
    response: LengthDistribution | None = None,
    optimizer_steps: int = 1,
    epochs: int = 1,
    profile: FrameworkProfile | str = "nemo-rl",
    trained: bool = True,
) -> CallContext:
    """One call on one group; by default GRPO lengths of 100 + 1,000 (at most 4,096) tokens."""
    group, kernels = _cluster(cluster)
    if isinstance(profile, str):
        profile = load_framework(profile)
    workload = Workload(
        name="test",
        algorithm="grpo",
        models={role: spec},
        prompts_per_step=sequences,
        samples_per_prompt=1,
        prompt_length=prompt or fixed(100),
        response_length=response or LengthDistribution(mean_tokens=1000.0, max_tokens=3996),
        optimizer_steps=optimizer_steps,
        epochs=epochs,
    )
    call = Call(
        name=f"{role}_{kind}",
        kind=kind,  # type: ignore[arg-type]
        role=role,
        sequences=sequences,
        output=output or ("loss" if kind == "train" else "logprobs"),  # type: ignore[arg-type]
        epochs=epochs,
        optimizer_steps=optimizer_steps if kind == "train" else 0,
    )
    return CallContext(
        call=call,
        model=spec,
        workload=workload,
        group=group,
        framework=profile,
        engine=profile,
        kernels=kernels,
        trained=trained,
    )


def arrays(*strategies: Strategy) -> StrategyArrays:
    """The strategies as arrays."""
    return StrategyArrays.from_strategies(strategies)


def total_memory(costs: CallCosts) -> float:
    """Peak bytes of the first strategy."""
    return float(costs.peak_bytes[0])


def degrees(limit: int) -> st.SearchStrategy[int]:
    """Powers of two up to `limit`."""
    return st.sampled_from([2**i for i in range(limit.bit_length())])


@st.composite
def training_strategies(draw: st.DrawFn, *, experts: bool) -> Strategy:
    """A strategy on at most 128 devices (pipeline up to 4)."""
    tp = draw(degrees(8))
    pp = draw(degrees(4))
    cp = draw(degrees(2))
    dp = draw(degrees(128 // (tp * pp * cp)))
    etp = draw(st.sampled_from([1, tp])) if experts else 1
    ep = draw(degrees(min(tp * cp * dp // etp, 32))) if experts else 1
    return Strategy(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        ep=ep,
        etp=etp,
        vpp=draw(st.sampled_from([1, 2])) if pp > 1 else 1,
        zero_stage=draw(st.integers(0, 3)),
        sequence_parallel=tp > 1 and (experts or draw(st.booleans())),
        micro_batch_sequences=draw(degrees(4)),
        packing=draw(st.booleans()),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        offload=draw(st.sampled_from(["none", "optimizer", "all"])),
        optimizer_on_cpu=draw(st.booleans()),
    )
