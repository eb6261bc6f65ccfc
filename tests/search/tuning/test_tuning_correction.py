"""Factors of the cost model from measurements: no data, few data, wrong data, many data."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import problem_from
from planner.search.api import instance_of
from planner.search.tuning.correction import Correction, Observation
from planner.search.tuning.knobs import make_knobs
from planner.search.tuning.pricing import OUTSIDE, Point, Pricing


@pytest.fixture(scope="module")
def points() -> list[Point]:
    given = problem_from(
        None,
        algorithm="grpo",
        models={"actor": "Qwen/Qwen2.5-7B"},
        cluster="h100:1x8",
        prompts=64,
        samples=8,
        response_mean=800.0,
        response_max=2048,
    )
    plans = planner.plan(given.workload, given.cluster, top=3)
    space = load_space("any")
    knobs = make_knobs(
        instance_of(given.workload, given.cluster, space),
        space,
        [plan.assignment for plan in plans.plans],
    )
    pricing = Pricing(knobs)
    start = knobs.settings(1)
    many = [
        start,
        {**start, "generate.max_running_sequences": 64},
        {**start, "actor_train.recompute": "full"},
        knobs.settings(2),
        {**start, "generate.max_running_sequences": 96},
    ]
    found = [point for point in pricing.points(many) if point is not None]
    assert len({point.key for point in found}) == len(many)
    return found


TRUE = {"generate": 1.4, "train": 0.85, "forward": 1.0, "weight sync": 2.0, OUTSIDE: 0.8}


def measured(point: Point, noise: float = 0.01) -> Observation:
    factors = {name: TRUE[kind] for name, kind in point.kinds.items()}
    stages_s = {name: t * factors[name] for name, t in point.stages_s.items() if name != OUTSIDE}
    return Observation(point, point.step_s(factors), stages_s, noise)


def error(correction: Correction, point: Point) -> float:
    return abs(math.log(correction.estimate(point).step_s / measured(point).step_s))


def test_the_points_are_those_of_the_cost_model(points: list[Point]) -> None:
    for point in points:
        assert point.step_s({}) == pytest.approx(point.prediction.step_time_s, rel=1e-9)


def test_without_measurements_it_is_the_model_itself(points: list[Point]) -> None:
    found = Correction([]).estimate(points[0])
    assert found.step_s == pytest.approx(points[0].prediction.step_time_s)
    assert 0.05 < found.deviation < 0.5


def test_three_measurements_help_and_more_help_more(points: list[Point]) -> None:
    errors = [
        error(Correction([measured(each) for each in points[:count]]), points[-1])
        for count in (0, 1, 3, 4)
    ]
    assert errors[0] > 0.1
    assert errors[2] < 0.02
    assert errors == sorted(errors, reverse=True) or max(errors[2:]) < 0.01


def test_the_step_alone_teaches_as_well(points: list[Point]) -> None:
    seen = [Observation(each.point, each.step_s) for each in map(measured, points[:3])]
    assert error(Correction(seen), points[-1]) < 0.5 * error(Correction([]), points[-1])


def test_stages_of_a_kind_may_be_joined(points: list[Point]) -> None:
    whole = measured(points[0])
    joined = {
        "generate": whole.stages_s["generate"],
        "old_logprobs+actor_train": whole.stages_s["old_logprobs"] + whole.stages_s["actor_train"],
    }
    found = Correction([Observation(points[0], whole.step_s, joined)])
    assert found.factors["generate"] > 1.2
    assert found.factors["train"] < 1.0


def test_one_wild_measurement_does_not_wreck_it(points: list[Point]) -> None:
    good = [measured(each) for each in points[:3]]
    wild = measured(points[3])
    wild = Observation(
        wild.point, 5 * wild.step_s, {name: 5 * t for name, t in wild.stages_s.items()}
    )
    assert error(Correction([*good, wild]), points[-1]) < 0.1


def test_every_measurement_makes_the_estimate_surer(points: list[Point]) -> None:
    deviations = [
        Correction([measured(each) for each in points[:count]]).estimate(points[-1]).deviation
        for count in range(5)
    ]
    # Reweighting of outliers may cost a little of what a measurement gives.
    assert all(after < 1.01 * before for before, after in pairwise(deviations))
    assert deviations[-1] < 0.1 * deviations[0]


def test_factors_are_those_of_the_system(points: list[Point]) -> None:
    found = Correction([measured(each) for each in points]).factors
    assert found["generate"] == pytest.approx(1.4, rel=0.1)
    assert found["train"] == pytest.approx(0.85, rel=0.1)
