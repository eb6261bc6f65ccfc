"""Knobs of a set of exact plans: values that they may take, and the assignment they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from planner.cost.arrays import StrategyArrays
from planner.errors import InputError
from planner.schema import Assignment, SearchSpace, Strategy
from planner.schema.workload import CallKind
from planner.search.candidates import stage_splits
from planner.search.legality import broken_rules, call_space, equal_micro_batch_mask
from planner.search.refused import placement_class
from planner.simulate.copies import of_assignment
from planner.simulate.instance import Instance

Value = int | float | str
Settings = Mapping[str, Value]
"""Knob -> value; what an Optuna trial holds as its parameters."""

PLAN = "plan"
_MEMORY_STEP = 0.05
"""Steps of the engine's share of memory: finer ones change the step time by less than the noise of
a measured step."""
_LEAST_RUNNING = 16
KEPT = "as planned"
"""A stage split that is the plan's own."""


@dataclass(frozen=True)
class Knobs:
    """What may be changed in the plans of one exact search, and the plans themselves.

    A knob is named after the call and the field that it sets ("generate.memory_fraction"); "plan"
    is the number of the exact plan, from 1. Knobs that a plan cannot have (stages of a model
    without a pipeline, staleness of a colocated plan) change nothing in it.
    """

    instance: Instance
    space: SearchSpace
    plans: tuple[Assignment, ...]

    @cached_property
    def values(self) -> dict[str, tuple[Value, ...]]:
        """Knob -> its values, those of the plans among them; knobs of one value are left out."""
        found: dict[str, tuple[Value, ...]] = {PLAN: tuple(range(1, len(self.plans) + 1))}
        for name in sorted({name for plan in self.plans for name in plan.strategies}):
            kinds = {self._kind(plan, name) for plan in self.plans if name in plan.strategies}
            (kind,) = kinds
            own = [plan.strategies[name] for plan in self.plans if name in plan.strategies]
            allowed = call_space(self.space, kind)
            if kind == "generate":
                found[f"{name}.max_running_sequences"] = _running(allowed, own)
                found[f"{name}.memory_fraction"] = _fractions(allowed, own)
                continue
            sizes = {*allowed.micro_batch_sequences, *(s.micro_batch_sequences for s in own)}
            found[f"{name}.micro_batch_sequences"] = tuple(sorted(sizes))
            if kind == "train":
                order = [r for r in ("none", "selective", "full") if r in allowed.recompute]
                kept = dict.fromkeys([*order, *(s.recompute for s in own)])
                found[f"{name}.recompute"] = tuple(kept)
                found[f"{name}.stages"] = self._splits(name, own)
        if any(self._may_be_stale(plan) for plan in self.plans):
            most = min(self.space.max_staleness, self.instance.workload.max_staleness)
            own_values = {plan.staleness for plan in self.plans}
            found["staleness"] = tuple(sorted({*range(most + 1), *own_values}))
        return {name: each for name, each in found.items() if len(each) > 1 or name == PLAN}

    def settings(self, number: int) -> dict[str, Value]:
        """The settings that are exact plan `number` (from 1), unchanged."""
        plan = self.plans[number - 1]
        found: dict[str, Value] = {}
        for knob, values in self.values.items():
            call, _, field = knob.partition(".")
            if knob == PLAN:
                found[knob] = number
            elif knob == "staleness":
                found[knob] = plan.staleness
            elif field == "stages":
                found[knob] = KEPT
            elif call in plan.strategies:
                found[knob] = getattr(plan.strategies[call], field)
            else:
                found[knob] = values[0]
        return found

    def assignment(self, settings: Settings) -> Assignment:
        """The plan with the settings; knobs that it cannot have are ignored."""
        plan = self.plans[int(settings[PLAN]) - 1]
        strategies = dict(plan.strategies)
        for knob, value in settings.items():
            call, _, field = knob.partition(".")
            if call not in strategies or not field:
                continue
            if field == "stages":
                split = _split(str(value))
                if split is not None and strategies[call].pp > 1:
                    self._split_unit(plan, strategies, call, split)
            else:
                strategies[call] = strategies[call].model_copy(update={field: value})
        self._equalise(plan, strategies)
        staleness = int(settings.get("staleness", plan.staleness))
        if not self._may_be_stale(plan):
            staleness = plan.staleness
        return plan.model_copy(update={"strategies": strategies, "staleness": staleness})

    def broken(self, settings: Settings) -> str:
        """The first rule of the space that the settings break, in words; empty when none."""
        missing = [knob for knob in self.values if knob not in settings]
        if missing:
            return f"no value of {', '.join(missing)}"
        plan, changed = self.plans[int(settings[PLAN]) - 1], self.assignment(settings)
        for name, strategy in changed.strategies.items():
            same = strategy == plan.strategies[name] and changed.staleness == plan.staleness
            reason = "" if same else self._broken(name, strategy, changed)
            if reason:
                return f"{name}: {reason}"
        return ""

    def _broken(self, name: str, strategy: Strategy, assignment: Assignment) -> str:
        placement = placement_class(self.space, assignment)
        key = (name, strategy, placement, assignment.staleness, assignment.fusions)
        if key not in self._rules:
            own = of_assignment(self.instance, assignment)
            call = own.call(name)
            found = broken_rules(
                strategy,
                call,
                own.model(call),
                own.workload,
                own.cluster.group(assignment.meshes[name].group),
                self.space,
                cluster_devices=own.cluster.devices,
                placement=placement,
                staleness=assignment.staleness,
            )
            self._rules[key] = found[0].message if found else ""
        return self._rules[key]

    @cached_property
    def _rules(self) -> dict[Any, str]:
        return {}

    def _may_be_stale(self, plan: Assignment) -> bool:
        """Generation and training on devices of their own: only then may steps overlap."""
        engines = [m for n, m in plan.meshes.items() if self._kind(plan, n) == "generate"]
        trainers = [m for n, m in plan.meshes.items() if self._kind(plan, n) == "train"]
        return not any(a.overlaps(b) for a in engines for b in trainers)

    def _kind(self, plan: Assignment, name: str) -> CallKind:
        return self._own(plan).call(name).kind

    def _own(self, plan: Assignment) -> Instance:
        """The instance with the plan's fusions and copies; knobs change neither."""
        if id(plan) not in self._instances:
            self._instances[id(plan)] = of_assignment(self.instance, plan)
        return self._instances[id(plan)]

    @cached_property
    def _instances(self) -> dict[int, Instance]:
        return {}

    def _splits(self, name: str, own: Sequence[Strategy]) -> tuple[str, ...]:
        call = self.instance.call(name)
        layers = self.instance.model(call).num_layers
        uneven = call_space(self.space, "train").uneven_stages
        found = {
            f"{first}+{last}"
            for strategy in own
            if strategy.pp > 1 and strategy.vpp == 1
            for first, last in stage_splits(layers, strategy.pp, uneven)
        }
        return (KEPT, *sorted(found))

    def _split_unit(
        self,
        plan: Assignment,
        strategies: dict[str, Strategy],
        train: str,
        split: tuple[int, int],
    ) -> None:
        """All calls on the trainer's copy have its stages."""
        unit = self._own(plan).unit_of(train)
        for name in unit.calls if unit is not None else (train,):
            update = {"first_stage_layers": split[0], "last_stage_layers": split[1]}
            strategies[name] = strategies[name].model_copy(update=update)

    def _equalise(self, plan: Assignment, strategies: dict[str, Strategy]) -> None:
        """Where the space wants it, all calls of a unit take the trainer's microbatch."""
        own = self._own(plan)
        for unit in own.units:
            train = next((n for n in unit.calls if own.call(n).kind == "train"), None)
            if train is None or self.space.equal_micro_batch is None:
                continue
            call = own.call(train)
            mask = equal_micro_batch_mask(
                StrategyArrays.from_strategies([strategies[train]]),
                call,
                own.model(call),
                own.workload,
                own.cluster.group(plan.meshes[train].group),
                self.space,
            )
            if mask[0]:
                update = {"micro_batch_sequences": strategies[train].micro_batch_sequences}
                for name in unit.calls:
                    strategies[name] = strategies[name].model_copy(update=update)


def _running(allowed: Any, own: Sequence[Strategy]) -> tuple[int, ...]:
    """Powers of two and their 1.5-fold between the ends of the space's range."""
    low, high = min(allowed.max_running_sequences), max(allowed.max_running_sequences)
    found = {s.max_running_sequences for s in own} | set(allowed.max_running_sequences)
    size = max(_LEAST_RUNNING, low)
    while size <= high:
        found |= {each for each in (size, size * 3 // 2) if low <= each <= high}
        size *= 2
    return tuple(sorted(found))


def _fractions(allowed: Any, own: Sequence[Strategy]) -> tuple[float, ...]:
    low, high = min(allowed.memory_fraction), max(allowed.memory_fraction)
    grid = np.arange(low, high + _MEMORY_STEP / 2, _MEMORY_STEP)
    found = {round(float(each), 4) for each in grid if each <= high + 1e-9}
    return tuple(sorted(found | {s.memory_fraction for s in own} | set(allowed.memory_fraction)))


def _split(text: str) -> tuple[int, int] | None:
    if text == KEPT:
        return None
    first, _, last = text.partition("+")
    return int(first), int(last)


def make_knobs(instance: Instance, space: SearchSpace, plans: Sequence[Assignment]) -> Knobs:
    """The knobs of plans of one search; InputError when there is no plan."""
    if not plans:
        raise InputError("there is no plan to tune", remedy="Plan first")
    return Knobs(instance, space, tuple(plans))
