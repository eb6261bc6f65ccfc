"""Which calls share one copy of a model: the units that the search places."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from planner.schema import Call
from planner.workload.graph import calls_in_order

if TYPE_CHECKING:
    import networkx as nx


class CallUnit(NamedTuple):
    """Calls that run on the same devices in the same layout, one after the other."""

    name: str
    """The role, or "engine" for generation."""
    calls: tuple[str, ...]
    """In topological order."""


def units_of(
    graph: nx.DiGraph, *, reference_shares_actor_layout: bool = False
) -> tuple[CallUnit, ...]:
    """Units of the graph in the order of their first calls; environment calls are in none.

    Generation has an engine of its own. All other calls of a role share the trainer's copy of
    that model, and the reference joins the actor when the launcher swaps its weights in there.
    """
    grouped: dict[str, list[str]] = {}
    for call in calls_in_order(graph):
        if call.kind != "environment":
            name = _unit_name(call, reference_shares_actor_layout)
            grouped.setdefault(name, []).append(call.name)
    return tuple(CallUnit(name, tuple(names)) for name, names in grouped.items())


def _unit_name(call: Call, reference_shares_actor_layout: bool) -> str:
    if call.kind == "generate":
        return "engine" if call.role == "actor" else f"{call.role}_engine"
    if call.role == "reference" and reference_shares_actor_layout:
        return "actor"
    return call.role
