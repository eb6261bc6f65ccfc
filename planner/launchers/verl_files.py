"""verl's keys as Hydra overrides, as a YAML file, and the script that runs them."""

from __future__ import annotations

import re
import shlex
from string import Template
from typing import Any

from planner.launchers.base import omegaconf_literal

# Text that Hydra's grammar takes unquoted, and words that it would take for something else.
_PLAIN_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_RESERVED = {"null", "true", "false", "nan", "inf"}

_SCRIPT = Template(
    """\
#!/usr/bin/env bash
$header\
# Usage:  TRAIN_FILES=<parquet> VAL_FILES=<parquet> ./run.sh [key=value ...]
# on the head of a Ray cluster (or on one node) where verl is installed. Words after the command
# override the plan, as in Hydra.
set -euo pipefail

here="$$(cd -- "$$(dirname -- "$${BASH_SOURCE[0]}")" && pwd)"
mapfile -t overrides < "$$here/"$overrides_file
exec "$${PYTHON:-python3}" -m verl.trainer.main_ppo "$${overrides[@]}" \\
  data.train_files="$${TRAIN_FILES:?set TRAIN_FILES to the training data}" \\
  data.val_files="$${VAL_FILES:?set VAL_FILES to the validation data}" \\
  "$$@"
"""
)


def override_lines(keys: dict[str, Any]) -> list[str]:
    """One Hydra override a line."""
    return [f"{key}={_hydra_value(value)}" for key, value in keys.items()]


def config_yaml(keys: dict[str, Any]) -> dict[str, Any]:
    """A Hydra configuration on top of verl's own: `--config-path DIR --config-name NAME`."""
    engine = keys.get("model_engine")
    defaults: list[Any] = ["ppo_trainer", "_self_"]
    if engine is not None:
        defaults.insert(1, {"override model_engine": engine})
    config: dict[str, Any] = {
        "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
        "defaults": defaults,
    }
    for key, value in keys.items():
        if key == "model_engine":
            continue
        *sections, last = key.removeprefix("+").split(".")
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = omegaconf_literal(value) if isinstance(value, str) else value
    return config


def run_script(header: str, overrides_file: str) -> str:
    """A bash script that starts verl with the overrides, word by word as they are written."""
    return _SCRIPT.substitute(header=header, overrides_file=shlex.quote(overrides_file))


def _hydra_value(value: Any) -> str:
    """A value in the grammar of Hydra's overrides; text is quoted."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if _PLAIN_WORD.fullmatch(value) and value.lower() not in _RESERVED:
            return value
        # Inside single quotes only the quote is special, and backslashes just before one.
        inner = re.sub(r"(\\*)'", r"\1\1\\'", omegaconf_literal(value))
        trailing = len(inner) - len(inner.rstrip("\\"))
        return "'" + inner + "\\" * trailing + "'"
    return str(value)
