"""The analytic answer for knob settings, remembered: times of all stages, memory, and the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import CODED, CallCosts
from planner.cost.memory import usable_bytes
from planner.errors import InputError
from planner.schema import Assignment, Prediction, Strategy
from planner.search.tuning.knobs import Knobs, Settings
from planner.simulate.bounds import work_depth_bound_s
from planner.simulate.copies import of_assignment
from planner.simulate.evaluate import evaluate_instance, planned_schedule, priced, sync_times_s
from planner.simulate.host_memory import host_shortage
from planner.simulate.instance import Instance
from planner.simulate.prices import price_assignments, price_key

FloatArray = npt.NDArray[np.float64]

OUTSIDE = "outside calls"
"""The stage of what a step spends in no call."""
SYNC = "weight sync"
_FINITE = 0.02
"""Relative change of a stage for the derivative of the step."""
_LINEAR = ("memory_fraction", "first_stage_layers", "last_stage_layers")


@dataclass(frozen=True)
class Point:
    """One assignment as the analytic model sees it."""

    key: str
    """Equal for settings that mean the same assignment."""
    assignment: Assignment
    prediction: Prediction
    memory_over: float
    """Need of the fullest device over what it can use, less one: above zero does not fit."""
    instance: Instance
    costs: dict[str, CallCosts]
    syncs_s: dict[str, float]

    @cached_property
    def stages_s(self) -> dict[str, float]:
        """Device calls, weight syncs and what lies outside of calls -> seconds."""
        found = {name: float(cost.time_s[0]) for name, cost in self.costs.items()}
        return found | self.syncs_s | {OUTSIDE: self.instance.fixed_s}

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Stage -> generate, forward, train, weight sync, or outside calls."""
        found = {name: str(self.instance.call(name).kind) for name in self.costs}
        return found | dict.fromkeys(self.syncs_s, SYNC) | {OUTSIDE: OUTSIDE}

    @cached_property
    def features(self) -> dict[str, FloatArray]:
        """Stage -> what its strategy and mesh are, on scales where a doubling is one; [features].

        A weight sync depends on where trainer and engine lie, what lies outside on nothing.
        """
        found = {}
        for name in self.costs:
            mesh = self.assignment.meshes[name]
            own = _numbers(self.assignment.strategies[name])
            found[name] = np.append(own, [np.log2(mesh.devices), mesh.nodes > 1])
        sync = np.array([float(len(set(self.assignment.meshes.values())))])
        return found | dict.fromkeys(self.syncs_s, sync) | {OUTSIDE: np.zeros(1)}

    @cached_property
    def elasticities(self) -> FloatArray:
        """`elasticities` as predicted."""
        return elasticities(self, {})

    def step_s(self, factors: Mapping[str, float]) -> float:
        """The step when every stage takes `factors` times as long as predicted."""
        costs = {
            name: replace(cost, time_s=cost.time_s * factors.get(name, 1.0))
            for name, cost in self.costs.items()
        }
        syncs_s = {name: t * factors.get(name, 1.0) for name, t in self.syncs_s.items()}
        schedule = planned_schedule(self.instance, self.assignment, costs, syncs_s)
        busy_s = max(schedule.step_time_s, self.instance.pool_s)
        return busy_s + self.instance.fixed_s * factors.get(OUTSIDE, 1.0)


def elasticities(point: Point, factors: Mapping[str, float]) -> FloatArray:
    """Relative change of the step for one of each stage, [stages]; by finite differences."""
    base = point.step_s(factors)
    found = []
    for name in point.stages_s:
        more = {**factors, name: factors.get(name, 1.0) * (1.0 + _FINITE)}
        found.append((point.step_s(more) / base - 1.0) / _FINITE)
    return np.array(found)


class Pricing:
    """Points by their settings; settings that break a rule or cannot run have none."""

    def __init__(self, knobs: Knobs) -> None:
        self.knobs = knobs
        self._points: dict[str, Point | None] = {}
        self._bounds: dict[int, float] = {}

    def point(self, settings: Settings) -> Point | None:
        """The point of one setting; None where a rule is broken or an engine has no room."""
        return self.points([settings])[0]

    def points(self, many: Sequence[Settings]) -> list[Point | None]:
        """One for each setting, in order; new ones are priced as arrays."""
        keys, fresh = [], {}
        for settings in many:
            if self.knobs.broken(settings):
                keys.append("")
                continue
            assignment = self.knobs.assignment(settings)
            key = assignment.model_dump_json()
            keys.append(key)
            if key not in self._points:
                fresh[key] = assignment
        self._price(fresh)
        return [self._points[key] if key else None for key in keys]

    def _price(self, fresh: Mapping[str, Assignment]) -> None:
        general = self.knobs.instance
        prices = price_assignments(general, fresh.values())
        for key, assignment in fresh.items():
            own = of_assignment(general, assignment)
            if assignment.staleness not in self._bounds:
                self._bounds[assignment.staleness] = work_depth_bound_s(own, assignment.staleness)
            bound_s = self._bounds[assignment.staleness]
            try:
                prediction = evaluate_instance(general, assignment, bound_s=bound_s, prices=prices)
            except InputError:
                self._points[key] = None
                continue
            names = [call.name for call in own.calls if call.kind != "environment"]
            bare = {n: prices[price_key(own, assignment, own.call(n))] for n in names}
            if host_shortage(own, assignment, bare) is not None:
                self._points[key] = None
                continue
            self._points[key] = Point(
                key=key,
                assignment=assignment,
                prediction=prediction,
                memory_over=_memory_over(own, prediction),
                instance=own,
                costs={n: priced(own, assignment, own.call(n), prices) for n in names},
                syncs_s=sync_times_s(own, assignment),
            )


def _memory_over(instance: Instance, prediction: Prediction) -> float:
    shares = []
    for call in prediction.calls.values():
        if call.mesh is None:
            continue
        usable = usable_bytes(instance.cluster.group(call.mesh.group).device, instance.framework)
        need = call.memory_bytes["total"] - call.memory_bytes["reserve"]
        shares.append(need / usable)
    return max(shares, default=0.0) - 1.0


def _numbers(strategy: Strategy) -> FloatArray:
    found: list[float] = []
    for field in fields_of(strategy):
        value = getattr(strategy, field)
        if field in CODED:
            found.append(float(CODED[field].index(value)))
        elif field == "memory_fraction":
            found.append(4.0 * value)
        elif field in _LINEAR or isinstance(value, bool):
            found.append(float(value))
        else:
            found.append(float(np.log2(1.0 + value)))
    return np.array(found)


def fields_of(strategy: Strategy) -> Iterable[str]:
    """Names of a strategy's fields, in the order of the schema."""
    return type(strategy).model_fields
