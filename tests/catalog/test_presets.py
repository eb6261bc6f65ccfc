"""Presets: each is a workload that an algorithm takes, with a cluster and its sources."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from planner.catalog.presets import list_presets, load_preset, preset_content
from planner.catalog.workloads import problem_from
from planner.cli.main import app
from planner.errors import InputError
from planner.workload.algorithms import build_graph, list_algorithms

PLANNED = [name for name in list_presets() if load_preset(name).problem is not None]


@pytest.mark.parametrize("name", PLANNED)
def test_every_preset_is_a_workload_with_a_graph(name: str) -> None:
    problem = problem_from(preset=name)
    assert problem.workload.name == name
    assert problem.cluster.devices > 0
    calls = [data["call"] for _, data in build_graph(problem.workload).nodes(data=True)]
    assert {call.role for call in calls} - {"environment"} == set(problem.workload.models)
    assert any(note.startswith(f"preset {name}: ") for note in problem.workload.assumptions)


@pytest.mark.parametrize("name", list_presets())
def test_every_preset_names_its_sources_and_what_they_leave_open(name: str) -> None:
    preset = load_preset(name)
    assert preset.sources
    assert all(source.strip() for source in (*preset.sources, *preset.assumed))
    assert len(preset.description) <= 120


def test_every_algorithm_has_a_preset_of_its_name() -> None:
    for name in list_algorithms():
        assert problem_from(preset=name).workload.algorithm == name


def test_about_forty_published_runs() -> None:
    assert len(set(list_presets()) - set(list_algorithms())) >= 40


def test_options_take_precedence_and_the_rest_stays() -> None:
    problem = problem_from(preset="dapo-32b", cluster="h100:4x8", samples=8)
    assert problem.cluster.devices == 32
    assert problem.workload.samples_per_prompt == 8
    assert problem.workload.oversampling == 3.0
    other = problem_from(preset="grpo", models={"actor": "Qwen/Qwen2.5-0.5B"})
    assert other.workload.models["actor"].name == "Qwen/Qwen2.5-0.5B"


def test_late_in_training_more_is_generated_for_the_same_batch() -> None:
    from planner.workload.sampling import generated_sequences, trained_sequences

    early, late = (problem_from(preset=name).workload for name in ("dapo-32b", "dapo-32b-late"))
    assert trained_sequences(early, "actor") == trained_sequences(late, "actor") == 8192
    assert generated_sequences(late) > 1.9 * generated_sequences(early)


def test_nothing_published_is_said_and_not_invented() -> None:
    with pytest.raises(InputError, match=r"--preset: no configuration of o3 is published"):
        preset_content("o3")
    shown = CliRunner().invoke(app, ["workloads", "show", "o3"])
    assert shown.exit_code == 0
    assert "no published configuration" in shown.output


def test_mistakes() -> None:
    with pytest.raises(InputError, match=r"Did you mean.*dapo-32b"):
        load_preset("dapo-32")
    from pathlib import Path

    with pytest.raises(InputError, match="gives the workload twice"):
        problem_from(Path("x.yaml"), preset="grpo")
    with pytest.raises(InputError, match=r"^--optimizer-steps: "):
        problem_from(preset="grpo", optimizer_steps=7)


def test_the_commands() -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["workloads", "list"])
    assert listed.exit_code == 0
    assert "o3" in listed.output
    rows = json.loads(runner.invoke(app, ["workloads", "list", "--json"]).output)
    assert {row["name"] for row in rows} == set(list_presets())
    shown = json.loads(runner.invoke(app, ["workloads", "show", "dapo", "--json"]).output)
    assert shown["problem"]["batch"]["acceptance"] == 0.5
    text = runner.invoke(app, ["workloads", "show", "dapo"]).output
    assert text.endswith("\n")
    planned = runner.invoke(
        app, ["plan", "--preset", "dr-grpo", "--actor", "Qwen/Qwen2.5-0.5B", "--json"]
    )
    assert planned.exit_code == 0
    answer = json.loads(planned.output)
    assert answer["workload"]["algorithm"] == "dr-grpo"
    assert any("arXiv:2503.20783" in line for line in answer["assumptions"])


def test_the_problem_file_that_is_shown_is_one(tmp_path) -> None:
    text = CliRunner().invoke(app, ["workloads", "show", "archer"]).output
    file = tmp_path / "archer.yaml"
    file.write_text(text)
    read, preset = problem_from(file).workload, problem_from(preset="archer").workload
    assert read.model_copy(update={"assumptions": ()}) == preset.model_copy(
        update={"assumptions": ()}
    )


def test_a_model_for_any_role() -> None:
    runner = CliRunner()
    given = ["plan", "--preset", "on-policy-distillation", "--actor", "Qwen/Qwen3-0.6B"]
    planned = runner.invoke(app, [*given, "--model", "teacher=Qwen/Qwen3-1.7B", "--json"])
    models = json.loads(planned.output)["workload"]["models"]
    assert models["teacher"]["name"] == "Qwen/Qwen3-1.7B"
    for wrong in ("teacher", "=x", "a b=c"):
        with pytest.raises(InputError, match=r"^--model: .*is not ROLE=MODEL"):
            runner.invoke(app, [*given, "--model", wrong], catch_exceptions=False)
