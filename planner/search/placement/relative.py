"""The integer model with relative positions: variables, choice, relations, order.

Devices of one group are interchangeable, so a plan is described by relations alone: which pairs of
meshes are disjoint, and in which order events that share devices run. The number of devices is only
a coefficient: no symmetry, and a model that does not grow with the cluster. For contiguous meshes
this is a relaxation (its bound always holds); `realise` turns a solution into places.

Times are in ticks, rounded down; memory is in units, rounded down: every plan of the problem is a
solution of the model, so the model's bound is valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from planner.search.placement.instance import Instance, Key


def floor_units(values: Any, unit: float) -> Any:
    """Values in whole units, rounded down."""
    return np.floor(np.asarray(values, dtype=np.float64) / unit).astype(np.int64)


@dataclass
class Model:
    """A CP-SAT model under construction, with the handles that its parts share."""

    instance: Instance
    tick_s: float
    horizon: int
    """Latest end of anything, ticks."""
    cp: Any
    pick: list[list[Any]] = field(default_factory=list)
    """Boolean of each unit's option."""
    duration: list[Any] = field(default_factory=list)
    """Duration of each event in ticks: a linear expression or a constant."""
    start: list[Any] = field(default_factory=list)
    end: list[Any] = field(default_factory=list)
    disjoint: dict[tuple[int, int], Any] = field(default_factory=dict)
    """Literal of each pair of meshes (a < b): they share no device."""
    in_group: list[dict[int, Any]] = field(default_factory=list)
    """For each mesh, by group: the literal that it lies there."""

    def apart(self, a: int, b: int) -> Any:
        """Literal: meshes a and b (different) share no device."""
        return self.disjoint[min(a, b), max(a, b)]

    def size(self, mesh: int, group: int) -> Any:
        """Devices of the mesh if it lies in the group, else 0; a linear expression."""
        unit = self.instance.meshes[mesh][0]
        rows = self.instance.options[unit]
        return self.weighted(unit, np.where(rows.group == group, rows.devices, 0))

    def weighted(self, unit: int, coefficients: Any) -> Any:
        """Sum of the coefficients [n] over the unit's chosen option."""
        from ortools.sat.python import cp_model

        nonzero = np.flatnonzero(coefficients)
        return cp_model.LinearExpr.weighted_sum(
            [self.pick[unit][i] for i in nonzero], [int(coefficients[i]) for i in nonzero]
        )


def build(instance: Instance, tick_s: float, horizon: int) -> Model:
    """Choices, relations and durations; no events in time, capacity, memory or objective yet."""
    from ortools.sat.python import cp_model

    model = Model(instance, tick_s, horizon, cp_model.CpModel())
    _choices(model)
    _relations(model)
    model.duration = [_duration(model, event) for event in range(len(instance.events))]
    return model


def _choices(model: Model) -> None:
    """One option a unit; units of one mesh agree on its group and size."""
    cp, instance = model.cp, model.instance
    for unit, rows in enumerate(instance.options):
        model.pick.append([cp.new_bool_var(f"pick {unit} {i}") for i in range(len(rows))])
        cp.add_exactly_one(model.pick[-1])
    for members in instance.meshes:
        by_key = [_by_key(model, unit) for unit in members]
        for other in by_key[1:]:
            for key, literals in by_key[0].items():
                cp.add(sum(other.get(key, [])) == sum(literals))
        groups: dict[int, list[Any]] = {}
        for key, literals in by_key[0].items():
            groups.setdefault(key[0], []).extend(literals)
        model.in_group.append(_group_literals(model, groups))


def _by_key(model: Model, unit: int) -> dict[Key, list[Any]]:
    rows = model.instance.options[unit]
    found: dict[Key, list[Any]] = {}
    for i, literal in enumerate(model.pick[unit]):
        found.setdefault(rows.key(i), []).append(literal)
    return found


def _group_literals(model: Model, groups: dict[int, list[Any]]) -> dict[int, Any]:
    if len(groups) == 1:
        return dict.fromkeys(groups, model.cp.new_constant(1))
    result = {}
    for group, literals in groups.items():
        result[group] = model.cp.new_bool_var(f"group {group}")
        model.cp.add(sum(literals) == result[group])
    return result


def _duration(model: Model, event: int) -> Any:
    """Ticks of an event: a linear expression of its unit's choice, or a constant."""
    instance = model.instance
    if event < instance.n_calls:
        unit, column = instance.call_unit[event], instance.call_column[event]
        return model.weighted(
            unit, floor_units(instance.options[unit].time_s[:, column], model.tick_s)
        )
    event -= instance.n_calls
    if event < len(instance.host_s):
        return int(floor_units(instance.host_s[event], model.tick_s))
    sync = instance.syncs[event - len(instance.host_s)]
    shared, disjoint = (int(floor_units(s, model.tick_s)) for s in (sync.shared_s, sync.disjoint_s))
    if sync.trainer == sync.engine:
        return shared
    return shared + (disjoint - shared) * model.apart(sync.trainer, sync.engine)


def add_events(model: Model) -> None:
    """Start and end of each event, and the order that the data gives them."""
    cp, instance = model.cp, model.instance
    for event, duration in enumerate(model.duration):
        model.start.append(cp.new_int_var(0, model.horizon, f"start {event}"))
        model.end.append(cp.new_int_var(0, model.horizon, f"end {event}"))
        cp.add(model.end[event] == model.start[event] + duration)
    for a, b in instance.arcs:
        cp.add(model.start[b] >= model.end[a])


def _relations(model: Model) -> None:
    """What fixes a pair of meshes: the problem's rules, and different groups."""
    cp, instance = model.cp, model.instance
    for a, b in instance.pairs:
        literal = model.disjoint[a, b] = cp.new_bool_var(f"disjoint {a} {b}")
        if (a, b) in instance.apart:
            cp.add(literal == 1)
            continue
        for group, here in model.in_group[a].items():
            for other, there in model.in_group[b].items():
                if group != other:
                    cp.add_bool_or(here.negated(), there.negated(), literal)


def sharing_literals(model: Model, a: int, b: int) -> list[Any] | None:
    """Literals one of which is true iff events a and b have a device in common.

    Empty: they never do. None: they always do.
    """
    literals = []
    for x in model.instance.event_meshes[a]:
        for y in model.instance.event_meshes[b]:
            if x == y:
                return None
            literals.append(model.apart(x, y).negated())
    return literals


def add_order(model: Model) -> None:
    """Events that share a device and are not ordered by the data run one after the other."""
    cp, instance = model.cp, model.instance
    for a, b in combinations(range(len(instance.events)), 2):
        sharing = sharing_literals(model, a, b)
        if instance.ordered(a, b) or sharing == []:
            continue
        first = cp.new_bool_var(f"{a} before {b}")
        second = cp.new_bool_var(f"{b} before {a}")
        cp.add(model.start[b] >= model.end[a]).only_enforce_if(first)
        cp.add(model.start[a] >= model.end[b]).only_enforce_if(second)
        # Two calls of zero ticks must not both precede each other.
        cp.add_bool_or(first.negated(), second.negated())
        for literal in sharing or [None]:
            clause = [first, second]
            if literal is not None:
                clause.append(literal.negated())
            cp.add_bool_or(*clause)


def chosen(model: Model, value: Any) -> list[int]:
    """Rows of the chosen options, read through `value(literal)`."""
    return [
        next(i for i, literal in enumerate(literals) if value(literal)) for literals in model.pick
    ]


def forbid(model: Model, choice: Sequence[int]) -> None:
    """Exclude this combination of options."""
    model.cp.add_bool_or([model.pick[u][row].negated() for u, row in enumerate(choice)])
