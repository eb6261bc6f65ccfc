"""From samples to a device profile: the file that a cluster names as its device."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.catalog.data import validate
from planner.catalog.hardware_files import GIB, DeviceFile
from planner.cost.kernel_work import collective_factor
from planner.measure.bench.journal import Sample
from planner.measure.bench.points import STREAMS
from planner.schema.hardware import LINK_BYTES_PER_S, MEMORY_BYTES_PER_S

_LARGE_SHARE = 0.5
"""Messages of at least this share of the largest count for a link's rate."""
_DEFAULT_LATENCY_S = 3e-6
_EAGER_LAYER_KERNELS = 26
"""Kernels that eager torch launches in the forward pass of a gated layer (counted in `kernels`)."""


@dataclass(frozen=True)
class _Link:
    bytes_per_s: float
    efficiency: float
    latency_s: float


@dataclass(frozen=True)
class Facts:
    """What is known of the machine without measuring."""

    id: str
    name: str
    kind: str
    dtype_bytes: int
    memory_bytes: int
    host_memory_bytes: int
    node_ranks: int
    source: str
    """Date, machine, software: where the figures come from."""


@dataclass(frozen=True)
class Figure:
    """A measured figure of the machine."""

    name: str
    value: float
    unit: str
    spread: float
    """Distance between the quartiles over the median; of several samples the largest."""


def figures(samples: Mapping[str, Sample], facts: Facts) -> dict[str, Figure]:
    """Rates and latencies by name; a figure whose kernels were not measured is absent.

    Bandwidths are of real bytes, whatever the dtype.
    """
    found: dict[str, Figure] = {}

    def put(name: str, unit: str, value: float, of: list[Sample]) -> None:
        found[name] = Figure(name, value, unit, max(one.spread for one in of))

    def kernels(name: str) -> list[Sample]:
        return [one for one in samples.values() if one.point.kernel == name]

    gemms = kernels("gemm")
    if gemms:
        fastest = max(gemms, key=lambda one: _gemm_flop(one) / one.seconds)
        put("gemm_flop_per_s", "FLOP/s", _gemm_flop(fastest) / fastest.seconds, [fastest])
    streams = [one for name in STREAMS for one in kernels(name)]
    if streams:
        rates = {one.point.key: one.point.shape[0] / one.seconds for one in streams}
        put("memory_peak_bytes_per_s", "bytes/s", max(rates.values()), streams)
        usual = [one for one in streams if one.point.kernel in ("copy", "add")]
        if usual:
            rate = statistics.median(rates[one.point.key] for one in usual)
            put("memory_streaming_bytes_per_s", "bytes/s", rate, usual)
    for kernel, name in (("small_kernel", "kernel_latency_s"), ("launch", "launch_s")):
        for one in kernels(kernel):
            put(name, "s", one.seconds, [one])
    for link in ("host_to_device", "device_to_host"):
        for one in kernels(link):
            put(f"{link}_bytes_per_s", "bytes/s", one.point.shape[0] / one.seconds, [one])
    for prefix, place in (("", "scale_up"), ("across_", "scale_out")):
        found.update(_link_figures(kernels, prefix, place, facts))
    factor = _elementwise_factor(kernels, found)
    if factor is not None:
        found["elementwise_factor"] = factor
    for one in kernels("layer_elementwise"):
        if one.point.shape[0] == 1:
            put("layer_launches_s", "s", one.seconds, [one])
    if "memory_streaming_bytes_per_s" in found:
        streaming = found["memory_streaming_bytes_per_s"].value
        for one in kernels("loss"):
            tokens, vocabulary = one.point.shape
            nbytes = one.seconds * streaming / tokens / vocabulary
            put("loss_bytes_per_logit", "bytes", nbytes, [one])
    return found


def device_file(
    found: Mapping[str, Figure], facts: Facts, known: DeviceFile | None, kernel_table: str
) -> DeviceFile:
    """The profile. What cannot be measured (peaks, price, topology, a link that no second process
    was there to use) is taken from `known`, the shipped profile of the same device, or said to be
    assumed.
    """

    def value(name: str) -> float | None:
        return found[name].value if name in found else None

    assumed: list[str] = []
    streaming = value("memory_streaming_bytes_per_s") or MEMORY_BYTES_PER_S[0]
    peak = known.memory_bandwidth_tb_s * 1e12 if known else value("memory_peak_bytes_per_s")
    peak = max(peak or streaming, streaming)
    gemm = value("gemm_flop_per_s") or 1e9
    up = _measured_link(found, known, "scale_up")
    if up is None:
        up = _known_link(known, "scale_up") or _Link(streaming / 2.0, 1.0, _DEFAULT_LATENCY_S)
        origin = "from the shipped profile" if known else "half the memory's bandwidth"
        assumed.append(f"scale-up link not measured (one process): {origin}")
    out = _measured_link(found, known, "scale_out")
    if out is None:
        out = _known_link(known, "scale_out") or up
        origin = "from the shipped profile" if known else "as inside the node"
        assumed.append(f"scale-out link not measured (one node): {origin}")
    host = value("host_to_device_bytes_per_s") or streaming / 2.0
    content: dict[str, Any] = {
        "id": facts.id,
        "vendor": known.vendor if known else facts.name.split()[0].lower(),
        "peak_tflops": dict(known.peak_tflops) if known else {"bf16": gemm / 1e12},
        "memory_gib": facts.memory_bytes / GIB,
        "memory_bandwidth_tb_s": peak / 1e12,
        "scale_up_bandwidth_gb_s": up.bytes_per_s / 1e9,
        "scale_up_domain_devices": known.scale_up_domain_devices if known else facts.node_ranks,
        "scale_up_topology": known.scale_up_topology if known else "shared memory",
        "scale_out_bandwidth_gb_s": out.bytes_per_s / 1e9,
        "host_link_bandwidth_gb_s": host / 1e9,
        "host": known.host if known else "x86",
        "tdp_w": known.tdp_w if known else None,
        "price_usd_per_hour": known.price_usd_per_hour if known else None,
        "memory_efficiency": min(max(streaming / peak, 0.01), 1.0),
        "kernel_latency_us": (value("kernel_latency_s") or 3e-6) * 1e6,
        "scale_up_latency_us": up.latency_s * 1e6,
        "scale_out_latency_us": out.latency_s * 1e6,
        "scale_up_efficiency": up.efficiency,
        "scale_out_efficiency": out.efficiency,
        "kernel_table": kernel_table,
        "kernel_table_is_own": True,
        "typical_node": {
            "devices": known.typical_node.devices if known else facts.node_ranks,
            "host_memory_gib": facts.host_memory_bytes / GIB,
        },
        "sources": [facts.source, *assumed],
    }
    if facts.dtype_bytes != 2:
        content["sources"].append(
            "computed in fp32, which stands for bf16: peak and kernel table are those of fp32"
        )
    return validate(DeviceFile, content, f"measured profile {facts.id}")


def trainer_constants(found: Mapping[str, Figure]) -> dict[str, float]:
    """Constants of a framework profile that the same kernels tell, for plain eager torch."""
    constants: dict[str, float] = {}
    if "elementwise_factor" in found:
        constants["elementwise_factor"] = found["elementwise_factor"].value
    if "launch_s" in found:
        constants["layer_pass_dense_s"] = _EAGER_LAYER_KERNELS * found["launch_s"].value
    return constants


def layer_elementwise_bytes(tokens: int, hidden: int, ffn: int) -> float:
    """Bytes that the planner counts for the elementwise kernels of a layer's forward pass
    (planner/cost/layers.py: norms and residuals 10 hidden, rotary 6 hidden, activation 3 ffn)."""
    return 2.0 * tokens * (16.0 * hidden + 3.0 * ffn)


def _elementwise_factor(
    kernels: Callable[[str], list[Sample]], found: Mapping[str, Figure]
) -> Figure | None:
    """Traffic of a layer's eager elementwise kernels over fused ones', forward and backward.

    The planner prices the backward pass as twice the forward, so a third of both together counts.
    """
    both = kernels("layer_elementwise_backward")
    rate = found.get("memory_streaming_bytes_per_s")
    if not both or rate is None:
        return None
    factors = [
        one.seconds / 3.0 * rate.value / layer_elementwise_bytes(*one.point.shape) for one in both
    ]
    spread = max(one.spread for one in both)
    return Figure("elementwise_factor", statistics.median(factors), "ratio", spread)


def _link_figures(
    kernels: Callable[[str], list[Sample]], prefix: str, place: str, facts: Facts
) -> dict[str, Figure]:
    """Rate of large messages, rate that rings of large collectives reach, latency of one round."""
    found: dict[str, Figure] = {}
    pairs = kernels(f"{prefix}send_recv")
    rings = [
        one
        for kernel in ("all_reduce", "all_gather", "reduce_scatter")
        for one in kernels(prefix + kernel)
    ]
    if not pairs or not rings:
        return found
    largest = max(pairs, key=lambda one: one.point.shape[1])
    smallest = min(pairs, key=lambda one: one.point.shape[1])
    rate = largest.point.shape[1] * facts.dtype_bytes / largest.seconds
    most = max(one.point.shape[1] for one in rings)
    members = max(one.point.shape[0] for one in rings)
    large = [
        one
        for one in rings
        if one.point.shape[1] >= _LARGE_SHARE * most and one.point.shape[0] == members
    ]
    ring_rates = [
        float(collective_factor(one.point.kernel.removeprefix(prefix), members))
        * one.point.shape[1]
        * facts.dtype_bytes
        / one.seconds
        for one in large
    ]
    for name, value, unit, of in (
        (f"{place}_bytes_per_s", max(rate, *ring_rates), "bytes/s", [largest]),
        (f"{place}_collective_bytes_per_s", statistics.median(ring_rates), "bytes/s", large),
        (f"{place}_latency_s", smallest.seconds, "s", [smallest]),
    ):
        found[name] = Figure(name, value, unit, max(one.spread for one in of))
    return found


def _measured_link(
    found: Mapping[str, Figure], known: DeviceFile | None, place: str
) -> _Link | None:
    """The link at the known peak, if there is one, and at the share of it that was reached."""
    if f"{place}_bytes_per_s" not in found:
        return None
    rate = found[f"{place}_bytes_per_s"].value
    shipped = _known_link(known, place)
    peak = min(max(rate, shipped.bytes_per_s if shipped else 0.0), LINK_BYTES_PER_S[1])
    ring = found[f"{place}_collective_bytes_per_s"].value
    return _Link(peak, min(max(ring / peak, 0.01), 1.0), found[f"{place}_latency_s"].value)


def _known_link(known: DeviceFile | None, place: str) -> _Link | None:
    if known is None:
        return None
    return _Link(
        getattr(known, f"{place}_bandwidth_gb_s") * 1e9,
        getattr(known, f"{place}_efficiency"),
        getattr(known, f"{place}_latency_us") * 1e-6,
    )


def _gemm_flop(sample: Sample) -> float:
    m, n, k = sample.point.shape
    return 2.0 * m * n * k
