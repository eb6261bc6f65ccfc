"""The files of one trial of `rlmplan tune`: a plan as its launcher reads it, in a folder."""

from __future__ import annotations

import os
from pathlib import Path

from planner.launchers import get_launcher
from planner.schema import Plan, PlanSet

PLAN_FILE = "plans.json"
_CONFIGS = (".yaml", ".yml", ".json", ".txt", ".sh")
"""Kinds of files that hold a configuration, the likeliest first."""


def write_trial(
    launcher: str | None, plan_set: PlanSet, plan: Plan, folder: Path
) -> dict[str, str]:
    """Write the plan's files into `folder` and return what the placeholders of a command stand for.

    `config` is the launcher's configuration (without a launcher, plans.json), `script` its launch
    script if it has one, `dir` the folder. Every file is complete or not there.
    """
    files = {PLAN_FILE: plan_set.model_copy(update={"plans": (plan,)}).model_dump_json(indent=2)}
    own: dict[str, str] = {}
    if launcher is not None:
        own = get_launcher(launcher).write(plan, plan_set.workload, plan_set.cluster)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (files | own).items():
        path = folder / name
        draft = folder / f".{os.getpid()}.tmp"
        draft.write_text(content, encoding="utf-8", newline="\n")
        if content.startswith("#!"):
            draft.chmod(0o755)
        draft.replace(path)
    scripts = sorted(name for name, content in own.items() if content.startswith("#!"))
    found = {"config": _config(own) or PLAN_FILE}
    if scripts:
        found["script"] = "run.sh" if "run.sh" in scripts else scripts[0]
    here = {name: str(folder.resolve() / file) for name, file in found.items()}
    return here | {"dir": str(folder.resolve())}


def _config(files: dict[str, str]) -> str | None:
    """The launcher's main configuration: not what a second process reads."""
    names = [name for name in files if name != "accelerate.yaml"]
    for suffix in _CONFIGS:
        for name in names:
            if name.endswith(suffix):
                return name
    return None
