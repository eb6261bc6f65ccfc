"""verl: Hydra overrides for `verl.trainer.main_ppo`, the same as a YAML file, and a run script.

Keys: the generated reference configurations of verl 0.9.1 (trainer/config/_generated_*.yaml).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from planner.catalog.spaces import load_space
from planner.launchers.algorithm_settings import VERL as SPELLINGS
from planner.launchers.algorithm_settings import algorithm_keys, algorithms_of
from planner.launchers.base import (
    Capabilities,
    LaunchFiles,
    Layout,
    common_reasons,
    header,
    layout_of,
    refuse_unsupported,
)
from planner.launchers.reading import Context, ReadConfig
from planner.launchers.verl_files import config_yaml, override_lines, run_script
from planner.launchers.verl_read import read_verl
from planner.launchers.verl_trainers import actor_keys, critic_keys, reference_keys
from planner.schema import Assignment, Cluster, Plan, Workload

OVERRIDES_FILE = "overrides.txt"
CONFIG_FILE = "rlmplan_verl.yaml"
SCRIPT_FILE = "run.sh"


class Verl:
    """Plans of the spaces verl-fsdp and verl-megatron."""

    name = "verl"
    version = "verl 0.9.1"
    capabilities = Capabilities(
        spaces=("verl-fsdp", "verl-megatron"),
        algorithms=algorithms_of(SPELLINGS),
        backends="FSDP2, Megatron; vLLM, SGLang",
        also={
            "prefill-decode": "actor_rollout_ref.rollout.disaggregation.enabled",
            "partial-rollout": "async_training.partial_rollout",
            "lora": "actor_rollout_ref.model.lora_rank",
            "activation-offload": "actor_rollout_ref.model.enable_activation_offload",
        },
        checked_by="verl's Hydra composition, validate_config and dataclasses",
    )

    def supports(self, plan: Plan, workload: Workload, cluster: Cluster) -> list[str]:
        """Reasons why verl cannot run the plan; empty when it can."""
        space = load_space("verl-megatron" if _is_megatron(layout_of(plan)) else "verl-fsdp")
        return common_reasons(
            plan,
            workload,
            cluster,
            space,
            self.capabilities.algorithms,
            _own_reasons,
            fp8_cache=True,
            adapters=True,
        )

    def read(
        self, files: Mapping[str, str], overrides: Sequence[str], context: Context
    ) -> ReadConfig:
        """What verl would run with these files; see `verl_read`."""
        return read_verl(files, overrides, context)

    def settings(
        self, assignment: Assignment, workload: Workload, cluster: Cluster
    ) -> dict[str, Any]:
        """verl's keys that carry the assignment."""
        keys = _keys(layout_of(assignment), workload)
        return {key.removeprefix("+"): value for key, value in keys.items()}

    def write(self, plan: Plan, workload: Workload, cluster: Cluster) -> LaunchFiles:
        """Overrides, YAML and script; InputError for a plan that verl cannot run."""
        refuse_unsupported(self, plan, workload, cluster)
        layout = layout_of(plan)
        keys = _keys(layout, workload)
        intro = header(self, plan, workload)
        body = yaml.safe_dump(config_yaml(keys), sort_keys=False, allow_unicode=True, width=100)
        return {
            OVERRIDES_FILE: "".join(f"{line}\n" for line in override_lines(keys)),
            CONFIG_FILE: intro + body,
            SCRIPT_FILE: run_script(intro, OVERRIDES_FILE),
        }


def _own_reasons(layout: Layout, workload: Workload) -> list[str]:
    reasons = []
    if workload.old_logprobs == "skip":
        reasons.append("verl always has old log-probs; use old_logprobs recompute or engine")
    for model in workload.models.values():
        if not model.name.isprintable():
            reasons.append(f"the model name {model.name!r} has a line break or control code")
    if workload.prompts_per_step % workload.optimizer_steps:
        reasons.append(
            f"{workload.prompts_per_step} prompts do not divide by "
            f"{workload.optimizer_steps} optimizer steps"
        )
    return reasons + _critic_step_reasons(layout, workload) + _padded_critic_reasons(layout)


def _critic_step_reasons(layout: Layout, workload: Workload) -> list[str]:
    steps = workload.critic_optimizer_steps
    if steps is None or "critic" not in workload.models:
        return []
    if workload.prompts_per_step % steps:
        return [f"{workload.prompts_per_step} prompts do not divide by {steps} critic steps"]
    if layout.staleness > 0 and steps % workload.optimizer_steps:
        # separate_async trains on one minibatch of the actor's at a time.
        return [
            f"{steps} critic steps are not a multiple of {workload.optimizer_steps} actor steps, "
            "as asynchronous training needs"
        ]
    return []


def _padded_critic_reasons(layout: Layout) -> list[str]:
    train, values = layout.get("critic_train"), layout.get("values")
    if train is None or values is None or values.packing or not _is_megatron(layout):
        return []
    if train.micro_batch_sequences == values.micro_batch_sequences:
        return []
    return ["values and critic_train must have the same micro_batch_sequences when padded"]


def _is_megatron(layout: Layout) -> bool:
    """FSDP shards weights over all ranks (ZeRO stage 3); Megatron's optimizer is stage 1."""
    train = layout.get("actor_train")
    return train is None or train.zero_stage < 3


def _keys(layout: Layout, workload: Workload) -> dict[str, Any]:
    """Dotted key -> value; a leading + adds a key to one of verl's open sections."""
    megatron = _is_megatron(layout)
    keys: dict[str, Any] = {"model_engine": "megatron"} if megatron else {}
    keys |= {
        **algorithm_keys(SPELLINGS, workload.algorithm),
        "data.train_batch_size": workload.prompts_per_step,
        "data.max_prompt_length": workload.prompt_length.max_tokens,
        "data.max_response_length": workload.response_length.max_tokens,
    }
    if workload.lora_rank:
        section = "lora.rank" if megatron else "lora_rank"
        keys[f"actor_rollout_ref.model.{section}"] = workload.lora_rank
    keys |= _kl_keys(workload)
    keys |= _correction_keys(layout, workload)
    keys |= actor_keys(layout, workload, megatron)
    if "reference_logprobs" in layout.strategies:
        keys |= reference_keys(layout, workload, megatron)
    keys |= _rollout_keys(layout, workload)
    if "critic_train" in layout.strategies:
        keys |= critic_keys(layout, workload, megatron)
    if "rewards" in layout.strategies:
        keys |= _reward_keys(layout, workload)
    return keys | _trainer_keys(layout, workload)


def _kl_keys(workload: Workload) -> dict[str, Any]:
    """PPO and REINFORCE++ have the KL term in the reward, the others in the loss; either brings
    the reference model."""
    rewarded = workload.algorithm in ("ppo", "reinforce-pp")
    in_loss = workload.kl_weight > 0 and not rewarded
    in_reward = workload.kl_weight > 0 and rewarded
    keys: dict[str, Any] = {
        "actor_rollout_ref.actor.use_kl_loss": in_loss,
        "algorithm.use_kl_in_reward": in_reward,
    }
    if in_loss:
        keys["actor_rollout_ref.actor.kl_loss_coef"] = workload.kl_weight
    if in_reward:
        keys["algorithm.kl_ctrl.kl_coef"] = workload.kl_weight
    return keys


def _correction_keys(layout: Layout, workload: Workload) -> dict[str, Any]:
    """Old log-probs of the engine (bypass), and truncated importance sampling of stale samples."""
    bypass = workload.old_logprobs == "engine"
    keys: dict[str, Any] = {"algorithm.rollout_correction.bypass_mode": bypass}
    if layout.staleness > 0 and not bypass:
        keys["algorithm.rollout_correction.rollout_is"] = "token"
    return keys


def _rollout_keys(layout: Layout, workload: Workload) -> dict[str, Any]:
    engine, rollout = layout.generate, "actor_rollout_ref.rollout"
    keys: dict[str, Any] = {
        f"{rollout}.name": "vllm",
        f"{rollout}.n": workload.samples_per_prompt,
        f"{rollout}.tensor_model_parallel_size": engine.tp,
        f"{rollout}.data_parallel_size": max(1, engine.ep // engine.tp),
        f"{rollout}.expert_parallel_size": engine.ep,
        f"{rollout}.gpu_memory_utilization": engine.memory_fraction,
        f"{rollout}.max_num_seqs": engine.max_running_sequences,
        f"{rollout}.max_model_len": workload.max_sequence_tokens,
        f"{rollout}.free_cache_engine": layout.placement == "colocated",
        f"{rollout}.calculate_log_probs": True,
    }
    if engine.dtype == "fp8":
        keys[f"{rollout}.quantization"] = "fp8"
    if workload.kv_cache_dtype == "fp8":
        keys[f"+{rollout}.engine_kwargs.vllm.kv_cache_dtype"] = "fp8"
    if layout.placement == "disaggregated":
        mesh = layout.engine_mesh
        keys |= {
            "actor_rollout_ref.hybrid_engine": False,
            f"{rollout}.nnodes": mesh.nodes,
            f"{rollout}.n_gpus_per_node": mesh.devices_per_node,
            f"{rollout}.checkpoint_engine.backend": "nccl",
        }
    return keys


def _reward_keys(layout: Layout, workload: Workload) -> dict[str, Any]:
    """verl serves the reward model from an engine of its own, one replica for each tp devices."""
    strategy, mesh = layout.strategies["rewards"], layout.meshes["rewards"]
    own_pool = mesh != layout.train_mesh
    model = "reward.reward_model"
    keys: dict[str, Any] = {
        f"{model}.enable": True,
        f"{model}.enable_resource_pool": own_pool,
        f"{model}.model_path": workload.models["reward"].name,
        f"{model}.rollout.name": "vllm",
        f"{model}.rollout.tensor_model_parallel_size": strategy.tp,
        f"{model}.rollout.prompt_length": workload.max_sequence_tokens,
        f"{model}.rollout.free_cache_engine": not own_pool,
    }
    if own_pool:
        keys |= {f"{model}.nnodes": mesh.nodes, f"{model}.n_gpus_per_node": mesh.devices_per_node}
    return keys


def _trainer_keys(layout: Layout, workload: Workload) -> dict[str, Any]:
    mesh = layout.train_mesh
    keys: dict[str, Any] = {
        "trainer.nnodes": mesh.nodes,
        "trainer.n_gpus_per_node": mesh.devices_per_node,
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": "sync" if layout.staleness == 0 else "separate_async",
    }
    if layout.staleness > 0:
        keys |= {
            # One weight sync a step: train_batch_size = parameter_sync_step x ppo_mini_batch_size.
            "trainer.v1.separate_async.parameter_sync_step": workload.optimizer_steps,
            "trainer.v1.separate_async.num_warmup_batches": layout.staleness,
            # Counts the versions that a sample may span, its own included.
            "trainer.v1.sampler.max_off_policy_threshold": layout.staleness + 1,
        }
    return keys
