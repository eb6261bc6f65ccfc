"""What is predicted, skipped, flagged or counted once; with a reader that a test can follow."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.measure.case import Prediction, Reader, Scored
from planner.measure.case_files import load_cases
from planner.measure.validation import validate
from planner.report.text import to_text
from planner.report.validation import render_validation


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
        ('[{"common": {}, "cases": [{"id": "a"}, {"id": "a"}]}]', "'a' occurs twice"),
        ('[{"common": {}, "cases": [{}]}]', 'no object with a text "id"'),
        ('[{"common": {}, "cases": [1]}]', "must be an object"),
        ('[{"common": 1, "cases": []}]', "a group is"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        load_cases(path)
    assert "bad.json" in str(caught.value)


def test_an_object_beside_cases_is_no_error(cases: Path) -> None:
    other = write(cases.parent / "curves.json", {"curves": []})
    result = validate([cases, other], readers=READERS)
    assert len(result.outcomes) == 8
    assert "curves.json" in result.notes[0]


@pytest.mark.parametrize("document", [[], {"a": 1}])
def test_files_without_any_case_are_an_error(tmp_path: Path, document: Any) -> None:
    with pytest.raises(InputError, match="no measured case in it") as caught:
        validate([write(tmp_path / "empty.json", document)], readers=READERS)
    assert "empty.json" in str(caught.value)


def test_grouped_rows_share_their_fields(tmp_path: Path) -> None:
    path = write(
        tmp_path / "grouped.json",
        [
            {"common": {"model": {"layers": 2}, "tp": 1}, "cases": [{"id": "a"}, {"id": "b"}]},
            {"id": "c", "tp": 4},
            {"common": {"tp": 1}, "cases": [{"id": "d", "tp": 2}]},
        ],
    )
    assert load_cases(path) == [
        {"id": "a", "model": {"layers": 2}, "tp": 1},
        {"id": "b", "model": {"layers": 2}, "tp": 1},
        {"id": "c", "tp": 4},
        {"id": "d", "tp": 2},
    ]


def test_an_incomplete_case_says_what_it_lacks(cases: Path) -> None:
    reader = replace(
        READERS[0],
        complete=lambda case: case.get("complete", True),
        lacks=lambda case: "unknown: set micro_batch",
    )
    result = validate([cases], readers=(reader,))
    found = next(one for one in result.outcomes if one.id == "incomplete")
    assert found.skipped_because == "unknown: set micro_batch"
    assert not found.counts_as_skipped
    text = to_text(render_validation(result, worst=0))
    assert "1 x unknown: set micro_batch (first: incomplete)" in text
