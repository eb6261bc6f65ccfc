"""Hand-made plans for the launcher tests: small and large, colocated and split, GRPO and PPO."""

from __future__ import annotations

from typing import Any

from planner.catalog.hardware import parse_cluster
from planner.schema import (
    Assignment,
    CallPrediction,
    Cluster,
    LengthDistribution,
    Mesh,
    MLASpec,
    ModelSpec,
    MoESpec,
    Plan,
    Strategy,
    Workload,
)

Case = tuple[Plan, Workload, Cluster]

QWEN_8B = ModelSpec(
    name="Qwen/Qwen3-8B",
    architecture="qwen3",
    hidden_size=4096,
    num_layers=36,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    ffn_size=12288,
    vocab_size=151936,
)
QWEN_30B = ModelSpec(
    name="Qwen/Qwen3-30B-A3B",
    architecture="qwen3_moe",
    hidden_size=2048,
    num_layers=48,
    num_heads=32,
    num_kv_heads=4,
    head_dim=128,
    ffn_size=6144,
    vocab_size=151936,
    moe=MoESpec(num_experts=128, top_k=8, expert_ffn_size=768),
)
DEEPSEEK = ModelSpec(
    name="deepseek-ai/DeepSeek-V3",
    architecture="deepseek_v3",
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
        num_experts=256, top_k=8, expert_ffn_size=2048, shared_ffn_size=2048, first_dense_layers=3
    ),
)


def grpo(model: ModelSpec = QWEN_30B, **changes: Any) -> Workload:
    """64 prompts x 32 samples of 4,096 tokens, four optimizer steps."""
    values: dict[str, Any] = {
        "name": "grpo test",
        "algorithm": "grpo",
        "models": {"actor": model, "reference": model},
        "prompts_per_step": 64,
        "samples_per_prompt": 32,
        "prompt_length": LengthDistribution(mean_tokens=100, max_tokens=512),
        "response_length": LengthDistribution(mean_tokens=2000, max_tokens=3584),
        "optimizer_steps": 4,
        "kl_weight": 0.01,
    }
    return Workload(**(values | changes))


def ppo(model: ModelSpec = QWEN_8B, *, reward: bool = False, **changes: Any) -> Workload:
    """256 prompts, with a critic and perhaps a reward model."""
    models = {"actor": model, "reference": model, "critic": model}
    if reward:
        models["reward"] = model
    values: dict[str, Any] = {
        "name": "ppo test",
        "algorithm": "ppo",
        "models": models,
        "prompts_per_step": 256,
        "samples_per_prompt": 1,
        "prompt_length": LengthDistribution(mean_tokens=200, max_tokens=1024),
        "response_length": LengthDistribution(mean_tokens=600, max_tokens=1024),
        "optimizer_steps": 2,
        "epochs": 1,
        "kl_weight": 0.05,
    }
    return Workload(**(values | changes))


def nodes(first: int, count: int, devices_per_node: int = 8, group: str = "h100") -> Mesh:
    """Whole nodes."""
    return Mesh(group=group, first_node=first, nodes=count, devices_per_node=devices_per_node)


def make_plan(
    workload: Workload,
    strategies: dict[str, Strategy],
    meshes: dict[str, Mesh],
    *,
    staleness: int = 0,
    space: str = "nemo-rl-megatron",
) -> Plan:
    """A plan with the given decisions and placeholder predictions."""
    kinds = {"generate": "generate", "actor_train": "train", "critic_train": "train"}
    roles = {
        "critic_train": "critic",
        "values": "critic",
        "rewards": "reward",
        "reference_logprobs": "reference",
    }
    calls = {
        name: CallPrediction(
            kind=kinds.get(name, "forward"),  # type: ignore[arg-type]
            role=roles.get(name, "actor"),
            mesh=meshes[name],
            strategy=strategy,
            start_s=0.0,
            time_s=1.0,
            time_parts_s={"compute": 1.0},
            bottleneck="compute",
            memory_bytes={"total": 1, "capacity": 2},
            memory_verdict="fits",
            work_flop=1.0,
            traffic_bytes=1.0,
            depth=1,
            bound_s=0.5,
        )
        for name, strategy in strategies.items()
    }
    return Plan(
        step_time_s=100.0,
        step_time_interval_s=(80.0, 125.0),
        work_depth_bound_s=10.0,
        tokens_per_s_per_device=1000.0,
        cost_per_step_usd=None,
        staleness=staleness,
        calls=calls,
        overheads_s={},
        fits=True,
        rank=1,
        tie_with_best=False,
        placement="test placement",
        assignment=Assignment(
            meshes=meshes,
            strategies=strategies,
            staleness=staleness,
            framework="nemo-rl",
            engine="vllm-nemo-rl",
            space=space,
        ),
        devices=sum(mesh.devices for mesh in set_of(meshes)),
        bound_s=50.0,
        launchers=(),
    )


def set_of(meshes: dict[str, Mesh]) -> list[Mesh]:
    """Distinct meshes."""
    return list({mesh.model_dump_json(): mesh for mesh in meshes.values()}.values())


def actor_unit(
    train: Strategy, mesh: Mesh, *, logprob_micro_batch: int | None = None
) -> tuple[dict[str, Strategy], dict[str, Mesh]]:
    """Training, old and reference log-probs of the actor on one mesh."""
    forward = train.model_copy(
        update={
            "recompute": "none",
            "micro_batch_sequences": logprob_micro_batch or train.micro_batch_sequences,
        }
    )
    names = ("actor_train", "old_logprobs", "reference_logprobs")
    return dict(zip(names, (train, forward, forward), strict=True)), dict.fromkeys(names, mesh)


def nemo_colocated() -> Case:
    """Qwen3-30B on 4 nodes, colocated: NeMo RL's published layout."""
    workload = grpo()
    train = Strategy(dp=32, ep=8, zero_stage=1, offload="all")
    strategies, meshes = actor_unit(train, nodes(0, 4), logprob_micro_batch=4)
    strategies["generate"] = Strategy(tp=2, dp=16, memory_fraction=0.6, max_running_sequences=256)
    meshes["generate"] = nodes(0, 4)
    return make_plan(workload, strategies, meshes), workload, parse_cluster("h100:4x8")


def nemo_split_deepseek() -> Case:
    """DeepSeek-V3 on 64 nodes, one step off policy: NeMo RL's published layout."""
    workload = grpo(
        DEEPSEEK,
        prompts_per_step=32,
        samples_per_prompt=16,
        optimizer_steps=1,
        prompt_length=LengthDistribution(mean_tokens=100, max_tokens=512),
        response_length=LengthDistribution(mean_tokens=745, max_tokens=1024),
    )
    train = Strategy(
        pp=16,
        ep=16,
        dp=16,
        zero_stage=1,
        recompute="full",
        first_stage_layers=3,
        last_stage_layers=2,
        offload="optimizer",
    )
    strategies, meshes = actor_unit(train, nodes(0, 32), logprob_micro_batch=2)
    strategies["generate"] = Strategy(tp=32, dp=8, memory_fraction=0.8)
    meshes["generate"] = nodes(32, 32)
    plan = make_plan(workload, strategies, meshes, staleness=1)
    return plan, workload, parse_cluster("h100:64x8")


def ppo_strategies(
    train: Strategy, critic: Strategy, mesh: Mesh
) -> tuple[dict[str, Strategy], dict[str, Mesh]]:
    """The actor's and the critic's calls on one mesh."""
    strategies, meshes = actor_unit(train, mesh)
    strategies |= {
        "critic_train": critic,
        "values": critic.model_copy(update={"recompute": "none"}),
    }
    return strategies, meshes | {"critic_train": mesh, "values": mesh}


def nemo_ppo_reward() -> Case:
    """PPO with a reward model on a node of its own, generation split off."""
    workload = ppo(reward=True)
    train = Strategy(
        tp=2, cp=2, dp=4, zero_stage=1, sequence_parallel=True, offload="all", recompute="selective"
    )
    critic = Strategy(tp=4, dp=4, zero_stage=1, sequence_parallel=True, offload="all")
    strategies, meshes = ppo_strategies(train, critic, nodes(0, 2))
    strategies["generate"] = Strategy(tp=2, dp=4)
    meshes["generate"] = nodes(2, 1)
    strategies["rewards"] = Strategy(
        tp=2, dp=4, zero_stage=1, sequence_parallel=True, packing=False, micro_batch_sequences=4
    )
    meshes["rewards"] = nodes(3, 1)
    plan = make_plan(workload, strategies, meshes, staleness=1)
    return plan, workload, parse_cluster("h100:4x8")


def verl_fsdp_colocated() -> Case:
    """Qwen3-8B, FSDP2 with Ulysses 2, colocated on two nodes."""
    workload = grpo(QWEN_8B)
    train = Strategy(
        cp=2, dp=8, zero_stage=3, recompute="full", offload="all", micro_batch_sequences=2
    )
    strategies, meshes = actor_unit(train, nodes(0, 2), logprob_micro_batch=4)
    strategies["generate"] = Strategy(tp=2, dp=8, memory_fraction=0.7)
    meshes["generate"] = nodes(0, 2)
    plan = make_plan(workload, strategies, meshes, space="verl-fsdp")
    return plan, workload, parse_cluster("h100:2x8")


def verl_fsdp_async() -> Case:
    """Qwen3-8B, FSDP2, one step off policy on 1 + 1 nodes, log-probs from the engine."""
    workload = grpo(QWEN_8B, old_logprobs="engine", kl_weight=0.0)
    train = Strategy(dp=8, zero_stage=3, recompute="full")
    strategies = {"actor_train": train, "generate": Strategy(tp=1, dp=8)}
    meshes = {"actor_train": nodes(0, 1), "generate": nodes(1, 1)}
    plan = make_plan(workload, strategies, meshes, staleness=1, space="verl-fsdp")
    return plan, workload, parse_cluster("h100:2x8")


def verl_fsdp_ppo() -> Case:
    """PPO, padded microbatches, a colocated reward model."""
    workload = ppo(reward=True)
    train = Strategy(
        dp=16,
        zero_stage=3,
        recompute="full",
        offload="optimizer",
        packing=False,
        micro_batch_sequences=4,
    )
    strategies, meshes = ppo_strategies(train, train, nodes(0, 2))
    strategies["generate"] = Strategy(tp=2, dp=8, memory_fraction=0.5)
    meshes["generate"] = nodes(0, 2)
    strategies["rewards"] = Strategy(tp=2, dp=8, zero_stage=0, offload="all")
    meshes["rewards"] = nodes(0, 2)
    plan = make_plan(workload, strategies, meshes, space="verl-fsdp")
    return plan, workload, parse_cluster("h100:2x8")


def verl_megatron_colocated() -> Case:
    """Qwen3-30B, TP2 PP2 VPP2 CP2 EP4, experts spread over engines, colocated on 4 nodes."""
    workload = grpo()
    train = Strategy(
        tp=2,
        pp=2,
        vpp=2,
        cp=2,
        ep=4,
        dp=4,
        zero_stage=1,
        sequence_parallel=True,
        recompute="full",
        offload="all",
    )
    strategies, meshes = actor_unit(train, nodes(0, 4), logprob_micro_batch=2)
    strategies["generate"] = Strategy(tp=4, ep=8, dp=8, memory_fraction=0.6)
    meshes["generate"] = nodes(0, 4)
    plan = make_plan(workload, strategies, meshes, space="verl-megatron")
    return plan, workload, parse_cluster("h100:4x8")


def verl_megatron_async() -> Case:
    """DeepSeek-V3, uneven stages, CPU optimizer, two steps off policy."""
    workload = grpo(DEEPSEEK, prompts_per_step=128, samples_per_prompt=8, kl_weight=0.0)
    train = Strategy(
        tp=8,
        pp=12,
        ep=8,
        dp=1,
        zero_stage=1,
        sequence_parallel=True,
        recompute="selective",
        first_stage_layers=6,
        last_stage_layers=5,
        optimizer_on_cpu=True,
    )
    strategies, meshes = actor_unit(train, nodes(0, 12))
    strategies.pop("reference_logprobs")
    meshes.pop("reference_logprobs")
    strategies["generate"] = Strategy(tp=32, dp=2, memory_fraction=0.8)
    meshes["generate"] = nodes(12, 8)
    plan = make_plan(workload, strategies, meshes, staleness=2, space="verl-megatron")
    return plan, workload, parse_cluster("h100:20x8")


def verl_megatron_ppo() -> Case:
    """PPO on Megatron, the reward model in a pool of its own, one step off policy."""
    workload = ppo(reward=True, critic_optimizer_steps=4)
    train = Strategy(tp=4, pp=2, dp=1, zero_stage=1, sequence_parallel=True, offload="optimizer")
    critic = train.model_copy(update={"micro_batch_sequences": 2})
    strategies, meshes = ppo_strategies(train, critic, nodes(0, 1))
    strategies["generate"] = Strategy(tp=2, dp=4, dtype="bf16")
    meshes["generate"] = nodes(1, 1)
    strategies["rewards"] = Strategy(tp=4, dp=2, sequence_parallel=True)
    meshes["rewards"] = nodes(2, 1)
    plan = make_plan(workload, strategies, meshes, staleness=1, space="verl-megatron")
    return plan, workload, parse_cluster("h100:3x8")


def verl_megatron_padded_critic() -> Case:
    """PPO on Megatron with padded microbatches, which actor and critic have in both passes."""
    workload = ppo(QWEN_8B)
    train = Strategy(
        tp=4,
        pp=2,
        dp=1,
        zero_stage=1,
        sequence_parallel=True,
        offload="all",
        packing=False,
        micro_batch_sequences=2,
    )
    strategies, meshes = ppo_strategies(train, train, nodes(0, 1))
    strategies["generate"] = Strategy(tp=2, dp=4, memory_fraction=0.5)
    meshes["generate"] = nodes(0, 1)
    plan = make_plan(workload, strategies, meshes, space="verl-megatron")
    return plan, workload, parse_cluster("h100:1x8")


NEMO_CASES = {
    "colocated": nemo_colocated,
    "split-deepseek": nemo_split_deepseek,
    "ppo-reward": nemo_ppo_reward,
}
VERL_CASES = {
    "fsdp-colocated": verl_fsdp_colocated,
    "fsdp-async": verl_fsdp_async,
    "fsdp-ppo": verl_fsdp_ppo,
    "megatron-colocated": verl_megatron_colocated,
    "megatron-async": verl_megatron_async,
    "megatron-ppo": verl_megatron_ppo,
    "megatron-padded-critic": verl_megatron_padded_critic,
}

SEARCHES: dict[str, tuple[str, Workload, str]] = {
    "nemo-grpo": ("nemo-rl-megatron", grpo(), "h100:4x8"),
    "nemo-grpo-one-node": ("nemo-rl-megatron", grpo(QWEN_8B), "h100:1x8"),
    "nemo-ppo-reward": ("nemo-rl-megatron", ppo(reward=True), "h100:4x8"),
    "verl-fsdp-grpo": ("verl-fsdp", grpo(QWEN_8B), "h100:2x8"),
    "verl-fsdp-ppo": ("verl-fsdp", ppo(), "h100:1x8"),
    "verl-megatron-grpo": ("verl-megatron", grpo(), "h100:4x8"),
    "verl-megatron-ppo": ("verl-megatron", ppo(reward=True), "h100:3x8"),
}
"""Searches whose plans must all be exportable: space, workload, cluster."""
