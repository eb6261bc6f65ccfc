"""Predictions of measured cases by constants that were fitted without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.catalog.frameworks import load_framework, own_constants
from planner.errors import InputError
from planner.measure.fit import NORMAL_80, Fitted, LeftOut, fit
from planner.measure.scores import VERDICTS, Score, Summary, summarise

# Constants of memory; profiles mark as fitted only what step times decide.
_MEMORY = {
    *("logits_train_bytes", "unfused_score_bytes", "expert_intermediates", "dropout_mask_bytes"),
    *("allocator_floor_bytes", "live_layer_factor", "fragmentation_factor", "whole_stage_bytes"),
    *("frozen_base_bytes_per_parameter", "optimizer_bytes_per_parameter"),
    *("weight_bytes_per_parameter", "gradient_bytes_per_parameter"),
}
FEWEST_ROWS = 10
"""Left-out rows below which the width of an interval says little."""


@dataclass(frozen=True)
class Family:
    """Profiles that share cases or constants and are fitted together, to one metric."""

    kind: str
    profiles: tuple[str, ...]
    metric: str

    def fitted(self, paths: Sequence[Path]) -> Fitted | None:
        """None when none of its cases were given."""
        constants: list[str] | None = None
        if self.metric == "peak_memory":
            constants = sorted(_adjustable(self.profiles))
        try:
            return fit(paths, self.profiles, metric=self.metric, constants=constants)
        except InputError:
            return None


def _adjustable(profiles: Sequence[str]) -> set[str]:
    """Memory constants that the profiles state with a range."""
    found = set()
    for profile in profiles:
        constants = load_framework(profile).constants
        found |= {
            name
            for name in own_constants(profile) & _MEMORY
            if constants[name].high > constants[name].low
        }
    return found


_STEP, _LOAD, _PEAK, _SYNC = "step_time", "throughput", "peak_memory", "refit"
FAMILIES = (
    Family("training", ("megatron-deepspeed-2022",), _STEP),
    Family("training", ("megatron-lm-2022",), _STEP),
    Family(
        "training",
        (
            "megatron-bridge",
            "megatron-bridge-26.04",
            "megatron-bridge-25.11-grace",
            "megatron-bridge-26.06-grace",
        ),
        _STEP,
    ),
    Family("training", ("llm-foundry-ampere", "llm-foundry-hopper"), _STEP),
    Family("training", ("internevo",), _STEP),
    Family("training", ("torchtitan", "torchtitan-eager"), _STEP),
    Family("training", ("prime-rl", "prime-rl-flash2"), _STEP),
    Family("inference", ("trtllm", "trtllm-1.0", "trtllm-1.1"), _LOAD),
    Family("inference", ("vllm",), _LOAD),
    Family("inference", ("sglang",), _LOAD),
    Family("RL step", ("nemo-rl", "vllm-nemo-rl"), _STEP),
    Family("weight sync", ("verl-per-tensor", "verl-bucketed"), _SYNC),
    Family("weight sync", ("checkpoint-engine",), _SYNC),
    Family("memory", ("megatron-ci", "megatron-ci-ampere", "megatron-ci-fp16"), _PEAK),
    Family("memory", ("megatron-lm-2022",), _PEAK),
    Family("memory", ("internevo", "internevo-fsdp"), _PEAK),
    Family("memory", ("torchtitan", "torchtitan-loss-parallel"), _PEAK),
    Family("memory", ("prime-rl", "prime-rl-flash2", "prime-rl-sft"), _PEAK),
)


@dataclass(frozen=True)
class Run:
    """A family's fit."""

    family: Family
    fitted: Fitted


def runs(paths: Sequence[Path], skip: Sequence[str] = ()) -> list[Run]:
    """Every family that has cases, fitted with each of its groups left out in turn.

    `skip` names profiles whose families are not fitted.
    """
    wanted = [family for family in FAMILIES if not set(skip) & set(family.profiles)]
    found = [(family, family.fitted(paths)) for family in wanted]
    return [Run(family, fitted) for family, fitted in found if fitted is not None]


def by_file(done: Sequence[Run]) -> dict[str, dict[str, Summary]]:
    """File -> metric -> figures of left-out predictions, all figures of a fitted row."""
    scores: dict[str, dict[str, list[Score]]] = {}
    for one in _left_out(done):
        for figure in one.prediction.scores:
            metrics = scores.setdefault(one.case.file, {})
            metrics.setdefault(figure.metric, []).append(
                Score(
                    figure.metric,
                    figure.measured,
                    figure.predicted,
                    one.prediction.strategy_group,
                )
            )
    return {
        name: {metric: summarise(ones) for metric, ones in metrics.items()}
        for name, metrics in sorted(scores.items())
    }


@dataclass(frozen=True)
class Width:
    """How a profile's interval fares on cases left out of its fit."""

    rows: int
    relative_error: float
    """Of the profile."""
    needed: float
    """Spread of the left-out residuals."""
    coverage: float
    """Share of left-out cases within the profile's 80 % interval."""


def widths(done: Sequence[Run]) -> dict[str, Width]:
    """By profile; peaks of memory have no interval."""
    residuals: dict[str, list[float]] = {}
    needed: dict[str, float] = {}
    for run in done:
        if run.family.metric != _PEAK:
            needed |= run.fitted.relative_error
            for one in run.fitted.left_out:
                residuals.setdefault(one.case.framework, []).append(one.residual)
    result = {}
    for name, ones in sorted(residuals.items()):
        error = load_framework(name).relative_error
        inside = np.abs(np.array(ones)) <= NORMAL_80 * error
        result[name] = Width(len(ones), error, needed.get(name, error), float(inside.mean()))
    return result


def _left_out(done: Sequence[Run]) -> list[LeftOut]:
    return [one for run in done for one in run.fitted.left_out]


def is_verdict(metric: str) -> bool:
    """True for metrics that are right or wrong."""
    return metric in VERDICTS
