"""OpenRLHF: a script that submits `openrlhf.cli.train_ppo_ray` with its flags to Ray.

Flags: keys/openrlhf.json (the argparse block of OpenRLHF 0.11.2, whose names have dots).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.catalog.spaces import load_space
from planner.launchers.algorithm_settings import GROUPED, algorithm_keys, algorithms_of
from planner.launchers.algorithm_settings import OPENRLHF as SPELLINGS
from planner.launchers.base import (
    Capabilities,
    LaunchFiles,
    Layout,
    common_reasons,
    header,
    layout_of,
    refuse_unsupported,
)
from planner.launchers.flags import ray_script
from planner.launchers.openrlhf_read import ENTRY, read_openrlhf
from planner.launchers.reading import Context, ReadConfig
from planner.schema import Assignment, Cluster, Mesh, Plan, Workload

SCRIPT_FILE = "run.sh"
_USAGE = (
    "Usage:  PROMPT_DATA=<dataset> REMOTE_RM_URL=<url or file> ./run.sh [--flag value ...]",
    "on the head of a Ray cluster where OpenRLHF is installed; later flags hold.",
)


class OpenRlhf:
    """Plans of the space openrlhf."""

    name = "openrlhf"
    version = "OpenRLHF 0.11.2"
    capabilities = Capabilities(
        spaces=("openrlhf",),
        algorithms=algorithms_of(SPELLINGS),
        backends="DeepSpeed; vLLM",
        also={
            "train-tp": "ds.tensor_parallel_size",
            "partial-rollout": "train.partial_rollout_enable",
            "lora": "ds.lora.rank",
        },
        checked_by="OpenRLHF's argument parser and the checks after it",
    )

    def supports(self, plan: Plan, workload: Workload, cluster: Cluster) -> list[str]:
        """Reasons why OpenRLHF cannot run the plan; empty when it can."""
        return common_reasons(
            plan,
            workload,
            cluster,
            load_space("openrlhf"),
            self.capabilities.algorithms,
            _own_reasons,
            adapters=True,
        )

    def read(
        self, files: Mapping[str, str], overrides: Sequence[str], context: Context
    ) -> ReadConfig:
        """What OpenRLHF would run with this script; see `openrlhf_read`."""
        return read_openrlhf(files, overrides, context)

    def settings(
        self, assignment: Assignment, workload: Workload, cluster: Cluster
    ) -> dict[str, Any]:
        """OpenRLHF's flags that carry the assignment."""
        return _flags(layout_of(assignment), workload)

    def write(self, plan: Plan, workload: Workload, cluster: Cluster) -> LaunchFiles:
        """The launch script; InputError for a plan that OpenRLHF cannot run."""
        refuse_unsupported(self, plan, workload, cluster)
        before = 'flags+=(--data.prompt_dataset "${PROMPT_DATA:?set PROMPT_DATA}")\n'
        if "reward" not in workload.models:
            before += 'flags+=(--reward.remote_url "${REMOTE_RM_URL:?set REMOTE_RM_URL}")\n'
        script = ray_script(
            header(self, plan, workload),
            _USAGE,
            _flags(layout_of(plan), workload),
            f"python3 -m {ENTRY}",
            before,
        )
        return {SCRIPT_FILE: script}


def _own_reasons(layout: Layout, workload: Workload) -> list[str]:
    reasons = []
    if workload.old_logprobs not in ("recompute", "either"):
        reasons.append("old log-probs are always recomputed; use old_logprobs recompute")
    steps = workload.critic_optimizer_steps
    if steps is not None and steps != workload.optimizer_steps:
        reasons.append("actor and critic have the same train.batch_size")
    critic = layout.get("critic_train")
    if critic is not None and critic != layout.train:
        reasons.append("actor and critic share DeepSpeed's and the microbatch's settings")
    return reasons + _forward_reasons(layout)


def _forward_reasons(layout: Layout) -> list[str]:
    """All forward passes have one microbatch, and the reward model the trainers' layout."""
    forwards = {
        name: layout.strategies[name]
        for name in ("old_logprobs", "reference_logprobs", "values", "rewards")
        if name in layout.strategies
    }
    reasons = []
    if len({(s.micro_batch_sequences, s.packing) for s in forwards.values()}) > 1:
        reasons.append(f"{', '.join(forwards)} must have the same micro_batch_sequences")
    rewards = forwards.get("rewards")
    if rewards is not None:
        for field in ("cp", "zero_stage", "packing"):
            if getattr(rewards, field) != getattr(layout.train, field):
                reasons.append(f"rewards and actor_train differ in {field}, which has one flag")
        if rewards.optimizer_on_cpu:
            reasons.append("the reward model has no optimizer to put on the host")
    return reasons


def _flags(layout: Layout, workload: Workload) -> dict[str, Any]:
    train, engine = layout.train, layout.generate
    forward = layout.get("old_logprobs") or train
    colocated = layout.placement == "colocated"
    flags: dict[str, Any] = {
        "actor.model_name_or_path": workload.models["actor"].name,
        **_devices("actor", layout.train_mesh),
        **algorithm_keys(SPELLINGS, workload.algorithm),
        **({"ds.lora.rank": workload.lora_rank} if workload.lora_rank else {}),
        "algo.kl.init_coef": workload.kl_weight,
        "rollout.batch_size": workload.prompts_per_step,
        "rollout.n_samples_per_prompt": workload.samples_per_prompt,
        "train.batch_size": workload.sequences_per_step // workload.optimizer_steps,
        "train.max_epochs": workload.epochs,
        "data.max_len": workload.max_sequence_tokens,
        "rollout.max_new_tokens": workload.response_length.max_tokens,
        "train.micro_batch_size": train.micro_batch_sequences,
        "rollout.micro_batch_size": forward.micro_batch_sequences,
        "ds.param_dtype": "bf16",
        "ds.zero_stage": train.zero_stage,
        "ds.adam_offload": train.optimizer_on_cpu,
        "ds.ring_attn_size": train.cp,
        "ds.packing_samples": train.packing,
        "actor.gradient_checkpointing_enable": train.recompute == "full",
        "vllm.num_engines": engine.dp,
        "vllm.tensor_parallel_size": engine.tp,
        "vllm.gpu_memory_utilization": engine.memory_fraction,
        "vllm.sync_backend": "nccl",
        "train.colocate_all": colocated,
        "vllm.enable_sleep": colocated,
        "ds.enable_sleep": train.offload == "all",
    }
    if train.packing:
        longest = workload.max_sequence_tokens
        flags |= {
            "train.dynamic_batch_enable": True,
            # Tokens of one device: a ring of cp devices holds cp of them.
            "train.max_tokens_per_gpu": -(-train.micro_batch_sequences * longest // train.cp),
            "rollout.max_tokens_per_gpu": -(-forward.micro_batch_sequences * longest // train.cp),
        }
    if workload.algorithm in GROUPED and workload.kl_weight > 0:
        flags |= {"algo.kl.use_loss": True, "algo.kl.estimator": "k3"}
    if layout.staleness > 0:
        flags |= {"train.async_enable": True, "train.async_queue_size": layout.staleness}
    if "reference_logprobs" in layout.strategies:
        flags |= _devices("ref", layout.meshes["reference_logprobs"])
        flags["ref.offload"] = True
        shares = layout.meshes["reference_logprobs"] == layout.train_mesh
        flags["train.colocate_actor_ref"] = shares and not colocated
    if "critic_train" in layout.strategies:
        flags["critic.model_name_or_path"] = workload.models["critic"].name
        flags |= _devices("critic", layout.meshes["critic_train"])
    if "rewards" in layout.strategies:
        flags["reward.model_name_or_path"] = workload.models["reward"].name
        flags |= _devices("reward", layout.meshes["rewards"])
        flags["reward.offload"] = layout.strategies["rewards"].offload == "all"
    return flags


def _devices(role: str, mesh: Mesh) -> dict[str, Any]:
    return {f"{role}.num_nodes": mesh.nodes, f"{role}.num_gpus_per_node": mesh.devices_per_node}
