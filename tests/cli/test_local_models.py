"""Models given by a path: written files name them from any folder, or a note says they do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.catalog.models import catalogue, load_model
from planner.catalog.workloads import problem_from
from planner.cli.local_models import with_absolute_paths
from planner.schema import Workload

FOLDER = "models/my14b"


@pytest.fixture
def workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    monkeypatch.chdir(tmp_path)
    config = dict(next(each for each in catalogue() if each.id == "Qwen/Qwen3-14B").config)
    Path(FOLDER).mkdir(parents=True)
    Path(FOLDER, "config.json").write_text(json.dumps(config))
    Path("own14b.json").write_text(json.dumps(config))
    return problem_from(
        None,
        algorithm="grpo",
        models={"actor": "Qwen/Qwen3-14B"},
        cluster="h100:1x8",
        prompts=64,
        samples=8,
        response_mean=800.0,
        response_max=2048,
    ).workload


def with_model(workload: Workload, reference: str) -> Workload:
    return workload.model_copy(update={"models": {"actor": load_model(reference)}})


@pytest.mark.parametrize("given", [FOLDER, f"./{FOLDER}/", f"{FOLDER}/config.json"])
def test_a_folder_is_named_from_the_root(workload: Workload, given: str) -> None:
    found, notes = with_absolute_paths(with_model(workload, given))
    assert found.models["actor"].name == str(Path(FOLDER).resolve())
    assert notes == ()


def test_a_folder_that_is_not_here_any_more_is_noted(
    workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = with_model(workload, FOLDER)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found, (note,) = with_absolute_paths(given)
    assert found == given
    assert FOLDER in note


def test_a_file_of_its_own_is_noted(workload: Workload) -> None:
    _, (note,) = with_absolute_paths(with_model(workload, "own14b.json"))
    assert "own14b" in note


def test_names_of_a_hub_stay(workload: Workload) -> None:
    assert with_absolute_paths(workload) == (workload, ())
