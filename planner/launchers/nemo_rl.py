"""NVIDIA NeMo RL: a YAML file for `examples/run_grpo.py` or `run_ppo.py`, and a launch script.

The file overrides one of NeMo RL's own example configurations (its `defaults`), because the
enabled sections must carry every required key. Keys and meanings: examples/configs/*.yaml and
nemo_rl/models/policy/__init__.py of commit 7ea279abf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from planner.catalog.data import load_yaml
from planner.catalog.spaces import load_space
from planner.launchers.base import (
    Capabilities,
    LaunchFiles,
    Layout,
    common_reasons,
    header,
    layout_of,
    omegaconf_literal,
    refuse_unsupported,
)
from planner.launchers.nemo_rl_read import read_nemo_rl
from planner.launchers.nemo_rl_script import launch_script
from planner.launchers.reading import Context, ReadConfig
from planner.launchers.sources import flatten
from planner.schema import Assignment, Cluster, ModelSpec, Plan, Strategy, Workload

CONFIG_FILE = "nemo_rl.yaml"
SCRIPT_FILE = "launch.sh"
_TEMPLATES = Path(__file__).parent / "templates"
_EXAMPLES = {"grpo": "grpo_math_1B_megatron.yaml", "ppo": "ppo_math_1B_megatron.yaml"}
_DTENSOR_EXAMPLE = "grpo_math_1B.yaml"
_ENTRY = {"grpo": "examples/run_grpo.py", "ppo": "examples/run_ppo.py"}


class NemoRl:
    """Plans of the spaces nemo-rl-megatron and nemo-rl-dtensor."""

    name = "nemo-rl"
    version = "NeMo RL commit 7ea279abf"
    capabilities = Capabilities(
        spaces=("nemo-rl-megatron", "nemo-rl-dtensor"),
        algorithms=tuple(_EXAMPLES),
        backends="Megatron, DTensor (FSDP2); vLLM",
        also={
            "lora": "policy.megatron_cfg.peft.enabled",
            "activation-offload": "policy.megatron_cfg.fine_grained_activation_offloading",
        },
        checked_by="NeMo RL's loader and pydantic MasterConfig where a checkout is given, else "
        "the keys of its examples",
    )

    def supports(self, plan: Plan, workload: Workload, cluster: Cluster) -> list[str]:
        """Reasons why NeMo RL cannot run the plan; empty when it can."""
        layout = layout_of(plan)
        space = load_space("nemo-rl-dtensor" if _is_dtensor(layout) else "nemo-rl-megatron")
        return common_reasons(
            plan, workload, cluster, space, _EXAMPLES, _own_reasons, fp8_cache=True
        )

    def read(
        self, files: Mapping[str, str], overrides: Sequence[str], context: Context
    ) -> ReadConfig:
        """What NeMo RL would run with these files; see `nemo_rl_read`."""
        return read_nemo_rl(files, overrides, context)

    def settings(
        self, assignment: Assignment, workload: Workload, cluster: Cluster
    ) -> dict[str, Any]:
        """NeMo RL's keys that carry the assignment."""
        config = _config(layout_of(assignment), workload, cluster)
        config.pop("defaults")
        return {item.key: item.value for item in flatten(config, self.name)}

    def write(self, plan: Plan, workload: Workload, cluster: Cluster) -> LaunchFiles:
        """`nemo_rl.yaml` and `launch.sh`; InputError for a plan that NeMo RL cannot run."""
        refuse_unsupported(self, plan, workload, cluster)
        config = _config(layout_of(plan), workload, cluster)
        intro = header(self, plan, workload) + (
            "# Goes into examples/configs of a NeMo RL checkout: launch.sh copies it there.\n"
            "# Set data, env, checkpointing and logger to yours.\n"
        )
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100)
        script = launch_script(
            header(self, plan, workload),
            entry=_ENTRY[workload.algorithm],
            config_file=CONFIG_FILE,
            job_name=workload.name,
            nodes=config["cluster"]["num_nodes"],
            devices_per_node=config["cluster"]["gpus_per_node"],
        )
        return {CONFIG_FILE: intro + text, SCRIPT_FILE: script}


def _own_reasons(layout: Layout, workload: Workload) -> list[str]:
    reasons = []
    if len({forward.micro_batch_sequences for forward in _logprob_strategies(layout)}) > 1:
        reasons.append("old and reference log-probs differ in micro_batch_sequences")
    if workload.old_logprobs == "engine":
        reasons.append("old log-probs cannot come from the engine; use recompute or skip")
    if workload.old_logprobs == "skip" and workload.algorithm == "ppo":
        reasons.append("PPO always computes old log-probs; use old_logprobs recompute")
    if workload.algorithm == "grpo" and workload.epochs > 1:
        reasons.append(f"GRPO trains one epoch, not {workload.epochs}")
    if workload.kv_cache_dtype == "fp8":
        # algorithms/grpo.py setup: FP8 KV scales are synchronised in this case only.
        if workload.generate_dtype != "fp8":
            reasons.append("an fp8 KV cache needs fp8 generation")
        if layout.staleness > 0 or layout.generate.pp > 1:
            reasons.append("an fp8 KV cache does not go with the asynchronous engine")
        if layout.train.pp > 1:
            reasons.append("an fp8 KV cache needs training with pp 1")
        if workload.algorithm == "ppo":
            reasons.append("an fp8 KV cache is not supported with PPO")
    return reasons


def _logprob_strategies(layout: Layout) -> list[Strategy]:
    found = (layout.get("old_logprobs"), layout.get("reference_logprobs"))
    return [strategy for strategy in found if strategy is not None]


def _config(layout: Layout, workload: Workload, cluster: Cluster) -> dict[str, Any]:
    ppo = workload.algorithm == "ppo"
    config: dict[str, Any] = {
        "defaults": _DTENSOR_EXAMPLE if _is_dtensor(layout) else _EXAMPLES[workload.algorithm],
        workload.algorithm: _ppo(layout, workload) if ppo else _grpo(layout, workload),
        "loss_fn": {
            "reference_policy_kl_penalty": workload.kl_weight,
            "use_importance_sampling_correction": layout.staleness > 0,
            "force_on_policy_ratio": workload.old_logprobs == "skip",
        },
        "policy": _policy(layout, workload),
    }
    if ppo:
        config["value"] = _value(layout, workload)
    config["data"] = {"max_input_seq_length": workload.prompt_length.max_tokens}
    if "rewards" in layout.strategies and "reward" in workload.models:
        config["data"]["default"] = {"env_name": "reward_model"}
        config["env"] = {"reward_model": _reward_model(layout, workload, cluster)}
    config["cluster"] = _cluster(layout, cluster)
    return config


def _grpo(layout: Layout, workload: Workload) -> dict[str, Any]:
    section: dict[str, Any] = {
        "num_prompts_per_step": workload.prompts_per_step,
        "num_generations_per_prompt": workload.samples_per_prompt,
        "skip_reference_policy_logprobs_calculation": workload.kl_weight == 0,
    }
    section["async_grpo"] = _asynchrony(layout)
    return section


def _ppo(layout: Layout, workload: Workload) -> dict[str, Any]:
    section: dict[str, Any] = {
        "num_prompts_per_step": workload.prompts_per_step,
        "num_generations_per_prompt": workload.samples_per_prompt,
        "ppo_epochs": workload.epochs,
        "skip_reference_policy_logprobs_calculation": workload.kl_weight == 0,
        # The example shapes and scales rewards for its own lengths; asynchronous PPO refuses both.
        "reward_shaping": {"enabled": False},
        "reward_scaling": {"enabled": False},
        "async_ppo": _asynchrony(layout),
    }
    if layout.staleness > 0:
        section["max_num_epochs"] = -1  # asynchronous PPO counts steps only (run_ppo.py)
    return section


def _asynchrony(layout: Layout) -> dict[str, Any]:
    if layout.staleness == 0:
        return {"enabled": False}
    return {
        "enabled": True,
        "max_trajectory_age_steps": layout.staleness,
        "in_flight_weight_updates": True,
    }


def _policy(layout: Layout, workload: Workload) -> dict[str, Any]:
    train, model = layout.train, workload.models["actor"]
    forward = _logprob_strategies(layout)
    return {
        "model_name": omegaconf_literal(model.name),
        "train_global_batch_size": workload.sequences_per_step // workload.optimizer_steps,
        "train_micro_batch_size": train.micro_batch_sequences,
        "logprob_batch_size": (forward[0] if forward else train).micro_batch_sequences,
        "max_total_sequence_length": workload.max_sequence_tokens,
        "make_sequence_length_divisible_by": _sequence_multiple(train),
        "offload_optimizer_for_logprob": train.offload == "optimizer",
        **_backend(train, model),
        "dynamic_batching": {"enabled": False},
        "sequence_packing": {"enabled": train.packing},
        "generation": _generation(layout, workload),
    }


def _is_dtensor(layout: Layout) -> bool:
    """FSDP2 shards weights over all ranks (ZeRO stage 3); Megatron's optimizer is stage 1."""
    train = layout.get("actor_train")
    return train is not None and train.zero_stage == 3


def _backend(train: Strategy, model: ModelSpec) -> dict[str, Any]:
    if train.zero_stage < 3:
        megatron = _megatron(train, model) | {"fp8_cfg": {"enabled": train.dtype == "fp8"}}
        return {"dtensor_cfg": {"enabled": False}, "megatron_cfg": megatron}
    dtensor = {
        "enabled": True,
        "tensor_parallel_size": train.tp,
        "context_parallel_size": train.cp,
        "sequence_parallel": train.sequence_parallel,
        "activation_checkpointing": train.recompute != "none",
    }
    return {"dtensor_cfg": dtensor, "megatron_cfg": {"enabled": False}}


def _value(layout: Layout, workload: Workload) -> dict[str, Any]:
    train, model = layout.strategies["critic_train"], workload.models["critic"]
    steps = workload.critic_optimizer_steps or workload.optimizer_steps
    return {
        "model_name": omegaconf_literal(model.name),
        "train_global_batch_size": workload.sequences_per_step // steps,
        "train_micro_batch_size": train.micro_batch_sequences,
        "make_sequence_length_divisible_by": _sequence_multiple(train),
        "reward_model_cfg": {"enabled": False},
        "dtensor_cfg": {"enabled": False},
        "megatron_cfg": _megatron(train, model),
        "dynamic_batching": {"enabled": False},
        "sequence_packing": {"enabled": train.packing},
    }


def _sequence_multiple(train: Strategy) -> int:
    """Sequence parallelism cuts a sequence into tp pieces, context parallelism into 2 x cp."""
    return train.tp * (2 * train.cp if train.cp > 1 else 1)


def _megatron(train: Strategy, model: ModelSpec) -> dict[str, Any]:
    section: dict[str, Any] = {
        "enabled": True,
        "tensor_model_parallel_size": train.tp,
        "pipeline_model_parallel_size": train.pp,
        "num_layers_in_first_pipeline_stage": train.first_stage_layers or None,
        "num_layers_in_last_pipeline_stage": train.last_stage_layers or None,
        "context_parallel_size": train.cp,
        "expert_model_parallel_size": train.ep,
        "expert_tensor_parallel_size": train.etp,
        "sequence_parallel": train.sequence_parallel,
        "activation_checkpointing": train.recompute != "none",
        "optimizer": {
            "use_distributed_optimizer": train.zero_stage > 0,
            "optimizer_cpu_offload": train.optimizer_on_cpu,
            "optimizer_offload_fraction": 1.0 if train.optimizer_on_cpu else 0.0,
        },
    }
    if train.recompute != "none":
        section["recompute_granularity"] = train.recompute
    if model.moe is not None:
        section["moe_grouped_gemm"] = True
        section["moe_token_dispatcher_type"] = "alltoall"
    if model.mla is not None:
        # As in all of NeMo RL's own recipes for DeepSeek-V3.
        section["apply_rope_fusion"] = False
    return section


def _generation(layout: Layout, workload: Workload) -> dict[str, Any]:
    engine, mesh = layout.generate, layout.engine_mesh
    split = layout.placement == "disaggregated"
    vllm: dict[str, Any] = {
        "async_engine": layout.staleness > 0 or engine.pp > 1,
        "tensor_parallel_size": engine.tp,
        "pipeline_parallel_size": engine.pp,
        "expert_parallel_size": engine.ep,
        "gpu_memory_utilization": engine.memory_fraction,
        "max_model_len": workload.max_sequence_tokens,
        "kv_cache_dtype": "fp8" if workload.kv_cache_dtype == "fp8" else "auto",
    }
    if engine.dtype == "fp8":
        vllm["precision"] = "fp8"
    kwargs: dict[str, Any] = {"max_num_seqs": engine.max_running_sequences}
    if workload.models["actor"].moe is not None:
        # vLLM's default MoE kernels cannot take new weights: NeMo RL's MoE recipes say triton.
        kwargs["moe_backend"] = "triton"
    return {
        "backend": "vllm",
        "max_new_tokens": workload.response_length.max_tokens,
        "vllm_cfg": vllm,
        "vllm_kwargs": kwargs,
        "colocated": {
            "enabled": not split,
            "resources": {
                "num_nodes": mesh.nodes if split else None,
                "gpus_per_node": mesh.devices_per_node if split else None,
            },
        },
    }


def _reward_model(layout: Layout, workload: Workload, cluster: Cluster) -> dict[str, Any]:
    strategy, mesh = layout.strategies["rewards"], layout.meshes["rewards"]
    section: dict[str, Any] = load_yaml(_TEMPLATES / "nemo_rl_reward_model.yaml")
    section["model_name"] = omegaconf_literal(workload.models["reward"].name)
    section["batch_size"] = strategy.micro_batch_sequences
    section["max_model_len"] = workload.max_sequence_tokens
    section["resources"] = {"gpus_per_node": mesh.devices_per_node, "num_nodes": mesh.nodes}
    section["dtensor_cfg"]["tensor_parallel_size"] = strategy.tp
    section["dtensor_cfg"]["sequence_parallel"] = strategy.sequence_parallel
    return section


def _cluster(layout: Layout, cluster: Cluster) -> dict[str, Any]:
    """Nodes and devices that NeMo RL divides between policy, engine and reward model.

    Whole nodes of a cluster of several nodes; on a single node the devices are added up
    (algorithms/grpo.py setup).
    """
    group = cluster.group(layout.train_mesh.group)
    parts = {
        (mesh.first_node, mesh.first_device): mesh
        for name, mesh in layout.meshes.items()
        if name in layout.strategies
    }.values()
    if group.nodes == 1:
        return {"num_nodes": 1, "gpus_per_node": sum(mesh.devices for mesh in parts)}
    return {
        "num_nodes": sum(mesh.nodes for mesh in parts),
        "gpus_per_node": layout.train_mesh.devices_per_node,
    }
