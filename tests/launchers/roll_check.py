"""Runs ROLL's own configuration code over exported files. Not a test: test_roll_real.py does.

    python roll_check.py CASE...      CASE: YAML-FILE[,key=value...]

The steps of examples/start_rlvr_pipeline.py up to RLVRConfig: Hydra composes the file, dacite fills
the dataclasses, whose checks run. Needs the folders of a checkout and of its mcore_adapter/src on
PYTHONPATH. Prints one JSON object a case: what was read, or the error that stops ROLL.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dacite import from_dict
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from roll.pipeline.rlvr.rlvr_config import RLVRConfig


def main() -> None:
    for case in sys.argv[1:]:
        try:
            answer = check(*case.split(","))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer))


def check(file: str, *overrides: str) -> dict[str, Any]:
    path = Path(file).absolute()
    with initialize_config_dir(config_dir=str(path.parent), version_base=None):
        composed = compose(config_name=path.stem, overrides=list(overrides))
    content = OmegaConf.to_container(composed, resolve=True)
    content.pop("hydra", None)
    config = from_dict(data_class=RLVRConfig, data=content)
    config.set_max_steps(config.max_steps)
    train, engine = config.actor_train, config.actor_infer
    return {
        "model": [train.model_args.model_name_or_path, engine.model_args.model_name_or_path],
        "train": train.device_mapping,
        "engine": engine.device_mapping,
        "reference": config.reference.device_mapping if config.enable_reference else None,
        "engine_devices": engine.num_gpus_per_worker,
        "megatron": train.strategy_args.strategy_config,
        "vllm": engine.strategy_args.strategy_config,
        "size": train.training_args.per_device_train_batch_size,
        "accumulation": train.training_args.gradient_accumulation_steps,
        "recomputes_logprobs": config.enable_old_logprobs_recompute,
        "asynchronous": config.async_pipeline,
        "longest": config.sequence_length,
        "most_tokens": engine.generating_args.max_new_tokens,
        "samples": engine.generating_args.num_return_sequences,
        "prompts": config.rollout_batch_size,
    }


main()
