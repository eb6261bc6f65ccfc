"""AReaL: a YAML file for its single-controller trainer (`scheduler.type`), and a script.

Keys: keys/areal.json (the dataclass GRPOConfig of AReaL 1.0.4). The degrees of an engine are one
text, its `backend`, in the allocation language: `sglang:d4t2`, `fsdp:d4c2`, `megatron:d2p2t4e8`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

import yaml

from planner.catalog.spaces import load_space
from planner.launchers.areal_read import read_areal
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
from planner.launchers.reading import Context, ReadConfig
from planner.launchers.sources import flatten
from planner.schema import Assignment, Cluster, Plan, Strategy, Workload

CONFIG_FILE = "areal.yaml"
SCRIPT_FILE = "run.sh"

_SCRIPT = Template(
    """\
#!/usr/bin/env bash
${header}# Usage:  AREAL_DIR=<checkout> FILEROOT=<folder that all nodes see> DATASET=<name> \\\\
#         ./run.sh [key=value ...]
# Later keys hold; a key that the file lacks is +key=value. TRAIN_SCRIPT names another script with
# its rewards. Several nodes: on the head of a Ray cluster where AReaL is installed.
set -euo pipefail

here="$$(cd -- "$$(dirname -- "$${BASH_SOURCE[0]}")" && pwd)"
cd -- "$${AREAL_DIR:?set AREAL_DIR to a checkout of AReaL}"
exec python3 "$${TRAIN_SCRIPT:-examples/math/gsm8k_rl.py}" --config "$$here/"$config_file \\
  cluster.fileroot="$${FILEROOT:?set FILEROOT}" \\
  cluster.name_resolve.nfs_record_root="$$FILEROOT/name_resolve" \\
  train_dataset.path="$${DATASET:?set DATASET}" "$$@"
"""
)
_RUN = {"experiment_name": "${experiment_name}", "trial_name": "${trial_name}"}
_PLACED = {**_RUN, "fileroot": "${cluster.fileroot}"}


class Areal:
    """Plans of the spaces areal-fsdp and areal-megatron."""

    name = "areal"
    version = "AReaL 1.0.4"
    capabilities = Capabilities(
        spaces=("areal-fsdp", "areal-megatron"),
        algorithms=("grpo",),
        backends="FSDP2 or Megatron; SGLang",
        also={
            "etp": "actor.backend",
            "generate-pp": "rollout.backend",
            "optimizer-on-cpu": "actor.fsdp.per_layer_optim_step",
            "train-fp8": "actor.megatron.fp8_config",
            "lora": "actor.use_lora",
            "partial-rollout": "rollout.max_head_offpolicyness",
        },
        checked_by="AReaL's configuration loader and dataclasses, and its allocation parser",
    )

    def supports(self, plan: Plan, workload: Workload, cluster: Cluster) -> list[str]:
        """Reasons why AReaL cannot run the plan; empty when it can."""
        space = load_space(f"areal-{_backend(layout_of(plan))}")
        algorithms = self.capabilities.algorithms
        return common_reasons(plan, workload, cluster, space, algorithms, _own_reasons)

    def read(
        self, files: Mapping[str, str], overrides: Sequence[str], context: Context
    ) -> ReadConfig:
        """What AReaL would run with these files; see `areal_read`."""
        return read_areal(files, overrides, context)

    def settings(
        self, assignment: Assignment, workload: Workload, cluster: Cluster
    ) -> dict[str, Any]:
        """AReaL's keys that carry the assignment."""
        config = _config(layout_of(assignment), workload, cluster)
        return {item.key: item.value for item in flatten(config, self.name)}

    def write(self, plan: Plan, workload: Workload, cluster: Cluster) -> LaunchFiles:
        """The configuration and a script; InputError for a plan that AReaL cannot run."""
        refuse_unsupported(self, plan, workload, cluster)
        intro = header(self, plan, workload)
        config = _config(layout_of(plan), workload, cluster)
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100)
        script = _SCRIPT.substitute(header=intro, config_file=shlex.quote(CONFIG_FILE))
        return {CONFIG_FILE: intro + text, SCRIPT_FILE: script}


def _own_reasons(layout: Layout, workload: Workload) -> list[str]:
    reasons = []
    if workload.epochs > 1:
        reasons.append(f"a batch is trained on once, not {workload.epochs} times")
    if workload.old_logprobs == "skip":
        reasons.append("AReaL always has old log-probs; use old_logprobs recompute or engine")
    if "reward" in workload.models:
        reasons.append("rewards are functions or services apart, which is not planned for")
    forward, size = layout.get("old_logprobs"), layout.train.micro_batch_sequences
    if forward is not None and forward.micro_batch_sequences != size:
        reasons.append("old_logprobs and actor_train must have the same micro_batch_sequences")
    return reasons


def _backend(layout: Layout) -> str:
    """FSDP shards weights over all ranks (ZeRO stage 3); Megatron's optimizer is stage 1."""
    train = layout.get("actor_train")
    return "fsdp" if train is None or train.zero_stage == 3 else "megatron"


def _dims(strategy: Strategy, letters: str) -> str:
    """Degrees in the allocation language; those of one are left out, d is always there."""
    fields = {"d": "dp", "p": "pp", "t": "tp", "c": "cp", "e": "ep"}
    degrees = [(letter, getattr(strategy, fields[letter])) for letter in letters]
    return "".join(f"{letter}{size}" for letter, size in degrees if size > 1 or letter == "d")


def _config(layout: Layout, workload: Workload, cluster: Cluster) -> dict[str, Any]:
    colocated = layout.placement == "colocated"
    reference = layout.get("reference_logprobs")
    meshes = layout.meshes.values()
    nodes = {
        node for mesh in meshes for node in range(mesh.first_node, mesh.first_node + mesh.nodes)
    }
    offload = colocated or layout.train.offload == "all"
    return {
        "experiment_name": "rlmplan",
        "trial_name": "trial0",
        "tokenizer_path": "${actor.path}",
        "enable_offload": offload or reference is not None,
        "cluster": {
            "n_nodes": len(nodes),
            "n_gpus_per_node": cluster.group(layout.train_mesh.group).devices_per_node,
            # Hydra replaces keys that the file has: the script gives these folders and the data.
            "fileroot": "areal",
            "name_resolve": {"nfs_record_root": "areal/name_resolve"},
        },
        "scheduler": {"type": "ray" if len(nodes) > 1 else "local"},
        "rollout": _rollout(layout, workload),
        "gconfig": {
            "n_samples": workload.samples_per_prompt,
            "max_new_tokens": workload.response_length.max_tokens,
        },
        "actor": _actor(layout, workload),
        "ref": None if reference is None else _reference(reference, layout, workload),
        "sglang": _sglang(layout.generate, workload),
        "train_dataset": {
            "path": "openai/gsm8k",
            "type": "rl",
            "batch_size": workload.prompts_per_step,
            "max_length": workload.prompt_length.max_tokens,
        },
        "valid_dataset": {
            "path": "${train_dataset.path}",
            "type": "rl",
            "batch_size": "${train_dataset.batch_size}",
        },
        "saver": _PLACED,
        "recover": _PLACED,
        "evaluator": _PLACED,
        "stats_logger": _PLACED,
    }


def _rollout(layout: Layout, workload: Workload) -> dict[str, Any]:
    return {
        **_PLACED,
        "backend": f"sglang:{_dims(layout.generate, 'dt')}",
        "tokenizer_path": "${tokenizer_path}",
        # Prompts in flight: whole batches, so that the engines' own limit holds.
        "max_concurrent_rollouts": workload.prompts_per_step * (layout.staleness + 1),
        "consumer_batch_size": "${train_dataset.batch_size}",
        "max_head_offpolicyness": layout.staleness,
        "scheduling_strategy": _beside_actor() if layout.placement == "colocated" else _APART,
        "scheduling_spec": "${actor.scheduling_spec}",
    }


_APART = {"type": "separation", "target": None}


def _beside_actor() -> dict[str, Any]:
    return {"type": "colocation", "target": "actor"}


def _actor(layout: Layout, workload: Workload) -> dict[str, Any]:
    colocated = layout.placement == "colocated"
    recompute = "old_logprobs" in layout.strategies
    return {
        **_trained(layout.train, layout, workload),
        "path": omegaconf_literal(workload.models["actor"].name),
        "optimizer": {"type": "adam"},
        "offload": colocated or layout.train.offload == "all",
        # Colocated engines take new weights from files only.
        "weight_update_mode": "disk" if colocated else "xccl",
        "kl_ctl": workload.kl_weight,
        "ppo_n_minibatches": workload.optimizer_steps,
        "recompute_logprob": recompute,
        "use_decoupled_loss": recompute and layout.staleness > 0,
        "reward_norm": {
            "mean_level": "group",
            "std_level": "group",
            "group_size": "${gconfig.n_samples}",
        },
        "max_new_tokens": "${gconfig.max_new_tokens}",
        "scheduling_spec": [
            {"task_type": "worker", "gpu": 1, "cmd": "python3 -m areal.infra.rpc.rpc_server"}
        ],
    }


def _reference(strategy: Strategy, layout: Layout, workload: Workload) -> dict[str, Any]:
    return {
        **_trained(strategy, layout, workload),
        "path": "${actor.path}",
        "optimizer": None,
        # Its weights wait in host memory.
        "offload": True,
        "scheduling_strategy": _beside_actor(),
        "scheduling_spec": "${actor.scheduling_spec}",
    }


def _trained(strategy: Strategy, layout: Layout, workload: Workload) -> dict[str, Any]:
    """Degrees, microbatch and recomputation of a training engine."""
    backend = _backend(layout)
    letters = "dtc" if backend == "fsdp" else "dptce"
    config: dict[str, Any] = {
        **_RUN,
        "backend": f"{backend}:{_dims(strategy, letters)}",
        "dtype": "bfloat16",
        # Tokens of all devices that share a microbatch, in tensor and context parallelism.
        "mb_spec": {
            "max_tokens_per_mb": strategy.micro_batch_sequences * workload.max_sequence_tokens
        },
        "gradient_checkpointing": strategy.recompute != "none",
    }
    if backend == "megatron":
        megatron: dict[str, Any] = {"virtual_pipeline_parallel_size": strategy.vpp}
        if strategy.recompute == "full":
            megatron |= {
                "recompute_granularity": "full",
                "recompute_method": "uniform",
                "recompute_num_layers": 1,
            }
        elif strategy.recompute == "selective":
            megatron |= {
                "recompute_granularity": "selective",
                "recompute_method": None,
                "recompute_num_layers": None,
            }
        config["megatron"] = megatron
    return config


def _sglang(engine: Strategy, workload: Workload) -> dict[str, Any]:
    return {
        "model_path": "${actor.path}",
        "dtype": "bfloat16",
        # SGLang ends a sequence one token below the context.
        "context_length": workload.max_sequence_tokens + 1,
        "mem_fraction_static": engine.memory_fraction,
        "max_running_requests": engine.max_running_sequences,
        "ep_size": engine.ep,
        "enable_memory_saver": "${enable_offload}",
    }
