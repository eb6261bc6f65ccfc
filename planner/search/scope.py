"""The class of plans under consideration."""

from __future__ import annotations

from dataclasses import dataclass

from planner.cost.memory import usable_bytes
from planner.cost.rule_values import Placement
from planner.schema import DeviceProfile, FrameworkProfile, NodeGroup, SearchSpace


@dataclass(frozen=True)
class Scope:
    """The class of plans under consideration; launchers' rules may depend on it."""

    space: SearchSpace
    placement: Placement
    staleness: int
    memory_share: float = 1.0
    """Share of a device's usable memory that plans may fill."""
    engine_apart: bool = False
    """Placement "free": engines share no device with a trainer. Elsewhere the placement says it."""
    copied: tuple[str, ...] = ()
    """Units that train whose forward passes run on a copy with devices of its own."""
    fusions: tuple[str, ...] = ()
    """Fused forms of calls."""
    few_sizes: bool = False
    """Only meshes of some fractions and a power of two of a node group: enough to see if
    something fits, at a fraction of the time."""
    only_devices: tuple[int, ...] = ()
    """Mesh sizes to consider where not all are; empty: no such restriction."""

    @property
    def is_variant(self) -> bool:
        """Whether the class only refines another one: of interest if it holds a better plan."""
        return bool(self.copied or self.fusions)

    @property
    def beside_trainer(self) -> bool:
        """Whether engines are on a trainer's devices, or may be."""
        return self.placement != "disaggregated" and not self.engine_apart

    def device_counts(self, group: NodeGroup) -> tuple[int, ...] | None:
        """Mesh sizes to consider; None for all that the space allows."""
        if self.only_devices:
            return tuple(count for count in self.only_devices if count <= group.devices)
        if not self.few_sizes:
            return None
        power = 1 << (group.nodes.bit_length() - 1)
        quarters = {quarter * group.nodes // 4 for quarter in (1, 2, 3, 4)}
        nodes = (quarters | {power, power // 2}) - {0}
        return tuple(sorted(count * group.devices_per_node for count in nodes))

    def capacity_bytes(self, device: DeviceProfile, framework: FrameworkProfile) -> float:
        """Bytes of a device that the models of a plan may fill together."""
        return self.memory_share * usable_bytes(device, framework)
