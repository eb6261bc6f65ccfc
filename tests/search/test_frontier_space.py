"""The space with schedules and context parallelism that few systems run contains `any`."""

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import problem_from
from planner.schema import Strategy
from planner.simulate.evaluate import evaluate

NEW = {"ulysses", "shard_ranks", "pipeline_schedule"}
WIDER = NEW | {"zero_stage"}
"""Fields with more values; stage 0 only where replicas exchange less than whole gradients."""


def test_frontier_offers_all_that_any_offers() -> None:
    any_space, frontier = load_space("any"), load_space("frontier")
    for kind, values in any_space.calls.items():
        other = frontier.calls[kind]
        for field in type(values).model_fields:
            if field in WIDER:
                assert set(getattr(values, field)) <= set(getattr(other, field))
            else:
                assert getattr(values, field) == getattr(other, field), field
    rules = {rule.id for rule in any_space.rules}
    for rule in frontier.rules:
        # Rules of its own only concern what `any` does not offer.
        if rule.id not in rules:
            assert rule.check.startswith(
                ("zero_stage > 0 or gradient_compression", "shard_ranks == 0 or", "ulysses == 1 or")
            )


def test_relayout_differs_from_any_in_reallocation_alone() -> None:
    any_space, relayout = load_space("any"), load_space("relayout")
    assert not any_space.reallocation
    same = {"name": "any", "description": any_space.description, "reallocation": False}
    assert relayout.model_copy(update=same) == any_space


def test_what_frontier_adds_never_slows_the_best_plan_and_is_priced_alike() -> None:
    problem = problem_from(
        None,
        models={"actor": "Qwen/Qwen2.5-7B"},
        algorithm="grpo",
        cluster="h100:2x8",
        prompts=32,
        samples=8,
        response_mean=6000.0,
        response_max=16384,
        max_staleness=0,
    )
    plain = planner.plan(problem.workload, problem.cluster, space="any", top=1)
    rich = planner.plan(problem.workload, problem.cluster, space="frontier", top=1)
    best = rich.plans[0]
    # Both are proven within half a per cent of their optimum.
    assert best.step_time_s <= plain.plans[0].step_time_s * 1.005
    assert evaluate(best, problem.workload, problem.cluster).step_time_s == best.step_time_s
    defaults = Strategy()
    for strategy in plain.plans[0].assignment.strategies.values():
        assert all(getattr(strategy, field) == getattr(defaults, field) for field in NEW)
