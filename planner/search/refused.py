"""Faster neighbours of a plan that memory or a rule forbids: what binds it, priced.

A neighbour differs in one field of one unit (its other calls follow where they share a layout) on
the same devices. Of a plan that is proven best no legal neighbour that fits is faster, so each
faster one is refused for something.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from planner.cost.arrays import StrategyArrays
from planner.cost.memory import FITS_SHARE, usable_bytes
from planner.cost.rule_values import Placement
from planner.errors import InputError
from planner.schema import Assignment, Plan, Prediction, SearchSpace, Strategy
from planner.schema.explain import Bind
from planner.search.candidates import LAYOUT_FIELDS
from planner.search.legality import broken_rules, call_space, equal_micro_batch_mask
from planner.simulate.copies import of_assignment
from planner.simulate.evaluate import evaluate_instance
from planner.simulate.host_memory import host_shortage
from planner.simulate.instance import Instance
from planner.simulate.prices import Prices, price_assignments, price_key
from planner.workload.units import CallUnit

GIB = 1024.0**3
_LEAST_SAVING = 0.005
"""Relative; less is not worth a sentence."""
_ENGINE_FIELDS = ("tp", "pp", "ep", "max_running_sequences", "memory_fraction")
_TRAINER_FIELDS = (
    *("tp", "pp", "vpp", "cp", "ulysses", "ep", "etp", "zero_stage", "pipeline_schedule"),
    *("micro_batch_sequences", "recompute", "offload", "optimizer_on_cpu"),
)


@dataclass(frozen=True)
class Neighbour:
    """An assignment one field of one unit away from a plan's."""

    lead: str
    """The call whose field it is."""
    change: str
    """In words."""
    assignment: Assignment


@dataclass(frozen=True)
class Refusal:
    """Why a neighbour cannot be used; `kind` is "none" when it can."""

    kind: Literal["memory", "host memory", "rule", "none"]
    reason: str


def refused(instance: Instance, space: SearchSpace, plan: Plan) -> tuple[Bind, ...]:
    """The fastest neighbour that each kind of limit forbids in each unit, largest saving first.

    `instance` is that of the workload and cluster, `space` the plan's search space.
    """
    best: dict[tuple[str, str], Bind] = {}
    for neighbour, prediction, refusal in priced_neighbours(instance, space, plan):
        saving = 1 - prediction.step_time_s / plan.step_time_s
        if refusal.kind == "none" or saving < _LEAST_SAVING:
            continue
        key = (neighbour.lead, refusal.kind)
        if key not in best or saving > best[key].saving:
            best[key] = Bind(
                kind=refusal.kind,
                call=neighbour.lead,
                message=refusal.reason,
                change=neighbour.change,
                saving=saving,
            )
    return tuple(sorted(best.values(), key=lambda bind: (-bind.saving, bind.call, bind.kind)))


def priced_neighbours(
    instance: Instance, space: SearchSpace, plan: Plan
) -> Iterator[tuple[Neighbour, Prediction, Refusal]]:
    """Every neighbour that can be timed, with what stands against it."""
    own = of_assignment(instance, plan.assignment)
    # A plan that leaves no margin comes from a search in which none does.
    tight = any(call.memory_verdict == "tight" for call in plan.calls.values())
    share = 1.0 if tight else FITS_SHARE
    found = [each for unit in own.units for each in _of_unit(own, space, unit, plan.assignment)]
    prices = price_assignments(instance, [each.assignment for each in found])
    for each in found:
        try:
            prediction = evaluate_instance(instance, each.assignment, bound_s=0.0, prices=prices)
        except InputError:
            continue  # An engine without room for a sequence has no time.
        yield (
            each,
            prediction,
            _refusal(instance, space, each.assignment, prediction, prices, share),
        )


def _of_unit(
    instance: Instance, space: SearchSpace, unit: CallUnit, assignment: Assignment
) -> Iterator[Neighbour]:
    calls = [instance.call(name) for name in unit.calls]
    trains = next((call for call in calls if call.kind == "train"), calls[0])
    for call in calls:
        values = call_space(space, call.kind)
        fields: tuple[str, ...] = _ENGINE_FIELDS if call.kind == "generate" else _TRAINER_FIELDS
        if call.kind == "forward":
            # The optimizer is the training call's; a lone model has no state to offload for it.
            fields = tuple(name for name in fields if name not in ("recompute", "optimizer_on_cpu"))
        mesh = assignment.meshes[call.name]
        alike = _same_micro_batch(instance, space, trains.name, assignment)
        for field in fields:
            layout = field in LAYOUT_FIELDS
            if layout and call is not trains:
                continue
            together = layout or (field == "micro_batch_sequences" and alike)
            if together and call is not trains:
                continue
            old = getattr(assignment.strategies[call.name], field)
            for new in getattr(values, field):
                names = unit.calls if together else (call.name,)
                strategies = dict(assignment.strategies)
                for name in names:
                    changed = _with(strategies[name], field, new, mesh.devices, space, call.kind)
                    if changed is not None:
                        strategies[name] = changed
                changed_all = all(strategies[name] != assignment.strategies[name] for name in names)
                if new != old and changed_all:
                    yield Neighbour(
                        call.name,
                        f"{call.name} {field} {old} -> {new}",
                        assignment.model_copy(update={"strategies": strategies}),
                    )


def _same_micro_batch(
    instance: Instance, space: SearchSpace, train: str, assignment: Assignment
) -> bool:
    """Whether the calls of the unit must have the same microbatch."""
    call = instance.call(train)
    if call.kind != "train":
        return False
    group = instance.cluster.group(assignment.meshes[train].group)
    arrays = StrategyArrays.from_strategies([assignment.strategies[train]])
    mask = equal_micro_batch_mask(
        arrays, call, instance.model(call), instance.workload, group, space
    )
    return bool(mask[0])


def _with(
    strategy: Strategy, field: str, new: Any, devices: int, space: SearchSpace, kind: Any
) -> Strategy | None:
    """The strategy with one field changed, dp filled in, and what depends on it; None: no fit."""
    update: dict[str, Any] = {field: new}
    if field == "tp" and kind != "generate":
        mode = call_space(space, kind).sequence_parallel
        update["sequence_parallel"] = new > 1 and (
            mode == "with_tp" or (mode == "optional" and strategy.zero_stage < 3)
        )
    if field == "pp":
        update |= {"first_stage_layers": 0, "last_stage_layers": 0}
        if new == 1:
            update |= {"vpp": 1, "pipeline_schedule": "1f1b"}
    changed = strategy.model_copy(update=update)
    size = changed.tp * changed.pp * changed.cp
    if devices % size:
        return None
    return changed.model_copy(update={"dp": devices // size})


def placement_class(space: SearchSpace, assignment: Assignment) -> Placement:
    """The class of placements whose rules hold for the assignment."""
    if "free" in space.placements:
        return "free"
    train, engine = (assignment.meshes.get(name) for name in ("actor_train", "generate"))
    return "disaggregated" if engine is not None and engine != train else "colocated"


def _refusal(
    instance: Instance,
    space: SearchSpace,
    assignment: Assignment,
    prediction: Prediction,
    prices: Prices,
    share: float,
) -> Refusal:
    own = of_assignment(instance, assignment)
    for name, strategy in assignment.strategies.items():
        call = own.call(name)
        broken = broken_rules(
            strategy,
            call,
            own.model(call),
            own.workload,
            own.cluster.group(assignment.meshes[name].group),
            space,
            cluster_devices=own.cluster.devices,
            placement=placement_class(space, assignment),
            staleness=assignment.staleness,
        )
        if broken:
            return Refusal("rule", f"{name}: {broken[0].message}")
    costs = {
        call.name: prices[price_key(own, assignment, call)]
        for call in own.calls
        if call.kind != "environment"
    }
    short = host_shortage(own, assignment, costs)
    if short is not None:
        return Refusal("host memory", f"a node lacks {short[0] / GIB:,.1f} GiB of host memory")
    return _memory(own, prediction, share)


def _memory(instance: Instance, prediction: Prediction, share: float) -> Refusal:
    reason, over = "", 0.0
    for name, call in prediction.calls.items():
        if call.mesh is None:
            continue
        usable = usable_bytes(instance.cluster.group(call.mesh.group).device, instance.framework)
        need = call.memory_bytes["total"] - call.memory_bytes["reserve"]
        beyond = need - share * usable
        if beyond > over:
            over = beyond
            reason = (
                f"{name} would need {need / GIB:.1f} GiB on a device, {beyond / GIB:.1f} GiB more "
                f"than plans may fill ({share:.0%} of {usable / GIB:.1f} GiB usable)"
            )
    return Refusal("memory", reason) if reason else Refusal("none", "")
