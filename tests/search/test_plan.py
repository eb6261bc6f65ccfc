"""`planner.plan` from end to end on small and published problems."""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import planner
from planner.catalog.workloads import Problem, problem_from
from planner.measure.rl_cases import RLCase, read_rl_case
from planner.schema import PlanSet
from planner.search.infeasible import larger_clusters
from planner.simulate.evaluate import evaluate

TESTS = Path(__file__).parents[1]


def small(**changes: object) -> Problem:
    options: dict[str, object] = {
        "algorithm": "grpo",
        "cluster": "h100:2x8",
        "prompts": 64,
        "samples": 8,
        "response_mean": 800.0,
        "response_max": 2048,
    }
    return problem_from(None, models={"actor": "Qwen/Qwen2.5-7B"}, **(options | changes))


def solve(problem: Problem, **options: object) -> PlanSet:
    return planner.plan(problem.workload, problem.cluster, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def answer() -> PlanSet:
    return solve(small(), space="verl-fsdp")


def test_a_plan_set_read_back_equals_the_one_written(answer: PlanSet) -> None:
    assert PlanSet.model_validate_json(answer.model_dump_json()) == answer


def test_the_answer_is_ranked_proven_and_within_its_bounds(answer: PlanSet) -> None:
    assert [plan.rank for plan in answer.plans] == list(range(1, len(answer.plans) + 1))
    times = [plan.step_time_s for plan in answer.plans]
    assert times == sorted(times)
    assert answer.search.optimal
    assert answer.search.gap <= 0.005
    best = answer.plans[0]
    assert best.work_depth_bound_s <= answer.search.bound_s <= best.step_time_s
    assert best.step_time_interval_s[0] <= best.step_time_s <= best.step_time_interval_s[1]
    for plan in answer.plans:
        assert plan.fits
        for call in plan.calls.values():
            assert call.time_s >= call.bound_s


def test_plans_are_distinct(answer: PlanSet) -> None:
    assert len({plan.assignment.model_dump_json() for plan in answer.plans}) == len(answer.plans)


def test_evaluating_a_plan_gives_its_own_prediction(answer: PlanSet) -> None:
    for plan in answer.plans:
        again = planner.evaluate(plan, answer.workload, answer.cluster)
        assert again.step_time_s == plan.step_time_s
        assert again.calls == plan.calls


def test_the_json_has_the_promised_keys(answer: PlanSet) -> None:
    content = json.loads(answer.model_dump_json())
    assert {"optimal", "bound_s", "gap", "candidates", "wall_s"} <= set(content["search"])
    plan = content["plans"][0]
    assert {
        *("rank", "step_time_s", "step_time_interval_s", "tokens_per_s_per_device"),
        *("cost_per_step_usd", "staleness", "calls"),
    } <= set(plan)
    assert {
        *("mesh", "strategy", "start_s", "time_s", "memory_bytes", "work_flop", "depth"),
        "bound_s",
    } <= set(plan["calls"]["generate"])
    assert content["schema_version"] == 1
    assert set(content["input_hashes"]) >= {"workload", "cluster", "space"}


def test_cost_is_price_times_time(answer: PlanSet) -> None:
    price = answer.cluster.groups[0].device.price_usd_per_hour
    assert price is not None
    for plan in answer.plans:
        expected = plan.devices * price * plan.step_time_s / 3600
        assert plan.cost_per_step_usd == pytest.approx(expected)


def test_the_same_question_gets_the_same_answer_from_any_thread(answer: PlanSet) -> None:
    with ThreadPoolExecutor(4) as pool:
        others = list(pool.map(lambda _: solve(small(), space="verl-fsdp"), range(4)))
    for other in others:
        assert other.plans == answer.plans
    assert threading.active_count() < 10


def test_more_devices_never_make_the_best_plan_slower() -> None:
    times = [
        solve(small(cluster=cluster), space="verl-fsdp", top=1).plans[0].step_time_s
        for cluster in ("h100:1x8", "h100:2x8", "h100:4x8")
    ]
    # The proof tolerance may hide half a per cent.
    assert times[1] <= times[0] * 1.005
    assert times[2] <= times[1] * 1.005


def test_a_launchers_space_is_never_better_than_staleness_allows() -> None:
    """Forbidding asynchrony can only cost time."""
    free = solve(small(), space="verl-fsdp", top=1).plans[0]
    synchronous = solve(small(max_staleness=0), space="verl-fsdp", top=1).plans[0]
    assert synchronous.staleness == 0
    assert free.step_time_s <= synchronous.step_time_s * 1.005


def test_impossible_input_says_what_does_not_fit_and_what_would() -> None:
    problem = problem_from(
        None,
        algorithm="ppo",
        models={
            "actor": "meta-llama/Llama-3.1-70B",
            "critic": "meta-llama/Llama-3.1-8B",
            "reward": "meta-llama/Llama-3.1-8B",
            "reference": "meta-llama/Llama-3.1-70B",
        },
        cluster="rtx4090-24:1x1",
        prompts=4096,
        samples=1,
        response_mean=600.0,
        response_max=1024,
    )
    with pytest.raises(planner.InfeasibleError) as raised:
        solve(problem)
    message = str(raised.value)
    assert "reference (meta-llama/Llama-3.1-70B, forward) needs" in message
    assert "actor (meta-llama/Llama-3.1-70B, train) needs" in message
    assert "GiB more than" in message
    assert "rtx4090-24" in message
    assert "It would fit on" in message


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_named_cluster_would_do(nodes: int) -> None:
    options = {"prompts": 64, "samples": 8, "response_mean": 600.0, "response_max": 1024}
    models = {"actor": "meta-llama/Llama-3.1-70B"}

    def problem(nodes: int) -> Problem:
        return problem_from(
            None, algorithm="grpo", models=models, cluster=f"h100:{nodes}x8", **options
        )

    with pytest.raises(planner.InfeasibleError) as raised:
        solve(problem(nodes), space="verl-fsdp")
    found = re.search(r"It would fit on \d+ of these devices \((\d+) x 8", str(raised.value))
    assert found is not None
    named = int(found[1])
    assert solve(problem(named), space="verl-fsdp", top=1).plans
    assert named == 4
    with pytest.raises(planner.InfeasibleError):
        solve(problem(named - 1), space="verl-fsdp")


def test_the_named_cluster_is_the_smallest_usual_one() -> None:
    problem = small(cluster="h100:1x2")
    workload = problem.workload.model_copy(
        update={"models": {"actor": planner.load_model("Qwen/Qwen3-32B")}}
    )
    with pytest.raises(planner.InfeasibleError) as raised:
        planner.plan(workload, problem.cluster)
    sizes = larger_clusters(problem.cluster)
    assert [size.devices for size in sizes[:4]] == [4, 8, 16, 24]
    fits = []
    for size in sizes[:3]:
        try:
            planner.plan(workload, size, top=1)
            fits.append(size.devices)
        except planner.InfeasibleError:
            pass
    assert f"It would fit on {fits[0]} of these devices" in str(raised.value)


def test_a_device_without_the_wanted_precision_is_named() -> None:
    problem = small(cluster="a100:2x8")
    workload = problem.workload.model_copy(update={"generate_dtype": "fp8"})
    with pytest.raises(planner.InfeasibleError, match="in fp8, which a100-80-sxm cannot"):
        planner.plan(workload, problem.cluster)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "speed"}, "objective"),
        ({"top": 0}, "top"),
        ({"deadline_s": 0.0}, "deadline"),
        ({"deadline_s": float("nan")}, "deadline"),
        ({"gap": 1.5}, "gap"),
        ({"space": "nowhere"}, "nowhere"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(planner.InputError, match=message):
        solve(small(), **options)


def test_cancelling_before_any_plan_says_so() -> None:
    with pytest.raises(planner.PlanningCancelledError, match="before any plan"):
        solve(small(), space="verl-fsdp", cancel=lambda: True)


def test_cancelling_returns_what_there_is_with_a_valid_bound(answer: PlanSet) -> None:
    found = 0
    for polls in (1, 4, 16, 64, 256, 1024):
        left = iter(range(polls))
        try:
            cancelled = solve(
                small(),
                space="verl-fsdp",
                cancel=lambda left=left: next(left, None) is None,
            )
        except planner.PlanningCancelledError:
            continue
        found += 1
        assert cancelled.search.bound_s <= answer.plans[0].step_time_s
        assert cancelled.plans[0].step_time_s >= answer.search.bound_s
    assert found


def test_a_deadline_too_short_for_all_mesh_sizes_gives_a_plan_and_a_valid_bound() -> None:
    problem = small(cluster="h100:32x8", prompts=512)
    full = solve(problem, space="verl-fsdp", top=1)
    hurried = solve(problem, space="verl-fsdp", top=1, deadline_s=0.05)
    assert hurried.search.candidates < full.search.candidates
    assert hurried.search.bound_s <= full.plans[0].step_time_s
    assert hurried.plans[0].step_time_s >= full.search.bound_s
    assert hurried.search.gap < 0.1
    assert hurried.search.optimal == (hurried.search.objective_gap <= 0.005)


def test_a_deadline_returns_what_there_is_with_a_valid_bound(answer: PlanSet) -> None:
    hurried = solve(small(), space="verl-fsdp", deadline_s=0.01)
    assert hurried.search.bound_s <= answer.plans[0].step_time_s
    assert hurried.plans[0].step_time_s >= answer.search.bound_s


def published() -> list[RLCase]:
    raw = json.loads((TESTS / "cases" / "rl.json").read_text())
    steps = [case for case in raw if case["complete"] and case["algorithm"] == "GRPO"]
    # Releases repeat configurations: the newest of each.
    newest = {case["id"].split("-", 2)[-1]: case for case in steps}
    return [read_rl_case(case) for case in newest.values()]


@pytest.mark.parametrize("case", published(), ids=lambda case: case.id)
def test_the_best_plan_beats_the_published_one_in_the_same_model(case: RLCase) -> None:
    answer = planner.plan(case.workload, case.cluster, space=case.space, top=1)
    theirs = evaluate(case.assignment, case.workload, case.cluster)
    assert answer.search.optimal
    assert answer.plans[0].step_time_s <= theirs.step_time_s
