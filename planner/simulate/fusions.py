"""Fused forms of calls that a plan may use: the registry, and the instance in a fused form.

A fusion replaces some calls of the iteration graph by others (or by none) and adjusts the costs of
the calls that then do the work. It is offered where its conditions hold; the search considers each
offered set as a class of plans of its own. `docs/fusion.md` shows how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

from planner.cost.fusion import Adjustment, holds_twin, returns_logprobs
from planner.cost.rule_values import Placement
from planner.errors import InputError
from planner.schema import Call, CallLengths, LengthDistribution, Workload
from planner.simulate.instance import Instance
from planner.workload.split import lengthened, split_lengths
from planner.workload.units import TAIL_CALL, units_of

if TYPE_CHECKING:
    import networkx as nx

SHORT_SHARE = 0.75
"""Responses that end before the others migrate."""


@dataclass(frozen=True)
class Fusion:
    """Calls in place of others."""

    replaces: tuple[str, ...]
    """Calls that are taken out of the graph."""
    calls: tuple[Call, ...] = ()
    """Calls in their place: they read what all of the replaced read, and what read any of the
    replaced reads them."""
    adjustments: Mapping[str, tuple[Adjustment, ...]] = field(default_factory=dict)
    """Call -> changes of its costs, for the new calls and for others that take over work."""
    edges: tuple[tuple[str, str], ...] = ()
    """Dependencies of the new calls where they are not all alike; with any, these are all of
    them."""


Offer = Callable[["nx.DiGraph", Workload], Fusion | None]
"""The fusion where the graph and the workload allow it, else None."""

_FUSIONS: dict[str, Offer] = {}


def fusion(name: str) -> Callable[[Offer], Offer]:
    """Decorator that registers a fusion under `name`, which plans and search spaces use."""

    def register(offer: Offer) -> Offer:
        if name in _FUSIONS:
            raise ValueError(f"the fusion {name!r} is registered twice")
        _FUSIONS[name] = offer
        return offer

    return register


def list_fusions() -> list[str]:
    """Names of all registered fusions, sorted."""
    return sorted(_FUSIONS)


def offered(instance: Instance, allowed: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Sets of the allowed fusions that the instance can have together, without the empty one.

    Two fusions that replace a call in common exclude each other. Raises InputError for a name that
    is not registered.
    """
    found: list[tuple[str, ...]] = []
    for picks in product((False, True), repeat=len(allowed)):
        names = tuple(name for name, picked in zip(allowed, picks, strict=True) if picked)
        if names and _fused(instance, names) is not None:
            found.append(names)
    return sorted(found, key=lambda names: (len(names), names))


def with_fusions(instance: Instance, names: tuple[str, ...]) -> Instance:
    """The instance with the named fusions, in their order; itself when it already has them.

    Raises InputError when one is unknown or does not apply.
    """
    if instance.fusions == names:
        return instance
    fused = _fused(instance, names)
    if fused is None:
        raise InputError(
            f"the fusions {', '.join(names)} do not apply to workload {instance.workload.name}",
            where="assignment: fusions",
            remedy=f"Known are {', '.join(list_fusions())}; docs/fusion.md has their conditions",
        )
    return fused


def fusions_for(allowed: tuple[str, ...], placement: Placement, staleness: int) -> tuple[str, ...]:
    """Those of the allowed fusions that plans of a class can gain by.

    An engine that flows has no tail, and only free placement has devices for what it leaves.
    """
    if placement == "free" and staleness == 0:
        return allowed
    return tuple(name for name in allowed if name != "migrated_tail")


def _fused(instance: Instance, names: tuple[str, ...]) -> Instance | None:
    graph = instance.graph.copy()
    adjustments = dict(instance.adjustments)
    for name in names:
        if name not in _FUSIONS:
            raise InputError(
                f"there is no fusion {name!r}",
                where="fusions",
                remedy=f"Known: {', '.join(list_fusions())}",
            )
        one = _FUSIONS[name](graph, instance.workload)
        if one is None:
            return None
        _rewire(graph, one)
        for call, changes in one.adjustments.items():
            adjustments[call] = (*adjustments.get(call, ()), *changes)
    units = units_of(graph, reference_shares_actor_layout=instance.reference_shares_actor_layout)
    return replace(instance, graph=graph, units=units, fusions=names, adjustments=adjustments)


def _rewire(graph: nx.DiGraph, one: Fusion) -> None:
    out = set(one.replaces)
    before = {a for name in out for a in graph.predecessors(name)} - out
    after = {b for name in out for b in graph.successors(name)} - out
    graph.remove_nodes_from(out)
    for call in one.calls:
        graph.add_node(call.name, call=call)
    if one.edges:
        graph.add_edges_from(one.edges)
        return
    for call in one.calls:
        graph.add_edges_from((a, call.name) for a in before)
        graph.add_edges_from((call.name, b) for b in after)
    graph.add_edges_from(product(before, after))


@fusion("engine_logprobs")
def engine_logprobs(graph: nx.DiGraph, workload: Workload) -> Fusion | None:
    """The old log-probabilities come from the engine, not from a pass of the trainer.

    Only by permission (`old_logprobs: either`), since the engine's kernels round differently and
    the loss must correct for it.
    """
    if workload.old_logprobs != "either" or "old_logprobs" not in graph:
        return None
    role = graph.nodes["old_logprobs"]["call"].role
    writers = [
        name
        for name, attributes in graph.nodes(data=True)
        if attributes["call"].kind == "generate" and attributes["call"].role == role
    ]
    if not writers:
        return None
    return Fusion(
        replaces=("old_logprobs",), adjustments=dict.fromkeys(writers, (returns_logprobs,))
    )


@fusion("shared_forward")
def shared_forward(graph: nx.DiGraph, workload: Workload) -> Fusion | None:
    """One forward pass for the log-probabilities of actor and reference, in the actor's layout.

    Both have one shape, so the microbatches of one follow those of the other through the pipeline:
    it fills and drains once.
    """
    if not {"old_logprobs", "reference_logprobs", "actor_train"} <= set(graph):
        return None
    actor, reference = (workload.models[role] for role in ("actor", "reference"))
    if actor.model_copy(update={"name": reference.name}) != reference:
        return None
    old, other = (graph.nodes[name]["call"] for name in ("old_logprobs", "reference_logprobs"))
    if old.sequences != other.sequences or old.lengths != other.lengths:
        return None
    call = old.model_copy(update={"name": "shared_logprobs", "sequences": 2 * old.sequences})
    return Fusion(
        replaces=("old_logprobs", "reference_logprobs"),
        calls=(call,),
        adjustments={"shared_logprobs": (holds_twin,), "actor_train": (holds_twin,)},
    )


@fusion("migrated_tail")
def migrated_tail(graph: nx.DiGraph, workload: Workload) -> Fusion | None:
    """Long responses go on in engines of their own while others work on what has ended.

    A quarter of the responses are cut where three quarters have ended, and prefilled again by the
    tail's engine, on as many devices as suit it (RLHFuse, arXiv:2409.13221). Forward passes that
    read nothing but responses begin with the short ones.
    """
    if "generate" not in graph or not _plain_rollout(graph, workload):
        return None
    generate: Call = graph.nodes["generate"]["call"]
    parts = split_lengths(workload.response_length, SHORT_SHARE)
    late = round(generate.sequences * (1.0 - SHORT_SHARE))
    if parts is None or late < 1 or late >= generate.sequences:
        return None
    passes = [name for name in graph if _reads_only_responses(graph, name)]
    if not passes:
        return None
    calls = [
        _with_lengths(generate, workload, "generate", generate.sequences, parts.before),
        generate.model_copy(
            update={
                "name": TAIL_CALL,
                "sequences": late,
                "lengths": CallLengths(
                    prompt_length=lengthened(workload.prompt_length, parts.cut_tokens),
                    response_length=parts.after,
                    samples_per_prompt=1,
                ),
            }
        ),
    ]
    edges = [("generate", TAIL_CALL)]
    for name in passes:
        call: Call = graph.nodes[name]["call"]
        early, rest = f"{name}_early", name
        count = round(call.sequences * SHORT_SHARE)
        calls.append(_with_lengths(call, workload, early, count, parts.short))
        calls.append(_with_lengths(call, workload, rest, call.sequences - count, parts.long))
        edges += [("generate", early), (TAIL_CALL, rest), (early, rest)]
        edges += [(rest, after) for after in graph.successors(name)]
    # CPU scores follow the responses of both.
    edges += [
        (source, name)
        for name in graph.successors("generate")
        if name not in passes
        for source in ("generate", TAIL_CALL)
    ]
    return Fusion(replaces=("generate", *passes), calls=tuple(calls), edges=tuple(edges))


def _plain_rollout(graph: nx.DiGraph, workload: Workload) -> bool:
    """One round of whole single answers, without log-probabilities of the engine."""
    generates = [name for name in graph if graph.nodes[name]["call"].kind == "generate"]
    return (
        generates == ["generate"]
        and "shared_logprobs" not in graph
        and graph.nodes["generate"]["call"].lengths is None
        and graph.nodes["generate"]["call"].rounds == 1.0
        and not list(graph.predecessors("generate"))
        and workload.turns.mean == 1.0
        and workload.partial_rollout is None
        and workload.tail_batching is None
        and not workload.replay_sequences
        and ("old_logprobs" in graph or workload.old_logprobs not in ("engine", "either"))
    )


def _reads_only_responses(graph: nx.DiGraph, name: str) -> bool:
    call: Call = graph.nodes[name]["call"]
    return (
        call.kind == "forward"
        and list(graph.predecessors(name)) == ["generate"]
        and call.lengths is None
        and call.sequences > 1
    )


def _with_lengths(
    call: Call, workload: Workload, name: str, sequences: int, response: LengthDistribution
) -> Call:
    lengths = CallLengths(
        prompt_length=workload.prompt_length, response_length=response, turns=workload.turns
    )
    return call.model_copy(update={"name": name, "sequences": sequences, "lengths": lengths})
