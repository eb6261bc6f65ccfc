"""DeviceProfile and Cluster. Inside the planner: seconds, bytes, FLOP/s, bytes/s."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from planner.schema.base import (
    Fraction,
    Name,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Schema,
)

DType = Literal["bf16", "fp8", "fp4"]


class DeviceProfile(Schema):
    """One accelerator. Peaks are dense (no sparsity); bandwidths are per direction and device."""

    id: Name
    """Name of the profile and of its file."""
    vendor: Name
    """Maker, for example "nvidia"."""
    peak_flop_per_s: dict[DType, PositiveFloat]
    """Dense peak per dtype, FLOP/s; a dtype that the device cannot run is absent."""
    memory_bytes: PositiveInt
    """Memory that the driver shows, bytes."""
    memory_bandwidth_bytes_per_s: PositiveFloat
    """Peak bandwidth of the device memory, bytes/s."""
    scale_up_bandwidth_bytes_per_s: PositiveFloat
    """NVLink, Infinity Fabric, ICI or PCIe inside the scale-up domain, bytes/s."""
    scale_up_domain_devices: PositiveInt
    """Devices that the scale-up network joins (8 on HGX, 72 on NVL72)."""
    scale_up_topology: Name
    """switch, mesh, torus, pcie or bridge."""
    scale_out_bandwidth_bytes_per_s: PositiveFloat
    """Network interface of one device to other scale-up domains, bytes/s."""
    host_link_bandwidth_bytes_per_s: PositiveFloat
    """PCIe or NVLink-C2C between one device and its host memory, bytes/s."""
    host: Literal["x86", "grace", "other"] = "x86"
    """Host CPU family: launch-bound phases are slower on Grace."""
    tdp_w: PositiveFloat | None = None
    """Power limit, watts; null when unknown."""
    price_usd_per_hour: PositiveFloat | None = None
    """Price of one device for one hour, the middle of the quoted range; null if none is known."""
    memory_efficiency: Fraction
    """Share of the memory bandwidth that streaming kernels reach."""
    kernel_latency_s: NonNegativeFloat
    """Smallest time of one dependent kernel on the device, seconds."""
    scale_up_latency_s: NonNegativeFloat
    """Latency of one collective round inside the scale-up domain, seconds."""
    scale_out_latency_s: NonNegativeFloat
    """Latency of one collective round across domains, seconds."""
    scale_up_efficiency: Fraction
    """Share of the scale-up bandwidth that large collectives reach."""
    scale_out_efficiency: Fraction
    """Share of the scale-out bandwidth that large collectives reach."""
    kernel_table: Name
    """Name of the measured kernel table that this device uses (its own or the nearest device's)."""
    kernel_table_is_own: bool = True
    """False when the table was measured on another device and efficiencies are carried over;
    the plan's uncertainty is wider then."""
    collective_table: Name | None = None
    """Table of the measured collectives if another than `kernel_table`: PCIe devices whose kernel
    efficiencies come from a device with NVLink. Null: the same table."""
    sources: tuple[str, ...]
    """Where the figures come from."""


class NodeGroup(Schema):
    """Equal nodes of one device type."""

    name: Name
    """Unique within the cluster; meshes refer to it."""
    nodes: PositiveInt
    """Number of nodes."""
    devices_per_node: PositiveInt
    """Devices in each node."""
    device: DeviceProfile
    """The device type of all nodes."""
    host_memory_bytes: PositiveInt
    """Host memory of one node, bytes."""
    price_usd_per_device_hour: PositiveFloat | None = None
    """Price of one device for one hour; the device profile's when null."""

    @property
    def devices(self) -> int:
        """Number of devices in the group."""
        return self.nodes * self.devices_per_node


class Cluster(Schema):
    """The devices that a plan may use."""

    name: Name
    """The name shown in plans."""
    groups: tuple[NodeGroup, ...]
    """One group for each kind of node, at least one."""
    assumptions: tuple[str, ...] = ()
    """What was assumed because the user did not say it; printed with every plan."""

    @model_validator(mode="after")
    def _names_unique(self) -> Self:
        if not self.groups:
            raise ValueError("a cluster needs at least one node group")
        names = [group.name for group in self.groups]
        if len(set(names)) != len(names):
            raise ValueError(f"node group names must differ, given {names}")
        return self

    @property
    def devices(self) -> int:
        """Number of devices in all groups."""
        return sum(group.devices for group in self.groups)

    def group(self, name: str) -> NodeGroup:
        """The node group called `name`; KeyError if there is none."""
        for group in self.groups:
            if group.name == name:
                return group
        raise KeyError(name)
