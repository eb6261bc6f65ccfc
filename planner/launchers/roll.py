"""ROLL: a YAML file for its RLVR pipeline, and a script that starts it.

Keys: keys/roll.json (the dataclass RLVRConfig of commit 8eb27cc2; `strategy_config` sections hold
arguments of Megatron-Core's adapter and of vLLM, which pass through).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

import yaml

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
from planner.launchers.reading import Context, ReadConfig
from planner.launchers.roll_read import read_roll
from planner.launchers.sources import flatten
from planner.schema import Assignment, Cluster, Mesh, ModelSpec, Plan, Strategy, Workload

CONFIG_FILE = "roll.yaml"
SCRIPT_FILE = "run.sh"

_SCRIPT = Template(
    """\
#!/usr/bin/env bash
${header}# Usage:  ROLL_DIR=<checkout> ./run.sh       on every node
# Several nodes: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as ROLL reads them. Data, rewards
# and the chat template in $config are an example's: set them to yours.
set -euo pipefail

here="$$(cd -- "$$(dirname -- "$${BASH_SOURCE[0]}")" && pwd)"
cd -- "$${ROLL_DIR:?set ROLL_DIR to a checkout of ROLL}"
mkdir -p examples/rlmplan
cp -- "$$here/$config" examples/rlmplan/
exec python3 examples/start_rlvr_pipeline.py --config_path rlmplan --config_name roll "$$@"
"""
)
MEGATRON = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
}


class Roll:
    """Plans of the space roll."""

    name = "roll"
    version = "ROLL commit 8eb27cc2"
    capabilities = Capabilities(
        spaces=("roll",),
        algorithms=("grpo",),
        backends="Megatron; vLLM",
        also={
            "zero-3": "actor_train.strategy_args.strategy_name",
            "uneven-stages": "actor_train.strategy_args.strategy_config."
            "account_for_loss_in_pipeline_split",
            "lora": "actor_train.model_args.lora_target",
            "generate-pp": "actor_infer.strategy_args.strategy_config.pipeline_parallel_size",
            "generate-ep": "actor_infer.strategy_args.strategy_config.enable_expert_parallel",
        },
        checked_by="RLVRConfig with its checks where a checkout is given (ROLL_CHECKOUT; it is on "
        "no package index), else its published keys",
    )

    def supports(self, plan: Plan, workload: Workload, cluster: Cluster) -> list[str]:
        """Reasons why ROLL cannot run the plan; empty when it can."""
        algorithms = self.capabilities.algorithms
        return common_reasons(plan, workload, cluster, load_space("roll"), algorithms, _own_reasons)

    def read(
        self, files: Mapping[str, str], overrides: Sequence[str], context: Context
    ) -> ReadConfig:
        """What ROLL would run with these files; see `roll_read`."""
        return read_roll(files, overrides, context)

    def settings(
        self, assignment: Assignment, workload: Workload, cluster: Cluster
    ) -> dict[str, Any]:
        """ROLL's keys that carry the assignment."""
        config = _config(layout_of(assignment), workload, cluster)
        return {item.key: item.value for item in flatten(config, self.name)}

    def write(self, plan: Plan, workload: Workload, cluster: Cluster) -> LaunchFiles:
        """The configuration and a script; InputError for a plan that ROLL cannot run."""
        refuse_unsupported(self, plan, workload, cluster)
        intro = header(self, plan, workload)
        config = _config(layout_of(plan), workload, cluster)
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100)
        script = _SCRIPT.substitute(header=intro, config=CONFIG_FILE)
        return {CONFIG_FILE: intro + text, SCRIPT_FILE: script}


def _own_reasons(layout: Layout, workload: Workload) -> list[str]:
    reasons = []
    if workload.old_logprobs == "engine":
        reasons.append("old log-probs come from the trainer; use recompute or skip")
    if "reward" in workload.models:
        reasons.append("rewards are functions or judges of their own, which are not planned for")
    return reasons


def _ids(mesh: Mesh, per_node: int, first_node: int) -> str:
    """The devices' numbers over the whole Ray cluster, as the expression that ROLL evaluates."""
    start = (mesh.first_node - first_node) * per_node + mesh.first_device
    return f"list(range({start},{start + mesh.devices}))"


def _config(layout: Layout, workload: Workload, cluster: Cluster) -> dict[str, Any]:
    per_node = cluster.group(layout.train_mesh.group).devices_per_node
    first = min(mesh.first_node for mesh in layout.meshes.values())
    reference = layout.get("reference_logprobs")
    config: dict[str, Any] = {
        "exp_name": "rlmplan",
        "num_gpus_per_node": per_node,
        "pretrain": omegaconf_literal(workload.models["actor"].name),
        "reward_pretrain": "${pretrain}",
        "rollout_batch_size": workload.prompts_per_step,
        "num_return_sequences_in_group": workload.samples_per_prompt,
        "prompt_length": workload.prompt_length.max_tokens,
        "response_length": workload.response_length.max_tokens,
        "max_running_requests": layout.generate.max_running_sequences,
        "ppo_epochs": workload.epochs,
        "adv_estimator": "grpo",
        "norm_mean_type": "group",
        "norm_std_type": "group",
        "use_kl_loss": workload.kl_weight > 0,
        "kl_loss_coef": workload.kl_weight,
        # Its default would start a reference model.
        "init_kl_coef": 0.0,
        "enable_reference": reference is not None,
        "enable_old_logprobs_recompute": "old_logprobs" in layout.strategies,
        "async_generation_ratio": layout.staleness,
        "generate_opt_level": 1 if layout.staleness > 0 else 0,
        "checkpoint_config": {"type": "file_system", "output_dir": "output/models"},
        "actor_train": {
            **_actor(layout, workload),
            "data_args": _DATA | {"file_name": ["data/math_deepmath_deal.jsonl"]},
            "device_mapping": _ids(layout.train_mesh, per_node, first),
        },
        "actor_infer": {
            **_engine(layout, workload),
            "data_args": _DATA,
            "device_mapping": _ids(layout.engine_mesh, per_node, first),
        },
        "rewards": {
            "math_rule": {
                "worker_cls": "roll.pipeline.rlvr.rewards.math_rule_reward_worker."
                "MathRuleRewardWorker",
                "model_args": {"model_name_or_path": "${reward_pretrain}"},
                "data_args": _DATA,
                "tag_included": ["deepmath_103k"],
                "world_size": 8,
                "infer_batch_size": 1,
            }
        },
    }
    if reference is not None:
        config["reference"] = {
            **_trained(reference, workload, layout.train.packing, infer=True),
            "model_args": {"dtype": "bf16"},
            "data_args": _DATA,
            "device_mapping": _ids(layout.meshes["reference_logprobs"], per_node, first),
        }
    return config


_DATA: dict[str, Any] = {"template": "qwen2_5"}


def _actor(layout: Layout, workload: Workload) -> dict[str, Any]:
    train, forward = layout.train, layout.get("old_logprobs") or layout.train
    part = workload.sequences_per_step // workload.optimizer_steps
    # Packed microbatches are made of the sequences of a whole optimizer step.
    size = 1 if train.packing else train.micro_batch_sequences
    config = _trained(forward, workload, train.packing, infer=False)
    longest = workload.max_sequence_tokens
    if train.packing:
        config["sequence_packing_args"]["max_packed_sequence_length_train"] = (
            train.micro_batch_sequences * longest
        )
    config["strategy_args"]["strategy_config"] |= _recompute(train) | {
        "use_distributed_optimizer": True
    }
    return config | {
        "model_args": {"dtype": "bf16"},
        "training_args": {
            "learning_rate": 1.0e-6,
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": max(1, part // (train.dp * size)),
        },
    }


def _trained(
    strategy: Strategy, workload: Workload, packing: bool, *, infer: bool
) -> dict[str, Any]:
    """Degrees, and the microbatch of forward passes."""
    budget = strategy.micro_batch_sequences * workload.max_sequence_tokens
    config: dict[str, Any] = {
        "strategy_args": {
            "strategy_name": "megatron_infer" if infer else "megatron_train",
            "strategy_config": _degrees(strategy, workload.models["actor"]),
        },
        "infer_batch_size": 1 if packing else strategy.micro_batch_sequences,
        "use_sequence_packing": packing,
    }
    if packing:
        config["sequence_packing_args"] = {
            "algorithm": "load_balance",
            "max_packed_sequence_length_forward": budget,
        }
    return config


def _degrees(strategy: Strategy, model: ModelSpec) -> dict[str, Any]:
    found: dict[str, Any] = {
        key: getattr(strategy, field)
        for field, key in MEGATRON.items()
        if model.moe is not None or field not in ("ep", "etp")
    }
    if strategy.vpp == 1:
        found.pop(MEGATRON["vpp"])
    return found | {"sequence_parallel": strategy.sequence_parallel}


def _recompute(train: Strategy) -> dict[str, Any]:
    if train.recompute == "full":
        return {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        }
    return {} if train.recompute == "none" else {"recompute_granularity": "selective"}


def _engine(layout: Layout, workload: Workload) -> dict[str, Any]:
    engine = layout.generate
    options: dict[str, Any] = {
        "tensor_parallel_size": engine.tp,
        "gpu_memory_utilization": engine.memory_fraction,
        "max_model_len": workload.max_sequence_tokens,
        "max_num_seqs": engine.max_running_sequences,
        "load_format": "dummy",
    }
    if layout.placement == "colocated":
        # Weights and key-value cache leave the devices while the actor trains.
        options["sleep_level"] = 2
    return {
        "model_args": {"dtype": "bf16"},
        "generating_args": {
            "max_new_tokens": "${response_length}",
            "num_return_sequences": "${num_return_sequences_in_group}",
        },
        "strategy_args": {"strategy_name": "vllm", "strategy_config": options},
    }
