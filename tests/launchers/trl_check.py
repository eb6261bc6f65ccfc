"""Runs TRL's own parser and checks on exported files. Not a test: started by test_trl_real.py.

    python trl_check.py FOLDER... [-- --flag value ...]

TrlParser reads FOLDER/grpo.yaml (with the flags on top), GRPOConfig checks itself with the world
size of FOLDER/accelerate.yaml, which accelerate's own loader reads. Prints one JSON object a
folder: what was read, or the error that stops TRL. No accelerator is needed: bf16 is replaced by
the CPU before the parser asks for one.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from accelerate.commands.config.config_args import load_config_from_file
from transformers import TrainingArguments
from trl import GRPOConfig, ModelConfig, TrlParser
from trl.scripts.grpo import GRPOScriptArguments


def main() -> None:
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    for folder in words[:cut]:
        try:
            answer = check(Path(folder), words[cut + 1 :])
        except (ValueError, AssertionError, SystemExit) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer))


def check(folder: Path, flags: list[str]) -> dict[str, Any]:
    machines = load_config_from_file(str(folder / "accelerate.yaml"))
    TrainingArguments.world_size = property(lambda self: machines.num_processes)
    content = yaml.safe_load((folder / "grpo.yaml").read_text())
    content |= {"bf16": False, "use_cpu": True, "report_to": "none"}
    content["output_dir"] = tempfile.gettempdir()
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(content, file)
        file.flush()
        parser = TrlParser((GRPOScriptArguments, GRPOConfig, ModelConfig))
        _, config, model = parser.parse_args_and_config(
            ["--config", file.name, "--dataset_name", "x", *flags]
        )
    if config.vllm_mode == "colocate":
        # TRL asserts this where it starts vLLM.
        assert machines.num_processes % config.vllm_tensor_parallel_size == 0
    return {
        "model": model.model_name_or_path,
        "generation_batch_size": config.generation_batch_size,
        "steps_per_generation": config.steps_per_generation,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "num_generations": config.num_generations,
        "num_machines": machines.num_machines,
        "num_processes": machines.num_processes,
        "deepspeed": machines.deepspeed_config,
    }


main()
