"""Every algorithm's iteration graph: its calls, which read which, how many sequences each sees."""

from __future__ import annotations

import pytest
from algorithm_workloads import SETTINGS, workload_for

from planner.errors import InputError
from planner.schema import Call
from planner.workload.algorithms import build_graph
from planner.workload.calls import workload_of
from planner.workload.graph import calls_in_order, check_graph, in_sequence_with, in_stages, join
from planner.workload.registry import list_algorithms

# Algorithm -> edges. V: verify, R: rewards, O: old_logprobs, F: reference_logprobs.
NAMES = {
    "G": "generate",
    "V": "verify",
    "R": "rewards",
    "O": "old_logprobs",
    "F": "reference_logprobs",
    "C": "values",
    "A": "actor_train",
    "K": "critic_train",
    "W": "reward_train",
    "P": "prm_train",
    "p": "prm_logprobs",
    "T": "teacher_logprobs",
    "t": "target_values",
    "E": "simulate_environment",
    "S": "sample_candidates",
    "s": "rank_candidates",
    "x": "perplexity",
}
GROUP = "GV GO VA OA"
EDGES = {
    "ppo": "GR GO GF GC RA OA FA CA RK OK FK CK",
    "grpo": GROUP,
    "dr-grpo": GROUP,
    "dapo": "GV VO OA",
    "gspo": GROUP,
    "cispo": GROUP,
    "rloo": "GR GF RA FA",
    "remax": "GR GF RA FA",
    "reinforce-pp": "GR GO GF RA OA FA",
    "reinforce-pp-baseline": GROUP,
    "vapo": "GV VO VC OA CA OK CK",
    "prime": "GV VF FP Pp pA VO OA",
    "dpo": "FA",
    "online-dpo": "GR RF FA",
    "raft": "GR RA",
    "on-policy-distillation": "GT TA",
    "archer": "GV tK KC CA",
    "sweet-rl": "GE EK KS Ss sF FA",
    "expert-iteration": "GV xA",
    "planned-proving": "GE EV",
    "c3po": "GV VO OA",
    "dipo": GROUP,
    "reward-model": "",
    "irl": "GR GO GF RA OA FA GW",
    "agentic": GROUP,
    "deeprec": "GR GO GF RA OA FA",
}


def calls_of(name: str, **fields: object) -> dict[str, Call]:
    return {call.name: call for call in calls_in_order(build_graph(workload_for(name, **fields)))}


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_edges(name: str) -> None:
    edges = {(NAMES[a], NAMES[b]) for a, b in EDGES[name].split()}
    workload = workload_for(name)
    graph = build_graph(workload)
    assert set(graph.edges) == edges
    check_graph(graph, workload)


def test_all_registered_algorithms_are_here() -> None:
    assert set(list_algorithms()) == set(SETTINGS) == set(EDGES)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_every_model_given_is_used(name: str) -> None:
    used = {call.role for call in calls_of(name).values()} - {"environment"}
    assert used == set(workload_for(name).models)


def test_dropped_prompts_are_generated_and_scored_but_not_trained_on() -> None:
    calls = calls_of("dapo")
    assert calls["generate"].sequences == 3 * 512
    assert calls["generate"].rounds == pytest.approx(1.0, abs=1e-5)
    assert calls["verify"].sequences == 3 * 512
    assert calls["old_logprobs"].sequences == calls["actor_train"].sequences == 512
    several = calls_of("dapo", oversampling=1.0)
    assert several["generate"].sequences == 512
    assert several["verify"].sequences == round(512 * several["generate"].rounds)


def test_greedy_responses_are_generated_and_scored_but_not_trained_on() -> None:
    calls = calls_of("remax")
    assert calls["generate"].sequences == calls["rewards"].sequences == 2 * 64
    assert calls["reference_logprobs"].sequences == calls["actor_train"].sequences == 64
    workload = workload_for("remax")
    assert workload_of(calls["generate"], workload).samples_per_prompt == 2
    assert workload_of(calls["actor_train"], workload) == workload


def test_pairs_and_the_best_are_what_is_trained_on() -> None:
    assert calls_of("online-dpo")["actor_train"].sequences == 2 * 64
    assert calls_of("online-dpo")["reference_logprobs"].sequences == 2 * 64
    assert calls_of("raft")["actor_train"].sequences == 64
    assert calls_of("raft", kept_fraction=0.5)["actor_train"].sequences == 256


def test_a_reward_model_in_training_sees_demonstrations_too() -> None:
    assert calls_of("irl")["reward_train"].sequences == 2 * 512
    both = calls_of("irl", roles=("actor", "reward", "critic"), kl_weight=0.0)
    assert {"critic_train", "values", "reward_train"} <= set(both)


def test_archer_trains_its_critic_many_times_and_on_turns() -> None:
    calls = calls_of("archer", optimizer_steps=3, prompts_per_step=96)
    critic, actor = calls["critic_train"], calls["actor_train"]
    assert (critic.optimizer_steps, actor.optimizer_steps) == (50, 3)
    assert critic.sequences / actor.sequences == 12_800 / 768 == pytest.approx(50 / 3)
    assert critic.lengths is not None
    assert critic.lengths.response_length.mean_tokens == pytest.approx(500.0 / 4)
    assert calls["target_values"].sequences == critic.sequences


def test_archer_without_a_critic_is_a_policy_gradient_on_trajectories() -> None:
    plain = build_graph(
        workload_for("archer", roles=("actor",), replay_sequences={}, critic_optimizer_steps=None)
    )
    agentic = build_graph(workload_for("agentic", old_logprobs="engine"))
    assert dict(plain.nodes) == dict(agentic.nodes)
    assert set(plain.edges) == set(agentic.edges)


def test_without_replay_training_waits_for_the_rollouts() -> None:
    fresh = workload_for("archer", replay_sequences={}, critic_optimizer_steps=8)
    assert build_graph(fresh).has_edge("verify", "target_values")
    assert build_graph(workload_for("expert-iteration", replay_sequences={})).has_edge(
        "verify", "perplexity"
    )


def test_sweet_rl_in_numbers() -> None:
    calls = calls_of("sweet-rl", critic_epochs=4)
    assert calls["generate"].sequences == calls["simulate_environment"].sequences == 64
    assert calls["critic_train"].epochs == 4
    # Trajectories have a prompt of their own, the candidates of a turn share theirs.
    workload = workload_for("sweet-rl")
    sharing = [
        workload_of(calls[name], workload).samples_per_prompt
        for name in ("generate", "simulate_environment", "sample_candidates")
    ]
    assert sharing == [1, 1, 8]
    turns = 64 * 4
    assert calls["sample_candidates"].sequences == 8 * turns == calls["actor_train"].sequences


def test_a_model_may_play_the_environment_of_any_policy_gradient() -> None:
    graph = build_graph(
        workload_for(
            "agentic", roles=("actor", "env_llm"), old_logprobs="engine", optimizer_steps=2
        )
    )
    assert set(graph.edges) == {
        ("generate", "simulate_environment"),
        ("simulate_environment", "verify"),
        ("verify", "actor_train"),
    }


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("dapo", {"roles": ("actor", "reference"), "kl_weight": 0.1}, "no role 'reference'"),
        ("rloo", {"samples_per_prompt": 1}, "RLOO compares the samples of one prompt"),
        ("dpo", {"samples_per_prompt": 4}, "trains on pairs, not on 4"),
        ("reward-model", {"roles": ("actor", "reward")}, "reward-model has no role 'actor'"),
        ("c3po", {"token_budget": None}, "token_budget.*none is given"),
        ("dipo", {"block_diffusion": None}, "block_diffusion.*no block is described"),
        ("agentic", {"turns": {"mean": 1.0}}, "turns.mean.*there is one"),
        ("prime", {"roles": ("actor", "prm")}, "prime needs a model in the role 'reference'"),
        ("on-policy-distillation", {"roles": ("actor",)}, "needs a model in the role 'teacher'"),
    ],
)
def test_unsuitable_workloads_are_refused(name: str, fields: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_graph(workload_for(name, **fields))


def test_the_schema_refuses_what_no_algorithm_can_mean() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        workload_for("dipo", speculation={"draft_tokens": 3, "acceptance": 0.8})
    with pytest.raises(ValueError, match="roles without a model"):
        workload_for("grpo", replay_sequences={"critic": 8})


def test_joining_and_ordering_graphs() -> None:
    one = Call(name="a", kind="forward", role="actor", sequences=1, output="logprobs")
    graph = in_stages([one], [], [one.model_copy(update={"name": "b"})])
    assert set(graph.edges) == {("a", "b")}
    with pytest.raises(ValueError, match="one name"):
        join(graph, in_stages([one]))
    with pytest.raises(ValueError, match="no calls"):
        in_sequence_with(graph, ("a", "c"))


def test_what_a_launcher_does_not_write_is_not_exported() -> None:
    from planner import plan
    from planner.catalog.hardware import parse_cluster

    def launchers(**fields: object) -> set[str]:
        found = plan(workload_for("grpo", **fields), parse_cluster("h100:1x2"), space="verl-fsdp")
        return {name for each in found.plans for name in each.launchers}

    assert "verl" in launchers()
    assert launchers(acceptance=0.5) == set()
