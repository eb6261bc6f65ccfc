"""The text report: fits, and shows the numbers of the plan set."""

import pytest

import planner
from planner.catalog.workloads import problem_from
from planner.report import units
from planner.report.text import WIDTH, degrees, knobs, render_plan_set, to_text
from planner.schema import PlanSet, Strategy


@pytest.fixture(scope="module")
def answer() -> PlanSet:
    problem = problem_from(
        None,
        algorithm="ppo",
        models={
            "actor": "Qwen/Qwen3-4B",
            "critic": "Qwen/Qwen3-1.7B",
            "reward": "Qwen/Qwen3-0.6B",
        },
        cluster="h100:2x8",
        prompts=256,
        samples=4,
        response_mean=500.0,
        response_max=1024,
        kl_weight=0.01,
    )
    return planner.plan(problem.workload, problem.cluster, space="any", top=3)


def test_lines_fit(answer: PlanSet) -> None:
    text = to_text(render_plan_set(answer, details=3))
    assert max(len(line) for line in text.splitlines()) <= WIDTH


def test_long_names_and_markup_do_no_harm(answer: PlanSet) -> None:
    name = "[bold]" + "x" * 190
    renamed = answer.model_copy(
        update={"workload": answer.workload.model_copy(update={"name": name})}
    )
    text = to_text(render_plan_set(renamed))
    assert "[bold]x" in text
    assert max(len(line) for line in text.splitlines()) <= WIDTH


def test_the_numbers_are_those_of_the_plans(answer: PlanSet) -> None:
    text = to_text(render_plan_set(answer, details=1))
    best = answer.plans[0]
    assert units.seconds(best.step_time_s) in text
    assert f"{best.tokens_per_s_per_device:,.0f}" in text
    assert units.dollars(best.cost_per_step_usd) in text
    for name, call in best.calls.items():
        assert name in text
        assert units.seconds(call.time_s) in text
    for line in answer.assumptions:
        assert line.split()[0] in text


def test_ties_are_named(answer: PlanSet) -> None:
    text = to_text(render_plan_set(answer, details=0))
    ties = sum(plan.tie_with_best for plan in answer.plans)
    assert (text.count(" tie") > 0) == (ties > 1)


def test_an_unknown_price_is_a_dash(answer: PlanSet) -> None:
    best = answer.plans[0].model_copy(update={"cost_per_step_usd": None})
    text = to_text(render_plan_set(answer.model_copy(update={"plans": (best,)}), details=0))
    assert "$" not in text.split("Assumed")[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00 s"),
        (0.0034, "0.0034 s"),
        (0.5, "0.50 s"),
        (12.34, "12.3 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert units.seconds(value) == text


def test_other_units() -> None:
    assert units.gib(61.24 * 1024**3) == "61.2 GiB"
    assert units.count(30.53e9) == "30.53 B"
    assert units.dollars(3.456) == "$3.46"
    assert units.percent(0.0042) == "0.4 %"
    assert units.rate(989e12, "FLOP/s") == "989 TFLOP/s"


def test_strategies_in_words() -> None:
    train = Strategy(tp=2, pp=4, ep=8, dp=4, zero_stage=1, recompute="full", offload="all")
    assert degrees(train, "train") == "TP2 PP4 EP8 DP4 ZeRO1"
    assert knobs(train, "train") == "mb 1, recompute full, offload all"
    engine = Strategy(tp=2, dp=8, max_running_sequences=256, memory_fraction=0.7)
    assert degrees(engine, "generate") == "8 x TP2"
    assert knobs(engine, "generate") == "256 seqs, mem 0.70"
