"""Iteration graphs: which calls PPO and GRPO make, in which order, and what they refuse."""

from __future__ import annotations

import networkx as nx
import pytest

from planner.catalog.models import load_model
from planner.errors import InputError
from planner.schema import LengthDistribution, Workload
from planner.workload.algorithms import build_graph
from planner.workload.graph import calls_in_order, check_graph, in_stages
from planner.workload.registry import algorithm, list_algorithms
from planner.workload.units import units_of

SMALL = load_model("Qwen/Qwen2.5-7B")


def workload(algorithm: str = "grpo", roles: tuple[str, ...] = ("actor",), **fields) -> Workload:
    return Workload.model_validate(
        {
            "name": "test",
            "algorithm": algorithm,
            "models": dict.fromkeys(roles, SMALL),
            "prompts_per_step": 64,
            "samples_per_prompt": 8,
            "prompt_length": LengthDistribution(mean_tokens=100.0, max_tokens=500),
            "response_length": LengthDistribution(mean_tokens=500.0, max_tokens=2000),
            **fields,
        }
    )


def edges(graph: nx.DiGraph) -> set[tuple[str, str]]:
    return set(graph.edges)


def test_grpo_with_a_verifier_and_no_reference() -> None:
    graph = build_graph(workload())
    assert edges(graph) == {
        ("generate", "verify"),
        ("generate", "old_logprobs"),
        ("verify", "actor_train"),
        ("old_logprobs", "actor_train"),
    }
    assert graph.nodes["verify"]["call"].kind == "environment"
    assert graph.nodes["generate"]["call"].sequences == 512


def test_ppo_with_all_four_models() -> None:
    roles = ("actor", "critic", "reference", "reward")
    graph = build_graph(
        workload("ppo", roles, kl_weight=0.05, optimizer_steps=4, critic_optimizer_steps=8)
    )
    scoring = {"rewards", "old_logprobs", "reference_logprobs", "values"}
    training = {"actor_train", "critic_train"}
    assert edges(graph) == {("generate", call) for call in scoring} | {
        (score, train) for score in scoring for train in training
    }
    assert nx.dag_longest_path_length(graph) == 2
    calls = {call.name: call for call in calls_in_order(graph)}
    assert [calls[name].optimizer_steps for name in ("actor_train", "critic_train")] == [4, 8]
    assert calls["rewards"].role == "reward"
    assert calls["values"].output == "values"


def test_reference_runs_only_with_a_kl_weight() -> None:
    both = ("actor", "reference")
    assert "reference_logprobs" in build_graph(workload(roles=both, kl_weight=0.01))
    assert "reference_logprobs" not in build_graph(workload(roles=both, kl_weight=0.0))
    with pytest.raises(InputError, match="needs a reference model"):
        build_graph(workload(kl_weight=0.01))


def test_old_logprobs_from_the_engine_need_no_pass() -> None:
    assert "old_logprobs" not in build_graph(workload(old_logprobs="engine"))
    assert "old_logprobs" not in build_graph(workload(old_logprobs="skip"))
    with pytest.raises(InputError, match="cannot be skipped"):
        build_graph(workload(old_logprobs="skip", optimizer_steps=4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: workload(samples_per_prompt=1), "only one.*Give two or more samples"),
        (lambda: workload("ppo"), "ppo needs a model in the role 'critic'.*--critic"),
        (lambda: workload(roles=("actor", "critic")), "grpo has no role 'critic'"),
        (lambda: workload(roles=("critic",)), "grpo needs a model in the role 'actor'"),
        (lambda: workload("grop"), "no algorithm 'grop'.*Did you mean grpo"),
        (lambda: workload("x"), "Known: .*grpo.*ppo"),
        (
            lambda: workload("ppo", ("actor", "critic"), critic_optimizer_steps=7),
            "do not divide into 7",
        ),
    ],
)
def test_unsuitable_workloads_are_refused(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_graph(make())


def test_every_registered_algorithm_builds_a_sound_graph() -> None:
    assert {"grpo", "ppo"} <= set(list_algorithms())
    for name in ("grpo", "ppo"):
        roles = ("actor", "critic") if name == "ppo" else ("actor",)
        check_graph(build_graph(workload(name, roles)), workload(name, roles))


def test_names_are_registered_once() -> None:
    with pytest.raises(ValueError, match="registered twice"):
        algorithm("grpo")(lambda w: in_stages())


def test_a_faulty_graph_is_found() -> None:
    w = workload()
    graph = build_graph(w)
    graph.add_edge("actor_train", "generate")
    with pytest.raises(ValueError, match="cycle"):
        check_graph(graph, w)
    nameless = nx.DiGraph()
    nameless.add_node("generate")
    with pytest.raises(ValueError, match="carries no such call"):
        check_graph(nameless, w)
    call = calls_in_order(build_graph(w))[0]
    with pytest.raises(ValueError, match="two calls"):
        in_stages([call], [call])


def test_order_does_not_depend_on_insertion() -> None:
    graph = build_graph(workload(roles=("actor", "reference"), kl_weight=0.1))
    turned = nx.DiGraph()
    for name in reversed(list(graph)):
        turned.add_node(name, **graph.nodes[name])
    turned.add_edges_from(reversed(list(graph.edges)))
    assert calls_in_order(graph) == calls_in_order(turned)


def test_units_of_ppo() -> None:
    roles = ("actor", "critic", "reference", "reward")
    graph = build_graph(workload("ppo", roles, kl_weight=0.05))
    units = {unit.name: unit.calls for unit in units_of(graph)}
    assert units == {
        "engine": ("generate",),
        "actor": ("old_logprobs", "actor_train"),
        "critic": ("values", "critic_train"),
        "reference": ("reference_logprobs",),
        "reward": ("rewards",),
    }
    assert next(iter(units)) == "engine"


def test_reference_may_join_the_actor() -> None:
    graph = build_graph(workload(roles=("actor", "reference"), kl_weight=0.05))
    units = dict(units_of(graph, reference_shares_actor_layout=True))
    assert units["actor"] == ("old_logprobs", "reference_logprobs", "actor_train")
    assert set(units) == {"engine", "actor"}
