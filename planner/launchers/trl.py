"""TRL's GRPOTrainer: a YAML file for `trl.scripts.grpo`, one for accelerate, and launch scripts.

Keys: keys/trl.json (the fields of GRPOConfig, ModelConfig and ScriptArguments of TRL 1.16.0; those
of accelerate's file begin with `accelerate.`, the server's flags with `vllm-serve.`).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

import yaml

from planner.catalog.spaces import load_space
from planner.launchers.algorithm_settings import TRL as SPELLINGS
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
from planner.launchers.flags import flag_lines
from planner.launchers.reading import Context, ReadConfig
from planner.launchers.trl_read import read_trl
from planner.schema import Assignment, Cluster, Plan, Workload

CONFIG_FILE = "grpo.yaml"
ACCELERATE_FILE = "accelerate.yaml"
SCRIPT_FILE = "run.sh"
SERVER_FILE = "serve.sh"

_SCRIPT = Template(
    """\
#!/usr/bin/env bash
${header}# Usage:  DATASET=<name> ./run.sh [--flag value ...]       on every training node
# Several nodes: set MACHINE_RANK (0, 1, ...) and MAIN_PROCESS_IP. Reward functions are TRL's
# --reward_funcs; later flags hold.${server_usage}
set -euo pipefail

here="$$(cd -- "$$(dirname -- "$${BASH_SOURCE[0]}")" && pwd)"
exec accelerate launch --config_file "$$here/"$accelerate_file \\
  --machine_rank "$${MACHINE_RANK:-0}" --main_process_ip "$${MAIN_PROCESS_IP:-127.0.0.1}" \\
  --main_process_port "$${MAIN_PROCESS_PORT:-29500}" \\
  --module trl.scripts.grpo --config "$$here/"$config_file \\
  --dataset_name "$${DATASET:?set DATASET}"$server_flags "$$@"
"""
)
_SERVER = Template(
    """\
#!/usr/bin/env bash
${header}# Usage:  ./serve.sh [--flag value ...]     on the generation node, before run.sh
set -euo pipefail

flags=(
${flags})
exec trl vllm-serve --host 0.0.0.0 --port "$${VLLM_PORT:-8000}" "$${flags[@]}" "$$@"
"""
)


class Trl:
    """Plans of the space trl."""

    name = "trl"
    version = "TRL 1.16.0"
    capabilities = Capabilities(
        spaces=("trl",),
        algorithms=algorithms_of(SPELLINGS),
        backends="DeepSpeed or FSDP2 through accelerate; vLLM",
        also={
            "zero-1": "accelerate.deepspeed_config.zero_stage",
            "zero-2": "accelerate.deepspeed_config.zero_stage",
            "lora": "use_peft",
            "activation-offload": "activation_offloading",
            "staleness": "trl.experimental.async_grpo",
        },
        checked_by="TrlParser, GRPOConfig's checks and accelerate's configuration loader",
    )

    def supports(self, plan: Plan, workload: Workload, cluster: Cluster) -> list[str]:
        """Reasons why TRL cannot run the plan; empty when it can."""
        algorithms = self.capabilities.algorithms
        return common_reasons(
            plan, workload, cluster, load_space("trl"), algorithms, _own_reasons, adapters=True
        )

    def read(
        self, files: Mapping[str, str], overrides: Sequence[str], context: Context
    ) -> ReadConfig:
        """What TRL would run with these files; see `trl_read`."""
        return read_trl(files, overrides, context)

    def settings(
        self, assignment: Assignment, workload: Workload, cluster: Cluster
    ) -> dict[str, Any]:
        """TRL's keys that carry the assignment."""
        layout = layout_of(assignment)
        found = dict(_config(layout, workload))
        accelerate = _accelerate(layout)
        deepspeed = accelerate.pop("deepspeed_config")
        found |= {f"accelerate.{key}": value for key, value in accelerate.items()}
        found |= {f"accelerate.deepspeed_config.{key}": value for key, value in deepspeed.items()}
        if layout.placement == "disaggregated":
            found |= {f"vllm-serve.{k}": v for k, v in _server(layout, workload).items()}
        return found

    def write(self, plan: Plan, workload: Workload, cluster: Cluster) -> LaunchFiles:
        """Configurations and scripts; InputError for a plan that TRL cannot run."""
        refuse_unsupported(self, plan, workload, cluster)
        layout, intro = layout_of(plan), header(self, plan, workload)
        split = layout.placement == "disaggregated"
        files = {
            CONFIG_FILE: intro + _yaml(_config(layout, workload)),
            ACCELERATE_FILE: intro + _yaml(_accelerate(layout)),
            SCRIPT_FILE: _SCRIPT.substitute(
                header=intro,
                accelerate_file=shlex.quote(ACCELERATE_FILE),
                config_file=shlex.quote(CONFIG_FILE),
                server_usage=("\n# VLLM_HOST names the node that runs serve.sh." if split else ""),
                server_flags=(
                    ' \\\n  --vllm_server_host "${VLLM_HOST:?set VLLM_HOST}"'
                    ' --vllm_server_port "${VLLM_PORT:-8000}"'
                    if split
                    else ""
                ),
            ),
        }
        if split:
            flags = flag_lines(_server(layout, workload))
            files[SERVER_FILE] = _SERVER.substitute(header=intro, flags=flags)
        return files


def _own_reasons(layout: Layout, workload: Workload) -> list[str]:
    reasons = []
    if "reward" in workload.models:
        reasons.append("reward models run inside the trainer, which is not planned for")
    if workload.old_logprobs == "engine":
        reasons.append("old log-probs come from the trainer; use recompute or skip")
    train = layout.train
    part = workload.sequences_per_step // workload.optimizer_steps
    if part % (train.dp * train.micro_batch_sequences):
        reasons.append(f"{part} sequences do not make whole gradient accumulation steps")
    for name in ("old_logprobs", "reference_logprobs"):
        forward = layout.get(name)
        if forward is None:
            continue
        if forward.micro_batch_sequences != train.micro_batch_sequences:
            reasons.append(f"{name} and actor_train must have the same micro_batch_sequences")
    return reasons


def _yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)


def _config(layout: Layout, workload: Workload) -> dict[str, Any]:
    train, engine = layout.train, layout.generate
    part = workload.sequences_per_step // workload.optimizer_steps
    accumulation = max(1, part // (train.dp * train.micro_batch_sequences))
    config: dict[str, Any] = {
        "model_name_or_path": workload.models["actor"].name,
        "dtype": "bfloat16",
        "bf16": True,
        "per_device_train_batch_size": train.micro_batch_sequences,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": accumulation * workload.optimizer_steps,
        "num_generations": workload.samples_per_prompt,
        "num_iterations": workload.epochs,
        **algorithm_keys(SPELLINGS, workload.algorithm),
        **_adapter_keys(workload),
        "max_completion_length": workload.response_length.max_tokens,
        "beta": workload.kl_weight,
        "gradient_checkpointing": train.recompute == "full",
        "use_vllm": True,
        "vllm_mode": "colocate" if layout.placement == "colocated" else "server",
        # Off, old log-probs are taken as the current ones (one optimizer step a batch).
        "vllm_importance_sampling_correction": workload.old_logprobs == "recompute",
        "vllm_max_model_length": workload.max_sequence_tokens,
    }
    if layout.placement == "colocated":
        config |= {
            "vllm_tensor_parallel_size": engine.tp,
            "vllm_gpu_memory_utilization": engine.memory_fraction,
            "vllm_enable_sleep_mode": True,
        }
    return config


def _adapter_keys(workload: Workload) -> dict[str, Any]:
    """Adapters beside every linear layer, as they are priced."""
    if not workload.lora_rank:
        return {}
    return {
        "use_peft": True,
        "lora_r": workload.lora_rank,
        "lora_target_modules": ["all-linear"],
    }


def _accelerate(layout: Layout) -> dict[str, Any]:
    train, mesh = layout.train, layout.train_mesh
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "DEEPSPEED",
        "mixed_precision": "bf16",
        "num_machines": mesh.nodes,
        "num_processes": mesh.devices,
        "machine_rank": 0,
        "main_training_function": "main",
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
        "deepspeed_config": {
            "deepspeed_multinode_launcher": "standard",
            "zero_stage": train.zero_stage,
            "offload_optimizer_device": "cpu" if train.optimizer_on_cpu else "none",
            "offload_param_device": "none",
            "zero3_init_flag": train.zero_stage == 3,
            "zero3_save_16bit_model": train.zero_stage == 3,
        },
    }


def _server(layout: Layout, workload: Workload) -> dict[str, Any]:
    engine = layout.generate
    return {
        "model": workload.models["actor"].name,
        "tensor_parallel_size": engine.tp,
        "data_parallel_size": engine.dp,
        "gpu_memory_utilization": engine.memory_fraction,
        "max_model_len": workload.max_sequence_tokens,
    }
