"""What a configuration becomes when one of its decisions changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.catalog.spaces import load_space
from planner.launchers.base import layout_of
from planner.launchers.reading import ReadConfig
from planner.schema import Assignment, Call, SearchSpace, Strategy
from planner.search.candidates import LAYOUT_FIELDS
from planner.search.legality import BrokenRule, broken_rules, call_space
from planner.workload.algorithms import build_graph
from planner.workload.graph import calls_in_order
from planner.workload.units import units_of

_TRAINER_FIELDS = ("tp", "pp", "vpp", "cp", "ep", "etp", "recompute", "offload", "optimizer_on_cpu",
                   "packing", "micro_batch_sequences")  # fmt: skip
_NUMBERS = ("tp", "pp", "vpp", "cp", "ep", "etp", "micro_batch_sequences",
            "max_running_sequences", "memory_fraction")  # fmt: skip
_ENGINE_FIELDS = ("tp", "pp", "ep", "max_running_sequences", "memory_fraction")


@dataclass(frozen=True)
class Variant:
    """An assignment that differs in one field of one call or of all calls of one model."""

    call: str
    field: str
    old: Any
    new: Any
    assignment: Assignment

    @property
    def meaning(self) -> str:
        """The change in words."""
        return f"{self.call} {self.field} {self.old} -> {self.new}"


class Checker:
    """The rules of a configuration's space, applied to assignments for its workload."""

    def __init__(self, read: ReadConfig):
        self.read = read
        self.space: SearchSpace = load_space(read.space)
        self.group = read.cluster.groups[0]
        graph = build_graph(read.workload)
        self.calls: dict[str, Call] = {
            call.name: call for call in calls_in_order(graph) if call.kind != "environment"
        }
        self.units = [
            unit.calls
            for unit in units_of(
                graph,
                reference_shares_actor_layout=read.reference_shares_actor_layout,
            )
        ]

    def broken(self, assignment: Assignment, call: str) -> list[BrokenRule]:
        """Rules that a call's strategy breaks.

        A number that the space does not list is no broken rule where it lists several: lists say
        what the search tries. A single one says that the launcher has no such degree.
        """
        node = self.calls[call]
        values = call_space(self.space, node.kind)
        tried = {f"{name}-in-space" for name in _NUMBERS if len(getattr(values, name)) > 1}
        # Readers give what the launcher has, though no plan uses it.
        tried |= {"zero_stage-in-space", "shard_ranks-in-space", "sequence_parallel-in-space"}
        tried |= {rule.id for rule in self.space.rules if not rule.enforced}
        found = broken_rules(
            assignment.strategies[call],
            node,
            self.read.workload.models[node.role],
            self.read.workload,
            self.group,
            self.space,
            cluster_devices=self.read.cluster.devices,
            placement=layout_of(assignment).placement or "free",
            staleness=assignment.staleness,
        )
        return [rule for rule in found if rule.id not in tried]

    def all_broken(self, assignment: Assignment) -> list[tuple[str, BrokenRule]]:
        """(call, rule) for every rule broken anywhere."""
        return [(call, rule) for call in self.calls for rule in self.broken(assignment, call)]

    def variants(self, assignment: Assignment) -> Iterator[Variant]:
        """Every assignment one value of the space away, legal or not; the mesh stays."""
        for unit in self.units:
            lead = next((call for call in unit if self.calls[call].kind == "train"), unit[0])
            node = self.calls[lead]
            values = call_space(self.space, node.kind)
            fields = _ENGINE_FIELDS if node.kind == "generate" else _TRAINER_FIELDS
            for field in fields:
                if field not in self.read.keys[lead]:
                    continue
                old = getattr(assignment.strategies[lead], field)
                for new in getattr(values, field):
                    if new != old:
                        changed = self._changed(assignment, unit, lead, field, new)
                        if changed is not None:
                            yield Variant(lead, field, old, new, changed)
            for call in unit:
                if call != lead and self.calls[call].kind == "forward":
                    yield from self._own_microbatch(assignment, call)

    def _own_microbatch(self, assignment: Assignment, call: str) -> Iterator[Variant]:
        field = "micro_batch_sequences"
        old = getattr(assignment.strategies[call], field)
        for new in call_space(self.space, "forward").micro_batch_sequences:
            if new != old and field in self.read.keys[call]:
                changed = self._changed(assignment, (call,), call, field, new)
                if changed is not None:
                    yield Variant(call, field, old, new, changed)

    def _changed(
        self, assignment: Assignment, unit: tuple[str, ...], lead: str, field: str, new: Any
    ) -> Assignment | None:
        """The assignment with a field of a unit changed; None when the degrees do not fit."""
        alike = unit if field in LAYOUT_FIELDS else (lead,)
        strategies = dict(assignment.strategies)
        for call in alike:
            changed = _with(strategies[call], field, new, assignment.meshes[call].devices)
            if changed is None:
                return None
            strategies[call] = changed
        return assignment.model_copy(update={"strategies": strategies})


def _with(strategy: Strategy, field: str, new: Any, devices: int) -> Strategy | None:
    """The strategy with one field changed and dp filled in; what depends on it follows."""
    update = {field: new}
    if (field == "tp" and strategy.tp > 1) or (field == "tp" and new > 1):
        with_tp = strategy.sequence_parallel or strategy.tp == 1
        update["sequence_parallel"] = with_tp and new > 1 and strategy.zero_stage == 1
    if field == "pp":
        update |= {"first_stage_layers": 0, "last_stage_layers": 0}
    changed = strategy.model_copy(update=update)
    size = changed.tp * changed.pp * changed.cp
    if devices % size:
        return None
    return changed.model_copy(update={"dp": devices // size})
