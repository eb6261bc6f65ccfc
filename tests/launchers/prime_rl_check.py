"""Runs prime-rl's own RLConfig over exported files. Not a test: started by test_prime_rl_real.py.

    python prime_rl_check.py CASE...      CASE: TOML-FILE[,--section.key=value...]

Needs packages/prime-rl-configs/src of a checkout on PYTHONPATH, with its dependencies (pydantic,
prime-pydantic-config, renderers, verifiers). All validators across sections run. Prints one JSON
object a case: what was read, or the error that stops prime-rl.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from prime_rl.configs.rl import RLConfig
from prime_rl.utils.config import cli


def main() -> None:
    for case in sys.argv[1:]:
        try:
            answer = check(*case.split(","))
        except (Exception, SystemExit) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer))


def check(file: str, *flags: str) -> dict[str, Any]:
    words = [part for flag in flags for part in flag.split("=", 1)]
    config = cli(RLConfig, args=["@", file, *words])
    model, vllm = config.trainer.model, config.inference.vllm
    return {
        "deployment": config.deployment.model_dump(mode="json"),
        "model": [model.name, vllm.model, config.orchestrator.model.name],
        "workers": config.orchestrator.num_train_workers,
        "cp": model.cp,
        "cp_style": model.cp_style,
        "ep": model.ep,
        "dp_replicate": model.dp_replicate,
        "recompute": model.ac is not None,
        "activation_offload": model.ac_offloading is not None,
        "optimizer_on_cpu": model.full_offload is not None,
        "optim_cpu_offload": model.optim_cpu_offload,
        "micro_tokens": model.seq_len,
        "tokens": config.orchestrator.seq_len,
        "batch": config.orchestrator.batch_size,
        "group": config.orchestrator.group_size,
        "staleness": config.orchestrator.max_off_policy_steps,
        "tp": vllm.tensor_parallel_size,
        "dp": vllm.data_parallel_size,
        "max_num_seqs": vllm.model_extra["max_num_seqs"],
    }


main()
