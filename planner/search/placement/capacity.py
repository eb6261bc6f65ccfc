"""Capacity: pairwise disjoint meshes take the sum of their devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.search.placement.relations import capacity_sets
from planner.search.placement.relative import Model


def add_capacity(model: Model, more: Mapping[int, Any] | None = None) -> None:
    """Every set of pairwise disjoint meshes fits in each group, and every cycle of five disjoint
    pairs in two layers of it (see `relations`).

    A set whose smallest members already exceed the group becomes a clause. `more` adds devices to
    groups.
    """
    instance = model.instance
    for group, devices in enumerate(instance.group_devices):
        smallest, largest = _extremes(model, group)
        impossible: list[set[tuple[int, int]]] = []
        for subset, pairs, layers in capacity_sets(len(instance.meshes)):
            if sum(largest[m] for m in subset) <= layers * devices:
                continue
            if any(known <= set(pairs) for known in impossible):
                continue
            literals = [model.disjoint[pair] for pair in pairs]
            extra = (more or {}).get(group)
            if extra is None and sum(smallest[m] for m in subset) > layers * devices:
                model.cp.add_bool_or([literal.negated() for literal in literals])
                impossible.append(set(pairs))
                continue
            total = sum(model.size(m, group) for m in subset)
            limit = layers * devices if extra is None else layers * (devices + extra)
            model.cp.add(total <= limit).only_enforce_if(literals)


def _extremes(model: Model, group: int) -> tuple[list[int], list[int]]:
    """Smallest and largest number of devices of each mesh in a group; 0 if it can lie elsewhere."""
    smallest, largest = [], []
    for members in model.instance.meshes:
        rows = model.instance.options[members[0]]
        inside = rows.devices[rows.group == group]
        smallest.append(int(inside.min()) if len(inside) == len(rows) else 0)
        largest.append(int(inside.max(initial=0)))
    return smallest, largest
