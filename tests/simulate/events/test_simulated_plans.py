"""Whole plans replayed: agreement with the analytic model, conservation, bounds, overlap."""

from __future__ import annotations

from itertools import pairwise

import pytest
from simulator_problems import problem, solved

import planner
from planner.errors import InputError
from planner.schema import EnvironmentSpec, Plan, PlanSet, Speculation, TailBatching, TurnSpec
from planner.simulate.events.replay import simulate
from planner.simulate.events.timeline import Simulation, mesh_name

OPTIONS: dict[str, dict[str, object]] = {
    "colocated": {},
    "two nodes": {"cluster": "h100:2x8", "prompts": 128, "mean": 500.0},
    "one step off": {"cluster": "h100:2x8", "staleness": 1},
    "partial rollouts": {"partial_rollout": 0.2},
    "tail batching": {
        "prompts": 128,
        "mean": 500.0,
        "changes": {"tail_batching": TailBatching(prompts=1.25, samples=1.25)},
    },
    "three steps off": {"cluster": "h100:2x8", "staleness": 3, "mean": 400.0},
    "verifier": {"latency_s": 1.0, "workers": 512},
    "critic": {"algorithm": "ppo"},
    "experts": {"model": "Qwen/Qwen3-30B-A3B", "cluster": "h100:2x8"},
    "windows": {"model": "google/gemma-3-12b-it"},
    "rounds": {"changes": {"acceptance": 0.7, "oversampling": 1.2}},
    "speculation": {"changes": {"speculation": Speculation(draft_tokens=3, acceptance=0.7)}},
    "turns": {
        "changes": {
            "turns": TurnSpec(
                mean=4.0,
                observation_tokens=100.0,
                environment=EnvironmentSpec(latency_s=0.5, workers=512),
            )
        }
    },
}


def replay(answer: PlanSet, plan: Plan, steps: int = 16, seed: int = 0) -> Simulation:
    return simulate(plan, answer.workload, answer.cluster, steps=steps, seed=seed)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_simulated_step_agrees_with_the_analytic_one(name: str) -> None:
    answer = solved(**OPTIONS[name])
    for plan in (answer.plans[0], answer.plans[-1]):
        found = replay(answer, plan)
        assert found.generation is not None
        assert found.generation.preemptions_per_step == 0  # else the models differ by intent
        assert found.analytic_step_time_s == pytest.approx(plan.step_time_s)
        assert abs(found.difference) < 0.05
        generate = found.calls["generate"]
        assert generate.time_s.mean == pytest.approx(generate.analytic_s, rel=0.05)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_replay_keeps_the_laws(name: str) -> None:
    answer = solved(**OPTIONS[name])
    plan = answer.plans[0]
    found = replay(answer, plan, steps=4)
    assert found.generation is not None
    # Work is conserved: every sampled token is generated, once; races drop what loses them.
    kept, generated = found.generation.tokens_sampled, found.generation.tokens_generated
    assert generated > kept if name == "tail batching" else generated == kept
    # No device runs two calls at once.
    meshes = {mesh_name(mesh): mesh for mesh in plan.assignment.meshes.values()}
    on_devices = [span for span in found.spans if span.mesh in meshes]
    for mesh, own in meshes.items():
        here = sorted(
            {
                (span.start_s, span.end_s, span.call, span.iteration)
                for span in on_devices
                if span.mesh == mesh or meshes[span.mesh].overlaps(own)
            }
        )
        assert len(here) >= 4
        for before, after in pairwise(here):
            assert before[1] <= after[0] + 1e-9
    # A call starts after what it reads.
    ends = {(span.iteration, span.call): span.end_s for span in found.spans}
    for span in found.spans:
        if span.call == "actor_train":
            assert span.start_s >= ends[span.iteration, "generate"] - 1e-9
    assert all(0 <= share <= 1 + 1e-9 for share in found.utilisation.values())


@pytest.mark.parametrize("staleness", [0, 2])
def test_no_call_is_faster_than_its_bound(staleness: int) -> None:
    """With fixed lengths the sampled work is the expected one, so bounds hold to the letter."""
    some = problem(cluster="h100:2x8", staleness=staleness)
    fixed = {"kind": "fixed", "mean_tokens": 700.0}
    workload = some.workload.model_copy(
        update={
            "response_length": some.workload.response_length.model_copy(update=fixed),
            "prompt_length": some.workload.prompt_length.model_copy(
                update=fixed | {"mean_tokens": 256.0}
            ),
        }
    )
    answer = planner.plan(workload, some.cluster, space="verl-fsdp", top=2)
    for plan in answer.plans:
        found = replay(answer, plan, steps=3)
        for name, call in found.calls.items():
            assert call.time_s.least >= call.bound_s * (1 - 1e-9), name
        assert found.step_time_s.least >= plan.work_depth_bound_s
        assert found.step_time_s.mean >= answer.search.bound_s * 0.95


def test_a_seed_gives_one_answer_and_another_seed_another() -> None:
    answer = solved()
    plan = answer.plans[0]
    first, again, other = (replay(answer, plan, steps=3, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first.step_time_s != other.step_time_s


def test_a_pool_that_cannot_keep_up_sets_the_pace() -> None:
    """512 responses of 0.8 s on two workers take 205 s, overlapped or not."""
    for staleness in (0, 2):
        answer = solved(cluster="h100:2x8", latency_s=0.8, workers=2, staleness=staleness)
        found = replay(answer, answer.plans[0], steps=4)
        assert found.step_time_s.mean >= 0.98 * 204.8
        assert found.utilisation["cpu"] == pytest.approx(1.0, abs=0.25)


def test_scores_that_come_in_a_burst_queue_longer_than_the_analytic_model_says() -> None:
    """Most responses end together; a pool that keeps up on average does not keep up with that."""
    answer = solved(latency_s=2.4, workers=64)
    found = replay(answer, answer.plans[0], steps=4)
    assert found.calls["verify"].time_s.mean > found.calls["verify"].analytic_s
    assert found.difference > 0


def test_a_cache_that_overflows_is_seen() -> None:
    """The analytic model runs as many sequences as fit on average, the replay preempts."""
    answer = solved(samples=16, mean=3000.0, longest=8192)
    assignment = answer.plans[0].assignment
    # 20 GB of each device hold the weights and little cache.
    tight = assignment.strategies["generate"].model_copy(
        update={"memory_fraction": 0.25, "max_running_sequences": 512}
    )
    changed = assignment.model_copy(
        update={"strategies": assignment.strategies | {"generate": tight}}
    )
    found = simulate(changed, answer.workload, answer.cluster, steps=2).generation
    assert found is not None
    assert found.preemptions_per_step > 10
    assert found.tokens_generated == found.tokens_sampled


def test_a_straggler_is_seen_in_the_tail() -> None:
    narrow, wide = solved(mean=1200.0, longest=1300), solved(mean=400.0, longest=8192)
    found = [replay(each, each.plans[0], steps=4).generation for each in (narrow, wide)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].tail_share < found[1].tail_share


def test_a_plan_that_does_not_fit_is_refused() -> None:
    answer = solved()
    plan = answer.plans[0]
    strategy = plan.assignment.strategies["actor_train"].model_copy(
        update={"zero_stage": 0, "tp": 1, "pp": 1, "cp": 1, "dp": 8, "offload": "none"}
    )
    strategies = plan.assignment.strategies | {"actor_train": strategy}
    assignment = plan.assignment.model_copy(update={"strategies": strategies})
    with pytest.raises(InputError, match="does not fit in memory"):
        simulate(assignment, answer.workload, answer.cluster, steps=1)


def test_too_many_responses_are_refused() -> None:
    answer = solved()
    with pytest.raises(InputError, match="at most 20,000,000"):
        simulate(answer.plans[0], answer.workload, answer.cluster, steps=100_000)
    with pytest.raises(ValueError, match="at least one step"):
        simulate(answer.plans[0], answer.workload, answer.cluster, steps=0)
