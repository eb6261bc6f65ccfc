"""The least time of every call on every number of devices, without what costs time or memory.

When a deadline leaves no time to price all strategies, their times are bounded from below by those
of the fastest values of three knobs: recomputing, offloading and an optimizer on the CPU save
memory and never time. Memory, the other calls' layouts and what fits beside what are left out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.cost.calls import call_costs
from planner.schema import CallSpace, SearchSpace
from planner.search.candidates import enumerate_candidates
from planner.search.legality import all_rules
from planner.search.problem import Unit
from planner.search.scope import Scope
from planner.simulate.instance import Instance
from planner.workload.units import CallUnit

_FASTEST = {"recompute": "none", "offload": "none", "optimizer_on_cpu": False}
"""Knob -> the value that costs no time."""


def least_times(
    instance: Instance, scope: Scope, unit: CallUnit, check: Callable[[], None]
) -> Unit:
    """One option for each node group and number of devices that is at least as good as any.

    Every option that `planner.search.options.unit_options` finds takes at least as long in every
    call. Bytes are zero.
    """
    space = fastest_space(scope.space)
    groups, sizes, times = [], [], []
    for index, group in enumerate(instance.cluster.groups):
        least: dict[int, list[float]] = {}
        for column, name in enumerate(unit.calls):
            check()
            call = instance.call(name)
            context = instance.context(
                call,
                group,
                scope.staleness,
                beside_trainer=call.kind == "generate" and scope.beside_trainer,
            )
            strategies = enumerate_candidates(
                call,
                context.model,
                instance.workload,
                group,
                space,
                scope.device_counts(group),
                trained=context.trained,
                cluster_devices=instance.cluster.devices,
                placement=scope.placement,
                staleness=scope.staleness,
            )
            time_s = call_costs(context, strategies, check).time_s
            for count in np.unique(strategies.devices).tolist():
                row = least.setdefault(count, [np.inf] * len(unit.calls))
                row[column] = float(time_s[strategies.devices == count].min())
        for count, row in sorted(least.items()):
            groups.append(index)
            sizes.append(count)
            times.append(row)
    n = len(sizes)
    return Unit(
        name=unit.name,
        calls=unit.calls,
        group=np.array(groups, dtype=np.int64),
        devices=np.array(sizes, dtype=np.int64),
        time_s=np.array(times, dtype=np.float64).reshape(n, len(unit.calls)),
        resident_bytes=np.zeros(n),
        peak_bytes=np.zeros((n, len(unit.calls))),
        host_bytes_per_device=np.zeros(n),
    )


def fastest_space(space: SearchSpace) -> SearchSpace:
    """The space with the fastest values alone of the knobs that none of its rules speaks of."""
    calls = {}
    for kind, values in space.calls.items():
        named = {name for rule in all_rules(space, kind) for name in rule.check.names}
        calls[kind] = _fastest(values, named)
    return space.model_copy(update={"calls": calls})


def _fastest(values: CallSpace, named: set[str]) -> CallSpace:
    update = {
        knob: (value,)
        for knob, value in _FASTEST.items()
        if knob not in named and value in getattr(values, knob)
    }
    return values.model_copy(update=update)
