"""Changes of one quantity of the hardware or the workload: what a plan's time may depend on."""

from __future__ import annotations

from dataclasses import dataclass

from planner.schema import Cluster, DeviceProfile, Workload
from planner.workload.algorithms import build_graph
from planner.workload.environment import pool_s


@dataclass(frozen=True)
class Change:
    """A workload and a cluster with one quantity changed."""

    words: str
    """For example "device memory bandwidth x 2"."""
    workload: Workload
    cluster: Cluster


_HARDWARE: tuple[tuple[str, dict[str, float]], ...] = (
    ("peak FLOP/s x 2", {"peak_flop_per_s": 2.0}),
    ("device memory bandwidth x 2", {"memory_bandwidth_bytes_per_s": 2.0}),
    ("scale-up bandwidth x 2", {"scale_up_bandwidth_bytes_per_s": 2.0}),
    ("scale-out bandwidth x 2", {"scale_out_bandwidth_bytes_per_s": 2.0}),
    ("host link x 2", {"host_link_bandwidth_bytes_per_s": 2.0}),
    (
        "kernel and network latency / 2",
        {"kernel_latency_s": 0.5, "scale_up_latency_s": 0.5, "scale_out_latency_s": 0.5},
    ),
)
_MORE_MEMORY = 1.2


def same_plan_changes(workload: Workload, cluster: Cluster) -> list[Change]:
    """Changes under which a plan can run as it is: faster hardware, shorter responses."""
    found = [
        Change(words, workload, _with_devices(cluster, factors)) for words, factors in _HARDWARE
    ]
    response = workload.response_length
    if response.kind != "histogram" and response.max_tokens > 1:
        half = response.model_copy(
            update={
                "mean_tokens": max(1.0, response.mean_tokens / 2),
                "max_tokens": max(1, response.max_tokens // 2),
            }
        )
        shorter = workload.model_copy(update={"response_length": half})
        found.append(Change("responses half as long", shorter, cluster))
    waits = any(
        attributes["call"].kind == "environment"
        for _, attributes in build_graph(workload).nodes(data=True)
    )
    if waits and pool_s(workload) > 0:
        spec = workload.environment
        fast = spec.model_copy(update={"latency_s": spec.latency_s / 2})
        workload = workload.model_copy(update={"environment": fast})
        found.append(Change("environment latency / 2", workload, cluster))
    return found


def new_plan_changes(workload: Workload, cluster: Cluster) -> list[Change]:
    """Changes that only a new plan can use: more memory, more devices, another staleness."""
    found = [
        Change(
            "device memory + 20 %", workload, _with_devices(cluster, {"memory_bytes": _MORE_MEMORY})
        ),
        Change("twice the nodes", workload, _times_nodes(cluster, 2)),
    ]
    if all(group.nodes % 2 == 0 for group in cluster.groups):
        found.append(Change("half the nodes", workload, _times_nodes(cluster, 0.5)))
    levels = {0, 1, workload.max_staleness + 1} - {workload.max_staleness}
    for level in sorted(levels):
        words = "fresh samples only (staleness 0)" if level == 0 else f"staleness up to {level}"
        staler = workload.model_copy(update={"max_staleness": level})
        found.append(Change(words, staler, cluster))
    return found


def _times_nodes(cluster: Cluster, factor: float) -> Cluster:
    groups = tuple(
        group.model_copy(update={"nodes": round(group.nodes * factor)}) for group in cluster.groups
    )
    return cluster.model_copy(update={"groups": groups})


def _with_devices(cluster: Cluster, factors: dict[str, float]) -> Cluster:
    groups = tuple(
        group.model_copy(update={"device": _scaled(group.device, factors)})
        for group in cluster.groups
    )
    return cluster.model_copy(update={"groups": groups})


def _scaled(device: DeviceProfile, factors: dict[str, float]) -> DeviceProfile:
    changes: dict[str, object] = {}
    for name, factor in factors.items():
        value = getattr(device, name)
        if isinstance(value, dict):
            changes[name] = {dtype: peak * factor for dtype, peak in value.items()}
        else:
            changes[name] = round(value * factor) if isinstance(value, int) else value * factor
    return device.model_copy(update=changes)
