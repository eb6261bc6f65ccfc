"""The rollout's tail moves to engines of its own while others work on what has ended."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import Problem, problem_from
from planner.schema import LengthDistribution, PlanSet, SearchSpace
from planner.simulate.events.replay import simulate
from planner.simulate.fusions import fusions_for, offered, with_fusions
from planner.simulate.instance import Instance, make_instance

NAME = "migrated_tail"


def heavy_reward(**changes: object) -> Problem:
    """A small policy with long answers, judged by a large reward model."""
    read = problem_from(
        None,
        algorithm="grpo",
        models={"actor": "Qwen/Qwen2.5-1.5B", "reward": "meta-llama/Llama-3.1-70B"},
        cluster="h100:4x8",
        prompts=64,
        samples=8,
        response_mean=500.0,
        response_max=4096,
        max_staleness=0,
    )
    prompt = LengthDistribution(mean_tokens=1000.0, max_tokens=2000)
    return replace(
        read, workload=read.workload.model_copy(update={"prompt_length": prompt, **changes})
    )


def instance_of(problem: Problem) -> Instance:
    return make_instance(
        problem.workload,
        problem.cluster,
        framework="generic",
        engine="vllm",
        reference_shares_actor_layout=False,
    )


def few_degrees(fusions: tuple[str, ...]) -> SearchSpace:
    space = load_space("any")
    trainer = {
        "tp": (1, 8),
        "pp": (1,),
        "vpp": (1,),
        "cp": (1,),
        "zero_stage": (1, 3),
        "micro_batch_sequences": (1, 4),
        "packing": (True,),
        "optimizer_on_cpu": (False,),
    }
    calls = {
        "train": space.calls["train"].model_copy(update=trainer | {"recompute": ("full",)}),
        "forward": space.calls["forward"].model_copy(update=trainer),
        "generate": space.calls["generate"].model_copy(
            update={"tp": (1, 2, 4, 8), "pp": (1,), "memory_fraction": (0.4, 0.6, 0.8)}
        ),
    }
    return space.model_copy(update={"calls": calls, "sub_node_meshes": False, "fusions": fusions})


@cache
def planned(fusions: tuple[str, ...]) -> PlanSet:
    problem = heavy_reward()
    return planner.plan(problem.workload, problem.cluster, space=few_degrees(fusions), top=1)


def test_the_search_overlaps_the_tail_with_a_heavy_reward_model() -> None:
    plain, fused = planned(()).plans[0], planned((NAME,)).plans[0]
    assert fused.assignment.fusions == (NAME,)
    assert fused.step_time_s < 0.95 * plain.step_time_s
    calls = fused.calls
    tail, early = calls["generate_tail"], calls["rewards_early"]
    assert tail.mesh is not None
    assert early.mesh is not None
    assert not tail.mesh.overlaps(early.mesh)
    assert early.start_s < tail.start_s + tail.time_s
    assert tail.start_s < early.start_s + early.time_s
    # Between the longest of what overlaps and the sum of all.
    assert fused.step_time_s <= sum(call.time_s for call in calls.values()) + sum(
        fused.overheads_s.values()
    )
    whole = calls["generate"].time_s + tail.time_s
    assert fused.step_time_s >= whole + calls["rewards"].time_s + calls["actor_train"].time_s
    again = planner.evaluate(fused, planned((NAME,)).workload, planned((NAME,)).cluster)
    assert again.step_time_s == pytest.approx(fused.step_time_s, rel=1e-9)


def test_the_simulator_agrees() -> None:
    answer = planned((NAME,))
    found = simulate(answer.plans[0], answer.workload, answer.cluster, steps=16, seed=1)
    assert abs(found.difference) < 0.05
    for name in ("generate", "generate_tail", "rewards_early", "rewards"):
        call = found.calls[name]
        assert call.time_s.mean == pytest.approx(call.analytic_s, rel=0.1), name


def test_every_response_is_generated_and_read_once() -> None:
    instance = instance_of(heavy_reward())
    fused = with_fusions(instance, (NAME,))
    whole = instance.workload.response_length.mean_tokens
    body, tail = fused.call("generate"), fused.call("generate_tail")
    assert body.lengths is not None
    assert tail.lengths is not None
    tokens = body.sequences * body.lengths.response_length.mean_tokens
    tokens += tail.sequences * tail.lengths.response_length.mean_tokens
    assert tokens == pytest.approx(body.sequences * whole, rel=0.01)
    early, late = fused.call("rewards_early"), fused.call("rewards")
    assert early.sequences + late.sequences == instance.call("rewards").sequences
    assert early.lengths is not None
    assert late.lengths is not None
    read = early.sequences * early.lengths.response_length.mean_tokens
    read += late.sequences * late.lengths.response_length.mean_tokens
    assert read == pytest.approx(512 * whole, rel=0.01)
    assert set(fused.graph.predecessors("rewards")) == {"generate_tail", "rewards_early"}
    assert set(fused.graph.predecessors("actor_train")) == {"rewards", "old_logprobs"}
    assert [sync.receiver for sync in fused.syncs] == ["engine", "tail_engine"]
    assert fused.sync_s(fused.syncs[1], shared=True) < 0.1 * fused.sync_s(
        fused.syncs[0], shared=True
    )


def test_where_it_is_offered() -> None:
    allowed = (NAME,)
    fixed = LengthDistribution(kind="fixed", mean_tokens=500.0, max_tokens=500)
    for problem, expected in (
        (heavy_reward(), [allowed]),
        (heavy_reward(partial_rollout=0.2), []),
        (heavy_reward(response_length=fixed), []),
        (heavy_reward(acceptance=0.5), []),
        (heavy_reward(old_logprobs="engine"), []),
    ):
        assert offered(instance_of(problem), allowed) == expected
    assert fusions_for(allowed, "free", 0) == allowed
    assert fusions_for(allowed, "free", 1) == ()
    assert fusions_for(allowed, "colocated", 0) == ()
