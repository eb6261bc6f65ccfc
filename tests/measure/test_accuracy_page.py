"""The page of accuracy: what stands in it, and predictions by constants fitted without a group."""

from __future__ import annotations

import importlib
import json
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from planner.catalog.frameworks import load_framework
from planner.measure.fit import NORMAL_80

TESTS = Path(__file__).parents[1]


@cache
def tool(name: str) -> ModuleType:
    sys.path.insert(0, str(TESTS.parent / "tools"))
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every fourth InternEvo row, and one flagged."""
    rows = json.loads((TESTS / "cases" / "training.json").read_text())
    own = [row for row in rows if row["setup"]["framework"] == "internevo"][::4]
    path = tmp_path_factory.mktemp("cases") / "few.json"
    path.write_text(json.dumps([*own, {**own[0], "id": "doubtful", "flag": "twice"}]))
    return path


def test_left_out_predictions_are_summed_up_by_file_and_profile(few: Path) -> None:
    page = tool("accuracy_left_out")
    runs = page.runs([few])
    assert [run.family.profiles for run in runs] == [("internevo",)]
    assert page.runs([few], ["internevo"]) == []
    fitted = runs[0].fitted
    summary = page.by_file(runs)["few.json"]["step_time"]
    assert summary.n == fitted.cases == 8
    assert summary.mape == pytest.approx(fitted.error_left_out)
    width = page.widths(runs)["internevo"]
    error = load_framework("internevo").relative_error
    inside = [abs(one.residual) <= NORMAL_80 * error for one in fitted.left_out]
    assert width.rows == 8
    assert width.coverage == pytest.approx(np.mean(inside))
    assert width.needed == pytest.approx(fitted.relative_error["internevo"])


def test_the_page_says_what_it_was_made_from(few: Path, tmp_path: Path) -> None:
    page = tool("accuracy")
    output = tmp_path / "page.md"
    page.main([str(few), "--no-fit", "--output", str(output)])
    text = output.read_text()
    assert f"| few.json | 9 | 8 | `{page.digest(few)}` |" in text
    assert "| few.json | step_time | 8 |" in text
    assert "| few.json | step_time, flagged | 1 |" in text
    assert "| h100-80-sxm | gemm_bf16 |" in text
    assert text.count("| internevo-7b-") == 8  # the worst ten of eight
    assert str(few.parent) not in text


def test_every_profile_of_a_family_exists() -> None:
    for family in tool("accuracy_left_out").FAMILIES:
        for name in family.profiles:
            assert load_framework(name).name == name
