"""Runs AReaL's own configuration loader over exported files. Not a test: test_areal_real.py does.

    python areal_check.py CASE...      CASE: YAML-FILE[,key=value...]

The loader composes the file with Hydra, merges it into the dataclass GRPOConfig and runs the checks
of every dataclass; each engine's backend goes through AReaL's allocation parser. Prints one JSON
object a case: what was read, or the error that stops AReaL.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["RANK"] = "1"  # rank 0 would save the configuration
from areal.api.alloc_mode import ModelAllocation
from areal.api.cli_args import GRPOConfig, load_expr_config


def main() -> None:
    for case in sys.argv[1:]:
        try:
            answer = check(*case.split(","))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer))


def check(file: str, *overrides: str) -> dict[str, Any]:
    # What the exported script adds.
    folders = ["cluster.fileroot=root", "cluster.name_resolve.nfs_record_root=root/name_resolve"]
    words = ["--config", file, *folders, "train_dataset.path=data", *overrides]
    config, _ = load_expr_config(words, GRPOConfig)
    found: dict[str, Any] = {}
    for role in ("rollout", "actor", "ref"):
        engine = getattr(config, role)
        if engine is None:
            continue
        strategy = engine.scheduling_strategy
        allocation = ModelAllocation.from_str(engine.backend, name=role)
        parallel = allocation.parallel
        found[role] = {
            "backend": allocation.backend,
            "world": parallel.world_size,
            "dp": parallel.dp_size,
            "tp": parallel.tp_size,
            "pp": parallel.pp_size,
            "cp": parallel.cp_size,
            "ep": parallel.ep_size,
            "beside": strategy.target if strategy.type == "colocation" else None,
        }
    return found | {
        "devices": config.cluster.n_nodes * config.cluster.n_gpus_per_node,
        "prompts": config.train_dataset.batch_size,
        "samples": config.gconfig.n_samples,
        "model": config.actor.path,
        "engine_model": config.sglang.model_path,
        "staleness": config.rollout.max_head_offpolicyness,
        "recompute_logprob": config.actor.should_compute_prox_logp(),
        "group_size": config.actor.reward_norm.group_size,
        "enable_offload": config.enable_offload,
        "offload": config.actor.offload,
        "weight_update_mode": config.actor.weight_update_mode,
    }


main()
