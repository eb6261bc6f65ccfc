"""`planner.plan_fleet`, fleet files, the report and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import planner
from planner.cli.main import app
from planner.errors import InfeasibleError, InputError, PlannerError
from planner.fleet.options import Prices
from planner.report.fleet import render_fleet
from planner.report.text import to_text
from planner.schema import FleetJob, FleetPhase, FleetPlan, ShareTime

CLUSTER = planner.parse_cluster("h100:4x8")
EXAMPLES = Path(__file__).parents[2] / "examples"
HOUR_S = 3600.0


def phase(times: dict[int, float], **fields: Any) -> FleetPhase:
    step_times = tuple(ShareTime(group="h100", nodes=n, step_time_s=s) for n, s in times.items())
    return FleetPhase(**{"steps": 100, "step_times": step_times, **fields})


def job(
    name: str, times: dict[int, float], due_s: float | None = None, weight: float = 1.0
) -> FleetJob:
    return FleetJob(name=name, phases=(phase(times),), due_s=due_s, weight=weight)


TIMES = {1: 72.0, 2: 40.0, 4: 25.0}


def content() -> dict[str, Any]:
    """A small fleet file that needs no pricing."""
    return {
        "cluster": "h100:4x8",
        "slots": 64,
        "storage_gb_s": 2,
        "jobs": [
            {"name": "a", "step_times": {"h100": {1: 72, 2: 40}}, "steps": 100, "due_h": 2},
            {
                "name": "b",
                "weight": 3,
                "phases": [
                    {"name": "sft", "step_times": {"h100": {2: 10}}, "steps": 50, "reload_gib": 9},
                    {
                        "name": "rl",
                        "after": ["sft"],
                        "step_times": {"h100": {2: 30, 4: 18}},
                        "steps": 80,
                        "slots_per_node": 8,
                        "reload_gib": 9,
                    },
                ],
            },
        ],
    }


def write(folder: Path, fleet: Any) -> Path:
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(fleet))
    return path


def test_four_equal_jobs_take_a_node_each_rather_than_turns() -> None:
    plan = planner.plan_fleet([job(f"j{i}", TIMES) for i in range(4)], CLUSTER)
    assert plan.optimal
    assert plan.schedules[0].makespan_s == 7200.0
    assert {run.first_node for run in plan.schedules[0].runs} == {0, 1, 2, 3}
    assert plan.schedules[0].utilisation["h100"] == pytest.approx(1.0)
    assert plan.makespan_bound_s <= 7200.0


def test_priority_decides_who_is_late() -> None:
    only_all = {4: 36.0}
    for first in ("a", "b"):
        jobs = [
            job(name, only_all, due_s=HOUR_S, weight=5.0 if name == first else 1.0)
            for name in ("a", "b")
        ]
        plan = planner.plan_fleet(jobs, CLUSTER, objective="tardiness")
        late = {result.name: result.tardiness_s for result in plan.schedules[0].jobs}
        assert late[first] == 0.0
        assert plan.schedules[0].weighted_tardiness_s == HOUR_S


def test_among_equally_good_schedules_the_other_objective_decides() -> None:
    # The long job decides the makespan, but only one order of the others has nobody late.
    jobs = [job("long", {2: 100.0}), job("late", {2: 40.0}), job("early", {2: 40.0}, due_s=4000.0)]
    plan = planner.plan_fleet(jobs, CLUSTER, objective="makespan")
    assert plan.schedules[0].makespan_s == 10_000.0
    assert plan.schedules[0].weighted_tardiness_s == 0.0
    # Nobody is late in any case; four on a node each, then one on all, is sooner than any rule.
    easy = [job(name, {1: 100.0, 2: 56.0, 4: 30.0}, due_s=1e6) for name in "abcde"]
    plan = planner.plan_fleet(easy, CLUSTER, objective="tardiness")
    assert plan.schedules[0].weighted_tardiness_s == 0.0
    assert plan.schedules[0].makespan_s == 13_000.0


def test_the_pareto_front_holds_the_best_of_each_objective() -> None:
    # Together in time only one after the other on all nodes; sooner done side by side.
    jobs = [job("a", {2: 50.0, 4: 30.0}, due_s=3000.0), job("b", {2: 50.0, 4: 30.0}, due_s=5600.0)]
    front = planner.plan_fleet(jobs, CLUSTER, objective="pareto")
    least = planner.plan_fleet(jobs, CLUSTER, objective="makespan", gap=0.0)
    punctual = planner.plan_fleet(jobs, CLUSTER, objective="tardiness", gap=0.0)
    assert front.schedules[0].makespan_s == least.schedules[0].makespan_s
    tardiness = punctual.schedules[0].weighted_tardiness_s
    assert front.schedules[-1].weighted_tardiness_s == tardiness
    assert len(front.schedules) > 1
    assert front.optimal


@pytest.mark.parametrize("optimizer", ["cp-sat", "memetic", "ga", "anneal", "random"])
def test_the_same_seed_gives_the_same_plan(optimizer: str, tmp_path: Path) -> None:
    fleet = planner.load_fleet(write(tmp_path, content()))
    plans = [
        planner.plan_fleet(
            fleet.jobs, fleet.cluster, slots=fleet.slots, optimizer=optimizer, budget=150, seed=4
        )
        for _ in range(2)
    ]
    first, second = (plan.model_dump(exclude={"wall_s"}) for plan in plans)
    assert first == second
    assert plans[0].makespan_bound_s <= plans[0].schedules[0].makespan_s


def test_a_phase_on_the_nodes_of_the_one_before_reloads_nothing() -> None:
    sft = phase({2: 10.0}, name="sft", reload_bytes=4e9)
    rl = phase({2: 20.0}, name="rl", after=("sft",), reload_bytes=4e9)
    plan = planner.plan_fleet(
        [FleetJob(name="a", phases=(sft, rl))], CLUSTER, storage_bytes_per_s=1e9
    )
    first, second = plan.schedules[0].runs
    assert (first.setup_s, second.setup_s) == (4.0, 0.0)
    assert second.first_node == first.first_node
    assert plan.schedules[0].makespan_s == 3004.0


def test_shares_are_priced_by_the_planner_once_each() -> None:
    problem = planner.load_problem(EXAMPLES / "grpo-qwen2.5-7b-1x8-h100.yaml")
    run = FleetPhase(steps=10, workload=problem.workload, space=problem.space, nodes=(1, 2))
    prices = Prices()
    options = prices.job_options(run, CLUSTER)
    assert options.sizes == (1, 2)
    assert options.step_time_s[1] < options.step_time_s[0]
    one = planner.plan(problem.workload, planner.parse_cluster("h100:1x8"), space=problem.space)
    assert options.step_time_s[0] == pytest.approx(one.plans[0].step_time_s, rel=0.02)
    assert prices.job_options(run, CLUSTER) == options


def test_a_phase_that_fits_nowhere_is_named() -> None:
    problem = planner.load_problem(EXAMPLES / "grpo-qwen3-30b-a3b-4x8-h100.yaml")
    big = FleetPhase(steps=1, workload=problem.workload, space=problem.space)
    with pytest.raises(InfeasibleError, match="job 'huge', phase 'run'"):
        planner.plan_fleet(
            [FleetJob(name="huge", phases=(big,))], planner.parse_cluster("h100:1x1")
        )


def test_a_deadline_and_a_cancellation_return_what_there_is() -> None:
    jobs = [job(f"j{i}", {n: s * (1 + i / 9) for n, s in TIMES.items()}) for i in range(9)]
    for options in ({"deadline_s": 0.2}, {"cancel": lambda: True}):
        plan = planner.plan_fleet(jobs, CLUSTER, gap=0.0, **options)  # type: ignore[arg-type]
        assert plan.schedules[0].makespan_s >= plan.makespan_bound_s > 0


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("jobs[0].steps", {"jobs": [{"name": "a", "step_times": {"h100": {1: 5}}}]}, "steps"),
    ("jobs[0].problem", {"jobs": [{"name": "a", "steps": 5}]}, "step_times"),
    ("jobs[0].weight", {"jobs": [{"steps": 5, "weight": -1}]}, "greater"),
    ("jobs[0].prio", {"jobs": [{"steps": 5, "prio": 1}]}, "unknown field"),
    ("jobs", {"jobs": []}, "no job"),
    ("cluster", {"cluster": None}, "cluster"),
    (
        "jobs[0].phases[0].step_times",
        {"jobs": [{"steps": 5, "step_times": {"a100": {1: 5}}}]},
        "no node group 'a100'",
    ),
    (
        "jobs[0].phases[0].step_times",
        {"jobs": [{"steps": 5, "step_times": {"h100": {9: 5}}}]},
        "9 nodes",
    ),
    ("jobs[0].step_times.h100", {"jobs": [{"steps": 5, "step_times": {"h100": {"x": 5}}}]}, "'x'"),
    (
        "jobs[0].phases[0].slots",
        {"slots": 3, "jobs": [{"steps": 5, "slots": 4, "step_times": {"h100": {1: 5}}}]},
        "4 slots",
    ),
    (
        "jobs[1].name",
        {"jobs": [{"name": "a", "steps": 5, "step_times": {"h100": {1: 5}}}] * 2},
        "twice",
    ),
    (
        "jobs[0]",
        {
            "jobs": [
                {
                    "phases": [
                        {"name": "x", "steps": 1, "step_times": {"h100": {1: 5}}, "after": ["y"]},
                        {"name": "y", "steps": 1, "step_times": {"h100": {1: 5}}, "after": ["x"]},
                    ]
                }
            ]
        },
        "wait for one another",
    ),
    (
        "jobs[0]",
        {"jobs": [{"steps": 4, "phases": [{"steps": 1, "step_times": {"h100": {1: 5}}}]}]},
        "beside phases",
    ),
    ("objective", {"objective": "speed"}, "makespan"),
    (
        "jobs[0].problem",
        {"jobs": [{"steps": 5, "problem": "a", "step_times": {"h100": {1: 1}}}]},
        "both",
    ),
]


@pytest.mark.parametrize(("where", "changes", "words"), CASES)
def test_bad_input_names_the_file_and_the_field(
    tmp_path: Path, where: str, changes: dict[str, Any], words: str
) -> None:
    path = write(tmp_path, {**content(), **changes})
    result = CliRunner().invoke(app, ["fleet", str(path)])
    assert isinstance(result.exception, InputError)
    message = str(result.exception)
    assert f"{path}: {where}:" in message
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"objective": "speed"}, "objective"),
        ({"optimizer": "magic"}, "optimizer"),
        ({"budget": 0}, "budget"),
        ({"deadline_s": -1.0}, "deadline_s"),
        ({"gap": 1.0}, "gap"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as error:
        planner.plan_fleet([job("a", TIMES)], CLUSTER, **options)
    assert error.value.where == where


def test_the_report_is_a_table_of_jobs_that_fits_100_columns(tmp_path: Path) -> None:
    path = write(tmp_path, content())
    result = CliRunner().invoke(app, ["fleet", str(path)], catch_exceptions=False)
    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines()) <= 100
    for word in ("sft", "due", "tardiness", "makespan", "gap", "proven", "slots", "Assumed"):
        assert word in result.stdout


def test_long_names_keep_the_report_within_100_columns() -> None:
    jobs = [job("x" * 180, TIMES, due_s=1.0), job("y" * 180, TIMES, due_s=1e8, weight=12345.5)]
    text = to_text(render_fleet(planner.plan_fleet(jobs, CLUSTER, objective="pareto")))
    assert max(len(line) for line in text.splitlines()) <= 100


def test_json_of_a_real_process_is_a_fleet_plan(tmp_path: Path) -> None:
    path = write(tmp_path, content())
    run = [sys.executable, "-m", "planner.cli.main", "fleet", str(path), "--json"]
    options = ["--optimizer", "memetic", "--objective", "pareto", "--budget", "200", "--seed", "1"]
    done = subprocess.run([*run, *options], capture_output=True, text=True, timeout=120, check=True)
    plan = FleetPlan.model_validate_json(done.stdout)
    assert (plan.optimizer, plan.objective, plan.seed) == ("memetic", "pareto", 1)
    assert json.loads(done.stdout)["schema_version"] == 1


def test_bad_input_ends_a_real_process_with_code_2_and_no_traceback(tmp_path: Path) -> None:
    path = write(tmp_path, {**content(), "slots": "many"})
    done = subprocess.run(
        [sys.executable, "-m", "planner.cli.main", "fleet", str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == PlannerError.exit_code + 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"{path}: slots:" in done.stderr


def test_the_example_loads() -> None:
    fleet = planner.load_fleet(EXAMPLES / "fleet.yaml")
    assert [job.name for job in fleet.jobs] == ["math", "math-long", "coder", "judge"]
