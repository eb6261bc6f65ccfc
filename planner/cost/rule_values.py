"""The names that a legality rule can use, their meanings, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from planner.cost.arrays import StrategyArrays
from planner.schema import Call, ModelSpec, NodeGroup, Workload

Placement = Literal["colocated", "disaggregated", "free"]
Values = Mapping[str, Any]
"""Name -> array of shape [n], number, Boolean or text."""

STRATEGY_NAMES: dict[str, str] = {
    "tp": "tensor-parallel degree",
    "pp": "pipeline stages",
    "vpp": "virtual pipeline stages on each device",
    "cp": "context-parallel degree",
    "ulysses": "part of cp that exchanges heads (Ulysses); 1 = ring",
    "ep": "expert-parallel degree",
    "etp": "tensor-parallel degree inside an expert",
    "dp": "data-parallel degree; for generate, engine replicas",
    "zero_stage": "0 to 3: what is sharded over data-parallel ranks",
    "shard_ranks": "ranks among which ZeRO shards; 0 = all",
    "pipeline_schedule": "'1f1b', 'zb-h1', 'zb-h2' or 'dualpipe'",
    "sequence_parallel": "Boolean: Megatron sequence parallelism",
    "micro_batch_sequences": "sequences (or sequence budgets, when packing) in a microbatch",
    "packing": "Boolean: sequences share microbatches up to a token budget",
    "recompute": "'none', 'selective' or 'full'",
    "offload": "'none', 'optimizer' or 'all'",
    "first_stage_layers": "layers on the first pipeline stage; 0 = even split",
    "last_stage_layers": "layers on the last pipeline stage; 0 = even split",
    "max_running_sequences": "generate: sequences that a replica decodes at once",
    "memory_fraction": "generate: share of device memory that the engine takes",
    "dtype": "'bf16', 'fp8' or 'fp4'",
    "optimizer_on_cpu": "Boolean: optimizer states live and update in host memory",
    "devices": "tp * pp * cp * dp",
}
CALL_NAMES: dict[str, str] = {
    "role": "text: 'actor', 'critic', 'reference', 'reward' or another of the workload",
    "has_critic": "Boolean: the workload trains a critic",
    "old_logprobs": "text: 'recompute', 'engine', 'either' or 'skip': the workload's source",
    "call_sequences": "sequences that the call processes in one step and epoch",
    "num_layers": "the model's layers",
    "num_heads": "query heads",
    "num_kv_heads": "key-value heads (query heads for MLA)",
    "num_experts": "routed experts of a MoE layer; 0 when dense",
    "hidden_size": "hidden size",
    "ffn_size": "inner width of a dense feed-forward layer",
    "expert_ffn_size": "inner width of one routed expert; 0 when dense",
    "vocab_size": "vocabulary",
    "is_moe": "Boolean: the model has experts",
    "is_mla": "Boolean: multi-head latent attention",
    "mlp_bias": "Boolean: the feed-forward (or expert) matrices have biases",
    "sequences_per_step": "prompts_per_step * samples_per_prompt",
    "prompts_per_step": "prompts in one step",
    "samples_per_prompt": "responses to each prompt",
    "optimizer_steps": "optimizer steps in one epoch: the call's, or the actor's when it has none",
    "sequences_per_optimizer_step": "sequences in one optimizer step (rounded down)",
    "max_sequence_tokens": "longest prompt plus response",
    "devices_per_node": "devices in one node",
    "scale_up_domain_devices": "devices that the scale-up network joins",
    "cluster_devices": "devices of the whole cluster",
    "placement": "text: 'colocated', 'disaggregated', or 'free' when not yet decided",
    "gradient_compression": "gradient bytes over bytes that replicas exchange; 1 = whole gradients",
    "local_steps": "optimizer steps between exchanges of replicas; 1 = in every step",
    "staleness": "versions that a sample may be behind; 0 when not yet decided",
}
RULE_NAMES: dict[str, str] = STRATEGY_NAMES | CALL_NAMES
"""Every name that a rule may use, with its meaning."""


def call_values(
    call: Call,
    model: ModelSpec,
    workload: Workload,
    group: NodeGroup,
    *,
    cluster_devices: int | None = None,
    placement: Placement = "free",
    staleness: int = 0,
) -> dict[str, Any]:
    """The values of CALL_NAMES. `cluster_devices` is the group's number when None."""
    steps = call.optimizer_steps or workload.optimizer_steps
    return {
        "role": call.role,
        "has_critic": "critic" in workload.models,
        "old_logprobs": workload.old_logprobs,
        "call_sequences": call.sequences,
        "num_layers": model.num_layers,
        "num_heads": model.num_heads,
        "num_kv_heads": model.num_kv_heads,
        "num_experts": model.moe.num_experts if model.moe else 0,
        "hidden_size": model.hidden_size,
        "ffn_size": model.ffn_size,
        "expert_ffn_size": model.moe.expert_ffn_size if model.moe else 0,
        "vocab_size": model.vocab_size,
        "is_moe": model.moe is not None,
        "is_mla": model.mla is not None,
        "mlp_bias": model.mlp_bias,
        "sequences_per_step": workload.sequences_per_step,
        "prompts_per_step": workload.prompts_per_step,
        "samples_per_prompt": workload.samples_per_prompt,
        "optimizer_steps": steps,
        "sequences_per_optimizer_step": call.sequences // steps,
        "max_sequence_tokens": workload.max_sequence_tokens,
        "devices_per_node": group.devices_per_node,
        "scale_up_domain_devices": group.device.scale_up_domain_devices,
        "cluster_devices": group.devices if cluster_devices is None else cluster_devices,
        "placement": placement,
        "gradient_compression": workload.gradient_exchange.compression,
        "local_steps": workload.gradient_exchange.local_steps,
        "staleness": staleness,
    }


def strategy_values(strategies: StrategyArrays) -> dict[str, Any]:
    """The values of STRATEGY_NAMES, arrays of shape [n]; coded fields hold their codes."""
    return {name: getattr(strategies, name) for name in STRATEGY_NAMES}
