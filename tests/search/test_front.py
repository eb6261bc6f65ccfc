"""Step time against devices: the points are the plans of the sub-clusters, marks follow rules."""

import pytest

import planner
from planner.catalog.workloads import Problem, problem_from
from planner.report.front import render_front
from planner.report.text import WIDTH, to_text
from planner.schema import Limits, ParetoFront
from planner.search.front import step_times


@pytest.fixture(scope="module")
def problem() -> Problem:
    return problem_from(
        None,
        models={"actor": "Qwen/Qwen2.5-7B"},
        algorithm="grpo",
        cluster="h100:4x8",
        prompts=64,
        samples=8,
        response_mean=800.0,
        response_max=2048,
    )


@pytest.fixture(scope="module")
def front(problem: Problem) -> ParetoFront:
    return planner.pareto(problem.workload, problem.cluster, space="verl-fsdp")


def test_a_front_read_back_equals_the_one_written(front: ParetoFront) -> None:
    assert ParetoFront.model_validate_json(front.model_dump_json()) == front


def test_each_point_is_the_best_plan_of_its_size(problem: Problem, front: ParetoFront) -> None:
    assert front.optimal
    assert [sum(point.size) for point in front.points] == [1, 2, 4, 8, 16, 24, 32][
        -len(front.points) :
    ]
    for point in front.points:
        alone = planner.plan(
            problem.workload,
            problem.cluster,
            space="verl-fsdp",
            top=1,
            limits=Limits(devices=sum(point.size)),
        )
        assert point.step_time_s == pytest.approx(alone.plans[0].step_time_s, rel=0.006)
        assert point.bound_s <= alone.plans[0].step_time_s * (1 + 1e-9)
        assert point.bound_s <= point.step_time_s
        assert point.devices <= sum(point.size)
        again = planner.evaluate(point.plan, problem.workload, problem.cluster)
        assert again.step_time_s == point.step_time_s


def test_more_devices_never_take_longer(front: ParetoFront) -> None:
    times = [point.step_time_s for point in front.points]
    assert times == sorted(times, reverse=True)


def test_marks_follow_their_rules(front: ParetoFront) -> None:
    points = front.points
    for point in points:
        better = [
            other
            for other in points
            if other is not point
            and other.devices <= point.devices
            and other.step_time_s <= point.step_time_s
        ]
        assert point.dominated == bool([o for o in better if sum(o.size) < sum(point.size)])
    undominated = [point for point in points if not point.dominated]
    knee = min(undominated, key=lambda p: p.step_time_s * (p.cost_per_step_usd or 0.0))
    assert [point for point in points if point.knee] == [knee]
    assert points[0].scaling_efficiency == 1.0
    for point in points:
        ratio = (points[0].devices * points[0].step_time_s) / (point.devices * point.step_time_s)
        assert point.scaling_efficiency == pytest.approx(ratio)
        tokens = point.tokens_per_s * point.step_time_s
        assert point.cost_per_billion_tokens_usd == pytest.approx(
            (point.cost_per_step_usd or 0.0) * 1e9 / tokens
        )


def test_step_times_are_those_of_the_front(problem: Problem, front: ParetoFront) -> None:
    sizes = [point.size for point in front.points]
    found = step_times(problem.workload, problem.cluster, space="verl-fsdp", sizes=sizes)
    for point in front.points:
        assert found[point.size].step_time_s == pytest.approx(point.step_time_s, rel=0.006)
        assert found[point.size].bound_s <= point.step_time_s


def test_sizes_that_hold_no_plan_are_told(problem: Problem) -> None:
    workload = problem.workload.model_copy(
        update={"models": {"actor": planner.load_model("Qwen/Qwen3-32B")}}
    )
    front = planner.pareto(workload, problem.cluster, space="verl-fsdp", sizes=[1, 32])
    assert front.without_plan == ((1,),)
    assert [point.size for point in front.points] == [(32,)]
    assert "No plan on 1 device." in to_text(render_front(front))


def test_a_deadline_and_a_cancelled_search_keep_valid_bounds(
    problem: Problem, front: ParetoFront
) -> None:
    best = {point.size: point.step_time_s for point in front.points}
    for options in ({"deadline_s": 0.01}, {"cancel": lambda: True}):
        hurried = step_times(
            problem.workload,
            problem.cluster,
            space="verl-fsdp",
            sizes=list(best),
            **options,  # type: ignore[arg-type]
        )
        for size, found in hurried.items():
            assert found.bound_s <= best[size] * (1 + 1e-9)
            assert found.step_time_s >= best[size] * 0.994


@pytest.mark.parametrize("sizes", [[0], [33], [12], [(8, 8)], []])
def test_sizes_that_are_none_of_the_clusters_are_refused(
    problem: Problem, sizes: list[int]
) -> None:
    with pytest.raises(planner.InputError, match="sizes"):
        planner.pareto(problem.workload, problem.cluster, sizes=sizes)


def test_two_node_groups_have_a_front_of_both(problem: Problem) -> None:
    cluster = planner.parse_cluster("h100:1x8+a100:1x8")
    front = planner.pareto(
        problem.workload, cluster, space="verl-fsdp", sizes=[(8, 0), (0, 8), (8, 8)]
    )
    times = {point.size: point.step_time_s for point in front.points}
    assert times[8, 8] <= min(times[8, 0], times[0, 8])
    assert times[8, 0] < times[0, 8]


def test_the_report_fits_and_names_the_knee(front: ParetoFront) -> None:
    text = to_text(render_front(front))
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    assert "knee: " in text
    assert "Knee" in text
