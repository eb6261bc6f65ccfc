"""prime-rl: a TOML file for its `rl` entry point, and a script that starts it.

Keys: keys/prime-rl.json (the pydantic model RLConfig of prime-rl-configs 0.4.0, commit 559b44772).
TOML has no null; prime-rl reads the text "None" as one.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from planner.catalog.spaces import load_space
from planner.launchers.base import (
    Capabilities,
    LaunchFiles,
    Layout,
    common_reasons,
    header,
    layout_of,
    refuse_unsupported,
)
from planner.launchers.prime_rl_read import read_prime_rl
from planner.launchers.reading import Context, ReadConfig
from planner.launchers.sources import flatten
from planner.schema import Assignment, Cluster, Plan, Strategy, Workload

CONFIG_FILE = "rl.toml"
SCRIPT_FILE = "run.sh"

_SCRIPT = Template(
    """\
#!/usr/bin/env bash
${header}# Usage:  PRIME_RL_DIR=<checkout> ./run.sh @ <file with [[orchestrator.train.source]]> \\
#         [--section.key value ...]
# Later files and flags hold. Several nodes: where sbatch is; --slurm.* are the scheduler's.
set -euo pipefail

here="$$(cd -- "$$(dirname -- "$${BASH_SOURCE[0]}")" && pwd)"
cd -- "$${PRIME_RL_DIR:?set PRIME_RL_DIR to a checkout of prime-rl}"
exec uv run rl @ "$$here/"$config_file "$$@"
"""
)


class PrimeRl:
    """Plans of the space prime-rl."""

    name = "prime-rl"
    version = "prime-rl commit 559b44772"
    capabilities = Capabilities(
        spaces=("prime-rl",),
        algorithms=("grpo",),
        backends="FSDP2; vLLM",
        also={
            "recompute-selective": "trainer.model.ac.mode",
            "offload": "trainer.model.optim_cpu_offload",
            "activation-offload": "trainer.model.ac_offloading",
            "lora": "trainer.model.lora",
            "train-fp8": "trainer.model.quantization",
            "generate-fp8": "inference.vllm.quantization",
            "generate-ep": "inference.vllm.enable_expert_parallel",
            "prefill-decode": "inference.deployment.type",
            "partial-rollout": "orchestrator.max_off_policy_steps",
        },
        checked_by="prime-rl's pydantic RLConfig with its validators where a checkout is given "
        "(PRIME_RL_CHECKOUT; it is on no package index), else its published keys",
    )

    def supports(self, plan: Plan, workload: Workload, cluster: Cluster) -> list[str]:
        """Reasons why prime-rl cannot run the plan; empty when it can."""
        algorithms = self.capabilities.algorithms
        return common_reasons(
            plan, workload, cluster, load_space("prime-rl"), algorithms, _own_reasons
        )

    def read(
        self, files: Mapping[str, str], overrides: Sequence[str], context: Context
    ) -> ReadConfig:
        """What prime-rl would run with these files; see `prime_rl_read`."""
        return read_prime_rl(files, overrides, context)

    def settings(
        self, assignment: Assignment, workload: Workload, cluster: Cluster
    ) -> dict[str, Any]:
        """prime-rl's keys that carry the assignment."""
        config = _config(layout_of(assignment), workload, cluster)
        return {item.key: item.value for item in flatten(config, self.name)}

    def write(self, plan: Plan, workload: Workload, cluster: Cluster) -> LaunchFiles:
        """The configuration and a script; InputError for a plan that prime-rl cannot run."""
        refuse_unsupported(self, plan, workload, cluster)
        intro = header(self, plan, workload)
        script = _SCRIPT.substitute(header=intro, config_file=shlex.quote(CONFIG_FILE))
        text = toml(_config(layout_of(plan), workload, cluster))
        return {CONFIG_FILE: f"{intro}\n{text}", SCRIPT_FILE: script}


def _own_reasons(layout: Layout, workload: Workload) -> list[str]:
    reasons = []
    if workload.epochs > 1 or workload.optimizer_steps > 1:
        reasons.append("each batch makes one optimizer step")
    if workload.kl_weight > 0:
        reasons.append("there is no reference model; use kl_weight 0")
    if "old_logprobs" in layout.strategies or workload.old_logprobs == "skip":
        reasons.append("old log-probs come from the engine; use old_logprobs engine")
    if "reward" in workload.models:
        reasons.append("rewards come from environments; no reward model is started")
    train, engine = layout.train_mesh, layout.engine_mesh
    equal = train.devices_per_node == engine.devices_per_node
    whole = equal and train.first_device == engine.first_device == 0
    if not (_one_node(layout) or whole):
        reasons.append("trainer and engine share one node, or have whole nodes each")
    return reasons


def _one_node(layout: Layout) -> bool:
    meshes = (layout.train_mesh, layout.engine_mesh)
    return all(mesh.nodes == 1 for mesh in meshes) and meshes[0].first_node == meshes[1].first_node


def _config(layout: Layout, workload: Workload, cluster: Cluster) -> dict[str, Any]:
    train, engine, longest = layout.train, layout.generate, workload.max_sequence_tokens
    per_node = cluster.group(layout.train_mesh.group).devices_per_node
    config: dict[str, Any] = {
        "model": {"name": workload.models["actor"].name},
        "deployment": _deployment(layout, per_node),
        "trainer": {"model": _model(train, longest)},
        "orchestrator": {
            "batch_size": workload.sequences_per_step,
            "group_size": workload.samples_per_prompt,
            "seq_len": longest,
            "max_off_policy_steps": layout.staleness,
            "train": {"sampling": {"max_completion_tokens": workload.response_length.max_tokens}},
            # All samples of the batches that may be in flight; the engines' own limit holds.
            "concurrency": {"max_inflight": workload.sequences_per_step * (layout.staleness + 1)},
        },
        "inference": {
            "vllm": {
                "tensor_parallel_size": engine.tp,
                "gpu_memory_utilization": engine.memory_fraction,
                "max_model_len": longest,
                "max_num_seqs": engine.max_running_sequences,
            }
        },
    }
    if not _one_node(layout):
        config["slurm"] = {"job_name": "rlmplan"}
    return config


def _deployment(layout: Layout, per_node: int) -> dict[str, Any]:
    train, engine = layout.train_mesh, layout.engine_mesh
    if _one_node(layout):
        return {
            "type": "single_node",
            "gpus_per_node": per_node,
            "num_train_gpus": train.devices,
            "num_infer_gpus": engine.devices,
        }
    return {
        "type": "multi_node",
        "gpus_per_node": train.devices_per_node,
        "num_train_nodes": train.nodes,
        "num_infer_nodes": engine.nodes,
    }


def _model(train: Strategy, longest: int) -> dict[str, Any]:
    shards = train.dp * train.cp
    return {
        # Tokens of a packed microbatch, of all devices in context parallelism.
        "seq_len": train.micro_batch_sequences * longest,
        "cp": train.cp,
        "cp_style": "ulysses" if train.ulysses > 1 else "ring",
        "ep": train.ep,
        "dp_replicate": shards // (train.shard_ranks or shards),
        "ac": {"mode": "full", "freq": 1} if train.recompute == "full" else "None",
        "ac_offloading": "None",
        "optim_cpu_offload": False,
        "full_offload": train.optimizer_on_cpu,
    }


def toml(content: Mapping[str, Any], prefix: str = "") -> str:
    """Tables of texts, numbers and Booleans as TOML; the text of JSON is TOML's too."""
    plain = {key: value for key, value in content.items() if not isinstance(value, dict)}
    lines = [f"{key} = {_value(value)}\n" for key, value in plain.items()]
    if plain and prefix:
        lines.insert(0, f"[{prefix}]\n")
    parts = ["".join(lines)] if lines else []
    for key, value in content.items():
        if isinstance(value, dict):
            parts.append(toml(value, f"{prefix}.{key}" if prefix else key))
    return "\n".join(parts)


def _value(value: str | float | bool) -> str:
    # JSON leaves one control character that TOML does not allow as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
