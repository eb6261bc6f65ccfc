"""`rlmplan init` and `rlmplan doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.catalog.workloads import problem_from
from planner.cli.init import _needed_roles
from planner.cli.main import app
from planner.errors import InputError
from planner.measure import health
from planner.workload.algorithms import build_graph, list_algorithms

ANSWERS = ["grpo", "Qwen/Qwen2.5-7B", "h100:1x8", "64", "8", "512", "8192", "", "1"]


def test_the_answers_become_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    result = CliRunner().invoke(app, ["init", str(file)], input="\n".join(ANSWERS) + "\n")
    assert result.exit_code == 0
    assert f"rlmplan plan {file}" in result.stdout
    workload = problem_from(file).workload
    assert (workload.algorithm, workload.sequences_per_step, workload.max_staleness) == (
        "grpo",
        512,
        1,
    )
    assert workload.response_length.mean_tokens == 2048


def test_a_wrong_answer_is_asked_for_again(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    answers = ["grpoo", "grpo", "Qwen/Qwen2.5-7X", *ANSWERS[1:3], "many", *ANSWERS[3:]]
    result = CliRunner().invoke(app, ["init", str(file)], input="\n".join(answers) + "\n")
    assert result.exit_code == 0
    assert "Did you mean grpo" in result.stderr
    assert "'many' is not a whole number" in result.stderr
    assert file.exists()


def test_what_does_not_go_together_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    # Each is allowed alone; so many responses in a step are not.
    answers = [*ANSWERS[:3], "1000000", "1000", *ANSWERS[5:]]
    result = CliRunner().invoke(app, ["init", str(file)], input="\n".join(answers) + "\n")
    assert isinstance(result.exception, InputError)
    assert not file.exists()


@pytest.mark.parametrize(
    ("place", "wrong", "complaint"),
    [
        (3, "0", "0 is not greater than"),
        (7, "9000", "9000 is above the longest response, 8,192 tokens"),
        (8, "1025", "1025 is not less than or equal to 1024"),
    ],
)
def test_numbers_out_of_bounds_are_refused_when_asked(
    tmp_path: Path, place: int, wrong: str, complaint: str
) -> None:
    file = tmp_path / "p.yaml"
    answers = [*ANSWERS[:place], wrong, *ANSWERS[place:]]
    result = CliRunner().invoke(app, ["init", str(file)], input="\n".join(answers) + "\n")
    assert result.exit_code == 0
    assert complaint in result.stderr
    assert problem_from(file).workload.max_staleness == 1


@pytest.mark.parametrize("algorithm", list_algorithms())
def test_every_algorithm_gives_a_file_that_can_be_planned_or_is_refused_at_once(
    tmp_path: Path, algorithm: str
) -> None:
    file = tmp_path / "p.yaml"
    refusal = None
    try:
        roles = _needed_roles(algorithm)
    except InputError as error:
        refusal = error.message
    if refusal is not None:
        answers = [algorithm, *ANSWERS]
        result = CliRunner().invoke(app, ["init", str(file)], input="\n".join(answers) + "\n")
        assert refusal in result.stderr
        assert problem_from(file).workload.algorithm == "grpo"
        return
    samples = "2" if algorithm == "dpo" else "8"
    answers = [algorithm, ANSWERS[1], *[""] * len(roles), *ANSWERS[2:4], samples, *ANSWERS[5:]]
    result = CliRunner().invoke(app, ["init", str(file)], input="\n".join(answers) + "\n")
    assert result.exit_code == 0, result.output
    assert {"actor", *roles} == set(_models_of_a_plannable(file))


def _models_of_a_plannable(file: Path) -> list[str]:
    workload = problem_from(file).workload
    build_graph(workload)
    return list(workload.models)


def test_ppo_asks_for_a_critic(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    answers = ["ppo", ANSWERS[1], "Qwen/Qwen2.5-1.5B", *ANSWERS[2:]]
    result = CliRunner().invoke(app, ["init", str(file)], input="\n".join(answers) + "\n")
    assert result.exit_code == 0
    assert "Critic model" in result.stdout
    workload = problem_from(file).workload
    assert workload.models["critic"].name == "Qwen/Qwen2.5-1.5B"
    assert "critic_train" in build_graph(workload)


def test_a_file_is_not_replaced_unasked(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("mine")
    result = CliRunner().invoke(app, ["init", str(file)], input="\n".join(ANSWERS) + "\n")
    assert isinstance(result.exception, InputError)
    assert file.read_text() == "mine"
    forced = CliRunner().invoke(app, ["init", str(file), "--force"], input="\n".join(ANSWERS))
    assert forced.exit_code == 0
    assert file.read_text() != "mine"


def test_doctor_finds_this_installation_sound() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    states = {row["check"]: row["state"] for row in shown["checks"]}
    assert shown["ok"]
    assert states["solver"] == states["data files"] == states["ortools"] == "ok"


def test_doctor_says_what_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> str:
        raise RuntimeError("CP-SAT answered UNKNOWN")

    monkeypatch.setitem(health._CHECKS, "solver", fails)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "BROKEN" in result.stdout
    assert "CP-SAT answered UNKNOWN" in result.stdout
