"""The algorithms: one function each. `docs/adding-an-algorithm.md` shows how to add one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.errors import InputError
from planner.schema import Workload
from planner.workload import calls
from planner.workload.graph import check_graph, in_stages
from planner.workload.registry import algorithm, find_algorithm

if TYPE_CHECKING:
    import networkx as nx


def build_graph(workload: Workload) -> nx.DiGraph:
    """The iteration graph of the workload's algorithm, checked.

    Raises InputError for an unknown algorithm, and for models or batch sizes that do not suit it.
    """
    graph = find_algorithm(workload.algorithm)(workload)
    check_graph(graph, workload)
    return graph


@algorithm("grpo")
def grpo(workload: Workload) -> nx.DiGraph:
    """Group-relative policy optimisation (DeepSeekMath, arXiv:2402.03300).

    The advantage compares the samples of one prompt, so there is no critic.
    """
    calls.check_roles(workload, needs=("actor",), may_have=("reference", "reward"))
    if workload.samples_per_prompt < 2:
        raise InputError(
            "GRPO compares the samples of one prompt, but there is only one",
            where="samples_per_prompt",
            remedy="Give two or more samples, or use ppo.",
        )
    return in_stages(
        [calls.generate(workload)],
        [calls.score(workload), *calls.policy_logprobs(workload)],
        [calls.train(workload, "actor")],
    )


@algorithm("ppo")
def ppo(workload: Workload) -> nx.DiGraph:
    """Proximal policy optimisation (arXiv:1707.06347) with a learned critic.

    Scores come from a reward model if there is one, else from the environment.
    """
    calls.check_roles(workload, needs=("actor", "critic"), may_have=("reference", "reward"))
    return in_stages(
        [calls.generate(workload)],
        [calls.score(workload), *calls.policy_logprobs(workload), calls.values(workload)],
        [calls.train(workload, "actor"), calls.train(workload, "critic")],
    )
