"""A slow verifier holds the step up, by its latency or by its throughput."""

import pytest

import planner
from planner.catalog.workloads import problem_from
from planner.schema import EnvironmentSpec, PlanSet


def solve(latency_s: float, workers: int, max_staleness: int = 0) -> PlanSet:
    problem = problem_from(
        None,
        algorithm="grpo",
        models={"actor": "Qwen/Qwen2.5-7B"},
        cluster="h100:2x8",
        prompts=64,
        samples=16,
        response_mean=800.0,
        response_max=2048,
    )
    workload = problem.workload.model_copy(
        update={
            "environment": EnvironmentSpec(latency_s=latency_s, workers=workers),
            "max_staleness": max_staleness,
        }
    )
    return planner.plan(workload, problem.cluster, space="any", top=1)


def test_training_waits_for_the_pool() -> None:
    """1,024 responses of 0.2 s on one worker: 204.8 s before training can start."""
    best = solve(0.2, 1).plans[0]
    assert best.calls["actor_train"].start_s == pytest.approx(204.8)
    verify = best.calls["verify"]
    assert verify.start_s + verify.time_s == pytest.approx(204.8)


def test_a_pool_that_keeps_up_adds_at_most_the_last_scores() -> None:
    """They overlap the log-probabilities, and only what sticks out holds up training."""
    idle, busy, slow = (solve(latency_s, 1024).plans[0] for latency_s in (0.0, 0.5, 20.0))
    gap_s = 0.005 * idle.step_time_s
    assert idle.step_time_s - gap_s <= busy.step_time_s <= idle.step_time_s + 0.5 + gap_s
    logprobs_s = slow.calls["old_logprobs"].time_s
    assert slow.step_time_s >= idle.step_time_s + 20.0 - logprobs_s - gap_s


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_no_step_is_shorter_than_the_work_of_the_pool(max_staleness: int) -> None:
    answer = solve(0.2, 1, max_staleness)
    assert answer.plans[0].step_time_s >= 204.8
    assert answer.search.bound_s >= 204.8
    assert answer.search.gap <= 0.5
