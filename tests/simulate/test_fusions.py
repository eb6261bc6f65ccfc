"""Fused forms of calls: what they replace, what they cost, and that the search weighs them."""

from __future__ import annotations

import pytest

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import Problem, problem_from
from planner.errors import InputError
from planner.schema import Assignment, Mesh, Prediction, Strategy
from planner.simulate.evaluate import evaluate
from planner.simulate.fusions import list_fusions, offered, with_fusions
from planner.simulate.instance import Instance, make_instance


def grpo(*, reference: str | None = None, **changes: object) -> Problem:
    read = problem_from(
        None,
        algorithm="grpo",
        models={"actor": "Qwen/Qwen2.5-7B"},
        cluster="h100:1x8",
        prompts=32,
        samples=8,
        response_mean=500.0,
        response_max=1024,
    )
    workload = read.workload
    models = {"actor": workload.models["actor"]}
    if reference is not None:
        models["reference"] = planner.load_model(reference)
        changes = {"kl_weight": 0.001} | changes
    return Problem(workload.model_copy(update={"models": models} | changes), read.cluster)


def instance_of(problem: Problem) -> Instance:
    return make_instance(
        problem.workload,
        problem.cluster,
        framework="generic",
        engine="vllm",
        reference_shares_actor_layout=False,
        reallocates=True,
    )


ALL = ("engine_logprobs", "shared_forward")


def test_fusions_are_offered_where_their_conditions_hold() -> None:
    assert set(ALL) <= set(list_fusions())
    same = "Qwen/Qwen2.5-7B"
    for problem, expected in (
        (grpo(), []),
        (grpo(old_logprobs="either"), [("engine_logprobs",)]),
        (grpo(reference=same), [("shared_forward",)]),
        (grpo(reference="Qwen/Qwen2.5-1.5B"), []),
        (grpo(reference=same, old_logprobs="engine"), []),
        # Either of them takes the old log-probabilities, so not both.
        (
            grpo(reference=same, old_logprobs="either"),
            [("engine_logprobs",), ("shared_forward",)],
        ),
    ):
        assert offered(instance_of(problem), ALL) == expected


def test_the_new_call_stands_where_the_old_ones_stood() -> None:
    instance = instance_of(grpo(reference="Qwen/Qwen2.5-7B"))
    fused = with_fusions(instance, ("shared_forward",))
    assert {call.name for call in fused.calls} == {
        *("generate", "verify", "shared_logprobs", "actor_train")
    }
    assert ("generate", "shared_logprobs") in fused.graph.edges
    assert ("shared_logprobs", "actor_train") in fused.graph.edges
    assert [unit.name for unit in fused.units] == ["engine", "actor"]
    without = with_fusions(instance_of(grpo(old_logprobs="either")), ("engine_logprobs",))
    assert ("generate", "actor_train") in without.graph.edges


def assignment(problem: Problem, strategy: Strategy, fusions: tuple[str, ...] = ()) -> Assignment:
    mesh = Mesh(group=problem.cluster.groups[0].name, first_node=0, nodes=1, devices_per_node=8)
    calls = with_fusions(instance_of(problem), fusions).calls
    names = [call.name for call in calls if call.kind != "environment"]
    engine = Strategy(dp=8, memory_fraction=0.5)
    return Assignment(
        meshes=dict.fromkeys(names, mesh),
        strategies=dict.fromkeys(names, strategy) | {"generate": engine},
        framework="generic",
        engine="vllm",
        fusions=fusions,
    )


def predict(problem: Problem, strategy: Strategy, fusions: tuple[str, ...] = ()) -> Prediction:
    return evaluate(assignment(problem, strategy, fusions), problem.workload, problem.cluster)


def test_the_engine_pays_for_the_log_probabilities_that_it_returns() -> None:
    strategy = Strategy(dp=8, zero_stage=3)
    plain = predict(grpo(), strategy)
    fused = predict(grpo(old_logprobs="either"), strategy, ("engine_logprobs",))
    asked = predict(grpo(old_logprobs="engine"), strategy)
    assert fused.step_time_s == pytest.approx(asked.step_time_s)
    added_s = fused.calls["generate"].time_s - plain.calls["generate"].time_s
    device = grpo().cluster.groups[0].device
    logits = 32 * 500.0 * grpo().workload.models["actor"].vocab_size
    rate = device.memory_bandwidth_bytes_per_s * device.memory_efficiency
    assert added_s == pytest.approx(12 * logits / rate)
    saved_s = plain.step_time_s - fused.step_time_s
    assert saved_s == pytest.approx(plain.calls["old_logprobs"].time_s - added_s)


def test_a_shared_pass_fills_the_pipeline_once_and_holds_both_models() -> None:
    problem = grpo(reference="Qwen/Qwen2.5-7B")
    weights = 2 * 7.6e9
    for pp, gains in ((4, True), (1, False)):
        strategy = Strategy(pp=pp, dp=8 // pp, zero_stage=1)
        apart = predict(problem, strategy)
        shared = predict(problem, strategy, ("shared_forward",))
        both_s = sum(apart.calls[n].time_s for n in ("old_logprobs", "reference_logprobs"))
        once_s = shared.calls["shared_logprobs"].time_s
        assert once_s == pytest.approx(both_s, rel=0.25)
        assert (once_s < both_s * (1 - 1e-3)) == gains
        for name in ("shared_logprobs", "actor_train"):
            twin = shared.calls[name].memory_bytes["twin_weights"]
            # Its fullest stage: an even share, and the embedding or the head.
            assert weights / pp * 0.9 < twin < weights / pp * 1.4


def test_an_offloaded_twin_is_loaded_when_it_is_used() -> None:
    problem = grpo(reference="Qwen/Qwen2.5-7B")
    kept, offloaded = (
        predict(problem, Strategy(pp=4, dp=2, zero_stage=1, offload=o), ("shared_forward",))
        for o in ("optimizer", "all")
    )
    twin = kept.calls["shared_logprobs"].memory_bytes["twin_weights"]
    link = problem.cluster.groups[0].device.host_link_bandwidth_bytes_per_s
    loading_s = offloaded.calls["shared_logprobs"].time_parts_s["offload"]
    assert loading_s == pytest.approx(twin / link, rel=1e-6)
    assert "twin_weights" not in offloaded.calls["actor_train"].memory_bytes
    assert "twin_weights" in offloaded.calls["shared_logprobs"].memory_bytes


@pytest.mark.parametrize(("staleness", "chosen"), [(0, ("engine_logprobs",)), (1, ())])
def test_the_search_takes_the_better_of_engine_and_trainer(
    staleness: int, chosen: tuple[str, ...]
) -> None:
    """Asynchronously the engine is the bottleneck here, and has no time for more work."""
    problems = {
        source: grpo(old_logprobs=source, max_staleness=staleness)
        for source in ("recompute", "engine", "either")
    }
    answers = {
        source: planner.plan(each.workload, each.cluster, top=1)
        for source, each in problems.items()
    }
    best = {source: answer.plans[0].step_time_s for source, answer in answers.items()}
    either = answers["either"]
    plan = either.plans[0]
    assert plan.step_time_s == pytest.approx(min(best["recompute"], best["engine"]), rel=0.005)
    assert either.search.bound_s <= min(best.values()) * (1 + 1e-9)
    assert plan.assignment.fusions == chosen
    assert ("engine logprobs" in plan.placement) == bool(chosen)
    again = planner.evaluate(plan, problems["either"].workload, problems["either"].cluster)
    assert again.step_time_s == pytest.approx(plan.step_time_s, rel=1e-9)


def test_fusions_that_do_not_apply_are_refused() -> None:
    strategy = Strategy(dp=8, zero_stage=3)
    plain = assignment(grpo(), strategy)
    for name, message in (("nonsense", "no fusion"), ("shared_forward", "do not apply")):
        changed = plain.model_copy(update={"fusions": (name,)})
        with pytest.raises(InputError, match=message):
            evaluate(changed, grpo().workload, grpo().cluster)


def test_launchers_offer_no_fusion_that_they_cannot_write() -> None:
    for name in ("verl-fsdp", "verl-megatron", "nemo-rl-megatron"):
        assert load_space(name).fusions == ()
