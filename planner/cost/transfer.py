"""Between the calls: new weights for the engine, and what a step costs whatever it does."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.cost.collectives import scale_up_rate
from planner.cost.kernel_work import DTYPE_BYTES
from planner.cost.parameters import count_parameters
from planner.cost.shapes import attention_gemms, moe_layers, up_matrices
from planner.schema import Cluster, DType, FrameworkProfile, ModelSpec, Workload

_NORMS_PER_LAYER = 2
_ENDS = 3
"""Embedding, final norm and head."""


@dataclass(frozen=True)
class SyncRoute:
    """The way of new weights to an engine on other devices."""

    link_bytes_per_s: float
    """One device's slowest link on the way, one direction, line rate."""
    devices: int
    """Devices that take part, trainers and engines together."""
    within_domain: bool
    """All of them stand in one scale-up domain."""


def sync_route(cluster: Cluster) -> SyncRoute:
    """The way between any two device ranges of a cluster: its slowest link decides."""
    groups = cluster.groups
    devices = sum(group.devices for group in groups)
    if len(groups) == 1 and devices <= groups[0].device.scale_up_domain_devices:
        link = groups[0].device.scale_up_bandwidth_bytes_per_s
        return SyncRoute(link, devices, within_domain=True)
    link = min(group.device.scale_out_bandwidth_bytes_per_s for group in groups)
    return SyncRoute(link, devices, within_domain=False)


def weight_sync_s(
    model: ModelSpec, framework: FrameworkProfile, dtype: DType, route: SyncRoute | None
) -> float:
    """Seconds from the trainer's new weights until the engine decodes with them.

    `route` None: trainer and engine use the same devices; a fixed part (waking the engine,
    agreeing on buffers) and a part by bytes. On other devices the bytes cross one device's link
    some number of times, since published times follow the link and the model and not the number
    of devices: pipeline stages and experts are gathered, then sent. Mechanisms that send tensor
    by tensor pay for each, and for each level of a broadcast tree over the devices.
    `dtype` is that of the weights sent; the constants are the framework profile's `refit_*`.
    """
    nbytes = count_parameters(model).total * DTYPE_BYTES[dtype]
    if route is None:
        fixed = framework.value("refit_shared_fixed_s")
        return fixed + framework.value("refit_shared_s_per_byte") * nbytes
    fixed = framework.value("refit_disjoint_fixed_s")
    passes = framework.value("refit_link_passes")
    if route.within_domain:
        passes = _value(framework, "refit_domain_passes", passes)
    hops = math.ceil(math.log2(route.devices)) * _value(framework, "refit_tensor_hop_s", 0.0)
    tensor_s = _value(framework, "refit_per_tensor_s", 0.0) + hops
    return fixed + passes * nbytes / route.link_bytes_per_s + tensor_s * weight_tensors(model)


def whole_copy_s(model: ModelSpec, cluster: Cluster, dtype: DType) -> float:
    """Seconds in which one device receives all weights of a model over its scale-up links."""
    nbytes = count_parameters(model).total * DTYPE_BYTES[dtype]
    return max(nbytes / scale_up_rate(group.device) for group in cluster.groups)


def _value(framework: FrameworkProfile, name: str, absent: float) -> float:
    """A constant that only some mechanisms have."""
    return framework.value(name) if name in framework.constants else absent


def weight_tensors(model: ModelSpec) -> int:
    """Weight tensors that a trainer names one by one: every expert has its own."""
    matrices = up_matrices(model) + 1
    per_layer = len(attention_gemms(model, 1)) + _NORMS_PER_LAYER
    experts = moe_layers(model)
    count = model.num_layers * per_layer + (model.num_layers - experts) * matrices + _ENDS
    if model.moe is not None:
        shared = matrices if model.moe.shared_ffn_size else 0
        count += experts * (model.moe.num_experts * matrices + shared + 1)
    return count


def step_fixed_s(workload: Workload, framework: FrameworkProfile) -> float:
    """Seconds of every step that no call accounts for: data loading, batching, logging."""
    per_sequence = framework.value("step_per_sequence_s") * workload.sequences_per_step
    return framework.value("step_fixed_s") + per_sequence
