"""Precision of an engine's weights: how they are stored and in what the products are computed.

Quantised checkpoints differ in which matrices they quantise (experts only, or every product of a
layer), and a device without units for a format stores it all the same and multiplies in a wider
one ("weight-only"): it saves reading, not computing.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.cost.kernel_work import DTYPE_BYTES
from planner.schema import DType


@dataclass(frozen=True)
class WeightFormat:
    """One kind of matrix."""

    stored: DType
    computed: DType
    """Precision of the product; the kernel table's efficiency is that of this dtype."""

    @property
    def bytes_per_weight(self) -> float:
        """Bytes of one stored weight, scales left out."""
        return DTYPE_BYTES[self.stored]


@dataclass(frozen=True)
class WeightFormats:
    """The formats of a layer's matrices; embedding, router and head stay in bf16."""

    attention: WeightFormat
    dense: WeightFormat
    """Feed-forward of dense layers and shared experts."""
    experts: WeightFormat


def uniform(dtype: DType) -> WeightFormats:
    """Every product of a layer stored and computed in `dtype`."""
    one = WeightFormat(dtype, dtype)
    return WeightFormats(one, one, one)
