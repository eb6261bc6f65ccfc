"""The algorithms: one function each. `docs/adding-an-algorithm.md` shows how to add one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.schema import Workload

# Importing a module registers its algorithms.
from planner.workload.algorithms import multi_turn, policy_gradient, preference, selection
from planner.workload.graph import check_graph
from planner.workload.registry import find_algorithm, list_algorithms

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "build_graph",
    "find_algorithm",
    "list_algorithms",
    "multi_turn",
    "policy_gradient",
    "preference",
    "selection",
]


def build_graph(workload: Workload) -> nx.DiGraph:
    """The iteration graph of the workload's algorithm, checked.

    Raises InputError for an unknown algorithm, and for models or batch sizes that do not suit it.
    """
    graph = find_algorithm(workload.algorithm)(workload)
    check_graph(graph, workload)
    return graph
