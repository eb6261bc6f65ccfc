"""The files of devices and clusters as users write them; the units are in the keys."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from planner.catalog.data import build
from planner.schema import DeviceProfile, DType, Schema
from planner.schema.base import Name
from planner.schema.hardware import (
    FLOP_PER_S,
    HOST_MEMORY_BYTES,
    LINK_BYTES_PER_S,
    MAX_LATENCY_S,
    MEMORY_BYTES,
    MEMORY_BYTES_PER_S,
    Efficiency,
    NodeDevices,
    UsdPerHour,
    Watts,
)

GIB = 2**30

# The schema's bounds in the units of the files.
_Tflops = Annotated[float, Field(ge=FLOP_PER_S[0] / 1e12, le=FLOP_PER_S[1] / 1e12)]
_MemoryGib = Annotated[float, Field(ge=MEMORY_BYTES[0] / GIB, le=MEMORY_BYTES[1] / GIB)]
_MemoryTbS = Annotated[
    float, Field(ge=MEMORY_BYTES_PER_S[0] / 1e12, le=MEMORY_BYTES_PER_S[1] / 1e12)
]
_LinkGbS = Annotated[float, Field(ge=LINK_BYTES_PER_S[0] / 1e9, le=LINK_BYTES_PER_S[1] / 1e9)]
_LatencyUs = Annotated[float, Field(ge=0, le=MAX_LATENCY_S * 1e6)]
_HostGib = Annotated[float, Field(ge=HOST_MEMORY_BYTES[0] / GIB, le=HOST_MEMORY_BYTES[1] / GIB)]
_Count = Annotated[int, Field(gt=-(2**53), lt=2**53)]
"""A number that is checked with the device's name at hand."""


class TypicalNode(Schema):
    devices: NodeDevices
    host_memory_gib: _HostGib


class DeviceFile(Schema):
    """A device as its YAML file gives it; the units are in the keys."""

    id: Name
    vendor: Name
    peak_tflops: Annotated[dict[DType, _Tflops], Field(min_length=1)]
    """Dense peaks, 1e12 FLOP/s."""
    memory_gib: _MemoryGib
    """What the driver shows, 2**30 bytes."""
    memory_bandwidth_tb_s: _MemoryTbS
    scale_up_bandwidth_gb_s: _LinkGbS
    """Per direction and device, 1e9 bytes/s."""
    scale_up_domain_devices: NodeDevices
    scale_up_topology: Name
    scale_out_bandwidth_gb_s: _LinkGbS
    host_link_bandwidth_gb_s: _LinkGbS
    host: Literal["x86", "grace", "other"] = "x86"
    tdp_w: Watts | None = None
    price_usd_per_hour: UsdPerHour | tuple[UsdPerHour, UsdPerHour] | None = None
    """A price, or a quoted range [low, high] of which the middle counts."""
    memory_efficiency: Efficiency
    kernel_latency_us: _LatencyUs
    scale_up_latency_us: _LatencyUs
    scale_out_latency_us: _LatencyUs
    scale_up_efficiency: Efficiency
    scale_out_efficiency: Efficiency
    kernel_table: Name
    kernel_table_is_own: bool = True
    collective_table: Name | None = None
    typical_node: TypicalNode
    """Devices and host memory of the usual server."""
    sources: tuple[str, ...]

    @property
    def price(self) -> float | None:
        """The middle of the range, the price itself, or None."""
        price = self.price_usd_per_hour
        return sum(price) / 2 if isinstance(price, tuple) else price

    @property
    def price_text(self) -> str:
        """Where the price comes from, for the list of assumptions."""
        price = self.price_usd_per_hour
        if price is None:
            return f"price of {self.id}: none known, so no cost is given"
        text = f"price of {self.id}: {self.price:.2f} USD/h"
        if isinstance(price, tuple) and price[0] < price[1]:
            return f"{text}, middle of {price[0]:.2f}-{price[1]:.2f}"
        return f"{text} from its profile"

    @property
    def domain_spans_nodes(self) -> bool:
        """True for rack-scale systems, whose scale-up network joins several nodes."""
        return self.scale_up_domain_devices > self.typical_node.devices

    def profile(self) -> DeviceProfile:
        """The same device in SI units."""
        return build(
            DeviceProfile,
            f"device {self.id}",
            id=self.id,
            vendor=self.vendor,
            peak_flop_per_s={dtype: peak * 1e12 for dtype, peak in self.peak_tflops.items()},
            memory_bytes=round(self.memory_gib * GIB),
            memory_bandwidth_bytes_per_s=self.memory_bandwidth_tb_s * 1e12,
            scale_up_bandwidth_bytes_per_s=self.scale_up_bandwidth_gb_s * 1e9,
            scale_up_domain_devices=self.scale_up_domain_devices,
            scale_up_topology=self.scale_up_topology,
            scale_out_bandwidth_bytes_per_s=self.scale_out_bandwidth_gb_s * 1e9,
            host_link_bandwidth_bytes_per_s=self.host_link_bandwidth_gb_s * 1e9,
            host=self.host,
            tdp_w=self.tdp_w,
            price_usd_per_hour=self.price,
            memory_efficiency=self.memory_efficiency,
            kernel_latency_s=self.kernel_latency_us * 1e-6,
            scale_up_latency_s=self.scale_up_latency_us * 1e-6,
            scale_out_latency_s=self.scale_out_latency_us * 1e-6,
            scale_up_efficiency=self.scale_up_efficiency,
            scale_out_efficiency=self.scale_out_efficiency,
            kernel_table=self.kernel_table,
            kernel_table_is_own=self.kernel_table_is_own,
            collective_table=self.collective_table,
            sources=self.sources,
        )


class ClusterPreset(Schema):
    """A named cluster type: which device, and how its usual node looks."""

    device: Name
    devices_per_node: NodeDevices
    host_memory_gib: _HostGib
    network: Name
    """The usual network between nodes, in words."""
    sources: tuple[str, ...]


class GroupFile(Schema):
    name: Name | None = None
    nodes: _Count
    devices_per_node: _Count | None = None
    device: str | dict[str, Any]
    host_memory_gib: _HostGib | None = None
    price_usd_per_device_hour: UsdPerHour | None = None


class ClusterFile(Schema):
    name: Name | None = None
    groups: tuple[GroupFile, ...]
