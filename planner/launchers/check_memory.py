"""Prices an assignment and says what memory it lacks: on devices, in engines, on nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from planner.cost.arrays import CallCosts, StrategyArrays
from planner.cost.calls import call_costs
from planner.cost.memory import usable_bytes
from planner.launchers.reading import ReadConfig
from planner.schema import Assignment, Call, Prediction
from planner.schema.check import MemoryShortage
from planner.simulate.bounds import work_depth_bound_s
from planner.simulate.evaluate import evaluate_instance
from planner.simulate.host_memory import host_shortage
from planner.simulate.instance import Instance
from planner.simulate.prices import PriceKey, price_key

GIB = 2**30
_ITEMS = 4
# vLLM's and SGLang's own examples go up to 0.95 of the device, 0.02 above it for rounding.
_ENGINE_SHARE = 0.97
_NO_ITEMS = {"total", "capacity", "reserve"}


class Pricer:
    """Prices assignments that differ little: a call with the same strategy is costed once."""

    def __init__(self, instance: Instance, read: ReadConfig):
        self.instance = instance
        self.read = read
        self._known: dict[tuple[PriceKey, float | None], CallCosts] = {}
        staleness = read.assignment.staleness if read.assignment else 0
        self._bound_s = work_depth_bound_s(instance, staleness)

    def price(self, assignment: Assignment) -> tuple[Prediction | None, list[MemoryShortage]]:
        """Times and memory; the prediction is None when an engine cannot hold model and sequence.

        Token budgets that hold no whole number of sequences are priced as they are, where the
        assignment still has the microbatch that was read.
        """
        costs = self._costs(assignment)
        shortages = _engine_shortages(self.instance, assignment, costs)
        prediction = None
        if not shortages:
            prices = {
                price_key(self.instance, assignment, self.instance.call(name)): cost
                for name, cost in costs.items()
            }
            prediction = evaluate_instance(
                self.instance, assignment, prices=prices, bound_s=self._bound_s
            )
            prediction = _tight_engines(prediction)
            shortages = _device_shortages(prediction)
        shortages = [self._with_cause(each, assignment, prediction) for each in shortages]
        return prediction, shortages + _host_shortages(self.instance, assignment, costs)

    def _with_cause(
        self, shortage: MemoryShortage, assignment: Assignment, prediction: Prediction | None
    ) -> MemoryShortage:
        """Names the engine's share of memory where another share would fit."""
        call = shortage.call
        key = self.read.keys.get(call, {}).get("memory_fraction")
        if key is None or self.instance.call(call).kind != "generate":
            return shortage
        share = assignment.strategies[call].memory_fraction
        device = self.instance.cluster.group(assignment.meshes[call].group).device.memory_bytes
        words = f"{key}={share:g} gives the engine {share * device / GIB:.1f} GiB of the device"
        items = dict(shortage.largest)
        if prediction is None:
            need = sum(items.values()) / device
            if need < 1:
                words += f", which is too little: it needs {math.ceil(need * 100) / 100:g} or more"
                return shortage.model_copy(update={"cause": words})
            return shortage
        less = share - shortage.short_bytes / device
        if items.get("kv_cache", 0) > shortage.short_bytes and less > 0:
            words += (
                f", which is too much beside the rest: at most {math.floor(less * 100) / 100:g}"
            )
            return shortage.model_copy(update={"cause": words})
        return shortage

    def _costs(self, assignment: Assignment) -> dict[str, CallCosts]:
        costs = {}
        for call in self.instance.calls:
            if call.kind != "environment":
                budget = self._budget(assignment, call.name)
                key = (price_key(self.instance, assignment, call), budget)
                if key not in self._known:
                    self._known[key] = self._cost(assignment, call, budget)
                costs[call.name] = self._known[key]
        return costs

    def _budget(self, assignment: Assignment, call: str) -> float | None:
        if call not in self.read.budgets or self.read.assignment is None:
            return None
        was = self.read.assignment.strategies[call].micro_batch_sequences
        same = assignment.strategies[call].micro_batch_sequences == was
        return self.read.budgets[call] if same else None

    def _cost(self, assignment: Assignment, call: Call, budget: float | None) -> CallCosts:
        group = self.instance.cluster.group(assignment.meshes[call.name].group)
        arrays = StrategyArrays.from_strategies([assignment.strategies[call.name]])
        if budget is not None:
            sequences: Any = np.array([max(1.0, budget)])
            arrays = replace(arrays, micro_batch_sequences=sequences)
        key, _ = price_key(self.instance, assignment, call)
        context = self.instance.context(
            call, group, assignment.staleness, beside_trainer=key.beside_trainer
        )
        if call.name in self.read.unpadded:
            context = replace(context, unpadded=True)
        return call_costs(context, arrays)


def _tight_engines(prediction: Prediction) -> Prediction:
    """Engines may take all but a little of their devices: they hold what they reserved at start.

    Their share covers what the trainer's reserve stands for (context, workspaces, graphs), and a
    trainer that waits beside them allocates nothing. So a `memory_fraction` such as OpenRLHF's
    default of 0.95 is tight, not too much.
    """
    calls = dict(prediction.calls)
    for name, call in calls.items():
        items = call.memory_bytes
        if call.kind == "generate" and call.memory_verdict == "does not fit":
            need = items["total"] - items["reserve"]
            if need <= _ENGINE_SHARE * items["capacity"]:
                calls[name] = call.model_copy(update={"memory_verdict": "tight"})
    fits = all(call.memory_verdict != "does not fit" for call in calls.values())
    return prediction.model_copy(update={"calls": calls, "fits": fits})


def _device_shortages(prediction: Prediction) -> list[MemoryShortage]:
    found = []
    for name, call in prediction.calls.items():
        if call.memory_verdict == "does not fit":
            need, room = call.memory_bytes["total"], float(call.memory_bytes["capacity"])
            if call.kind == "generate":  # as it is judged above: engines may take the reserve
                need, room = need - call.memory_bytes["reserve"], _ENGINE_SHARE * room
            found.append(
                MemoryShortage(
                    call=name,
                    short_bytes=float(max(need - room, 1)),
                    needed_bytes=float(need),
                    room_bytes=room,
                    largest=_largest(call.memory_bytes),
                )
            )
    return found


def _largest(items: Mapping[str, float]) -> tuple[tuple[str, int], ...]:
    ordered = sorted(items.items(), key=lambda pair: -pair[1])
    return tuple((name, round(size)) for name, size in ordered if name not in _NO_ITEMS)[:_ITEMS]


def _engine_shortages(
    instance: Instance, assignment: Assignment, costs: Mapping[str, CallCosts]
) -> list[MemoryShortage]:
    """Calls that have no room for the model and one sequence at all: they cannot be timed."""
    found = []
    for name, cost in costs.items():
        if not math.isfinite(cost.time_s[0]):
            group = instance.cluster.group(assignment.meshes[name].group)
            parts = {key: float(value[0]) for key, value in cost.memory_parts_bytes.items()}
            usable = usable_bytes(group.device, instance.framework)
            limit = min(
                usable, group.device.memory_bytes * assignment.strategies[name].memory_fraction
            )
            weights = sum(value for key, value in parts.items() if key != "kv_cache")
            found.append(
                MemoryShortage(
                    call=name,
                    short_bytes=float(max(1.0, weights - limit)),
                    needed_bytes=weights,
                    room_bytes=float(limit),
                    largest=_largest(parts),
                )
            )
    return found


def _host_shortages(
    instance: Instance, assignment: Assignment, costs: Mapping[str, CallCosts]
) -> list[MemoryShortage]:
    """The first node whose host memory does not hold what its models offload and keep there."""
    found = host_shortage(instance, assignment, costs)
    if found is None:
        return []
    short, here = found
    needed = sum(here.values())
    return [
        MemoryShortage(
            call="host memory",
            short_bytes=short,
            needed_bytes=needed,
            room_bytes=needed - short,
            largest=_largest(here),
        )
    ]
