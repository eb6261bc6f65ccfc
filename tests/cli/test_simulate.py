"""`rlmplan simulate`, in process and as a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import planner
from planner.catalog.workloads import problem_from
from planner.cli.main import app
from planner.errors import InputError
from planner.report.simulation import render_simulation
from planner.report.text import to_text
from planner.schema import PlanSet
from planner.simulate.events.replay import simulate


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
    path = tmp_path_factory.mktemp("simulate") / "plans.json"
    answer = planner.plan(problem.workload, problem.cluster, space="verl-fsdp", top=2)
    path.write_text(answer.model_dump_json())
    return path


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["simulate", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_text_fits_100_columns_and_compares_with_the_analytic_model(plans: Path) -> None:
    text = invoke(str(plans), "--steps", "2")
    assert max(len(line) for line in text.splitlines()) <= 100
    for word in ("90th percentile", "analytic", "generate", "actor_train", "weight_sync", "in use"):
        assert word in text


def test_preemptions_are_put_down_to_the_long_samples(plans: Path) -> None:
    plan_set = PlanSet.model_validate_json(plans.read_text())
    found = simulate(plan_set.plans[0], plan_set.workload, plan_set.cluster, steps=2)
    assert found.generation is not None
    overflowing = replace(found, generation=replace(found.generation, preemptions_per_step=12.0))
    text = to_text(render_simulation(overflowing, "plan"))
    call = found.calls["generate"]
    assert "12 sequences a step are preempted" in text
    assert f"{100 * (call.time_s.mean / call.analytic_s - 1):+.1f} % against" in text
    assert "Fewer running sequences" not in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_json_and_timeline(plans: Path, tmp_path: Path) -> None:
    trace = tmp_path / "deep" / "trace.json"
    options = ("--rank", "2", "--steps", "3", "--seed", "1", "--json", "--timeline", str(trace))
    text = invoke(str(plans), *options)
    content = json.loads(text)
    assert content["steps"] == 3
    assert content["step_time_s"]["p50"] <= content["step_time_s"]["p90"]
    assert set(content["calls"]) == {
        *("generate", "verify", "old_logprobs", "actor_train", "weight_sync")
    }
    assert list(trace.parent.iterdir()) == [trace]
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert {event["name"] for event in events} == set(content["calls"])
    assert min(event["ts"] for event in events) == 0
    assert invoke(str(plans), *options) == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rank", "9"], "no plan of rank 9"),
        (["--timeline", ""], "--timeline: names no file"),
        (["--timeline", ".."], "--timeline: names no file"),
    ],
)
def test_bad_input_is_one_clear_message(plans: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CliRunner().invoke(app, ["simulate", str(plans), *arguments], catch_exceptions=False)


def test_a_timeline_that_cannot_be_written_is_named(plans: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--timeline .*is a folder"):
        CliRunner().invoke(
            app,
            ["simulate", str(plans), "--steps", "1", "--timeline", str(tmp_path)],
            catch_exceptions=False,
        )
    assert list(tmp_path.iterdir()) == []


def test_as_a_process_bad_input_exits_with_2_and_writes_nothing(
    plans: Path, tmp_path: Path
) -> None:
    edited = json.loads(plans.read_text())
    edited["plans"][0]["assignment"]["strategies"]["generate"]["dp"] = 5
    file = tmp_path / "edited.json"
    file.write_text(json.dumps(edited))
    trace = tmp_path / "trace.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "planner.cli.main", "simulate", str(file)),
            *("--timeline", str(trace)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "edited.json" in done.stderr
    assert "devices" in done.stderr
    assert "Traceback" not in done.stderr
    assert not trace.exists()
