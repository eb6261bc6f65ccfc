"""A measured machine against a known profile of the same device: is it slower than it should be?"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from planner.catalog.hardware import list_devices
from planner.cost.kernels import COLLECTIVES, KernelTable
from planner.measure.bench.journal import Sample
from planner.measure.bench.profile import Figure
from planner.measure.bench.table import WORD_BYTES
from planner.schema import DeviceProfile

_STEADY_SPREAD = 0.25
"""Quartiles of a quiet machine lie closer together than this share of the median."""
_RANK_LAG = 1.10
"""A device this much slower than the median device is reported."""
_LARGE_ROOFLINE = 10.0
"""Kernels of this many kernel latencies tell about rates, shorter ones about launches."""

# How much slower than the profile is worth a warning, and what to look at. Shipped tables hold the
# fastest engine's attention at each shape, which torch's own does not reach.
_LIMITS: dict[str, tuple[float, str]] = {
    "matrix products": (
        1.15,
        "a throttled clock (power or temperature limit) or other work on the device: "
        "nvidia-smi -q -d CLOCK,PERFORMANCE,POWER",
    ),
    "prefill attention": (1.5, "an old torch, or a throttled clock"),
    "decode attention": (1.5, "an old torch, or slow memory"),
    "memory bandwidth": (1.15, "other work on the device, or memory at a lower clock"),
    "kernel latency": (2.0, "a busy host or a low host clock"),
    "host link": (
        1.35,
        "a PCIe link with fewer lanes or of a lower generation: nvidia-smi -q -d PCIE; "
        "on two sockets, a process bound to the wrong one",
    ),
    "collectives": (
        1.3,
        "a link that is down or not used: nvidia-smi topo -m, nvidia-smi nvlink -s, "
        "NCCL_DEBUG=INFO",
    ),
    "network": (1.35, "a port at a lower rate, or no RDMA: NCCL_DEBUG=INFO, ibstat"),
}

# Names that drivers give (lower case), and what else must hold.
_NAMES: tuple[tuple[str, str], ...] = (
    ("h200", "h200-141-sxm"),
    ("h100 nvl", "h100-94-nvl"),
    ("h100 pcie", "h100-80-pcie"),
    ("h100 80gb hbm3", "h100-80-sxm"),
    ("h800", "h800-80-sxm"),
    ("h20", "h20-96"),
    ("gb300", "gb300-nvl72"),
    ("gb200", "gb200-nvl72"),
    ("b300", "b300-sxm"),
    ("b200", "b200-sxm"),
    ("a100-sxm4-40gb", "a100-40-sxm"),
    ("a100-pcie-40gb", "a100-40-pcie"),
    ("a100-sxm4-80gb", "a100-80-sxm"),
    ("a100 80gb pcie", "a100-80-pcie"),
    ("a800", "a800-80-sxm"),
    ("l40s", "l40s-48"),
    ("rtx a6000", "a6000-48"),
    ("rtx 4090", "rtx4090-24"),
    ("rtx pro 6000", "rtx-pro-6000-server"),
    ("mi355x", "mi355x"),
    ("mi350x", "mi350x"),
    ("mi325x", "mi325x"),
    ("mi300x", "mi300x"),
    ("mi250x", "mi250x"),
)


@dataclass(frozen=True)
class Comparison:
    """One group of kernels, or one figure, against the profile."""

    name: str
    slowdown: float
    """Measured over expected time (median over the group)."""
    points: int
    limit: float
    advice: str

    @property
    def is_slow(self) -> bool:
        """True when the machine is slower than it should be."""
        return self.slowdown > self.limit

    @property
    def text(self) -> str:
        """One line for people."""
        line = f"{self.name}: {self.slowdown:.2f} x the profile's time"
        return f"{line}; look for {self.advice}" if self.is_slow else line


def recognised(name: str) -> str | None:
    """The id of the shipped device with this driver's name, or None."""
    lower = name.lower()
    known = list_devices()
    return next((device for text, device in _NAMES if text in lower and device in known), None)


def compare(
    samples: Iterable[Sample],
    found: Mapping[str, Figure],
    table: KernelTable,
    device: DeviceProfile,
) -> list[Comparison]:
    """The measured kernels and figures against the profile's, those that both have."""
    listed = list(samples)
    result: list[Comparison] = []

    def put(name: str, ratios: list[float]) -> None:
        if ratios:
            limit, advice = _LIMITS[name]
            result.append(Comparison(name, statistics.median(ratios), len(ratios), limit, advice))

    for name, kernels in (
        ("matrix products", ("gemm",)),
        ("prefill attention", ("prefill",)),
        ("decode attention", ("decode",)),
        ("collectives", COLLECTIVES),
    ):
        chosen = [one for one in listed if one.point.kernel in kernels]
        if name == "collectives":
            # Beyond the profile's domain its table says nothing of this link.
            domain = device.scale_up_domain_devices
            chosen = [one for one in chosen if one.point.shape[0] <= domain]
        pairs = [(one.seconds, expected_s(table, one)) for one in chosen]
        least = _LARGE_ROOFLINE * device.kernel_latency_s
        put(name, [seconds / expected for seconds, expected in pairs if expected > least])
    expected_rates = {
        "memory bandwidth": (
            "memory_streaming_bytes_per_s",
            device.memory_bandwidth_bytes_per_s * device.memory_efficiency,
        ),
        "host link": ("host_to_device_bytes_per_s", device.host_link_bandwidth_bytes_per_s),
        "network": (
            "scale_out_collective_bytes_per_s",
            device.scale_out_bandwidth_bytes_per_s * device.scale_out_efficiency,
        ),
    }
    for name, (figure, rate) in expected_rates.items():
        put(name, [rate / found[figure].value] if figure in found else [])
    if "kernel_latency_s" in found:
        put("kernel latency", [found["kernel_latency_s"].value / device.kernel_latency_s])
    return result


def expected_s(table: KernelTable, sample: Sample) -> float:
    """The table's time for a measured kernel, seconds."""
    kernel, shape = sample.point.kernel, sample.point.shape
    if kernel == "gemm":
        m, n, k = shape
        return float(table.gemm_s(m, n, k))
    if kernel == "prefill":
        head_dim, tokens, rows, group = shape
        heads = max(rows, group)
        return float(table.prefill_attention_s(1, tokens, heads, max(heads // group, 1), head_dim))
    if kernel == "decode":
        head_dim, context, rows, group = shape
        return float(table.decode_attention_s(rows, context, group, 1, head_dim))
    kind = next(one for one in COLLECTIVES if one == kernel)
    return float(table.collective_s(kind, shape[0], shape[1] * WORD_BYTES))


def warnings(samples: Iterable[Sample]) -> list[str]:
    """What the samples themselves say: unsteady times, and one device slower than the others."""
    listed = list(samples)
    found: list[str] = []
    spreads = [one.spread for one in listed]
    if spreads and statistics.median(spreads) > _STEADY_SPREAD:
        found.append(
            f"times vary by {100 * statistics.median(spreads):.0f} % between their quartiles: "
            "other work runs on the machine; measure again when it is quiet"
        )
    alone = [one for one in listed if not one.point.is_collective and len(one.rank_s) > 1]
    for name, kernels in (
        ("matrix products", ("gemm",)),
        ("memory", ("copy", "add", "read")),
        ("host link", ("host_to_device", "device_to_host")),
    ):
        rows = np.array([one.rank_s for one in alone if one.point.kernel in kernels])
        if not rows.size:
            continue
        lag = np.median(rows / np.median(rows, axis=1, keepdims=True), axis=0)
        found += [
            f"rank {rank}: {name} {one:.2f} x the time of the median device"
            for rank, one in enumerate(lag)
            if one > _RANK_LAG
        ]
    return found
