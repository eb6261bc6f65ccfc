"""The work-depth report: limits, conservation of work, and what it tells the user."""

import pytest

import planner
from planner.catalog.workloads import Problem, problem_from
from planner.cost.generate import PARTS
from planner.cost.layers import PASS_PARTS
from planner.schema import PlanSet
from planner.schema.analysis import Analysis
from planner.search.analysis import LIMIT_OF_PART, analyze_plan
from planner.search.findings import findings


def problem(**changes: object) -> Problem:
    options: dict[str, object] = {
        "algorithm": "grpo",
        "cluster": "h100:2x8",
        "prompts": 64,
        "samples": 8,
        "response_mean": 800.0,
        "response_max": 4096,
    }
    return problem_from(None, models={"actor": "Qwen/Qwen2.5-7B"}, **(options | changes))


def solved(**changes: object) -> tuple[PlanSet, Analysis]:
    given = problem(**changes)
    plans = planner.plan(given.workload, given.cluster, space="verl-fsdp", top=3)
    return plans, analyze_plan(plans.plans[0], given.workload, given.cluster)


@pytest.fixture(scope="module")
def answer() -> tuple[PlanSet, Analysis]:
    return solved()


def test_every_part_of_a_call_has_a_kind(answer: tuple[PlanSet, Analysis]) -> None:
    plans, _ = answer
    named = {*PARTS, *PASS_PARTS}
    for plan in plans.plans:
        for call in plan.calls.values():
            named |= set(call.time_parts_s)
    assert named - {"environment"} <= set(LIMIT_OF_PART)


def test_no_limit_exceeds_the_time_that_it_limits(answer: tuple[PlanSet, Analysis]) -> None:
    plans, analysis = answer
    for name, call in analysis.calls.items():
        assert max(call.limits_s.values()) <= call.time_s * (1 + 1e-9)
        assert call.least_s <= call.time_s * (1 + 1e-9)
        assert call.least_device_s <= call.time_s * call.devices * (1 + 1e-9)
        assert call.parallelism <= call.least_s_devices * (1 + 1e-9)
        assert call.time_s == pytest.approx(plans.plans[0].calls[name].time_s, rel=1e-6)
    assert max(analysis.limits_s.values()) <= analysis.step_time_s * (1 + 1e-9)


def test_useful_work_is_the_same_for_every_plan(answer: tuple[PlanSet, Analysis]) -> None:
    plans, analysis = answer
    for plan in plans.plans[1:]:
        other = analyze_plan(plan, plans.workload, plans.cluster)
        assert other.work_flop == pytest.approx(analysis.work_flop, rel=1e-9)


def test_twice_the_speed_never_slows_the_same_plan(answer: tuple[PlanSet, Analysis]) -> None:
    _, analysis = answer
    assert len(analysis.what_ifs) >= 7
    for each in analysis.what_ifs:
        assert -1e-6 <= each.saving <= 0.5 + 1e-6, each.change


def test_a_rollout_bound_by_its_longest_response_says_that_devices_do_not_help() -> None:
    """32 responses, few of them long: beyond a few devices nothing gets faster."""
    _, analysis = solved(cluster="h100:4x8", prompts=16, samples=2, response_max=16384)
    generate = analysis.calls["generate"]
    assert generate.parallelism < 16
    text = " ".join(analysis.findings)
    assert f"generate: parallelism {generate.parallelism:,.0f}" in text


def test_slow_scoring_makes_the_environment_the_limit() -> None:
    """Little's law: 512 responses of 60 s each on 64 workers take 480 s."""
    given = problem()
    slow = given.workload.environment.model_copy(update={"latency_s": 60.0, "workers": 64})
    workload = given.workload.model_copy(update={"environment": slow})
    plans = planner.plan(workload, given.cluster, space="verl-fsdp", top=1)
    analysis = analyze_plan(plans.plans[0], workload, given.cluster)
    assert analysis.bound_by == "environment"
    assert analysis.limits_s["environment pool"] == pytest.approx(480.0)
    assert analysis.what_ifs[0].change == "environment latency / 2"


def test_no_call_is_said_to_gain_from_the_devices_that_it_has(
    answer: tuple[PlanSet, Analysis],
) -> None:
    plans, analysis = answer
    plan = plans.plans[0]
    name, call = max(analysis.calls.items(), key=lambda item: item[1].time_s)
    for devices, said in ((call.devices, False), (2 * call.devices, True)):
        better = call.model_copy(update={"least_s": 0.5 * call.time_s, "least_s_devices": devices})
        changed = analysis.model_copy(update={"calls": {**analysis.calls, name: better}})
        text = " ".join(findings(changed, plan, plans.workload, plans.cluster.devices))
        assert (f"alone on {devices} devices" in text) == said
