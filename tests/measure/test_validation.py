"""What is predicted, skipped, flagged or counted once; with a reader that a test can follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.measure.case import Prediction, Reader, Scored
from planner.measure.validation import load_cases, validate


def predict(case: dict[str, Any]) -> Prediction:
    if case["measured"] < 0:
        raise InputError("negative", where=f"case {case['id']}")
    return Prediction(
        group="source / model / device",
        strategy_group="same",
        framework="generic",
        scores=(Scored("step_time", case["measured"], case["guess"], {"compute": case["guess"]}),),
    )


def superseded(cases: Any) -> dict[str, str]:
    return {case["id"]: case["again"] for case in cases if "again" in case}


READERS = (Reader("toy", lambda case: "guess" in case, predict, superseded=superseded),)


def write(path: Path, cases: Any) -> Path:
    path.write_text(json.dumps(cases))
    return path


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    return write(
        tmp_path / "toy.json",
        [
            {"id": "good", "measured": 10.0, "guess": 11.0},
            {"id": "far", "measured": 10.0, "guess": 15.0},
            {"id": "old", "measured": 10.0, "guess": 30.0, "again": "good"},
            {"id": "doubtful", "measured": 10.0, "guess": 20.0, "flag": "twice its neighbour"},
            {"id": "refused", "measured": -1.0, "guess": 1.0},
            {"id": "broken", "measured": None, "guess": 1.0},
            {"id": "strange", "measured": 1.0},
            {"id": "incomplete", "measured": 1.0, "guess": 1.0, "complete": False},
        ],
    )


def test_every_case_has_one_fate(cases: Path) -> None:
    result = validate([cases], readers=READERS)
    one = result.files()["toy.json"]["step_time"]
    assert (one.n, one.skipped) == (2, 3)
    assert one.mape == pytest.approx(0.3)
    assert result.flagged()["toy.json"]["step_time"].n == 1
    reasons = {o.id: o.skipped_because for o in result.outcomes if o.counts_as_skipped}
    assert set(reasons) == {"refused", "broken", "strange"}
    assert reasons["refused"] == "case refused: negative"
    assert "TypeError" in str(reasons["broken"])
    assert [row[0].id for row in result.worst(5)] == ["far", "good"]


def test_json_has_the_published_form(cases: Path) -> None:
    document = json.loads(json.dumps(validate([cases], readers=READERS).as_json()))
    figures = document["files"]["toy.json"]["step_time"]
    wanted = {"n", "mape", "median_ape", "p90_ape", "bias", "kendall_tau", "top1_regret", "skipped"}
    assert wanted <= set(figures)
    assert figures["flagged"]["n"] == 1
    rows = {row["id"]: row for row in document["cases"]}
    assert len(rows) == 8
    keys = {"id", "file", "flag", "metric", "measured", "predicted", "ape", "skipped_because"}
    assert all(keys <= set(row) for row in rows.values())
    assert rows["far"]["ape"] == pytest.approx(0.5)
    assert rows["refused"]["predicted"] is None
    assert rows["old"]["superseded_by"] == "good"
    assert rows["incomplete"]["complete"] is False


def test_only_one_case(cases: Path) -> None:
    assert [one.id for one in validate([cases], only="far", readers=READERS).outcomes] == ["far"]
    with pytest.raises(InputError, match="no case has the id 'nope'"):
        validate([cases], only="nope", readers=READERS)


def test_progress_counts_cases(cases: Path) -> None:
    seen: list[tuple[int, int]] = []
    validate([cases], readers=READERS, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 8) for done in range(9)]


def test_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    paths = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        row = {"id": folder, "measured": 1.0, "guess": 1.0}
        paths.append(write(tmp_path / folder / "x.json", [row]))
    assert set(validate(paths, readers=READERS).files()) == {str(path) for path in paths}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a JSON document"),
        ("3", "neither a list of cases nor an object"),
        ('[{"name": 1}]', 'no object with a text "id"'),
        ('[{"id": "a"}, {"id": "a"}]', "'a' occurs twice"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        load_cases(path)
    assert "bad.json" in str(caught.value)


def test_an_object_is_no_list_of_cases_but_no_error(tmp_path: Path) -> None:
    result = validate([write(tmp_path / "curves.json", {"curves": []})], readers=READERS)
    assert result.outcomes == ()
    assert "curves.json" in result.notes[0]
