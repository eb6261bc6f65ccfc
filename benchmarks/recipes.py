"""Runs `check` over the recipes that launchers ship.

    python benchmarks/recipes.py LAUNCHER FOLDER [--list]

FOLDER is a checkout of the launcher's own repository, which is not part of this one. Every file in
it that starts a training run with reinforcement learning is read and checked on the devices that it
asks for (H100s unless its name says others). Prints how many were read, could not be read (and
why), crashed, fit, are tight, and will not run (and why); with --list, a line a file.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from planner.catalog.hardware import parse_cluster
from planner.cli.check import read_configuration
from planner.errors import InputError
from planner.launchers import get_launcher
from planner.launchers.check import check
from planner.launchers.reading import Context

# What starts GRPO or PPO training in each launcher's scripts, and where its recipes are.
PLACES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "verl": (
        "examples|recipe|verl/experimental",
        ("*.sh",),
        r"main_ppo|fully_async_main",
    ),
    "nemo-rl": ("examples/configs", ("*.yaml",), r"(?m)^(grpo|ppo):|defaults:"),
    "openrlhf": ("examples|scripts", ("*.sh",), r"train_ppo_ray"),
    "slime": ("scripts|examples", ("*.sh",), r"train(_async)?\.py"),
    "trl": ("examples|trl|docs", ("*grpo*.yaml", "*grpo*.sh"), r"model_name_or_path"),
}
# Files that name another trainer, or devices that are none of NVIDIA's.
_OTHERS = r"npu|ascend|amd|mi3\d\d|rocm|xpu|maxtext|sft|dpo|distill|/rm\.|evals|dynamo|trtllm"
_DEVICES = (("gb200", "gb200"), ("b200", "b200"), ("gb300", "gb300"), ("h200", "h200"),
            ("a100", "a100-80-sxm"), ("h20", "h20"))  # fmt: skip
_NODES = re.compile(r"(\d+)n(\d+)g|(\d+)xgpu|(\d+)[x-]?nodes?")


@dataclass(frozen=True)
class Answer:
    """What became of one recipe."""

    path: str
    outcome: str
    """fits, tight, will not run, not read or crashed."""
    why: str = ""


def main() -> None:
    """Check every recipe of a checkout and print the counts."""
    words = [word for word in sys.argv[1:] if word != "--list"]
    if len(words) != 2 or words[0] not in PLACES:
        sys.exit(__doc__)
    answers = [run(words[0], path) for path in recipes(words[0], Path(words[1]))]
    for answer in answers if "--list" in sys.argv else ():
        print(f"{answer.outcome:12} {answer.path}  {answer.why}")
    counts = Counter(answer.outcome for answer in answers)
    print(f"{words[0]}: {len(answers)} recipes; {dict(counts)}")
    for outcome in ("not read", "will not run"):
        reasons = Counter(_kind(each.why) for each in answers if each.outcome == outcome)
        for reason, count in reasons.most_common(12):
            print(f"  {outcome}: {count:3}  {reason}")
    sys.exit(1 if counts["crashed"] else 0)


def recipes(launcher: str, root: Path) -> list[Path]:
    """Files of the launcher's recipe folders that start a run."""
    folders, patterns, starts = PLACES[launcher]
    found = []
    for folder in folders.split("|"):
        for pattern in patterns:
            for path in sorted((root / folder).rglob(pattern)):
                name = str(path.relative_to(root)).lower()
                if not re.search(_OTHERS, name) and re.search(starts, path.read_text()):
                    found.append(path)
    return found


def run(launcher: str, path: Path) -> Answer:
    """Check one recipe on as many devices as it asks for."""
    name = path.name.lower()
    device = next((device for word, device in _DEVICES if word in name), "h100")
    per_node = 4 if device.startswith("gb") else 8
    for nodes in (64, 1024):
        cluster = parse_cluster(f"{device}:{nodes}x{per_node}")
        try:
            report = check(
                get_launcher(launcher),
                read_configuration([path]),
                [],
                Context(cluster),
                search=False,
            )
        except InputError as error:
            return Answer(str(path), "not read", f"{error.where}: {error.message}")
        except Exception:
            return Answer(str(path), "crashed", traceback.format_exc().splitlines()[-1])
        if not any(each.rule == "devices-within-cluster" for each in report.broken):
            break
    short = [f"{each.call}: {each.short_bytes / 2**30:.1f} GiB short" for each in report.shortages]
    broken = [f"{each.rule} ({each.message})" for each in report.broken]
    return Answer(str(path), report.verdict, "; ".join(broken + short))


def _kind(why: str) -> str:
    """The reason without its figures and paths, to count equal ones together."""
    text = re.sub(r"\S*/\S*", "...", why)
    return re.sub(r"\d+(\.\d+)?", "N", text)[:110]


if __name__ == "__main__":
    main()
