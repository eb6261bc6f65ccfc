"""Training on a part of what was generated, on a teacher's word, or by blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.errors import InputError
from planner.schema import Workload
from planner.workload import calls
from planner.workload.algorithms.stages import keeping, on_policy
from planner.workload.graph import in_stages
from planner.workload.registry import algorithm
from planner.workload.sampling import generated_sequences

if TYPE_CHECKING:
    import networkx as nx


@algorithm("raft")
def raft(workload: Workload) -> nx.DiGraph:
    """Reward-ranked fine-tuning, best of n (arXiv:2304.06767): supervised steps on the best.

    Keeps one response of each prompt unless `kept_fraction` says otherwise; neither old nor
    reference log-probabilities.
    """
    calls.check_roles(workload, needs=("actor",), may_have=("reward",))
    return on_policy(keeping(workload, 1.0 / workload.samples_per_prompt), [])


@algorithm("c3po")
def c3po(workload: Workload) -> nx.DiGraph:
    """GRPO with a fixed number of trained tokens in every optimizer step (Ring-lite,
    arXiv:2506.14731); needs `token_budget`."""
    calls.check_roles(workload, needs=("actor",), may_have=("reference", "reward"))
    calls.check_samples(workload, least=2, because="C3PO compares the samples of one prompt")
    if workload.token_budget is None:
        raise InputError(
            "c3po trains on a fixed number of tokens, and none is given",
            where="token_budget",
            remedy="Give the tokens of one optimizer step, or use grpo.",
        )
    return on_policy(workload, calls.policy_logprobs(workload))


@algorithm("dipo")
def dipo(workload: Workload) -> nx.DiGraph:
    """GRPO for block-diffusion models (DiRL, arXiv:2512.22234); needs `block_diffusion`."""
    calls.check_roles(workload, needs=("actor",), may_have=("reference",))
    calls.check_samples(workload, least=2, because="DiPO compares the samples of one prompt")
    if workload.block_diffusion is None:
        raise InputError(
            "dipo trains a block-diffusion model, and no block is described",
            where="block_diffusion",
            remedy="Give block_tokens and mean_passes, or use grpo.",
        )
    return on_policy(workload, calls.policy_logprobs(workload))


@algorithm("on-policy-distillation")
def on_policy_distillation(workload: Workload) -> nx.DiGraph:
    """A teacher's log-probabilities of the student's own responses are the loss (GKD,
    arXiv:2306.13649): no reward, no comparison between responses."""
    calls.check_roles(workload, needs=("actor", "teacher"), may_have=())
    sequences = generated_sequences(workload)
    return in_stages(
        [calls.generate(workload)],
        [calls.forward("teacher_logprobs", "teacher", "logprobs", sequences)],
        [calls.train(workload, "actor")],
    )
