"""Training on pairs: preferences given or made, reward models, inverse RL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.errors import InputError
from planner.schema import Workload
from planner.workload import calls
from planner.workload.algorithms.stages import keeping, on_policy
from planner.workload.graph import in_stages
from planner.workload.registry import algorithm

if TYPE_CHECKING:
    import networkx as nx

_PAIR = 2


@algorithm("dpo")
def dpo(workload: Workload) -> nx.DiGraph:
    """Direct preference optimisation (arXiv:2305.18290) on given pairs: nothing is generated.

    `prompts_per_step` pairs with `samples_per_prompt` 2. Without a reference model its
    log-probabilities count as computed beforehand.
    """
    calls.check_roles(workload, needs=("actor",), may_have=("reference",))
    _check_pairs(workload)
    passes = []
    if "reference" in workload.models:
        sequences = workload.sequences_per_step
        passes = [calls.forward("reference_logprobs", "reference", "logprobs", sequences)]
    return in_stages(passes, [calls.train(workload, "actor")])


@algorithm("online-dpo")
def online_dpo(workload: Workload) -> nx.DiGraph:
    """Online or iterative DPO (arXiv:2402.04792): the best and the worst sample make the pair."""
    calls.check_roles(workload, needs=("actor", "reference"), may_have=("reward",))
    calls.check_samples(workload, least=2, because="online DPO pairs the samples of one prompt")
    pairs = keeping(workload, _PAIR / workload.samples_per_prompt)
    actor = calls.train(pairs, "actor")
    reference = calls.forward("reference_logprobs", "reference", "logprobs", actor.sequences)
    return in_stages([calls.generate(pairs)], [calls.score(pairs)], [reference], [actor])


@algorithm("reward-model")
def reward_model(workload: Workload) -> nx.DiGraph:
    """A reward model from preferences (Bradley and Terry 1952; arXiv:2203.02155), offline.

    `prompts_per_step` pairs with `samples_per_prompt` 2; the only model is `reward`.
    """
    calls.check_roles(workload, needs=("reward",), may_have=())
    _check_pairs(workload)
    return in_stages([calls.train(workload, "reward")])


@algorithm("irl")
def irl(workload: Workload) -> nx.DiGraph:
    """Inverse RL in alternation: the reward model trains on responses against demonstrations.

    PPO's or REINFORCE's step with a reward model that is trained beside the actor, on every
    response and as many demonstrations. Survey: arXiv:2507.13158.
    """
    calls.check_roles(workload, needs=("actor", "reward"), may_have=("reference", "critic"))
    passes = calls.policy_logprobs(workload)
    trains = ["actor"]
    if "critic" in workload.models:
        passes.append(calls.values(workload))
        trains.append("critic")
    graph = on_policy(workload, passes, trains=trains)
    reward = calls.train(workload, "reward")
    reward = reward.model_copy(update={"sequences": _PAIR * reward.sequences})
    graph.add_node(reward.name, call=reward)
    graph.add_edge("generate", reward.name)
    return graph


def _check_pairs(workload: Workload) -> None:
    if workload.samples_per_prompt != _PAIR:
        raise InputError(
            f"{workload.algorithm} trains on pairs, not on {workload.samples_per_prompt} "
            "responses to a prompt",
            where="samples_per_prompt",
            remedy="Give the pairs as prompts, and two samples.",
        )
