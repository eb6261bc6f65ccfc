"""Step times, stage times and peak memory from the logs of the launchers.

Each format is that of the launcher's own source: verl `utils/logger/aggregate_logger.py` (one line
a step, ``step:N - key:value - ...``), NeMo RL `algorithms/grpo.py` (a "Timing" block a step),
OpenRLHF `trainer/ppo_trainer.py` ("Global step N: {...}"), slime `observability/*_metric_utils.py`
("perf N: {...}", two lines a step), TRL's trainer (a dictionary a logging step), and JSON lines for
anything else. Ray puts "(name pid=1)" before lines, colours and carriage returns may be in between.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from planner.search.tuning.measured import FORWARD, GENERATE, TRAIN, WEIGHT_SYNC, LogFigures

GIB = 1024.0**3
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"

_VERL_STEP = re.compile(r"(?:^|\s)step:(\d+) - ")
_VERL_PAIR = re.compile(rf"([\w@./()-]+):(?:np\.\w+\()?({_NUMBER})\)?(?= - |\s*$)")
_VERL_STAGES = {
    "gen": GENERATE,
    "old_log_prob": "old_logprobs",
    "ref": "reference_logprobs",
    "ref_policy": "reference_logprobs",
    "RefPolicy": "reference_logprobs",
    "values": "values",
    "update_actor": "actor_train",
    "update_critic": "critic_train",
    "update_weights": WEIGHT_SYNC,
}
_NEMO_TOTAL = re.compile(rf"• Total step time: ({_NUMBER})s")
_NEMO_LINE = re.compile(rf"• ([\w/]+): ({_NUMBER})s \(")
_NEMO_STAGES = {
    "generation": GENERATE,
    "exposed_generation": "",  # Only what training did not hide.
    "policy_and_reference_logprobs": FORWARD,
    "policy_training": TRAIN,
    "weight_sync": WEIGHT_SYNC,
    "prepare_for_generation/transfer_and_update_weights": WEIGHT_SYNC,
}
_OPENRLHF_STEP = re.compile(r"Global step (\d+): (\{.*\})")
_OPENRLHF_STAGES = {
    "timing/generation": GENERATE,
    "timing/make_experience": FORWARD,
    "timing/ppo_train": TRAIN,
    "timing/broadcast": WEIGHT_SYNC,
}
_SLIME_PERF = re.compile(r"perf (\d+): (\{.*\})")
_SLIME_STAGES = {
    "perf/rollout_time": GENERATE,
    "perf/log_probs_time": "old_logprobs",
    "perf/ref_log_probs_time": "reference_logprobs",
    "perf/actor_train_time": "actor_train",
    "perf/update_weights_time": WEIGHT_SYNC,
}
_SLIME_MEMORY = re.compile(r"Memory-Usage .*?(\{.*\})")
_TRL_DICT = re.compile(r"(\{.*\})")
_JSON_STEP = ("step_time_s", "step_s", "step_time")
_JSON_MEMORY = {
    "peak_memory_bytes": 1.0,
    "peak_memory_gib": GIB,
    "peak_memory_gb": 1e9,
}


def log_formats() -> tuple[str, ...]:
    """Names of the formats, sorted."""
    return tuple(sorted(_READERS))


def read_log(text: str, form: str = "auto", *, optimizer_steps: int = 1) -> LogFigures:
    """The figures of a log in one of `log_formats`; "auto" takes the first that finds steps.

    `optimizer_steps` is the number of them in one RL step: TRL's figures are of optimizer steps.
    A log without figures gives none: it raises nothing, whatever it holds. KeyError for an unknown
    format.
    """
    lines = [_clean(line) for line in text.replace("\r", "\n").splitlines()]
    for name in _READERS if form == "auto" else (form,):
        found = _READERS[name](lines)
        if found.steps_s:
            return _joined(found, optimizer_steps) if name == "trl" else found
    return LogFigures()


def _joined(found: LogFigures, count: int) -> LogFigures:
    """RL steps of `count` optimizer steps each; only the first of them generates."""
    times = found.steps_s
    whole = [sum(times[i : i + count]) for i in range(0, len(times) - count + 1, count)]
    # Fewer lines than optimizer steps: each is the mean of several.
    steps = whole or [count * sum(times) / len(times)]
    return LogFigures(tuple(steps), {}, found.peak_memory_bytes)


def _clean(line: str) -> str:
    return _ESCAPES.sub("", line).strip()


class _Steps:
    """Figures by step; a step that is logged twice (a resumed run) counts once, the later one."""

    def __init__(self) -> None:
        self.steps: dict[int, float] = {}
        self.stages: dict[int, dict[str, float]] = {}
        self.peak: float | None = None

    def add(self, number: int, step_s: float | None, stages: Mapping[str, float]) -> None:
        if step_s is not None and 0 < step_s < math.inf:
            self.steps[number] = step_s
        own = self.stages.setdefault(number, {})
        own |= {name: t for name, t in stages.items() if name and 0 < t < math.inf}

    def memory(self, number_of_bytes: float | None) -> None:
        if number_of_bytes is not None and 0 < number_of_bytes < math.inf:
            self.peak = max(self.peak or 0.0, number_of_bytes)

    def figures(self) -> LogFigures:
        numbers = sorted(self.steps)
        names = sorted({name for n in numbers for name in self.stages.get(n, {})})
        stages = {
            name: tuple(self.stages[n][name] for n in numbers if name in self.stages[n])
            for name in names
        }
        return LogFigures(tuple(self.steps[n] for n in numbers), stages, self.peak)


def _verl(lines: list[str]) -> LogFigures:
    found = _Steps()
    for line in lines:
        start = _VERL_STEP.search(line)
        if start is None:
            continue
        pairs = {key: float(value) for key, value in _VERL_PAIR.findall(line[start.end() :])}
        stages = {
            name: pairs[f"timing_s/{key}"]
            for key, name in _VERL_STAGES.items()
            if f"timing_s/{key}" in pairs
        }
        step_s = pairs.get("timing_s/step", pairs.get("perf/time_per_step"))
        found.add(int(start.group(1)), step_s, stages)
        for key in ("perf/max_memory_allocated_gb", "actor/perf/max_memory_allocated_gb"):
            if key in pairs:
                found.memory(pairs[key] * GIB)
    return found.figures()


def _nemo_rl(lines: list[str]) -> LogFigures:
    found, number = _Steps(), 0
    for line in lines:
        total = _NEMO_TOTAL.search(line)
        stage = _NEMO_LINE.search(line)
        if total is not None:
            number += 1
            found.add(number, float(total.group(1)), {})
        elif stage is not None and number:
            name = _NEMO_STAGES.get(stage.group(1), "")
            found.add(number, None, {name: float(stage.group(2))})
    return found.figures()


def _openrlhf(lines: list[str]) -> LogFigures:
    found = _Steps()
    for line in lines:
        match = _OPENRLHF_STEP.search(line)
        values = _literal(match.group(2)) if match is not None else {}
        if match is not None and values:
            stages = _stages(values, _OPENRLHF_STAGES)
            found.add(int(match.group(1)), values.get("timing/step_total"), stages)
    return found.figures()


def _slime(lines: list[str]) -> LogFigures:
    found = _Steps()
    for line in lines:
        match = _SLIME_PERF.search(line)
        if match is not None:
            values = _literal(match.group(2))
            found.add(
                int(match.group(1)), values.get("perf/step_time"), _stages(values, _SLIME_STAGES)
            )
            continue
        memory = _SLIME_MEMORY.search(line)
        if memory is not None and "used_GB" in (values := _literal(memory.group(1))):
            found.memory(values["used_GB"] * GIB)
    return found.figures()


def _trl(lines: list[str]) -> LogFigures:
    """TRL counts the optimizer steps since the last log as one mean; the number is the line's."""
    found, number = _Steps(), 0
    for line in lines:
        match = _TRL_DICT.search(line) if "step_time" in line else None
        values = _literal(match.group(1)) if match is not None else {}
        if "step_time" in values and ("epoch" in values or "loss" in values):
            number += 1
            found.add(number, values["step_time"], {})
    return found.figures()


def _json_lines(lines: list[str]) -> LogFigures:
    found, number = _Steps(), 0
    for line in lines:
        if not line.startswith("{"):
            continue
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(content, dict):
            continue
        step_s = next((_float(content[key]) for key in _JSON_STEP if key in content), None)
        if step_s is not None:
            number += 1
            given = content.get("stages_s")
            stages = given if isinstance(given, dict) else {}
            own = {str(name): t for name, each in stages.items() if (t := _float(each)) is not None}
            found.add(number, step_s, own)
        for key, unit in _JSON_MEMORY.items():
            value = _float(content.get(key))
            found.memory(None if value is None else value * unit)
    return found.figures()


def _stages(values: Mapping[str, float], names: Mapping[str, str]) -> dict[str, float]:
    return {name: values[key] for key, name in names.items() if key in values}


def _literal(text: str) -> dict[str, float]:
    """The numbers of a printed dictionary; none when it cannot be read.

    Whole dictionaries of literals are read as such, others (NumPy scalars, tensors) key by key.
    """
    try:
        content = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return dict(_pairs(text))
    if not isinstance(content, dict):
        return {}
    return {str(key): t for key, value in content.items() if (t := _float(value)) is not None}


_PAIR = re.compile(rf"'([^']+)': (?:(?:np\.\w+|tensor)\()?'?({_NUMBER})'?[,)}}]")


def _pairs(text: str) -> Iterator[tuple[str, float]]:
    for key, value in _PAIR.findall(text):
        yield key, float(value)


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


_READERS: dict[str, Callable[[list[str]], LogFigures]] = {
    "verl": _verl,
    "nemo-rl": _nemo_rl,
    "openrlhf": _openrlhf,
    "slime": _slime,
    "trl": _trl,
    "json": _json_lines,
}
