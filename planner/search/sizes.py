"""Sizes: how many devices of each node group a plan may use; sub-clusters of the usual sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import numpy as np

from planner.schema import Cluster, NodeGroup, SearchSpace
from planner.search.problem import PlacementProblem

Size = tuple[int, ...]
"""Devices of each node group of the cluster, in its order."""

# Up to here every number of nodes is a usual size; beyond, and with several groups, 2^i, 3 x 2^i.
_ALL_NODE_COUNTS_UP_TO = 16


def whole(cluster: Cluster) -> Size:
    """All devices."""
    return tuple(group.devices for group in cluster.groups)


def usual_sizes(cluster: Cluster, space: SearchSpace, most: int | None = None) -> list[Size]:
    """Sub-clusters worth considering, with at most `most` devices, fewest devices first.

    Of one group: every number of nodes up to 16, in larger groups 2^i, 3 x 2^i and all; parts of a
    node where the space has meshes inside nodes. Of several groups all combinations of none, 2^i,
    3 x 2^i and all. The largest numbers of nodes that `most` allows always belong to them.
    """
    most = cluster.devices if most is None else most
    per_group = [_group_sizes(group, space, len(cluster.groups) > 1) for group in cluster.groups]
    found = {size for size in product(*per_group) if 0 < sum(size) <= most}
    for size in list(product(*per_group)):
        for index, group in enumerate(cluster.groups):
            left = most - (sum(size) - size[index])
            fill = min(group.devices, _largest(group, space, left))
            filled = (*size[:index], fill, *size[index + 1 :])
            if fill > 0 and sum(filled) <= most:
                found.add(filled)
    return sorted(found, key=lambda size: (sum(size), size))


def _largest(group: NodeGroup, space: SearchSpace, most: int) -> int:
    """Most devices of the group, up to `most`, that a sub-cluster may have."""
    if group.nodes == 1:
        return max(0, min(most, group.devices_per_node))
    nodes = most // group.devices_per_node
    if nodes == 0 and space.sub_node_meshes:
        return max((size for size in _inside(group) if size <= most), default=0)
    return max(0, nodes) * group.devices_per_node


def _inside(group: NodeGroup) -> list[int]:
    per_node = group.devices_per_node
    return [1 << i for i in range(per_node.bit_length()) if (1 << i) < per_node]


def _group_sizes(group: NodeGroup, space: SearchSpace, several: bool) -> list[int]:
    per_node = group.devices_per_node
    if group.nodes == 1:
        sizes = _counts(per_node, several)
    else:
        sizes = [count * per_node for count in _counts(group.nodes, several)]
        if space.sub_node_meshes and not several:
            sizes = [*_inside(group), *sizes]
    return [0, *sizes] if several else sizes


def _counts(most: int, few: bool) -> list[int]:
    if most <= _ALL_NODE_COUNTS_UP_TO and not few:
        return list(range(1, most + 1))
    powers = [1 << i for i in range(most.bit_length())]
    return sorted({n for n in (*powers, *(3 * p for p in powers), most) if n <= most})


def check_sizes(cluster: Cluster, sizes: Iterable[int | Size]) -> list[Size]:
    """Sizes as a caller gives them, each a number of devices (one group) or of each group.

    Raises ValueError saying which size is not one of this cluster.
    """
    groups = len(cluster.groups)
    found: list[Size] = []
    for given in sizes:
        size = (given,) if isinstance(given, int) else tuple(given)
        if len(size) != groups:
            raise ValueError(f"{given} names {len(size)} numbers for {groups} node groups")
        if any(n < 0 for n in size) or sum(size) < 1:
            raise ValueError(f"{given} is no number of devices")
        for n, group in zip(size, cluster.groups, strict=True):
            if n > group.devices:
                raise ValueError(f"{n} devices are more than the {group.devices} of {group.name}")
            if group.nodes > 1 and n > group.devices_per_node and n % group.devices_per_node:
                raise ValueError(
                    f"{n} devices are not whole nodes of {group.devices_per_node} devices"
                )
        found.append(size)
    return sorted(set(found), key=lambda size: (sum(size), size))


def contains(large: Size, small: Size) -> bool:
    """Whether a sub-cluster of the size `large` has one of the size `small` in it."""
    return all(a >= b for a, b in zip(large, small, strict=True))


def on_size(problem: PlacementProblem, size: Size) -> PlacementProblem:
    """The same problem with fewer devices; the options are those priced for the whole cluster."""
    unused = [group for group, devices in enumerate(size) if devices == 0]
    units = problem.units
    if unused:
        # A group without devices keeps its number (areas are divided by it) but has no option.
        units = tuple(
            replace(
                unit,
                time_s=np.where(np.isin(unit.group, unused)[:, None], math.inf, unit.time_s),
            )
            for unit in units
        )
    return replace(
        problem,
        units=units,
        group_devices=tuple(
            devices or have for devices, have in zip(size, problem.group_devices, strict=True)
        ),
    )


def in_words(size: Size, cluster: Cluster) -> str:
    """For example "24", or "16 h100-80-sxm + 8 a100-80-sxm" when there are several groups."""
    if len(size) == 1:
        return str(size[0])
    return " + ".join(
        f"{devices} {group.name}"
        for devices, group in zip(size, cluster.groups, strict=True)
        if devices
    )
