"""Tuning in the simulator: never worse than its start, seeded, within limits."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

from tuning_problem import plans

from planner.catalog.spaces import load_space
from planner.cli.main import app
from planner.errors import InputError
from planner.schema import PlanSet
from planner.search.api import instance_of
from planner.search.tuning.knobs import make_knobs
from planner.search.tuning.pricing import Pricing
from planner.search.tuning.proposals import random_settings
from planner.search.tuning.simulated import tune_plans
from planner.simulate.events.replay import simulate
from planner.tuning import tune_in_simulator


def hampered() -> PlanSet:
    """The plans with an engine that runs far too few sequences: something to be gained."""
    found = []
    for plan in plans().plans:
        strategies = dict(plan.assignment.strategies)
        engine = strategies["generate"].model_copy(update={"max_running_sequences": 16})
        changed = {"strategies": strategies | {"generate": engine}}
        assignment = plan.assignment.model_copy(update=changed)
        found.append(plan.model_copy(update={"assignment": assignment}))
    return plans().model_copy(update={"plans": tuple(found)})


@pytest.mark.parametrize("sampler", ["tpe", pytest.param("model", marks=pytest.mark.slow)])
def test_it_finds_what_was_left_and_is_seeded(sampler: str) -> None:
    found = tune_plans(hampered(), 8, sampler=sampler, steps=1)
    again = tune_plans(hampered(), 8, sampler=sampler, steps=1)
    assert found.step_s <= found.start_s
    assert found.gain > (0.1 if sampler == "model" else 0.0)
    assert [t.settings for t in again.trials] == [t.settings for t in found.trials]
    assert (again.step_s, again.plan) == (found.step_s, found.plan)
    replayed = simulate(found.plan, plans().workload, plans().cluster, steps=1, seed=0)
    assert replayed.step_time_s.mean == found.step_s


@pytest.mark.slow
def test_it_is_as_good_as_many_random_trials() -> None:
    given = plans()
    found = tune_plans(given, 10, steps=1)
    space = load_space(given.space)
    pricing = Pricing(
        make_knobs(
            instance_of(given.workload, given.cluster, space),
            space,
            [plan.assignment for plan in given.plans],
        )
    )
    rng = np.random.default_rng(3)
    points = pricing.points([random_settings(pricing.knobs, rng) for _ in range(200)])
    fitting = [point for point in points if point is not None and point.prediction.fits]
    assert len(fitting) > 20
    best = sorted(fitting, key=lambda point: point.prediction.step_time_s)[:6]
    steps = [
        simulate(point.assignment, given.workload, given.cluster, steps=1).step_time_s.mean
        for point in best
    ]
    assert found.step_s <= 1.01 * min(steps)


def test_several_objectives_and_limits() -> None:
    found = tune_plans(plans(), 4, objectives=("time", "cost", "memory"), steps=1)
    done = [trial for trial in found.trials if trial.state == "simulated"]
    assert all(len(trial.values) == 3 for trial in done)
    assert found.front
    for number in found.front:
        own = found.trials[number].values
        for other in done:
            time_s, cost, memory = other.values
            beats = time_s < own[0] and cost < own[1] and memory > own[2]
            assert not beats
    for trial in done:
        assert trial.point is not None
        assert trial.point.prediction.fits


def test_the_tuned_plan_leads_the_set() -> None:
    found, tuned = tune_in_simulator(hampered(), 4, steps=1)
    assert found.plans[0].assignment == tuned.plan.assignment
    assert [plan.rank for plan in found.plans] == [1, 2, 3]
    assert "verl" in found.plans[0].launchers
    assert any("tuned by 4 trials" in line for line in found.assumptions)


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_the_gp_sampler_says_what_to_install() -> None:
    with pytest.raises(InputError, match=r"pip install 'rlmplan\[gp\]'"):
        tune_plans(plans(), 2, sampler="gp")


@pytest.mark.skipif(
    find_spec("torch") is None or find_spec("scipy") is None, reason="needs torch and scipy"
)
def test_the_gp_sampler() -> None:
    found = tune_plans(plans(), 5, sampler="gp", steps=1)
    assert found.step_s <= found.start_s


def test_plan_with_tune_shows_the_gain(tmp_path: Path) -> None:
    problem = tmp_path / "problem.yaml"
    problem.write_text(
        "algorithm: grpo\nmodels: {actor: Qwen/Qwen2.5-1.5B}\ncluster: h100:1x8\n"
        "batch: {prompts: 32, samples: 8}\nprompt: {mean: 150, max: 1024}\n"
        "response: {mean: 500, max: 1024}\nmax_staleness: 0\n"
    )
    result = CliRunner().invoke(app, ["plan", str(problem), "--tune", "3", "--top", "1"])
    assert result.exit_code == 0, result.output
    assert "Tuned in the simulator:" in result.stdout
    assert "3 trials" in result.stdout
