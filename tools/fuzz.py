"""Damaged input for every reader: each input must be answered or refused with one message.

Usage: python tools/fuzz.py [--inputs N] [--seed S] [--keep FOLDER] [--target NAME ...]

Inputs are valid ones with damage (values, keys, bytes, lines) and some made from nothing. A fault
is any exception but PlannerError, an answer that takes longer than LIMIT_S, and growth of the
process beyond LIMIT_BYTES; faults are printed, and kept in FOLDER.
Exit code 1 if there was one.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from planner.api import plan_for_launcher
from planner.catalog.fleet import load_fleet
from planner.catalog.hardware import parse_cluster
from planner.catalog.models import load_model
from planner.catalog.spaces import load_space
from planner.catalog.workloads import load_problem
from planner.cli.export import read_plans
from planner.errors import PlannerError
from planner.launchers import get_launcher, launcher_names
from planner.launchers.reading import Context

ROOT = Path(__file__).parent.parent
LIMIT_S = 5.0
LIMIT_BYTES = 10**9
FROM_NOTHING = 0.1
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 7, 2**31, 2**63, 10**30, -(10**30), 0.5, -0.0, 1e-300, 1e308,
    float("nan"), float("inf"), -float("inf"), "", " ", "x", "nan", "1e999", "0x10", "x" * 5000,
    "$(touch x)", "`id`", "../../../etc/passwd", "~", "${oc.env:HOME}", "a\x00b", "\u202e", "é",
    [], {}, [None], [[[[[]]]]], {"a": {"b": {}}}, ["x"] * 300, {str(i): i for i in range(300)},
)  # fmt: skip
TOKENS = (
    *("algorithm", "models", "actor", "cluster", "grpo", "h100:1x8", ":", "-", "{", "}", "[", "]"),
    *("&a", "*a", "<<", "!!python/object:os.system", "---", "\n", "\n  ", "#", "'", '"', "|", ">"),
    *("--flag", "=", "\\", "$(", ")", "\t", "\x00", "\ufeff", "1e400", "-1", "🦙", "torchrun"),
)


class Hang(BaseException):
    """An answer took longer than LIMIT_S; no reader catches it."""


@dataclass
class Result:
    """What became of the inputs of one target."""

    answered: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Target:
    """A reader, and valid inputs of it."""

    read: Callable[[Path], object]
    seeds: tuple[str, ...]
    suffix: str


def _config(name: str) -> str:
    """A model's config.json in the spelling of Hugging Face."""
    for file in sorted((ROOT / "planner" / "catalog" / "model_configs").glob("*.json")):
        for entry in json.loads(file.read_text()):
            if entry["id"] == name:
                return json.dumps(entry["config"])
    raise KeyError(name)


def targets(folder: Path) -> dict[str, Target]:
    """All readers with their seeds; plans and launcher files are made by planning once."""
    examples = ROOT / "examples"
    small = examples / "grpo-qwen2.5-7b-1x8-h100.yaml"
    problem = load_problem(small)
    cluster = {
        "name": "x",
        "groups": [
            {"name": "a", "device": "h100-80-sxm", "nodes": 2, "devices_per_node": 8},
            {"device": {"base": "h20-96", "memory_gib": 141}, "nodes": 1, "host_memory_gib": 512},
        ],
    }
    found = {
        "problem": Target(
            load_problem, tuple(p.read_text() for p in examples.glob("[gp]*.yaml")), ".yaml"
        ),
        "cluster": Target(parse_cluster, (yaml.safe_dump(cluster),), ".yaml"),
        "model": Target(
            lambda path: load_model(str(path)),
            tuple(map(_config, ("Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3"))),
            ".json",
        ),
        "space": Target(
            lambda path: load_space(str(path)),
            tuple((ROOT / "search_spaces" / f"{n}.yaml").read_text() for n in ("any", "slime")),
            ".yaml",
        ),
        "fleet": Target(load_fleet, ((examples / "fleet.yaml").read_text(),), ".yaml"),
    }
    plans = None
    for name in launcher_names():
        launcher = get_launcher(name)
        try:
            plans = plan_for_launcher(name, problem.workload, problem.cluster, top=1)
        except PlannerError:
            continue
        files = launcher.write(plans.plans[0], plans.workload, plans.cluster)
        reader = _launcher_reader(launcher, files, plans.cluster)
        for file, content in files.items():
            found[f"{name}:{file}"] = Target(reader(file), (content,), Path(file).suffix)
    assert plans is not None
    found["plans"] = Target(read_plans, (plans.model_dump_json(),), ".json")
    return found


def _launcher_reader(
    launcher: Any, files: dict[str, str], cluster: Any
) -> Callable[[str], Callable[[Path], object]]:
    def of(damaged: str) -> Callable[[Path], object]:
        def read(path: Path) -> object:
            content = path.read_bytes().decode("utf-8", errors="replace")
            return launcher.read(files | {damaged: content}, (), Context(cluster))

        return read

    return of


def damaged(seed: str, rng: random.Random) -> bytes:
    """A valid input with one to four kinds of damage, or something made from nothing."""
    if rng.random() < FROM_NOTHING:
        text = "".join(rng.choice(TOKENS) for _ in range(rng.randint(0, 60)))
        return text.encode("utf-8", errors="surrogatepass")
    text = seed
    for _ in range(rng.randint(1, 4)):
        text = rng.choice((_values, _values, _values, _lines, _characters))(text, rng)
    content = text.encode("utf-8", errors="surrogatepass")
    if rng.random() < 0.05:
        spot = rng.randrange(len(content) + 1)
        content = content[:spot] + bytes(rng.randrange(256) for _ in range(4)) + content[spot:]
    return content


def _values(text: str, rng: random.Random) -> str:
    """Another value, key or none somewhere in the parsed content."""
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return _lines(text, rng)
    places = list(_places(content))
    if not places:
        return _lines(text, rng)
    holder, key = rng.choice(places)
    action = rng.random()
    if action < 0.6:
        holder[key] = rng.choice(VALUES)
    elif action < 0.75:
        del holder[key]
    elif isinstance(holder, dict):
        holder[_misspelt(str(key), rng)] = holder.pop(key)
    else:
        holder.insert(key, rng.choice(VALUES))
    try:
        if text.lstrip().startswith("{"):
            return json.dumps(content)
        return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    except (yaml.YAMLError, TypeError, RecursionError):
        return text


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    stack = [content]
    while stack:
        holder = stack.pop()
        items = (
            holder.items()
            if isinstance(holder, dict)
            else enumerate(holder)
            if isinstance(holder, list)
            else ()
        )
        for key, value in items:
            yield holder, key
            stack.append(value)


def _misspelt(word: str, rng: random.Random) -> str:
    spot = rng.randrange(len(word) + 1)
    return word[:spot] + rng.choice("abz_-. ") + word[spot + rng.randint(0, 1) :]


def _lines(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    spot = rng.randrange(len(lines))
    action = rng.randrange(4)
    if action == 0:
        del lines[spot]
    elif action == 1:
        lines.insert(spot, lines[rng.randrange(len(lines))])
    elif action == 2:
        lines[spot] = "  " + lines[spot]
    else:
        lines = lines[:spot]
    return "".join(lines)


def _characters(text: str, rng: random.Random) -> str:
    spot = rng.randrange(len(text) + 1)
    return text[:spot] + rng.choice(TOKENS) + text[spot + rng.randint(0, 3) :]


def run(
    chosen: dict[str, Target], inputs: int, seed: int, folder: Path, keep: Path | None
) -> dict[str, Result]:
    """Feed `inputs` damaged inputs to the targets in turn."""
    rng = random.Random(seed)
    results = {name: Result() for name in chosen}
    names = list(chosen)

    def too_long(*_: object) -> None:
        raise Hang

    signal.signal(signal.SIGALRM, too_long)
    for number in range(inputs):
        name = names[number % len(names)]
        target, result = chosen[name], results[name]
        content = damaged(rng.choice(target.seeds), rng)
        path = folder / f"input{target.suffix}"
        path.write_bytes(content)
        start = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        fault = None
        try:
            target.read(path)
            result.answered += 1
        except PlannerError as error:
            result.refused += 1
            if not str(error).strip() or len(str(error)) > 20_000:
                fault = "a message that is empty or endless"
        except Hang:
            fault = f"no answer in {LIMIT_S:g} s"
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [f for f in frames if "planner" in f.filename] or frames
            fault = f"{type(error).__name__} at {Path(own[-1].filename).name}:{own[-1].lineno}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        result.slowest_s = max(result.slowest_s, time.monotonic() - start)
        if fault is not None:
            result.faults[fault] += 1
            if keep is not None and result.faults[fault] == 1:
                keep.mkdir(parents=True, exist_ok=True)
                label = f"{name}-{number}".replace(":", "-").replace("/", "-")
                (keep / f"{label}{target.suffix}").write_bytes(content)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--target", action="append", default=[])
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = targets(folder)
        if options.target:
            chosen = {n: t for n, t in chosen.items() if n.split(":")[0] in options.target}
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        results = run(chosen, options.inputs, options.seed, folder, options.keep)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        extra = sorted(p.name for p in folder.iterdir() if not p.name.startswith("input"))
    print(
        f"{'reader':<36} {'inputs':>8} {'answered':>9} {'refused':>8} {'slowest':>9} {'faults':>7}"
    )
    for name, r in results.items():
        faults = sum(r.faults.values())
        total = (
            r.answered
            + r.refused
            + sum(n for what, n in r.faults.items() if not what.startswith("a message"))
        )
        print(
            f"{name:<36} {total:>8,} {r.answered:>9,} {r.refused:>8,} "
            f"{r.slowest_s:>7.2f} s {faults:>7,}"
        )
        for what, count in r.faults.most_common():
            print(f"    {count:>6} x {what}")
    print(f"grown by {grown / 2**20:.0f} MiB; files left behind: {extra or 'none'}")
    bad = any(r.faults for r in results.values()) or grown > LIMIT_BYTES or bool(extra)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
