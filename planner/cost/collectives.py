"""Collectives over process groups that lie inside a scale-up domain or across several.

Ranks are numbered tensor-parallel fastest, then context, data and pipeline, as Megatron does. A
group of n ranks at a stride of s devices has min(n, domain / s) members in each domain. The rate
of a group is that of its slowest link per member: the scale-up link inside, the members' own
network interfaces together across (arXiv:2104.04473 section 5.9; NCCL rings and trees).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import FloatArray
from planner.cost.context import CallContext
from planner.cost.distinct import distinct
from planner.cost.kernels import Collective
from planner.schema import DeviceProfile, MoESpec


@dataclass(frozen=True)
class RankGroup:
    """Process groups of u strategies; arrays of shape [u]."""

    members: FloatArray
    inner: FloatArray
    """Members in one scale-up domain."""
    outer: FloatArray
    """Domains that the group spans."""


def rank_group(device: DeviceProfile, members: npt.ArrayLike, stride: npt.ArrayLike) -> RankGroup:
    """The group of `members` ranks, `stride` devices apart."""
    count = np.asarray(members, dtype=np.float64)
    room = np.floor(device.scale_up_domain_devices / np.asarray(stride, dtype=np.float64))
    inner = np.minimum(count, np.maximum(room, 1.0))
    return RankGroup(members=count, inner=inner, outer=np.ceil(count / inner))


def scale_up_rate(device: DeviceProfile) -> float:
    """Bytes/s of one device inside the domain that large collectives reach."""
    return device.scale_up_bandwidth_bytes_per_s * device.scale_up_efficiency


def scale_out_rate(device: DeviceProfile) -> float:
    """Bytes/s of one device's network interface that large collectives reach."""
    return device.scale_out_bandwidth_bytes_per_s * device.scale_out_efficiency


def link_rate(device: DeviceProfile, group: RankGroup) -> FloatArray:
    """Bytes/s at which a ring over the group moves data past each member, shape [u]."""
    across = np.minimum(scale_up_rate(device), scale_out_rate(device) * group.inner)
    return np.where(group.outer > 1.0, across, scale_up_rate(device))


def latency_s(device: DeviceProfile, group: RankGroup) -> FloatArray:
    """Start-up time of one collective: a tree over the domains and one inside, shape [u]."""
    inside = device.scale_up_latency_s * np.ceil(np.log2(group.inner))
    across = device.scale_out_latency_s * np.ceil(np.log2(group.outer))
    return np.where(group.members > 1.0, inside + across, 0.0)


def ring_s(
    device: DeviceProfile,
    group: RankGroup,
    nbytes: npt.ArrayLike,
    calls: npt.ArrayLike = 1.0,
) -> FloatArray:
    """All-gather or reduce-scatter whose full buffer is `nbytes` in `calls` pieces, shape [u].

    (n - 1) / n x bytes / rate + calls x latency; an all-reduce is two of them.
    """
    share = (group.members - 1.0) / group.members
    moving = share * np.asarray(nbytes, dtype=np.float64) / link_rate(device, group)
    return np.asarray(moving + np.asarray(calls) * latency_s(device, group))


def table_or_ring_s(
    context: CallContext, kind: Collective, group: RankGroup, nbytes: FloatArray
) -> FloatArray:
    """A collective on the critical path of a layer: measured inside a domain, a ring across.

    `nbytes` is the full buffer; shape [u].
    """
    device = context.group.device
    first, inverse = distinct(group.members, group.outer, nbytes)
    members, size = group.members[first], nbytes[first]
    inside = (group.outer[first] == 1.0) & (members > 1.0)
    piece = RankGroup(members, group.inner[first], group.outer[first])
    passes = 2.0 if kind == "all_reduce" else 1.0
    seconds = passes * ring_s(device, piece, size)
    if inside.any():
        seconds[inside] = context.kernels.collective_s(
            kind, members[inside].astype(np.int64), size[inside]
        )
    return np.asarray(seconds[inverse])


def expert_exchange_s(
    context: CallContext,
    group: RankGroup,
    tokens: FloatArray,
    moe: MoESpec,
    token_bytes: float,
    exposed_share_across: float,
) -> FloatArray:
    """Dispatch (or combine) of the routed tokens of one layer, shape [u].

    Inside a domain every one of the top-k copies travels; across domains a token goes once to
    each *domain* that holds one of its experts (routing taken as uniform), as node-aware
    dispatchers do; where a token's experts lie in some groups only, to no more domains than hold
    those (DeepSeek-V3, arXiv:2412.19437 section 2.1.2). Of the time across,
    `exposed_share_across` is not hidden.
    """
    device = context.group.device
    copies = tokens * moe.top_k * token_bytes
    local = RankGroup(group.inner, group.inner, np.ones_like(group.inner))
    inside = table_or_ring_s(context, "all_to_all", local, copies)
    hit = group.outer * (1.0 - (1.0 - 1.0 / group.outer) ** moe.top_k)
    if moe.expert_groups > 1:
        spread = np.maximum(group.outer / moe.expert_groups, 1.0)
        hit = np.minimum(hit, moe.groups_per_token * spread)
    leaving = tokens * token_bytes * hit * (group.outer - 1.0) / group.outer
    across = leaving / scale_out_rate(device) * exposed_share_across
    across += np.where(group.outer > 1.0, latency_s(device, group), 0.0)
    return np.asarray(inside + across)
