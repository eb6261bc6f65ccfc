"""Objectives, limits and sub-clusters: values, proofs against every size solved by itself."""

import itertools

import pytest

import planner
from planner.catalog.workloads import Problem, problem_from
from planner.report.text import render_plan_set, to_text
from planner.schema import Cluster, Limits, PlanSet
from planner.search.objectives import OBJECTIVES, Goal, used
from planner.search.sizes import contains, usual_sizes

TOKENS = 1e9


def small(**changes: object) -> Problem:
    options: dict[str, object] = {
        "algorithm": "grpo",
        "cluster": "h100:4x8",
        "prompts": 64,
        "samples": 8,
        "response_mean": 800.0,
        "response_max": 2048,
    }
    return problem_from(None, models={"actor": "Qwen/Qwen2.5-7B"}, **(options | changes))


def solve(problem: Problem, **options: object) -> PlanSet:
    options = {"space": "verl-fsdp", "top": 1} | options
    return planner.plan(problem.workload, problem.cluster, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def alone() -> dict[int, PlanSet]:
    """The fastest plans on clusters of 1 to 4 nodes, each solved for itself."""
    return {8 * n: solve(small(cluster=f"h100:{n}x8"), top=3) for n in range(1, 5)}


def reached(answer: PlanSet, objective: str) -> float:
    """The objective of the answer's best plan from its own figures."""
    best, workload = answer.plans[0], answer.workload
    tokens = workload.sequences_per_step * workload.mean_sequence_tokens
    device_hours = best.devices * best.step_time_s / 3600
    return {
        "step_time": best.step_time_s,
        "tokens_per_s": tokens / best.step_time_s,
        "tokens_per_s_per_device": best.tokens_per_s_per_device,
        "gpu_hours_to_tokens": device_hours * TOKENS / tokens,
        "cost_per_step": best.cost_per_step_usd or 0.0,
        "cost_to_tokens": (best.cost_per_step_usd or 0.0) * TOKENS / tokens,
    }[objective]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_best_plan_is_the_best_of_all_sizes_within_the_gap(
    objective: str, alone: dict[int, PlanSet]
) -> None:
    answer = solve(small(), objective=objective, tokens=TOKENS)
    better = max if OBJECTIVES[objective].larger_is_better else min
    values = [reached(each, objective) for each in alone.values()]
    mine = reached(answer, objective)
    assert answer.search.optimal
    assert answer.plans[0].objective_value == pytest.approx(mine)
    assert better(mine, better(values) * (0.993 if better is max else 1.007)) == mine
    # No plan found on any sub-cluster beats the bound.
    bound = answer.search.objective_bound
    assert bound is not None
    assert better(bound, better(values) * (1 + 1e-9 if better is min else 1 - 1e-9)) == bound
    assert answer.search.objective_gap == pytest.approx(abs(1 - _ratio(mine, bound)), abs=1e-9)


def _ratio(value: float, bound: float) -> float:
    return min(value, bound) / max(value, bound)


def test_a_limit_on_devices_gives_the_plan_of_the_smaller_cluster(
    alone: dict[int, PlanSet],
) -> None:
    for devices in (8, 15, 16, 31):
        answer = solve(small(), limits=Limits(devices=devices))
        same = alone[devices // 8 * 8].plans[0].step_time_s
        assert answer.plans[0].devices <= devices
        if devices < 16:
            # A lone node also has meshes of 3, 5, 6 and 7 devices, which this cluster lacks.
            assert answer.search.optimal
            assert answer.plans[0].step_time_s >= same
            continue
        assert answer.plans[0].step_time_s == pytest.approx(same, rel=0.006)
        assert answer.search.bound_s <= same * (1 + 1e-9)


def test_a_limit_on_money_gives_the_fastest_affordable_plan(alone: dict[int, PlanSet]) -> None:
    # A lone node also has meshes of 3, 5, 6 and 7 devices, which nodes of a larger cluster lack.
    costs = {n: each.plans[0].cost_per_step_usd or 0.0 for n, each in alone.items() if n > 8}
    times = {n: each.plans[0].step_time_s for n, each in alone.items()}
    for limit in [cost * 1.01 for cost in costs.values()]:
        answer = solve(small(), limits=Limits(cost_per_step_usd=limit))
        best = answer.plans[0]
        assert best.cost_per_step_usd is not None
        assert best.cost_per_step_usd <= limit
        affordable = [times[n] for n in costs if costs[n] <= limit]
        assert best.step_time_s <= min(affordable) * 1.006
        assert answer.search.bound_s <= min(affordable) * (1 + 1e-9)


def test_a_limit_on_time_gives_the_cheapest_plan_that_is_fast_enough(
    alone: dict[int, PlanSet],
) -> None:
    limit = alone[16].plans[0].step_time_s * 1.01
    answer = solve(small(), objective="cost_per_step", limits=Limits(step_time_s=limit))
    fast = [
        each.plans[0].cost_per_step_usd or 0.0
        for each in alone.values()
        if each.plans[0].step_time_s <= limit
    ]
    assert answer.plans[0].step_time_s <= limit
    assert (answer.plans[0].cost_per_step_usd or 0.0) <= min(fast) * 1.006


def test_every_plan_shown_is_within_the_limits() -> None:
    limits = Limits(devices=24, step_time_s=80.0, cost_usd=600.0)
    answer = solve(small(), limits=limits, tokens=TOKENS, top=10)
    goal = Goal("step_time", limits, TOKENS, answer.workload, answer.cluster)
    assert answer.limits == limits
    for plan in answer.plans:
        assert plan.devices <= 24
        assert plan.step_time_s <= 80.0
        assert goal.steps is not None
        assert (plan.cost_per_step_usd or 0.0) * goal.steps <= 600.0 * (1 + 1e-9)


def test_removing_a_limit_never_makes_the_best_worse() -> None:
    limits = Limits(devices=16, cost_per_step_usd=0.6)
    both = solve(small(), limits=limits).plans[0].step_time_s
    for field in ("devices", "cost_per_step_usd"):
        one = solve(small(), limits=limits.model_copy(update={field: None})).plans[0]
        assert one.step_time_s <= both * 1.006


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(step_time_s=1.0), "the shortest step takes"),
        (Limits(cost_per_step_usd=0.01), "the cheapest step costs"),
        (Limits(cost_usd=1.0), "the cheapest run to the tokens costs"),
        (Limits(devices=8, step_time_s=20.0), "the shortest step takes"),
    ],
)
def test_limits_that_exclude_all_plans_name_a_value_that_would_do(
    limits: Limits, words: str
) -> None:
    with pytest.raises(planner.InfeasibleError, match=words) as raised:
        solve(small(), limits=limits, tokens=TOKENS)
    given = next(name for name, value in limits if value is not None and name != "devices")
    text = str(raised.value).split(words)[1].split(" s,")[0].split(",")[0]
    value = float(text.replace("$", "").replace("s", ""))
    relaxed = limits.model_copy(update={given: value * 1.01})
    assert solve(small(), limits=relaxed, tokens=TOKENS).plans


def test_too_few_devices_name_the_fewest_that_would_do() -> None:
    problem = small(cluster="h100:4x8")
    workload = problem.workload.model_copy(
        update={"models": {"actor": planner.load_model("Qwen/Qwen3-32B")}}
    )
    with pytest.raises(planner.InfeasibleError, match=r"the fewest that hold a plan are (\d+)"):
        planner.plan(workload, problem.cluster, space="verl-fsdp", limits=Limits(devices=4))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"objective": "cost_to_tokens"}, "token budget"),
        ({"limits": Limits(cost_usd=5.0)}, "token budget"),
        ({"tokens": -1.0}, "tokens"),
        ({"objective": "cost"}, "Known: step_time"),
    ],
)
def test_goals_that_lack_something_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(planner.InputError, match=words):
        solve(small(), **options)


def test_money_needs_a_price() -> None:
    problem = small()
    group = problem.cluster.groups[0]
    device = group.device.model_copy(update={"price_usd_per_hour": None})
    cluster = Cluster(name="free", groups=(group.model_copy(update={"device": device}),))
    with pytest.raises(planner.InputError, match="needs the price"):
        planner.plan(problem.workload, cluster, objective="cost_per_step")
    assert planner.plan(
        problem.workload, cluster, space="verl-fsdp", objective="gpu_hours_to_tokens", tokens=1e6
    ).plans


def test_sizes_of_several_groups_include_the_largest_allowed_ones() -> None:
    cluster = planner.parse_cluster("h100:6x8+a100:5x8")
    space = planner.catalog.spaces.load_space("any")  # type: ignore[attr-defined]
    for most in (8, 20, 47, 88):
        sizes = usual_sizes(cluster, space, most)
        assert all(0 < sum(size) <= most for size in sizes)
        feasible = [
            (8 * a, 8 * b) for a, b in itertools.product(range(7), range(6)) if 8 * (a + b) > 0
        ]
        largest = max(sum(size) for size in feasible if sum(size) <= most)
        assert max(sum(size) for size in sizes) >= largest
        assert all(contains((48, 40), size) for size in sizes)


def test_two_kinds_of_devices_are_chosen_by_price() -> None:
    """The dear group is left out when money counts, and used when time counts."""
    problem = small()
    base = problem.cluster.groups[0]
    cheap = base.model_copy(update={"name": "cheap", "nodes": 1, "price_usd_per_device_hour": 1.0})
    dear = base.model_copy(update={"name": "dear", "nodes": 1, "price_usd_per_device_hour": 9.0})
    cluster = Cluster(name="two", groups=(dear, cheap))
    by_money = planner.plan(
        problem.workload, cluster, space="verl-fsdp", objective="cost_per_step", top=1
    )
    assert {mesh.group for mesh in by_money.plans[0].assignment.meshes.values()} == {"cheap"}
    assert used(by_money.plans[0], cluster)[0] == 0


@pytest.mark.parametrize("objective", ["cost_per_step", "tokens_per_s_per_device"])
def test_a_deadline_or_a_cancelled_search_returns_what_there_is_with_a_valid_bound(
    objective: str,
) -> None:
    whole = solve(small(), objective=objective)
    best, better = whole.plans[0].objective_value, OBJECTIVES[objective].larger_is_better
    assert best is not None
    for options in ({"deadline_s": 0.01}, {"cancel": lambda: True}):
        try:
            hurried = solve(small(), objective=objective, **options)
        except planner.PlanningCancelledError:
            # The first sub-cluster held no plan; a deadline goes on until there is one.
            assert "cancel" in options
            continue
        bound, found = hurried.search.objective_bound, hurried.plans[0].objective_value
        assert bound is not None
        assert found is not None
        if better:
            assert bound >= best * (1 - 1e-9)
            assert found <= (whole.search.objective_bound or 0.0) * (1 + 1e-9)
        else:
            assert bound <= best * (1 + 1e-9)
            assert found >= (whole.search.objective_bound or 0.0) * (1 - 1e-9)


def test_fewer_plans_than_asked_for_are_counted() -> None:
    answer = solve(small(), top=30)
    assert answer.search.plans_asked == 30
    if len(answer.plans) < 30:
        assert f"{len(answer.plans)} of the 30 asked for" in to_text(render_plan_set(answer))
    signatures = [plan.assignment.model_dump_json() for plan in answer.plans]
    assert len(set(signatures)) == len(signatures)
