"""Weight syncs follow from the graph: none, one, or several in a step."""

from collections.abc import Callable, Iterator

import networkx as nx
import pytest

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import Problem, problem_from
from planner.schema import Call, Workload
from planner.search.problems import scopes
from planner.simulate.instance import Instance, make_instance
from planner.workload import registry
from planner.workload.graph import in_stages


def call(name: str, kind: str, role: str, workload: Workload, output: str = "logprobs") -> Call:
    return Call.model_validate(
        {
            "name": name,
            "kind": kind,
            "role": role,
            "sequences": workload.sequences_per_step,
            "output": output,
            "optimizer_steps": 1 if kind == "train" else 0,
        }
    )


def preference(workload: Workload) -> nx.DiGraph:
    """Trains on given pairs: nothing is generated."""
    return in_stages(
        [call("reference_logprobs", "forward", "reference", workload)],
        [call("actor_train", "train", "actor", workload, "loss")],
    )


def drafts_and_revises(workload: Workload) -> nx.DiGraph:
    """Two generation calls of one model in one step."""
    return in_stages(
        [call("draft", "generate", "actor", workload, "tokens")],
        [call("revise", "generate", "actor", workload, "tokens")],
        [call("actor_train", "train", "actor", workload, "loss")],
    )


def two_players(workload: Workload) -> nx.DiGraph:
    """Two trained models, each with an engine of its own."""
    return in_stages(
        [
            call("generate", "generate", "actor", workload, "tokens"),
            call("critic_generate", "generate", "critic", workload, "tokens"),
        ],
        [
            call("actor_train", "train", "actor", workload, "loss"),
            call("critic_train", "train", "critic", workload, "loss"),
        ],
    )


def trains_then_samples(workload: Workload) -> nx.DiGraph:
    """The engine needs the new weights within the same iteration."""
    return in_stages(
        [call("actor_train", "train", "actor", workload, "loss")],
        [call("generate", "generate", "actor", workload, "tokens")],
    )


@pytest.fixture
def problem() -> Iterator[Callable[[Callable[[Workload], nx.DiGraph]], Problem]]:
    known = dict(registry._ALGORITHMS)

    def made(builder: Callable[[Workload], nx.DiGraph]) -> Problem:
        given = problem_from(
            None,
            algorithm="grpo",
            models={"actor": "Qwen/Qwen2.5-1.5B"},
            cluster="h100:2x8",
            prompts=16,
            samples=8,
            response_mean=200.0,
            response_max=512,
        )
        registry._ALGORITHMS[builder.__name__] = builder
        model = given.workload.models["actor"]
        others = {"preference": "reference", "two_players": "critic"}
        models = {"actor": model}
        if builder.__name__ in others:
            models[others[builder.__name__]] = model
        update = {"algorithm": builder.__name__, "models": models}
        return Problem(given.workload.model_copy(update=update), given.cluster)

    yield made
    registry._ALGORITHMS.clear()
    registry._ALGORITHMS.update(known)


def instance_of(given: Problem) -> Instance:
    return make_instance(
        given.workload,
        given.cluster,
        framework="generic",
        engine="vllm",
        reference_shares_actor_layout=False,
    )


@pytest.mark.parametrize(
    ("builder", "expected"),
    [
        (preference, []),
        (drafts_and_revises, [("weight_sync", "actor_train", "draft", False)]),
        (
            two_players,
            [
                ("weight_sync:critic_engine", "critic_train", "critic_generate", False),
                ("weight_sync", "actor_train", "generate", False),
            ],
        ),
        (trains_then_samples, [("weight_sync", "actor_train", "generate", True)]),
    ],
)
def test_every_copy_of_a_trained_model_gets_its_weights(
    builder: Callable[[Workload], nx.DiGraph], expected: list[object], problem: Callable
) -> None:
    syncs = instance_of(problem(builder)).syncs
    assert [(s.name, s.after_call, s.before_call, s.same_iteration) for s in syncs] == expected


@pytest.mark.parametrize(
    ("builder", "space"),
    [
        (preference, "verl-fsdp"),
        (drafts_and_revises, "any"),
        (two_players, "any"),
        (two_players, "verl-fsdp"),
        (trains_then_samples, "verl-fsdp"),
    ],
)
def test_plan_and_evaluate_agree_whatever_the_syncs(
    builder: Callable[[Workload], nx.DiGraph], space: str, problem: Callable
) -> None:
    given = problem(builder)
    answer = planner.plan(given.workload, given.cluster, space=space, top=1)
    syncs = {sync.name for sync in instance_of(given).syncs}
    assert answer.search.optimal
    for plan in answer.plans:
        assert set(plan.overheads_s) == syncs | {"step_overhead"}
        again = planner.evaluate(plan, given.workload, given.cluster)
        assert again.step_time_s == plan.step_time_s
        calls_s = sum(each.time_s for each in plan.calls.values())
        assert plan.step_time_s <= calls_s + sum(plan.overheads_s.values()) + 1e-9


def test_without_generation_there_is_one_class_and_no_staleness(problem: Callable) -> None:
    given = problem(preference)
    instance = instance_of(given)
    space = load_space("verl-fsdp")
    assert {scope.staleness for scope in scopes(instance, space, 1.0)} == {0}
    assert [scope.placement for scope in scopes(instance, space, 1.0)] == ["colocated"]
