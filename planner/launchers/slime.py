"""slime: a script that submits `train.py` or `train_async.py` with its flags to Ray.

Flags: keys/slime.json (commit 624b824a8, with Megatron-LM's own). slime takes unknown flags in
silence, so the tests hold every flag that is written against that list. The architecture comes from
slime's own scripts/models/*.sh, which the launch script reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.catalog.spaces import load_space
from planner.launchers.algorithm_settings import SLIME as SPELLINGS
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
from planner.launchers.flags import ray_script
from planner.launchers.megatron_flags import parallel_flags
from planner.launchers.reading import Context, ReadConfig
from planner.launchers.slime_read import read_slime
from planner.schema import Assignment, Cluster, Plan, Workload

SCRIPT_FILE = "run.sh"
_USAGE = (
    "Usage:  SLIME_DIR=<checkout> MODEL_ARGS_FILE=<of scripts/models, e.g. qwen3-8B.sh> \\",
    "        REF_LOAD=<converted checkpoint> PROMPT_DATA=<jsonl> ./run.sh [--flag value ...]",
    "on the head of a Ray cluster where slime is installed; later flags hold.",
)
_BEFORE = """\
cd -- "${SLIME_DIR:?set SLIME_DIR to a checkout of slime}"
MODEL_ARGS=()
source "scripts/models/${MODEL_ARGS_FILE:?set MODEL_ARGS_FILE}"
flags=("${MODEL_ARGS[@]}" "${flags[@]}")
flags+=(--ref-load "${REF_LOAD:?set REF_LOAD}" --prompt-data "${PROMPT_DATA:?set PROMPT_DATA}")
"""


class Slime:
    """Plans of the space slime."""

    name = "slime"
    version = "slime commit 624b824a8"
    capabilities = Capabilities(
        spaces=("slime",),
        algorithms=algorithms_of(SPELLINGS),
        backends="Megatron; SGLang",
        also={
            "partial-rollout": "partial-rollout",
            "prefill-decode": "prefill-num-servers",
            "generate-pp": "sglang-pp-size",
        },
        checked_by="its published flags and Megatron-LM's (not on a package index), not its own "
        "parser",
    )

    def supports(self, plan: Plan, workload: Workload, cluster: Cluster) -> list[str]:
        """Reasons why slime cannot run the plan; empty when it can."""
        algorithms = self.capabilities.algorithms
        return common_reasons(
            plan, workload, cluster, load_space("slime"), algorithms, _own_reasons
        )

    def read(
        self, files: Mapping[str, str], overrides: Sequence[str], context: Context
    ) -> ReadConfig:
        """What slime would run with this script; see `slime_read`."""
        return read_slime(files, overrides, context)

    def settings(
        self, assignment: Assignment, workload: Workload, cluster: Cluster
    ) -> dict[str, Any]:
        """slime's flags that carry the assignment."""
        return _flags(layout_of(assignment), workload, cluster)

    def write(self, plan: Plan, workload: Workload, cluster: Cluster) -> LaunchFiles:
        """The launch script; InputError for a plan that slime cannot run."""
        refuse_unsupported(self, plan, workload, cluster)
        layout = layout_of(plan)
        entry = "train_async.py" if layout.staleness > 0 else "train.py"
        script = ray_script(
            header(self, plan, workload),
            _USAGE,
            _flags(layout, workload, cluster),
            f"python3 {entry}",
            _BEFORE,
        )
        return {SCRIPT_FILE: script}


def _own_reasons(layout: Layout, workload: Workload) -> list[str]:
    reasons = []
    if workload.epochs > 1:
        reasons.append(f"a rollout is trained on once, not {workload.epochs} times")
    if workload.old_logprobs == "skip":
        reasons.append("slime always has old log-probs; use old_logprobs recompute or engine")
    if "reward" in workload.models:
        reasons.append("reward models are served apart (--rm-url), which is not planned for")
    forwards = [layout.get(name) for name in ("old_logprobs", "reference_logprobs")]
    if len({each.micro_batch_sequences for each in forwards if each is not None}) > 1:
        reasons.append("old and reference log-probs differ in micro_batch_sequences")
    return reasons


def _flags(layout: Layout, workload: Workload, cluster: Cluster) -> dict[str, Any]:
    train, engine, mesh = layout.train, layout.generate, layout.train_mesh
    forward = layout.get("old_logprobs") or layout.get("reference_logprobs") or train
    longest = workload.max_sequence_tokens
    split = layout.placement == "disaggregated"
    flags: dict[str, Any] = {
        "hf-checkpoint": workload.models["actor"].name,
        "actor-num-nodes": mesh.nodes,
        "actor-num-gpus-per-node": mesh.devices_per_node,
        "num-gpus-per-node": cluster.group(mesh.group).devices_per_node,
        "colocate": not split,
        "rollout-num-gpus": layout.engine_mesh.devices if split else None,
        "rollout-num-gpus-per-engine": engine.tp,
        "rollout-batch-size": workload.prompts_per_step,
        "n-samples-per-prompt": workload.samples_per_prompt,
        "global-batch-size": workload.sequences_per_step // workload.optimizer_steps,
        "num-rollout": 3000,
        "rollout-max-prompt-len": workload.prompt_length.max_tokens,
        "rollout-max-response-len": workload.response_length.max_tokens,
        # The limit on prompts is one below the context.
        "rollout-max-context-len": longest + 1,
        **algorithm_keys(SPELLINGS, workload.algorithm),
        "use-kl-loss": workload.kl_weight > 0,
        "kl-loss-coef": workload.kl_weight,
        "use-rollout-logprobs": workload.old_logprobs == "engine",
        **parallel_flags(train, workload.models["actor"]),
        "use-dynamic-batch-size": True,
        "max-tokens-per-gpu": -(-train.micro_batch_sequences * longest // train.cp),
        "log-probs-max-tokens-per-gpu": -(-forward.micro_batch_sequences * longest // train.cp),
        "sglang-mem-fraction-static": engine.memory_fraction,
        "sglang-max-running-requests": engine.max_running_sequences,
        "sglang-ep-size": engine.ep,
    }
    if layout.staleness > 0:
        flags["update-weights-interval"] = 1
    return flags
