"""DeviceProfile and Cluster. Inside the planner: seconds, bytes, FLOP/s, bytes/s."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from planner.schema.base import Name, Schema

DType = Literal["bf16", "fp8", "fp4"]

# Bounds that no device or cluster comes near, so that a slip of the unit or of the pen is refused
# where it is given and no product of two figures leaves the range of a float.
FLOP_PER_S = (1e9, 1e18)
MEMORY_BYTES = (2**28, 2**44)
"""Memory of one device."""
MEMORY_BYTES_PER_S = (1e9, 1e15)
LINK_BYTES_PER_S = (1e6, 1e14)
HOST_MEMORY_BYTES = (2**28, 2**50)
"""Host memory of one node."""
MAX_LATENCY_S = 1.0
MAX_NODES = 100_000
"""Most nodes of one group; beyond every cluster that exists, so a larger number is a mistake."""
MAX_NODE_DEVICES = 100_000
"""Most devices of one node or scale-up domain; the largest, a TPU pod, has 9,216."""

FlopPerS = Annotated[float, Field(ge=FLOP_PER_S[0], le=FLOP_PER_S[1])]
MemoryBytes = Annotated[int, Field(ge=MEMORY_BYTES[0], le=MEMORY_BYTES[1])]
MemoryBytesPerS = Annotated[float, Field(ge=MEMORY_BYTES_PER_S[0], le=MEMORY_BYTES_PER_S[1])]
LinkBytesPerS = Annotated[float, Field(ge=LINK_BYTES_PER_S[0], le=LINK_BYTES_PER_S[1])]
HostMemoryBytes = Annotated[int, Field(ge=HOST_MEMORY_BYTES[0], le=HOST_MEMORY_BYTES[1])]
Latency = Annotated[float, Field(ge=0, le=MAX_LATENCY_S)]
Efficiency = Annotated[float, Field(ge=0.01, le=1)]
Watts = Annotated[float, Field(ge=1, le=1e5)]
UsdPerHour = Annotated[float, Field(ge=1e-4, le=1e4)]
Nodes = Annotated[int, Field(gt=0, le=MAX_NODES)]
NodeDevices = Annotated[int, Field(gt=0, le=MAX_NODE_DEVICES)]


class DeviceProfile(Schema):
    """One accelerator. Peaks are dense (no sparsity); bandwidths are per direction and device."""

    id: Name
    """Name of the profile and of its file."""
    vendor: Name
    """Maker, for example "nvidia"."""
    peak_flop_per_s: dict[DType, FlopPerS]
    """Dense peak per dtype, FLOP/s; a dtype that the device cannot run is absent."""
    memory_bytes: MemoryBytes
    """Memory that the driver shows, bytes."""
    memory_bandwidth_bytes_per_s: MemoryBytesPerS
    """Peak bandwidth of the device memory, bytes/s."""
    scale_up_bandwidth_bytes_per_s: LinkBytesPerS
    """NVLink, Infinity Fabric, ICI or PCIe inside the scale-up domain, bytes/s."""
    scale_up_domain_devices: NodeDevices
    """Devices that the scale-up network joins (8 on HGX, 72 on NVL72)."""
    scale_up_topology: Name
    """switch, mesh, torus, pcie or bridge."""
    scale_out_bandwidth_bytes_per_s: LinkBytesPerS
    """Network interface of one device to other scale-up domains, bytes/s."""
    host_link_bandwidth_bytes_per_s: LinkBytesPerS
    """PCIe or NVLink-C2C between one device and its host memory, bytes/s."""
    host: Literal["x86", "grace", "other"] = "x86"
    """Host CPU family: launch-bound phases are slower on Grace."""
    tdp_w: Watts | None = None
    """Power limit, watts; null when unknown."""
    price_usd_per_hour: UsdPerHour | None = None
    """Price of one device for one hour, the middle of the quoted range; null if none is known."""
    memory_efficiency: Efficiency
    """Share of the memory bandwidth that streaming kernels reach."""
    kernel_latency_s: Latency
    """Smallest time of one dependent kernel on the device, seconds."""
    scale_up_latency_s: Latency
    """Latency of one collective round inside the scale-up domain, seconds."""
    scale_out_latency_s: Latency
    """Latency of one collective round across domains, seconds."""
    scale_up_efficiency: Efficiency
    """Share of the scale-up bandwidth that large collectives reach."""
    scale_out_efficiency: Efficiency
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
    nodes: Nodes
    """Number of nodes."""
    devices_per_node: NodeDevices
    """Devices in each node."""
    device: DeviceProfile
    """The device type of all nodes."""
    host_memory_bytes: HostMemoryBytes
    """Host memory of one node, bytes."""
    price_usd_per_device_hour: UsdPerHour | None = None
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
