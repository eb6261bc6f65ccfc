"""Runs exported scripts with stand-ins for the commands that they start."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

COMMANDS = ("ray", "accelerate", "trl", "sbatch", "torchrun", "python3", "uv")
VARIABLES = {
    "PROMPT_DATA": "data",
    "REMOTE_RM_URL": "http://rewards",
    "DATASET": "data",
    "VLLM_HOST": "host",
    "TRAIN_FILES": "train",
    "VAL_FILES": "val",
    "SLIME_DIR": "slime",
    "MODEL_ARGS_FILE": "model.sh",
    "REF_LOAD": "ref",
    "AREAL_DIR": "areal",
    "FILEROOT": "root",
    "PRIME_RL_DIR": "prime",
    "ROLL_DIR": "roll",
}


def started_words(script: Path, *arguments: str) -> list[str]:
    """The command and words that a script hands over to, as bash expands them."""
    folder = script.parent / ".bin"
    folder.mkdir(exist_ok=True)
    record = folder / "record"
    for name in COMMANDS:
        command = folder / name
        command.write_text(f'#!/bin/sh\nprintf "%s\\\\0" {name} "$@" > "$RECORD"\n')
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
    environment = os.environ | VARIABLES | {"RECORD": str(record)}
    environment["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", str(script), *arguments],
        env=environment,
        cwd=script.parent,
        check=True,
        capture_output=True,
    )
    return record.read_text().split("\0")[:-1]
