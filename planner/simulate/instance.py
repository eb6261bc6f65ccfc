"""Instance: a workload on a cluster under one launcher's conventions, everything loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from planner.catalog.frameworks import load_framework
from planner.catalog.spaces import load_space
from planner.cost.context import CallContext
from planner.cost.fusion import Adjustment, returns_logprobs
from planner.cost.kernel_tables import load_kernels
from planner.cost.kernels import KernelTable
from planner.cost.transfer import step_fixed_s, sync_route, weight_sync_s, whole_copy_s
from planner.schema import (
    Assignment,
    Call,
    Cluster,
    FrameworkProfile,
    ModelSpec,
    NodeGroup,
    Workload,
)
from planner.schema.workload import CallKind
from planner.workload.algorithms import build_graph
from planner.workload.calls import workload_of
from planner.workload.environment import environment_s, pool_s
from planner.workload.graph import calls_in_order
from planner.workload.units import SYNC, TAIL, CallUnit, WeightTransfer, transfers_of, units_of

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["POOL", "SYNC", "Instance", "instance_for", "make_instance"]

POOL = ":pool"
"""Suffix of the event that stands for the whole work of an environment call's workers."""


@dataclass(frozen=True)
class Instance:
    """What pricing and searching share; immutable and safe to use from several threads."""

    workload: Workload
    cluster: Cluster
    graph: nx.DiGraph
    """Iteration graph; node attribute `call` holds the Call."""
    units: tuple[CallUnit, ...]
    framework: FrameworkProfile
    engine: FrameworkProfile
    kernels: dict[str, KernelTable]
    """Node group -> kernel table."""
    reallocates: bool = False
    """Whether a trained model's forward passes may run on a copy of its own, whose weights are
    reallocated from the trainer in every step."""
    reference_shares_actor_layout: bool = False
    """Whether the reference runs in the actor's trainer processes."""
    fusions: tuple[str, ...] = ()
    """Fused forms of calls that `graph` has (`planner.simulate.fusions`)."""
    adjustments: Mapping[str, tuple[Adjustment, ...]] = field(default_factory=dict)
    """Call -> what fused forms change in its costs."""

    def call(self, name: str) -> Call:
        """The call named `name`."""
        call: Call = self.graph.nodes[name]["call"]
        return call

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """All calls in a topological order that does not depend on insertion order."""
        return calls_in_order(self.graph)

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Data dependencies within one iteration, sorted.

        The pool of workers scores responses as they come, from the start of generation on: who
        waits for a CPU call waits for the pool, too.
        """
        pools = [
            (f"{call.name}{POOL}", reader)
            for call in self._environment_calls
            for reader in self.graph.successors(call.name)
        ]
        return tuple(sorted([*self.graph.edges, *pools]))

    @property
    def _environment_calls(self) -> tuple[Call, ...]:
        return tuple(call for call in self.calls if call.kind == "environment")

    @property
    def pool_s(self) -> float:
        """Seconds that the workers need for one step: no step is shorter, however stale."""
        return pool_s(self.workload) if self._environment_calls else 0.0

    @property
    def host_calls_s(self) -> dict[str, float]:
        """What runs on CPUs with its seconds: the last scores of each environment call, and the
        work of its pool, which starts with the step."""
        last_s, all_s = environment_s(self.workload), pool_s(self.workload)
        names = [call.name for call in self._environment_calls]
        return dict.fromkeys(names, last_s) | {f"{name}{POOL}": all_s for name in names}

    def model(self, call: Call) -> ModelSpec:
        """The model that a device call runs."""
        return self.workload.models[call.role]

    def unit_of(self, call_name: str) -> CallUnit | None:
        """The unit of a call; None for calls on CPUs."""
        return next((unit for unit in self.units if call_name in unit.calls), None)

    def context(
        self, call: Call, group: NodeGroup, staleness: int, *, beside_trainer: bool = False
    ) -> CallContext:
        """Everything the cost functions need for a call on a node group.

        `beside_trainer` is True when the call's devices are also those of a trainer.
        """
        unit = self.unit_of(call.name)
        assert unit is not None, f"{call.name} runs on no device"
        return CallContext(
            call=call,
            model=self.model(call),
            workload=workload_of(call, self.workload),
            group=group,
            framework=self.framework,
            engine=self.engine,
            kernels=self.kernels[group.name],
            trained=any(self.call(name).kind == "train" for name in unit.calls),
            staleness=staleness,
            beside_trainer=beside_trainer,
            adjustments=self.adjustments.get(call.name, ()),
        )

    @cached_property
    def syncs(self) -> tuple[WeightTransfer, ...]:
        """Weight syncs of a step, from each trained role to its engines."""
        return tuple(each for each in self._transfers if each.kind == "engine")

    @cached_property
    def copies(self) -> dict[str, str]:
        """Forward calls that run on a copy of the trainer's model, with the training call whose
        weights they receive before they start."""
        receivers = {each.receiver: each.after_call for each in self._transfers}
        return {
            name: receivers[unit.name]
            for unit in self.units
            if unit.name in receivers and unit.name not in self.engines
            for name in unit.calls
        }

    @cached_property
    def _transfers(self) -> tuple[WeightTransfer, ...]:
        return transfers_of(self.graph, self.units)

    @cached_property
    def trainers(self) -> tuple[str, ...]:
        """Units that train."""
        return self._units_with("train")

    @cached_property
    def engines(self) -> tuple[str, ...]:
        """Units that generate."""
        return self._units_with("generate")

    def _units_with(self, kind: CallKind) -> tuple[str, ...]:
        return tuple(
            unit.name
            for unit in self.units
            if any(self.call(name).kind == kind for name in unit.calls)
        )

    def sync_s(self, sync: WeightTransfer, *, shared: bool) -> float:
        """Seconds of one weight sync from a trainer to an engine.

        The trainer's bf16 weights travel; an engine of lower precision quantises on arrival. On
        devices of the engine the tail's finds all weights in the scale-up domain: at most a whole
        copy goes over a device's links.
        """
        if shared and sync.receiver == TAIL:
            model, dtype = self.workload.models[sync.role], self.workload.generate_dtype
            return whole_copy_s(model, self.cluster, dtype)
        route = None if shared else sync_route(self.cluster)
        return weight_sync_s(self.workload.models[sync.role], self.framework, "bf16", route)

    @property
    def fixed_s(self) -> float:
        """Seconds of a step that no call accounts for."""
        return step_fixed_s(self.workload, self.framework)


def make_instance(
    workload: Workload,
    cluster: Cluster,
    *,
    framework: str,
    engine: str,
    reference_shares_actor_layout: bool,
    reallocates: bool = False,
) -> Instance:
    """Load profiles and kernel tables, build the iteration graph.

    Raises InputError for an unknown algorithm, profile or a workload that lacks a role.
    """
    graph = build_graph(workload)
    return Instance(
        workload=workload,
        cluster=cluster,
        graph=graph,
        units=units_of(graph, reference_shares_actor_layout=reference_shares_actor_layout),
        framework=load_framework(framework),
        engine=load_framework(engine),
        kernels={group.name: load_kernels(group.device) for group in cluster.groups},
        reallocates=reallocates,
        reference_shares_actor_layout=reference_shares_actor_layout,
        adjustments=_asked_for(workload, graph),
    )


def instance_for(assignment: Assignment, workload: Workload, cluster: Cluster) -> Instance:
    """The instance with the profiles of an assignment and the conventions of its search space.

    Raises InputError as `make_instance`, or for an unknown space.
    """
    space = load_space(assignment.space)
    return make_instance(
        workload,
        cluster,
        framework=assignment.framework,
        engine=assignment.engine,
        reference_shares_actor_layout=space.reference_shares_actor_layout,
        reallocates=space.reallocation,
    )


def _asked_for(workload: Workload, graph: nx.DiGraph) -> dict[str, tuple[Adjustment, ...]]:
    """Engines return log-probabilities where the workload takes the old ones from there."""
    if workload.old_logprobs != "engine":
        return {}
    calls = (attributes["call"] for _, attributes in graph.nodes(data=True))
    return {
        call.name: (returns_logprobs,)
        for call in calls
        if call.kind == "generate" and call.role == "actor"
    }
