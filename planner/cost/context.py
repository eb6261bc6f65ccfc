"""What a cost function needs to know besides the strategies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.cost.kernels import KernelTable
from planner.schema import Call, FrameworkProfile, ModelSpec, NodeGroup, Workload

if TYPE_CHECKING:
    from planner.cost.fusion import Adjustment


@dataclass(frozen=True)
class CallContext:
    """One call of one workload on one node group, with the profiles that price it.

    The mesh of a strategy follows from its device count: whole nodes when it needs more than one
    node, else a slice of one node.
    """

    call: Call
    model: ModelSpec
    workload: Workload
    group: NodeGroup
    framework: FrameworkProfile
    engine: FrameworkProfile
    kernels: KernelTable
    trained: bool
    """True when the model is trained in this workload (a forward call then runs in the trainer's
    processes, beside gradients and optimizer state)."""
    staleness: int = 0
    """Versions behind: 0 drains every batch, >= 1 lets generation flow."""
    adjustments: tuple[Adjustment, ...] = ()
    """What fused forms of calls change in the call's costs, in this order."""
    beside_trainer: bool = False
    """True when the call's devices are also those of a trainer, which keeps a residue there while
    it sleeps."""
    extra_heads: int = 0
    """Output heads with loss beside the main one: one for each multi-token-prediction layer that
    is trained (the layers themselves are counted in `model`)."""
    unpadded: bool = False
    """True when microbatches without packing hold `micro_batch_sequences` sequences of their own
    lengths instead of padded ones (verl's use_remove_padding)."""
