"""Why nothing fits: what, by how much, on which device, and the smallest change that would help."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from planner.cost.arrays import CallCosts, StrategyArrays
from planner.cost.calls import call_costs
from planner.cost.memory import usable_bytes
from planner.errors import InfeasibleError, PlannerError
from planner.schema import Cluster, NodeGroup
from planner.search.candidates import enumerate_candidates
from planner.search.levers import levers
from planner.search.options import UnitOptions, unit_options
from planner.search.placement import PlacementResult, solve_placement
from planner.search.problems import class_instance, placement_problem
from planner.search.scope import Scope
from planner.simulate.bounds import dtype_of
from planner.simulate.instance import Instance, make_instance

GIB = 1024.0**3
_LARGEST_NODES = 1024
_FULL_NODE = 8
# Larger clusters are tried with few mesh sizes: a plan is as likely, and found much sooner.
_ALL_SIZES_UP_TO = 32
# Any plan answers the question, so its proof may be this far off.
_ANY_PLAN_GAP = 0.9


@dataclass(frozen=True)
class Attempt:
    """One class of plans that has no plan."""

    scope: Scope
    options: dict[str, UnitOptions]
    result: PlacementResult
    instance: Instance
    """With the units of the class."""


def explain_infeasible(instance: Instance, attempts: list[Attempt]) -> InfeasibleError:
    """The error to raise when no class of plans has a plan."""
    attempts = [each for each in attempts if not each.scope.is_variant]
    attempt = max(attempts, key=_progress)
    reason = _first_reason(instance, attempt) or _together(instance, attempt.result)
    remedy = (
        _remedy(instance, [each.scope for each in attempts]) if _lacks_memory(attempt) else None
    )
    return InfeasibleError(
        f"no plan fits: {reason.rstrip('.')}." + (f" {remedy}." if remedy else "")
    )


def _remedy(instance: Instance, scopes: list[Scope]) -> str:
    """The smallest changes known to help, each verified by a search."""
    cluster = instance.cluster
    larger = _larger_cluster(instance, scopes)
    ways = [larger] if larger else []
    ways += levers(instance, scopes, lambda changed, classes: _fits(changed, classes, cluster))
    if not ways:
        return "Use smaller models, more memory on each device, or shorter sequences"
    return "It would fit " + ", or ".join(ways)


def _together(instance: Instance, result: PlacementResult) -> str:
    """Why units that fit alone do not fit together."""
    shortage = result.shortage
    if shortage is None or shortage.group is None:
        return result.message
    device = instance.cluster.groups[shortage.group].device.id
    who = " and ".join(shortage.units)
    where = f"{shortage.devices} x {device}" if shortage.devices else device
    amount = f"{shortage.short_bytes / GIB:.1f} GiB more"
    if shortage.kind == "device memory":
        return f"{who} together need {amount} on each {device} while {shortage.call} runs ({where})"
    if shortage.kind == "host memory":
        return f"{who} together need {amount} host memory on each node ({where})"
    if shortage.kind == "devices":
        return f"{who} together need {shortage.short_devices} devices more ({where})"
    return result.message


def _lacks_memory(attempt: Attempt) -> bool:
    """False when a unit has nothing legal to run: more devices are no remedy then."""
    return all(options.costed > 0 for options in attempt.options.values())


def _progress(attempt: Attempt) -> int:
    """How many units have an option: the class that came furthest explains best."""
    return sum(len(options.unit.devices) > 0 for options in attempt.options.values())


def _first_reason(instance: Instance, attempt: Attempt) -> str | None:
    reasons = [
        _unit_reason(instance, attempt.scope, name)
        for name, options in attempt.options.items()
        if len(options.unit.devices) == 0
    ]
    return "; ".join(reasons) if reasons else None


def _unit_reason(instance: Instance, scope: Scope, name: str) -> str:
    unit = next(unit for unit in instance.units if unit.name == name)
    call = instance.call(next((c for c in unit.calls if "train" in c), unit.calls[0]))
    model = instance.model(call)
    who = f"{name} ({model.name}, {call.kind})"
    best: tuple[float, NodeGroup, CallCosts, StrategyArrays] | None = None
    for group in instance.cluster.groups:
        context = instance.context(
            call,
            group,
            scope.staleness,
            beside_trainer=call.kind == "generate" and scope.beside_trainer,
        )
        strategies = enumerate_candidates(
            call,
            model,
            instance.workload,
            group,
            scope.space,
            trained=context.trained,
            cluster_devices=instance.cluster.devices,
            placement=scope.placement,
            staleness=scope.staleness,
        )
        if len(strategies) == 0:
            continue
        costs = call_costs(context, strategies)
        need = np.sum(list(costs.memory_parts_bytes.values()), axis=0) - usable_bytes(
            group.device, instance.framework
        )
        row = int(need.argmin())
        if best is None or need[row] < best[0]:
            best = (float(need[row]), group, costs.take([row]), strategies.take([row]))
    if best is None:
        dtype = dtype_of(instance.workload, call)
        if all(dtype not in g.device.peak_flop_per_s for g in instance.cluster.groups):
            devices = ", ".join(sorted({g.device.id for g in instance.cluster.groups}))
            return f"{who} is to run in {dtype}, which {devices} cannot"
        return (
            f"{who}: no strategy of the search space {scope.space.name} is legal for this batch "
            f"on {instance.cluster.devices} devices"
        )
    short, group, costs, _ = best
    usable = usable_bytes(group.device, instance.framework)
    items = {key: float(value[0]) for key, value in costs.memory_parts_bytes.items()}
    largest = max(items, key=lambda key: items[key])
    if short <= 0:
        return f"{who}: the {group.device.id} has room for the weights but not for one sequence"
    return (
        f"{who} needs {(usable + short) / GIB:.1f} GiB on each {group.device.id} even in its "
        f"leanest strategy, {short / GIB:.1f} GiB more than the {usable / GIB:.1f} GiB usable "
        f"(largest item: {largest}, {items[largest] / GIB:.1f} GiB)"
    )


def _larger_cluster(instance: Instance, scopes: list[Scope]) -> str | None:
    """The smallest cluster of the same devices, among the usual sizes, that would do."""
    for size in larger_clusters(instance.cluster):
        if _fits(instance, scopes, size):
            shapes = " + ".join(
                f"{group.nodes} x {group.devices_per_node} {group.device.id}"
                for group in size.groups
            )
            return f"on {size.devices} of these devices ({shapes})"
    return None


def larger_clusters(cluster: Cluster) -> list[Cluster]:
    """Clusters of usual sizes above this one, ascending.

    A lone node grows to 2, 4 and 8 devices first. Then nodes are added to the first group (all
    other groups grow in proportion): one, two and three more, and 2^i and 3 x 2^i.
    """
    first = cluster.groups[0]
    found: list[Cluster] = []
    per_node = first.devices_per_node
    if len(cluster.groups) == 1 and first.nodes == 1:
        found = [_shaped(cluster, 1, size) for size in (2, 4, 8) if size > per_node]
        per_node = max(per_node, _FULL_NODE)
    powers = [1 << i for i in range(_LARGEST_NODES.bit_length())]
    usual = {*powers, *(3 * power for power in powers), *(first.nodes + i for i in (1, 2, 3))}
    return found + [
        _shaped(cluster, nodes, per_node)
        for nodes in sorted(usual)
        if first.nodes < nodes <= _LARGEST_NODES
    ]


def _shaped(cluster: Cluster, nodes: int, devices_per_node: int) -> Cluster:
    first, *others = cluster.groups
    ratio = devices_per_node / first.devices_per_node
    domain = max(first.device.scale_up_domain_devices, devices_per_node)
    changes: dict[str, object] = {
        "nodes": nodes,
        "devices_per_node": devices_per_node,
        # A larger node of the same kind has more host memory and joins all its devices.
        "host_memory_bytes": round(first.host_memory_bytes * ratio),
        "device": first.device.model_copy(update={"scale_up_domain_devices": domain}),
    }
    grown = [first.model_copy(update=changes)]
    grown += [
        other.model_copy(update={"nodes": math.ceil(other.nodes * nodes / first.nodes)})
        for other in others
    ]
    return cluster.model_copy(update={"groups": tuple(grown)})


def _fits(instance: Instance, scopes: list[Scope], cluster: Cluster) -> bool:
    if cluster.devices > _ALL_SIZES_UP_TO:
        scopes = [replace(scope, few_sizes=True) for scope in scopes]
    return any(_fits_in(instance, scope, cluster) for scope in scopes)


def _fits_in(instance: Instance, scope: Scope, cluster: Cluster) -> bool:
    try:
        larger = make_instance(
            instance.workload,
            cluster,
            framework=scope.space.framework,
            engine=scope.space.engine,
            reference_shares_actor_layout=scope.space.reference_shares_actor_layout,
            reallocates=scope.space.reallocation,
        )
        larger = class_instance(larger, scope)
        options: dict[str, UnitOptions] = {}
        for unit in larger.units:
            options[unit.name] = unit_options(larger, scope, unit)
            if len(options[unit.name].unit.devices) == 0:
                return False
    except PlannerError:
        return False
    problem = placement_problem(larger, scope, options)
    return bool(solve_placement(problem, top=1, gap=_ANY_PLAN_GAP).solutions)
