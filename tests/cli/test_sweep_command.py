"""`rlmplan sweep`: every combination once, resumable, the same wherever it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from planner.api import plan
from planner.catalog.workloads import problem_from
from planner.errors import InputError
from planner.sweep import Case, cases, run_case, sweep

WORDS = (
    *("--algorithm", "grpo", "--actor", "Qwen/Qwen2.5-0.5B", "--actor", "Qwen/Qwen2.5-72B"),
    *("--cluster", "h100:1x8", "--prompts", "16", "--samples", "4"),
    *("--response-mean", "200", "--response-max", "512"),
)


def some() -> list[Case]:
    return cases(
        None,
        algorithms=["grpo"],
        actors=["Qwen/Qwen2.5-0.5B"],
        clusters=["h100:1x8", "l40s:1x1"],
        prompts=[16],
        samples=4,
        response_mean=200.0,
        response_max=512,
    )


def test_the_product_holds_every_combination_once() -> None:
    found = cases(
        None,
        algorithms=["grpo", "ppo", "grpo"],
        actors=["a", "b"],
        clusters=["h100:1x8", "h100:2x8"],
        prompts=[8, 16, 32],
    )
    assert len({case.key for case in found}) == len(found) == 2 * 2 * 2 * 3


def test_processes_give_what_a_single_plan_gives_and_resume(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    words = [sys.executable, "-m", "planner.cli.main", "sweep", *WORDS, "-o", str(path), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["status"] for row in rows] == ["planned", "does not fit"]
    assert "2/2" in done.stderr
    problem = problem_from(
        None,
        algorithm="grpo",
        models={"actor": "Qwen/Qwen2.5-0.5B"},
        cluster="h100:1x8",
        prompts=16,
        samples=4,
        response_mean=200.0,
        response_max=512,
    )
    best = plan(problem.workload, problem.cluster, top=1).plans[0]
    assert rows[0]["step_time_s"] == best.step_time_s
    assert rows[0]["assignment"] == best.assignment.model_dump(mode="json")
    before = path.read_text()
    again = subprocess.run(words, capture_output=True, text=True, check=True)
    assert (again.stdout, again.stderr) == (done.stdout, "")
    assert path.read_text() == before


def test_rows_that_are_there_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    first, second = some()
    marked = {"key": first.key, "status": "planned", "mark": 1}
    path.write_text(json.dumps(marked) + "\n")
    told: list[int] = []
    rows = sweep([first, second], path=path, processes=1, progress=lambda n, row: told.append(n))
    assert rows[0] == marked
    assert told == [2]
    assert len(path.read_text().splitlines()) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["rows.jsonl"]


def test_another_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine\n")
    with pytest.raises(InputError, match="line 1"):
        sweep(some(), path=path)
    assert path.read_text() == "mine\n"


def test_bad_input_is_a_row() -> None:
    from dataclasses import replace

    row = run_case(replace(some()[0], actor="no/such"))
    assert row["status"] == "bad input"
    assert "no/such" in row["message"]


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_it_says_what_to_install() -> None:
    with pytest.raises(InputError, match=r"pip install 'rlmplan\[ray\]'"):
        sweep(some(), address="local")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray (rlmplan[ray])")
def test_ray_gives_the_same_rows() -> None:
    assert sweep(some(), address="local") == [run_case(case) for case in some()]
