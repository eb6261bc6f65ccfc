"""verl's keys of the trained models and the reference, for FSDP and for Megatron."""

from __future__ import annotations

from typing import Any

from planner.launchers.base import Layout
from planner.schema import ModelSpec, Strategy, Workload


def actor_keys(layout: Layout, workload: Workload, megatron: bool) -> dict[str, Any]:
    """Model, batch and parallelism of the actor, and its log-prob pass."""
    train, forward = layout.train, layout.get("old_logprobs") or layout.train
    root = "actor_rollout_ref"
    keys: dict[str, Any] = {
        f"{root}.model.path": workload.models["actor"].name,
        f"{root}.model.use_remove_padding": True,
        f"{root}.actor.ppo_mini_batch_size": workload.prompts_per_step // workload.optimizer_steps,
        f"{root}.actor.ppo_epochs": workload.epochs,
        f"{root}.actor.use_dynamic_bsz": train.packing,
    }
    keys |= _micro_batch(f"{root}.actor.ppo", train, workload)
    keys[f"{root}.rollout.log_prob_use_dynamic_bsz"] = forward.packing
    keys |= _micro_batch(f"{root}.rollout.log_prob", forward, workload)
    if megatron:
        return keys | _megatron(f"{root}.actor", train, workload.models["actor"])
    keys |= {
        f"{root}.model.enable_gradient_checkpointing": train.recompute == "full",
        f"{root}.actor.strategy": "fsdp2",
        f"{root}.actor.ulysses_sequence_parallel_size": train.cp,
    }
    return keys | _fsdp(f"{root}.actor.fsdp_config", train)


def reference_keys(layout: Layout, workload: Workload, megatron: bool) -> dict[str, Any]:
    """The reference: the actor's degrees (verl's defaults follow them), weights from the host."""
    strategy = layout.strategies["reference_logprobs"]
    root = "actor_rollout_ref.ref"
    keys: dict[str, Any] = {f"{root}.log_prob_use_dynamic_bsz": strategy.packing}
    keys |= _micro_batch(f"{root}.log_prob", strategy, workload)
    keys[f"{root}.{'megatron' if megatron else 'fsdp_config'}.param_offload"] = True
    return keys


def critic_keys(layout: Layout, workload: Workload, megatron: bool) -> dict[str, Any]:
    """Model, batch and parallelism of the critic, and its value pass."""
    train, forward = layout.strategies["critic_train"], layout.strategies["values"]
    steps = workload.critic_optimizer_steps or workload.optimizer_steps
    keys: dict[str, Any] = {
        "critic.model.path": workload.models["critic"].name,
        "critic.model.use_remove_padding": True,
        "critic.ppo_mini_batch_size": workload.prompts_per_step // steps,
        "critic.ppo_epochs": workload.epochs,
        "critic.use_dynamic_bsz": train.packing,
    }
    keys |= _micro_batch("critic.ppo", train, workload)
    if forward.packing or not megatron:
        # Padded, verl's Megatron critic has one microbatch for both passes.
        keys |= _micro_batch("critic.forward", forward, workload)
    if megatron:
        return keys | _megatron("critic", train, workload.models["critic"])
    keys |= {
        "critic.model.enable_gradient_checkpointing": train.recompute == "full",
        "critic.strategy": "fsdp2",
        "critic.ulysses_sequence_parallel_size": train.cp,
    }
    return keys | _fsdp("critic.fsdp", train)


def _micro_batch(prefix: str, strategy: Strategy, workload: Workload) -> dict[str, Any]:
    """Token budget of one device (the context-parallel group holds cp of them), or sequences."""
    if strategy.packing:
        tokens = strategy.micro_batch_sequences * workload.max_sequence_tokens
        return {f"{prefix}_max_token_len_per_gpu": -(-tokens // strategy.cp)}
    return {f"{prefix}_micro_batch_size_per_gpu": strategy.micro_batch_sequences}


def _fsdp(prefix: str, strategy: Strategy) -> dict[str, Any]:
    return {
        f"{prefix}.fsdp_size": strategy.shard_ranks or -1,
        f"{prefix}.reshard_after_forward": True,
        f"{prefix}.param_offload": strategy.offload == "all",
        f"{prefix}.optimizer_offload": strategy.offload != "none",
    }


def _megatron(owner: str, strategy: Strategy, model: ModelSpec) -> dict[str, Any]:
    prefix = f"{owner}.megatron"
    keys: dict[str, Any] = {
        f"{prefix}.tensor_model_parallel_size": strategy.tp,
        f"{prefix}.pipeline_model_parallel_size": strategy.pp,
        f"{prefix}.virtual_pipeline_model_parallel_size": (
            strategy.vpp if strategy.vpp > 1 else None
        ),
        f"{prefix}.context_parallel_size": strategy.cp,
        f"{prefix}.sequence_parallel": strategy.sequence_parallel,
        f"{prefix}.use_distributed_optimizer": strategy.zero_stage > 0,
        f"{prefix}.param_offload": strategy.offload == "all",
        f"{prefix}.optimizer_offload": strategy.offload != "none",
    }
    if model.moe is not None:
        # Left empty, the expert tensor-parallel size would follow tp.
        keys[f"{prefix}.expert_model_parallel_size"] = strategy.ep
        keys[f"{prefix}.expert_tensor_parallel_size"] = strategy.etp
    transformer = f"{prefix}.override_transformer_config"
    if strategy.recompute != "none":
        keys[f"{transformer}.recompute_granularity"] = strategy.recompute
    if strategy.recompute == "full":
        keys[f"{transformer}.recompute_method"] = "uniform"
        keys[f"{transformer}.recompute_num_layers"] = 1
    if strategy.first_stage_layers > 0:
        first, last = strategy.first_stage_layers, strategy.last_stage_layers
        keys[f"+{transformer}.num_layers_in_first_pipeline_stage"] = first
        keys[f"+{transformer}.num_layers_in_last_pipeline_stage"] = last
    if strategy.optimizer_on_cpu:
        # Megatron's OptimizerConfig; verl passes this open section on.
        optimizer = f"{owner}.optim.override_optimizer_config"
        keys[f"+{optimizer}.optimizer_cpu_offload"] = True
        keys[f"+{optimizer}.optimizer_offload_fraction"] = 1.0
        keys[f"+{optimizer}.use_precision_aware_optimizer"] = True
    return keys
