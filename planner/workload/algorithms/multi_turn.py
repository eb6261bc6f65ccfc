"""Trajectories of several turns: tools, users, proof checkers; replay buffers and phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.errors import InputError
from planner.schema import Call, Workload
from planner.workload import calls
from planner.workload.algorithms.stages import on_policy
from planner.workload.graph import in_sequence_with, in_stages, join
from planner.workload.registry import algorithm
from planner.workload.sampling import optimizer_steps
from planner.workload.turns import turn_lengths

if TYPE_CHECKING:
    import networkx as nx


@algorithm("agentic")
def agentic(workload: Workload) -> nx.DiGraph:
    """Group-relative policy gradient on trajectories with tools (search, software engineering).

    `turns` describes the trajectory; a model in the role env_llm plays the environment.
    """
    calls.check_roles(
        workload, needs=("actor",), may_have=("reference", "critic", "reward", "env_llm")
    )
    _check_turns(workload)
    passes = calls.policy_logprobs(workload)
    if "critic" in workload.models:
        return on_policy(workload, [*passes, calls.values(workload)], trains=("actor", "critic"))
    return on_policy(workload, passes)


@algorithm("deeprec")
def deeprec(workload: Workload) -> nx.DiGraph:
    """REINFORCE++ on dialogues with a recommender (DeepRec, arXiv:2505.16810).

    The recommender is the environment of `turns`; a reward server may be a model.
    """
    calls.check_roles(workload, needs=("actor",), may_have=("reference", "reward"))
    _check_turns(workload)
    return on_policy(workload, calls.policy_logprobs(workload))


@algorithm("archer")
def archer(workload: Workload) -> nx.DiGraph:
    """Hierarchical multi-turn RL (arXiv:2402.19446): an utterance-level critic from replay.

    `replay_sequences` gives the utterances that critic and actor train on in a step; those do not
    wait for the step's own rollouts. The target critic's values are the critic's regression
    targets, the critic's values the actor's advantages. Without a critic this is the plain
    policy gradient on trajectories.
    """
    calls.check_roles(workload, needs=("actor",), may_have=("critic", "target_critic"))
    _check_turns(workload)
    if "critic" not in workload.models:
        return on_policy(workload, [])
    turn = turn_lengths(workload)
    critic = calls.train(workload, "critic", lengths=turn)
    actor = calls.train(workload, "actor", lengths=turn)
    targets: list[Call] = []
    if "target_critic" in workload.models:
        sequences = critic.sequences * critic.epochs
        targets = [
            calls.forward("target_values", "target_critic", "values", sequences, lengths=turn)
        ]
    values = calls.forward("values", "critic", "values", actor.sequences, lengths=turn)
    graph = join(
        in_stages([calls.generate(workload)], [calls.score(workload)]),
        in_stages(targets, [critic], [values], [actor]),
    )
    first = targets[0].name if targets else critic.name
    if "critic" not in workload.replay_sequences:
        in_sequence_with(graph, ("verify", first))
    if "actor" not in workload.replay_sequences:
        in_sequence_with(graph, ("verify", actor.name))
    return graph


@algorithm("sweet-rl")
def sweet_rl(workload: Workload) -> nx.DiGraph:
    """A critic with privileged information for every step (SWEET-RL, arXiv:2503.15478), in phases.

    One trajectory for each prompt against a model that plays the user (role env_llm); the critic
    learns from pairs of trajectories; `samples_per_prompt` candidates are sampled at every turn
    and ranked by the critic; the actor trains on them as pairs. The whole run is one step.
    """
    calls.check_roles(workload, needs=("actor", "critic", "env_llm"), may_have=("reference",))
    _check_turns(workload)
    calls.check_samples(workload, least=2, because="SWEET-RL pairs the candidates of a turn")
    turn = turn_lengths(workload)
    one_each = workload.model_copy(update={"samples_per_prompt": 1})
    turns = round(workload.prompts_per_step * workload.turns.mean)
    candidates = turns * workload.samples_per_prompt
    per_actor_step = max(1, candidates // optimizer_steps(workload, "actor"))
    rollout = calls.generate(one_each).model_copy(
        update={"lengths": calls.same_lengths(workload, 1)}
    )
    sample = Call(
        name="sample_candidates",
        kind="generate",
        role="actor",
        sequences=candidates,
        output="tokens",
        lengths=turn,
    )
    actor = Call(
        name="actor_train",
        kind="train",
        role="actor",
        sequences=per_actor_step * optimizer_steps(workload, "actor"),
        output="loss",
        epochs=workload.epochs,
        optimizer_steps=optimizer_steps(workload, "actor"),
        lengths=turn,
    )
    reference = []
    if "reference" in workload.models:
        reference = [
            calls.forward(
                "reference_logprobs", "reference", "logprobs", actor.sequences, lengths=turn
            )
        ]
    return in_stages(
        [rollout],
        [calls.simulate_environment(one_each)],
        [calls.train(one_each, "critic")],
        [sample],
        [calls.forward("rank_candidates", "critic", "values", candidates, lengths=turn)],
        reference,
        [actor],
    )


@algorithm("expert-iteration")
def expert_iteration(workload: Workload) -> nx.DiGraph:
    """Tree search with a checker and supervised rounds (BFS-Prover-V2, arXiv:2509.06493).

    Prompts are the proof states that a step expands, samples the tactics tried at each; the
    environment checks every one. The actor trains on `replay_sequences` steps of earlier proofs,
    filtered by their perplexity, and so does not wait for the search.
    """
    calls.check_roles(workload, needs=("actor",), may_have=())
    actor = calls.train(workload, "actor")
    perplexity = calls.forward("perplexity", "actor", "logprobs", actor.sequences)
    search = in_stages([calls.generate(workload)], [calls.score(workload)])
    graph = join(search, in_stages([perplexity], [actor]))
    if "actor" not in workload.replay_sequences:
        in_sequence_with(graph, ("verify", perplexity.name))
    return graph


@algorithm("planned-proving")
def planned_proving(workload: Workload) -> nx.DiGraph:
    """A planner and several provers at inference (BFS-Prover-V2, arXiv:2509.06493); no training.

    Prompts are the subgoals that the shared cache of proofs does not hold, samples the attempts at
    each, and turns the subgoals that must follow one another: before each the planner (a model in
    the role env_llm) writes the next. Provers are replicas of the actor's engine; the environment
    checks proofs.
    """
    calls.check_roles(workload, needs=("actor", "env_llm"), may_have=())
    _check_turns(workload)
    return in_stages(
        [calls.generate(workload)],
        [calls.simulate_environment(workload)],
        [calls.score(workload)],
    )


def _check_turns(workload: Workload) -> None:
    if workload.turns.mean <= 1.0:
        raise InputError(
            f"{workload.algorithm} is about trajectories of several turns, but there is one",
            where="turns.mean",
            remedy="Give the turns of a trajectory, or use an algorithm for single answers.",
        )
