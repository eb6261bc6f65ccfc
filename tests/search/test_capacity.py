"""Capacity: the answer is the best point of the fronts, whatever is asked for."""

from __future__ import annotations

import math

import pytest

import planner
from planner.api import pareto_for_launcher
from planner.catalog.workloads import problem_from
from planner.errors import InputError
from planner.schema import Cluster, ParetoFront, Workload
from planner.schema.capacity import Capacity
from planner.search.capacity import choose, duration_in_words

STEPS = 1000.0


@pytest.fixture(scope="module")
def workload() -> Workload:
    return problem_from(
        None,
        models={"actor": "Qwen/Qwen2.5-7B"},
        algorithm="grpo",
        cluster="h100:1x8",
        prompts=64,
        samples=8,
        response_mean=800.0,
        response_max=2048,
    ).workload


@pytest.fixture(scope="module")
def clusters() -> list[Cluster]:
    return [planner.parse_cluster("h100:2x8"), planner.parse_cluster("h200:1x8")]


@pytest.fixture(scope="module")
def fronts(workload: Workload, clusters: list[Cluster]) -> list[ParetoFront]:
    return [planner.pareto(workload, cluster, space="verl-fsdp") for cluster in clusters]


def runs(fronts: list[ParetoFront]) -> list[tuple[float, float]]:
    """(seconds, dollars) of every point."""
    return [
        (STEPS * point.step_time_s, STEPS * (point.cost_per_step_usd or math.inf))
        for front in fronts
        for point in front.points
    ]


def answer(fronts: list[ParetoFront], within_s: float | None, budget_usd: float | None) -> Capacity:
    return choose(fronts, steps=STEPS, within_s=within_s, budget_usd=budget_usd)


def test_under_any_deadline_the_cheapest_that_meets_it_comes_first(
    fronts: list[ParetoFront],
) -> None:
    every = runs(fronts)
    for limit_s, _ in every:
        found = answer(fronts, limit_s * (1 + 1e-9), None).choices[0]
        assert found.meets
        assert found.cost_usd == pytest.approx(
            min(usd for run_s, usd in every if run_s <= limit_s * (1 + 1e-9))
        )


def test_under_any_budget_the_fastest_within_it_comes_first(fronts: list[ParetoFront]) -> None:
    every = runs(fronts)
    for _, limit_usd in every:
        found = answer(fronts, None, limit_usd * (1 + 1e-9)).choices[0]
        assert found.run_s == pytest.approx(
            min(run_s for run_s, usd in every if usd <= limit_usd * (1 + 1e-9))
        )


def test_what_nothing_meets_is_said_with_the_nearest(fronts: list[ParetoFront]) -> None:
    found = answer(fronts, 1.0, None)
    assert not any(choice.meets for choice in found.choices)
    assert "none of them does" in found.verdict
    assert found.choices[0].run_s == pytest.approx(min(run_s for run_s, _ in runs(fronts)))


def test_surely_means_at_the_slow_end_too(fronts: list[ParetoFront]) -> None:
    limit_s = sorted(run_s for run_s, _ in runs(fronts))[2]
    for choice in answer(fronts, limit_s, None).choices:
        assert choice.surely == (choice.run_interval_s[1] <= limit_s)
        assert choice.surely <= choice.meets


def test_a_cluster_that_holds_no_plan_is_named(workload: Workload, clusters: list[Cluster]) -> None:
    tiny = planner.parse_cluster("a6000-48:1x1")
    found = planner.capacity(workload, [tiny, clusters[1]], steps=10, space="verl-fsdp")
    assert len(found.without_plan) == 1
    assert "no plan fits" in found.without_plan[0]


def without_prices(front: ParetoFront) -> ParetoFront:
    points = [
        point.model_copy(update={"cost_per_step_usd": None, "step_time_s": 0.9 * point.step_time_s})
        for point in front.points
    ]
    return front.model_copy(update={"points": tuple(points)})


def test_choices_without_a_price_come_last_and_the_answer_says_so(
    fronts: list[ParetoFront],
) -> None:
    h100, h200 = fronts
    for within_s in (None, 1e9):
        found = answer([without_prices(h200), h100], within_s, None)
        prices = [choice.cost_usd is not None for choice in found.choices]
        assert prices == sorted(prices, reverse=True)
        assert {True, False} == set(prices)
        assert "h200-141-sxm: no price, so ranked after" in found.verdict


def test_hours_of_different_devices_are_not_compared(fronts: list[ParetoFront]) -> None:
    for order in (fronts, fronts[::-1]):
        found = answer([without_prices(front) for front in order], 1e9, None)
        clusters = [choice.cluster for choice in found.choices]
        assert list(dict.fromkeys(clusters)) == [front.cluster.name for front in order]
        assert clusters == sorted(clusters, key=clusters.index)
        assert "No prices" in found.verdict
        hours = [choice.device_hours for choice in found.choices if choice.cluster == clusters[0]]
        assert hours == sorted(hours)


@pytest.mark.parametrize(
    ("value_s", "words"),
    [(7200.0, "2 hours"), (172_800.0, "2 days"), (90.0, "1.5 minutes"), (9.0, "9 s")],
)
def test_durations_have_a_unit_that_fits(value_s: float, words: str) -> None:
    assert duration_in_words(value_s) == words


def test_limits_that_make_no_sense_are_refused(workload: Workload, clusters: list[Cluster]) -> None:
    for wrong in ({"steps": 0.0}, {"steps": 1, "within_s": -1.0}, {"steps": 1, "budget_usd": 0.0}):
        with pytest.raises(InputError):
            planner.capacity(workload, clusters, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no cluster"):
        planner.capacity(workload, [], steps=1)


def test_a_launchers_front_has_the_best_of_its_spaces(
    workload: Workload, clusters: list[Cluster], fronts: list[ParetoFront]
) -> None:
    sizes = [8]
    both = pareto_for_launcher("verl", workload, clusters[0], sizes=sizes)
    other = planner.pareto(workload, clusters[0], space="verl-megatron", sizes=sizes)
    fsdp = {point.size: point for point in fronts[0].points}
    for point, megatron in zip(both.points, other.points, strict=True):
        mine = fsdp[point.size]
        assert point.step_time_s == pytest.approx(
            min(mine.step_time_s, megatron.step_time_s), rel=0.006
        )
        assert point.bound_s <= point.step_time_s
    assert both.space == "verl-fsdp + verl-megatron"


@pytest.mark.parametrize("objective", ["step_time", "cost_per_step", "tokens_per_s_per_device"])
def test_the_objective_marks_its_best_point(
    objective: str, workload: Workload, clusters: list[Cluster]
) -> None:
    found = planner.pareto(
        workload, clusters[1], space="verl-fsdp", sizes=[2, 8], objective=objective
    )
    (best,) = [point for point in found.points if point.best]
    score = {
        "step_time": lambda point: point.step_time_s,
        "cost_per_step": lambda point: point.cost_per_step_usd,
        "tokens_per_s_per_device": lambda point: -point.plan.tokens_per_s_per_device,
    }[objective]
    assert score(best) == min(score(point) for point in found.points)
