"""Measured training steps: how rows are read, and how near predictions come."""

from __future__ import annotations

import copy
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.catalog.frameworks import load_framework
from planner.errors import InputError
from planner.measure.case_files import load_cases
from planner.measure.training_cases import (
    READER,
    predict,
    prepare,
    read_training_case,
    superseded,
)
from planner.measure.validation import Validation, validate

TESTS = Path(__file__).parent.parent
sys.path.insert(0, str(TESTS))
import accuracy_thresholds as thresholds  # noqa: E402

FILES = [TESTS / "cases" / name for name in ("training.json", "training_vtrain_single.json")]


@cache
def raw() -> dict[str, dict[str, Any]]:
    return {case["id"]: case for path in FILES for case in load_cases(path)}


@cache
def result() -> Validation:
    return validate(FILES, readers=(READER,))


def row(framework: str, **changes: Any) -> dict[str, Any]:
    """The first complete row of a framework, changed."""
    found = next(
        c for c in raw().values() if c["setup"]["framework"] == framework and c["complete"]
    )
    return {**copy.deepcopy(found), **changes}


def test_every_complete_row_is_predicted() -> None:
    assert [one.id for one in result().outcomes if one.counts_as_skipped] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_predictions_are_near(path: Path) -> None:
    figures = result().files()[path.name]["step_time"]
    allowed = thresholds.TRAINING[path.name]
    assert figures.mape is not None
    assert figures.kendall_tau is not None
    assert figures.top1_regret is not None
    assert figures.mape < allowed["mape"]
    assert figures.kendall_tau > allowed["kendall_tau"]
    assert figures.top1_regret < allowed["top1_regret"]


def test_80_percent_intervals_hold_70_to_90_percent() -> None:
    inside = [
        abs(np.log(figure.predicted / figure.measured))
        <= 1.2816 * load_framework(one.prediction.framework).relative_error
        for one in result().outcomes
        if one.scored and one.prediction is not None
        for figure in one.prediction.scores
    ]
    assert 0.70 <= np.mean(inside) <= 0.92  # in sample; left out it is checked when fitting


def test_breakdowns_add_up() -> None:
    for one in result().outcomes:
        if one.prediction is not None:
            figure = one.prediction.scores[0]
            assert sum(figure.breakdown.values()) == pytest.approx(figure.predicted), one.id


def test_costing_together_changes_nothing() -> None:
    rows = [c for c in raw().values() if c["complete"]][::23]
    for case, together in zip(rows, prepare(rows)(), strict=True):
        alone = predict(case)
        assert together.scores[0].predicted == pytest.approx(alone.scores[0].predicted, rel=1e-12)
        assert together.group == alone.group


def test_repeats_count_once_and_flagged_rows_never_win() -> None:
    rows = list(raw().values())
    old = superseded(rows)
    assert len(old) == 99
    assert not set(old) & set(old.values())
    assert all(raw()[new]["flag"] is None for new in old.values())
    for name, new in old.items():
        assert raw()[name]["gpu"] == raw()[new]["gpu"]
        assert raw()[name]["micro_batch"] == raw()[new]["micro_batch"]


@pytest.mark.parametrize(
    ("framework", "changes", "message"),
    [
        ("internevo", {"dtype": "int3"}, "dtype: unknown 'int3'"),
        ("internevo", {"gpu": "TPU-X"}, "unknown device"),
        ("internevo", {"recompute": "sometimes"}, "recompute: unknown"),
        ("internevo", {"fsdp": "SIDEWAYS"}, "fsdp: unknown"),
        ("internevo", {"tp": 3}, "is not n_gpus"),
        ("internevo", {"measured": {}}, "neither a step time nor a token rate"),
        ("internevo", {"surprise": 1}, "unknown fields"),
        ("megatron-bridge", {"recompute": 'selective modules ["soul"]'}, "unknown modules"),
    ],
)
def test_unknown_spellings_are_refused_with_the_id(
    framework: str, changes: dict[str, Any], message: str
) -> None:
    case = row(framework, **changes)
    with pytest.raises(InputError, match=message) as caught:
        read_training_case(case)
    assert case["id"] in str(caught.value)


def test_unknown_setup_is_refused() -> None:
    case = row("internevo")
    case["setup"]["mood"] = "good"
    with pytest.raises(InputError, match="mood"):
        read_training_case(case)


def test_software_that_nobody_measured_is_generic() -> None:
    case = row("internevo")
    case["setup"]["framework"] = "brand-new"
    assert read_training_case(case).profile == "generic"


@pytest.mark.parametrize(
    ("case_id", "profile"),
    [
        ("internevo-7b-tp1-zero-1-8g", "internevo"),
        ("tt-llama3-8b-8g-fsdp-eager", "torchtitan-eager"),
        ("tt-llama3-8b-8g-fsdp-compile", "torchtitan"),
        ("seqsel-gpt-22b-8g-full", "megatron-lm-2022"),
        ("mosaic-70b-s2048-512xh100_80gb-mb8-gb4096-amp_bf16", "llm-foundry-hopper"),
        (
            "mbridge-26.08-pretrain-deepseek-v3-gb300-256g-mxfp8-gbs4096",
            "megatron-bridge-26.06-grace",
        ),
    ],
)
def test_profiles_follow_software_and_device(case_id: str, profile: str) -> None:
    assert read_training_case(raw()[case_id]).profile == profile


def test_facts_of_a_row_reach_the_cost_model() -> None:
    all_ranks = predict(raw()["internevo-7b-tp1-zero-1-1024g"]).scores[0]
    in_a_node = predict(raw()["internevo-7b-tp1-zero8-1024g"]).scores[0]
    # Sharding over all 1,024 ranks was measured to cost more than half again.
    assert all_ranks.measured > 1.5 * in_a_node.measured
    assert all_ranks.predicted > 1.4 * in_a_node.predicted


def test_recomputing_some_layers_lies_between_none_and_all() -> None:
    some = next(c for c in raw().values() if c["complete"] and "block" in str(c["recompute"]))
    times = [
        predict({**some, "recompute": text}).scores[0].predicted
        for text in ("none", some["recompute"], "full")
    ]
    assert times[0] < times[1] < times[2]


def test_adapters_save_weight_gradients() -> None:
    case = next(c for c in raw().values() if c["id"].startswith("mbridge-26.06-peft"))
    whole = {**case, "notes": case["notes"].replace("task=peft", "task=sft")}
    parts = [predict(one).scores[0].breakdown["compute"] for one in (case, whole)]
    assert parts[0] == pytest.approx(parts[1] * 2 / 3, rel=0.05)
