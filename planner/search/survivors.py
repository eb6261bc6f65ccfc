"""What is left of a cluster, and where an old mesh lies in it.

Nodes of a group are numbered from 0 without holes, so the nodes behind a lost one move up: node n
of the old cluster becomes n less the lost nodes before it. A mesh that holds no lost node keeps
its devices and stays contiguous; a mesh that holds one is broken. The network is taken to be the
same between any two nodes of a group, as everywhere in the planner.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.errors import InputError
from planner.schema import Cluster, Mesh


@dataclass(frozen=True)
class Survivors:
    """The new cluster and how the old one's nodes are found in it."""

    old: Cluster
    new: Cluster
    lost: Mapping[str, tuple[int, ...]]
    """Group -> numbers of the nodes that are gone, ascending; all of a group that is gone."""

    @property
    def lost_devices(self) -> int:
        """Devices of the lost nodes."""
        return sum(
            len(nodes) * self.old.group(group).devices_per_node
            for group, nodes in self.lost.items()
        )

    def mesh(self, mesh: Mesh) -> Mesh | None:
        """The old mesh in the new numbers; None when it holds a lost node."""
        lost = self.lost.get(mesh.group, ())
        before = bisect_left(lost, mesh.first_node)
        if before < len(lost) and lost[before] < mesh.first_node + mesh.nodes:
            return None
        return mesh.model_copy(update={"first_node": mesh.first_node - before})

    def old_nodes(self, group: str) -> npt.NDArray[np.int64]:
        """For each node of a group of the new cluster its old number; -1 for a new node."""
        nodes = self.new.group(group).nodes
        known = next((each.nodes for each in self.old.groups if each.name == group), 0)
        left = np.setdiff1d(np.arange(known, dtype=np.int64), self.lost.get(group, ()))
        result = np.full(nodes, -1, dtype=np.int64)
        result[: len(left)] = left[:nodes]
        return result


def without_nodes(cluster: Cluster, lost: Mapping[str, Sequence[int]]) -> Survivors:
    """The cluster without some nodes: group -> their numbers.

    Raises InputError for an unknown group or node, and when nothing is left.
    """
    groups = {group.name: group for group in cluster.groups}
    clean: dict[str, tuple[int, ...]] = {}
    for name, nodes in lost.items():
        if name not in groups:
            raise InputError(
                f"unknown node group {name!r}",
                where="without_nodes",
                remedy=f"The cluster has {', '.join(sorted(groups))}",
            )
        for node in nodes:
            if not 0 <= node < groups[name].nodes:
                raise InputError(
                    f"group {name} has no node {node}",
                    where="without_nodes",
                    remedy=f"Its nodes are 0 to {groups[name].nodes - 1}",
                )
        if nodes:
            clean[name] = tuple(sorted(set(nodes)))
    left = tuple(
        group.model_copy(update={"nodes": group.nodes - len(clean.get(group.name, ()))})
        for group in cluster.groups
        if len(clean.get(group.name, ())) < group.nodes
    )
    if not left:
        raise InputError("no node is left", where="without_nodes")
    new = cluster.model_copy(update={"groups": left}) if clean else cluster
    return Survivors(cluster, new, clean)


def on_cluster(old: Cluster, new: Cluster) -> Survivors:
    """Another cluster with groups of the same names: of a smaller group the last nodes are lost,
    of a larger one the last are new.

    Raises InputError when a group changes its devices.
    """
    lost: dict[str, tuple[int, ...]] = {}
    known = {group.name: group for group in new.groups}
    for group in old.groups:
        now = known.get(group.name)
        if now is not None and (
            now.device.id != group.device.id or now.devices_per_node != group.devices_per_node
        ):
            raise InputError(
                f"group {group.name} had nodes of {group.devices_per_node} {group.device.id}, and "
                f"now of {now.devices_per_node} {now.device.id}",
                where="cluster",
                remedy="Give a group of other devices another name",
            )
        left = 0 if now is None else now.nodes
        if left < group.nodes:
            lost[group.name] = tuple(range(left, group.nodes))
    return Survivors(old, new, lost)
