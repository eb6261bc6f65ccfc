"""The iteration graph: calls and their data dependencies, a networkx DiGraph.

Every node is a call's name with the attribute ``call`` (a `schema.Call`); an edge says that the
second call reads what the first one wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.schema import Call, Workload

if TYPE_CHECKING:
    import networkx as nx


def in_stages(*stages: Sequence[Call]) -> nx.DiGraph:
    """A graph in which every call of a stage reads the output of every call of the stage before.

    Calls of one stage are independent of each other; stages without calls are left out.
    """
    import networkx as nx

    graph = nx.DiGraph()
    before: Sequence[Call] = ()
    for stage in stages:
        for call in stage:
            if call.name in graph:
                raise ValueError(f"two calls are named {call.name!r}")
            graph.add_node(call.name, call=call)
            graph.add_edges_from((earlier.name, call.name) for earlier in before)
        before = stage or before
    return graph


def in_sequence_with(graph: nx.DiGraph, *edges: tuple[str, str]) -> nx.DiGraph:
    """The graph with further dependencies (first, second) between calls that it has."""
    for first, second in edges:
        if first not in graph or second not in graph:
            raise ValueError(f"no calls {first!r} and {second!r} to order")
        graph.add_edge(first, second)
    return graph


def join(*graphs: nx.DiGraph) -> nx.DiGraph:
    """One graph of calls that are independent of those of the other graphs."""
    import networkx as nx

    names = [name for graph in graphs for name in graph]
    if len(set(names)) < len(names):
        raise ValueError(f"two calls have one name: {sorted(names)}")
    return nx.compose_all([nx.DiGraph(), *graphs])


def calls_in_order(graph: nx.DiGraph) -> tuple[Call, ...]:
    """The calls in a topological order; the same order for the same graph."""
    import networkx as nx

    return tuple(graph.nodes[name]["call"] for name in nx.lexicographical_topological_sort(graph))


def check_graph(graph: nx.DiGraph, workload: Workload) -> None:
    """Raise ValueError when an algorithm's function built a graph that cannot be planned."""
    import networkx as nx

    if not nx.is_directed_acyclic_graph(graph):
        raise ValueError(f"the graph of {workload.algorithm!r} has a cycle")
    for name, attributes in graph.nodes(data=True):
        call = attributes.get("call")
        if not isinstance(call, Call) or call.name != name:
            raise ValueError(f"node {name!r} of {workload.algorithm!r} carries no such call")
        if call.kind != "environment" and call.role not in workload.models:
            raise ValueError(f"call {name!r} runs the role {call.role!r}, which has no model")
