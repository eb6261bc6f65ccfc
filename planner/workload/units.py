"""Which calls share one copy of a model: the units that the search places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from planner.schema import Call
from planner.workload.graph import calls_in_order

if TYPE_CHECKING:
    import networkx as nx


ENGINE = "engine"
"""Unit in which the actor generates."""
TAIL_CALL = "generate_tail"
"""Call that goes on with long responses, and where they do."""
TAIL = "tail_engine"


class CallUnit(NamedTuple):
    """Calls that run on the same devices in the same layout, one after the other."""

    name: str
    """The role, or "engine" for generation."""
    calls: tuple[str, ...]
    """In topological order."""


class WeightTransfer(NamedTuple):
    """New weights of a trained role, on their way to a unit that has a copy of its own."""

    name: str
    """Name of the event: `weight_sync` to the engine of the actor, `weight_sync:UNIT` to others."""
    kind: Literal["engine", "copy"]
    """To a generation engine, or to a second copy of the trainer's model for forward passes."""
    role: str
    """The model that is trained."""
    trainer: str
    """Unit that trains it."""
    receiver: str
    """Unit that runs another copy of it."""
    after_call: str
    """The role's last training call of the iteration."""
    before_call: str
    """The receiver's first call that needs the new weights."""
    same_iteration: bool
    """True when `before_call` depends on `after_call`; else it is that of the next iteration."""


SYNC = "weight_sync"
"""Name of the event that brings new weights to the actor's engine, and prefix of all others."""


def transfers_of(graph: nx.DiGraph, units: Sequence[CallUnit]) -> tuple[WeightTransfer, ...]:
    """The weight transfers of a step: one to every unit that runs a role trained elsewhere.

    An algorithm without such a unit (preference training, say) has none.
    """
    import networkx as nx

    calls = calls_in_order(graph)
    unit_of = {name: unit.name for unit in units for name in unit.calls}
    engines = {unit_of[call.name] for call in calls if call.kind == "generate"}
    trained = {call.role: call.name for call in calls if call.kind == "train"}
    found: dict[tuple[str, str], WeightTransfer] = {}
    for call in calls:
        train = trained.get(call.role)
        if train is None or call.kind == "train" or unit_of[call.name] == unit_of[train]:
            continue
        receiver = unit_of[call.name]
        if receiver == TAIL:
            continue
        transfer = WeightTransfer(
            name=SYNC if receiver == ENGINE else f"{SYNC}:{receiver}",
            kind="engine" if receiver in engines else "copy",
            role=call.role,
            trainer=unit_of[train],
            receiver=receiver,
            after_call=train,
            before_call=call.name,
            same_iteration=nx.has_path(graph, train, call.name),
        )
        found.setdefault((call.role, receiver), transfer)
    if TAIL_CALL in graph:
        found[TAIL_CALL, TAIL] = _to_tail(graph)
    return tuple(found.values())


def _to_tail(graph: nx.DiGraph) -> WeightTransfer:
    """The tail's engine has its weights from the engine of which it goes on with responses."""
    return WeightTransfer(
        name=f"{SYNC}:{TAIL}",
        kind="engine",
        role=graph.nodes[TAIL_CALL]["call"].role,
        trainer=ENGINE,
        receiver=TAIL,
        after_call="generate",
        before_call=TAIL_CALL,
        same_iteration=True,
    )


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


def with_copies(units: Sequence[CallUnit], copies: Sequence[CallUnit]) -> tuple[CallUnit, ...]:
    """The units with the calls of `copies` taken out of theirs and put into units of their own."""
    moved = {name for copy in copies for name in copy.calls}
    kept = [
        CallUnit(unit.name, tuple(name for name in unit.calls if name not in moved))
        for unit in units
    ]
    return tuple(unit for unit in [*kept, *copies] if unit.calls)


def _unit_name(call: Call, reference_shares_actor_layout: bool) -> str:
    if call.name == TAIL_CALL:
        return TAIL
    if call.kind == "generate":
        return ENGINE if call.role == "actor" else f"{call.role}_engine"
    if call.role == "reference" and reference_shares_actor_layout:
        return "actor"
    return call.role
