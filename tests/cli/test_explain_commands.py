"""`rlmplan explain` and `rlmplan compare`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import planner
from planner.catalog.workloads import problem_from
from planner.cli.main import app
from planner.errors import InputError
from planner.report.explain import render_explanation
from planner.report.text import to_text
from planner.schema.explain import Comparison, Explanation


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    problem = problem_from(
        None,
        algorithm="grpo",
        models={"actor": "Qwen/Qwen2.5-7B"},
        cluster="h100:1x8",
        prompts=64,
        samples=8,
        response_mean=800.0,
        response_max=2048,
    )
    path = tmp_path_factory.mktemp("explain") / "plans.json"
    answer = planner.plan(problem.workload, problem.cluster, space="verl-fsdp", top=2)
    path.write_text(answer.model_dump_json())
    return path


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_explain_says_why_and_what_would_change_it(plans: Path) -> None:
    found = Explanation.model_validate_json(invoke("explain", str(plans), "--no-replan", "--json"))
    assert found.rank == 1
    text = to_text(render_explanation(found, "title"))
    assert max(len(line) for line in text.splitlines()) <= 100
    for words in ("Why this plan", "Why not the others", "What binds", "What one change", "agrees"):
        assert words in text


def test_explain_names_the_file_in_errors(plans: Path) -> None:
    result = CliRunner().invoke(app, ["explain", str(plans), "--rank", "7"])
    assert isinstance(result.exception, InputError)
    assert "plans.json" in str(result.exception)
    assert "no plan of rank 7" in str(result.exception)


def test_compare_two_ranks(plans: Path) -> None:
    text = invoke("compare", str(plans), f"{plans}:2")
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "Verdict" in text
    found = Comparison.model_validate_json(invoke("compare", str(plans), f"{plans}:2", "--json"))
    wanted = json.loads(plans.read_text())["plans"]
    assert found.left.step_time_s == wanted[0]["step_time_s"]
    assert found.right.step_time_s == wanted[1]["step_time_s"]


def test_compare_a_plan_with_the_files_written_for_it(plans: Path, tmp_path: Path) -> None:
    invoke("export", str(plans), "--to", "verl", "-o", str(tmp_path / "out"))
    arguments = ("compare", str(plans), str(tmp_path / "out"), "--launcher", "verl", "--json")
    found = Comparison.model_validate_json(invoke(*arguments))
    assert found.speedup == pytest.approx(1.0, rel=0.01)
    assert found.right.fits
    assert not found.right.broken
    assert not [pair.change for pair in found.calls if pair.change]


def test_compare_two_clusters(tmp_path: Path) -> None:
    file = tmp_path / "problem.yaml"
    file.write_text(
        "algorithm: grpo\nmodels: {actor: Qwen/Qwen2.5-7B}\ncluster: h100:1x8\n"
        "batch: {prompts: 32, samples: 8}\nresponse: {mean: 500, max: 1024}\nspace: verl-fsdp\n"
    )
    arguments = ("compare", "h100:1x8", "h100:2x8", "--problem", str(file), "--json")
    found = Comparison.model_validate_json(invoke(*arguments))
    assert (found.left.devices, found.right.devices) == (8, 16)
    assert found.speedup > 1


def test_a_configuration_without_devices_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", "a.sh", "b.sh", "--launcher", "verl"])
    assert isinstance(result.exception, InputError)
    assert "--cluster" in str(result.exception)
