"""Policy gradients on one answer (or trajectory) a sample, with and without a critic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.schema import Workload
from planner.workload import calls
from planner.workload.algorithms.stages import on_policy
from planner.workload.graph import in_sequence_with, in_stages
from planner.workload.registry import algorithm

if TYPE_CHECKING:
    import networkx as nx

_GROUP = "{} compares the samples of one prompt"


@algorithm("ppo")
def ppo(workload: Workload) -> nx.DiGraph:
    """Proximal policy optimisation (arXiv:1707.06347) with a learned critic.

    Scores come from a reward model if there is one, else from the environment.
    """
    calls.check_roles(
        workload, needs=("actor", "critic"), may_have=("reference", "reward", "env_llm")
    )
    passes = [*calls.policy_logprobs(workload), calls.values(workload)]
    return on_policy(workload, passes, trains=("actor", "critic"))


@algorithm("grpo")
def grpo(workload: Workload) -> nx.DiGraph:
    """Group-relative policy optimisation (DeepSeekMath, arXiv:2402.03300).

    The advantage compares the samples of one prompt, so there is no critic.
    """
    return _group_relative(workload, "GRPO", may_have=("reference", "reward", "env_llm"))


@algorithm("dr-grpo")
def dr_grpo(workload: Workload) -> nx.DiGraph:
    """GRPO without length and deviation normalisation (arXiv:2503.20783); no reference."""
    return _group_relative(workload, "Dr. GRPO", may_have=("env_llm",))


@algorithm("dapo")
def dapo(workload: Workload) -> nx.DiGraph:
    """Decoupled clip and dynamic sampling (arXiv:2503.14476).

    `acceptance`, `oversampling` and `max_rounds` say how much is generated for a full batch; the
    old log-probabilities are those of kept responses.
    """
    return _group_relative(workload, "DAPO", may_have=("env_llm",))


@algorithm("gspo")
def gspo(workload: Workload) -> nx.DiGraph:
    """Group sequence policy optimisation (arXiv:2507.18071): one ratio a sequence; GRPO's calls."""
    return _group_relative(workload, "GSPO", may_have=("reference", "reward", "env_llm"))


@algorithm("cispo")
def cispo(workload: Workload) -> nx.DiGraph:
    """Clipped importance weights (MiniMax-M1, arXiv:2506.13585): GRPO's calls, more steps."""
    return _group_relative(workload, "CISPO", may_have=("env_llm",))


@algorithm("rloo")
def rloo(workload: Workload) -> nx.DiGraph:
    """REINFORCE leave-one-out (arXiv:2402.14740): the other samples of a prompt are the baseline.

    One update a batch without a ratio, so no old log-probabilities.
    """
    calls.check_roles(workload, needs=("actor",), may_have=("reference", "reward"))
    calls.check_samples(workload, least=2, because=_GROUP.format("RLOO"))
    return on_policy(workload, calls.reference_logprobs(workload))


@algorithm("remax")
def remax(workload: Workload) -> nx.DiGraph:
    """ReMax (arXiv:2310.10505): the score of one more, greedy response is the baseline.

    Greedy responses run in the same batch as the samples, are scored, and not trained on.
    """
    calls.check_roles(workload, needs=("actor",), may_have=("reference", "reward"))
    return on_policy(workload, calls.reference_logprobs(workload), extra_per_prompt=1)


@algorithm("reinforce-pp")
def reinforce_pp(workload: Workload) -> nx.DiGraph:
    """REINFORCE++ (arXiv:2501.03262): PPO's clipping, advantages normalised over the batch."""
    calls.check_roles(workload, needs=("actor",), may_have=("reference", "reward", "env_llm"))
    return on_policy(workload, calls.policy_logprobs(workload))


@algorithm("reinforce-pp-baseline")
def reinforce_pp_baseline(workload: Workload) -> nx.DiGraph:
    """REINFORCE++ with the mean score of a prompt's samples as baseline."""
    return _group_relative(
        workload, "REINFORCE++-baseline", may_have=("reference", "reward", "env_llm")
    )


@algorithm("vapo")
def vapo(workload: Workload) -> nx.DiGraph:
    """Value-based augmented PPO (arXiv:2504.05118): DAPO's sampling with a pre-trained critic."""
    calls.check_roles(workload, needs=("actor", "critic"), may_have=())
    passes = [*calls.policy_logprobs(workload), calls.values(workload)]
    return on_policy(workload, passes, trains=("actor", "critic"))


@algorithm("prime")
def prime(workload: Workload) -> nx.DiGraph:
    """Process rewards from an implicit reward model (arXiv:2502.01456), trained online.

    The reward model (role prm) is updated with the outcomes, then scores every token as its
    log-ratio to the reference, then the actor trains.
    """
    calls.check_roles(workload, needs=("actor", "prm", "reference"), may_have=())
    calls.check_samples(workload, least=2, because=_GROUP.format("PRIME"))
    prm_train = calls.train(workload, "prm")
    kept = prm_train.sequences
    graph = in_stages(
        [calls.generate(workload)],
        [calls.score(workload)],
        [calls.forward("reference_logprobs", "reference", "logprobs", kept)],
        [prm_train],
        [calls.forward("prm_logprobs", "prm", "logprobs", kept)],
        [calls.train(workload, "actor")],
    )
    for old in calls.old_logprobs(workload):
        graph.add_node(old.name, call=old)
        in_sequence_with(graph, ("verify", old.name), (old.name, "actor_train"))
    return graph


def _group_relative(workload: Workload, name: str, *, may_have: tuple[str, ...]) -> nx.DiGraph:
    calls.check_roles(workload, needs=("actor",), may_have=may_have)
    calls.check_samples(workload, least=2, because=_GROUP.format(name))
    return on_policy(workload, calls.policy_logprobs(workload))
