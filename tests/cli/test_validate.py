"""`rlmplan validate` and `rlmplan fit` as a user runs them."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli.main import app
from planner.errors import InputError
from planner.measure.case_files import load_cases

CASES = Path(__file__).parent.parent / "cases" / "training_vtrain_single.json"


@pytest.fixture
def few(tmp_path: Path) -> Path:
    path = tmp_path / "few.json"
    path.write_text(json.dumps(load_cases(CASES)[:12]))
    return path


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_text_says_what_matters_in_100_columns(few: Path) -> None:
    text = invoke("validate", str(few), "--worst", "2")
    assert max(len(line) for line in text.splitlines()) <= 100
    for word in ("few.json", "step_time", "MAPE", "regret", "0 of 12", "Worst cases", "host"):
        assert word in text
    assert text.count("predicted") == 2


def test_json_alone_stands_on_stdout(few: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "planner.cli.main", "validate", str(few), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    document = json.loads(run.stdout)
    assert document["files"]["few.json"]["step_time"]["n"] == 12
    assert run.stderr == ""  # no progress bar unless it is a terminal


def test_only_one(few: Path) -> None:
    wanted = json.loads(few.read_text())[3]["id"]
    document = json.loads(invoke("validate", str(few), "--only", wanted, "--json"))
    assert [row["id"] for row in document["cases"]] == [wanted]


def test_a_bad_file_is_one_clear_message_and_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text("[1")
    run = subprocess.run(
        [sys.executable, "-m", "planner.cli.main", "validate", str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith("rlmplan: ")
    assert "bad.json" in run.stderr
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize("content", ["[]", '{"a": 1}'])
def test_a_file_without_cases_is_one_clear_message_and_2(tmp_path: Path, content: str) -> None:
    path = tmp_path / "none.json"
    path.write_text(content)
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert isinstance(result.exception, InputError)
    assert "no measured case" in str(result.exception)


def test_verdicts_are_shares_of_right_ones_and_not_errors(tmp_path: Path) -> None:
    text = invoke("validate", str(CASES.parent / "oom_reports.json"))
    assert re.search(r"oom_reports.json +fits +7 +100.0 +0\n", text)
    assert "unknown: set engine_fraction" in text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["validate", str(tmp_path / "none.json")])
    assert isinstance(result.exception, InputError)
    assert "none.json" in str(result.exception)


def test_fit_prints_without_writing(few: Path) -> None:
    from planner.catalog.frameworks import profile_path

    before = profile_path("megatron-deepspeed-2022").read_bytes()
    text = invoke(
        *("fit", str(few), "--profile", "megatron-deepspeed-2022"),
        *("--constant", "layer_pass_dense_s", "--dry-run"),
    )
    assert "layer_pass_dense_s = " in text
    assert "12 cases" in text
    again = CliRunner().invoke(
        app, ["fit", str(few), "--profile", "generic", "--profile", "prime-rl", "--dry-run"]
    )
    assert isinstance(again.exception, InputError)
    width = invoke("fit", str(few), "--profile", "generic", "--dry-run")
    assert "12 cases of 1 frameworks" in width
    assert profile_path("megatron-deepspeed-2022").read_bytes() == before


def test_fit_names_a_profile_that_cannot_be_written_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from planner.catalog import frameworks
    from planner.cli.validate import _write

    copy = tmp_path / "profile.yaml"
    copy.write_bytes(frameworks.profile_path("generic").read_bytes())
    before = copy.read_bytes()

    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    # Only the writing sees the copy: profiles are loaded once a process, under their names.
    monkeypatch.setattr(frameworks, "profile_path", lambda name: copy)
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(InputError) as caught:
        _write("generic", {}, 0.5, "a test")
    assert str(caught.value).startswith(f"{copy}: cannot be written: Read-only file system")
    assert "--dry-run" in str(caught.value)
    assert "--output" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [copy]
    assert copy.read_bytes() == before
