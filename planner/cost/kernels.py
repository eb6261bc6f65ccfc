"""Kernel times from measured tables: pure, vectorised lookups in seconds."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from planner.schema.hardware import DType

FloatArray = npt.NDArray[np.float64]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


class KernelTable:
    """Times of kernels on one device, interpolated from measurements.

    All methods broadcast their array arguments and return float64 seconds of the broadcast shape.
    `tokens` may be fractional (expected values); shapes and counts are at least 1.
    """

    name: str
    is_own: bool

    def gemm_s(
        self, m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, dtype: DType = "bf16"
    ) -> FloatArray:
        """Dense matrix product [m, k] x [k, n]."""
        raise NotImplementedError

    def prefill_attention_s(
        self,
        batch: npt.ArrayLike,
        tokens: npt.ArrayLike,
        heads: npt.ArrayLike,
        kv_heads: npt.ArrayLike,
        head_dim: int,
        window: int | None = None,
    ) -> FloatArray:
        """Causal attention core, forward, of `batch` sequences of `tokens` tokens each."""
        raise NotImplementedError

    def decode_attention_s(
        self,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        heads: npt.ArrayLike,
        kv_heads: npt.ArrayLike,
        head_dim: int,
        kv_dtype: DType = "bf16",
        window: int | None = None,
    ) -> FloatArray:
        """Attention core of one decode step: one query token a sequence against `context`."""
        raise NotImplementedError

    def mla_prefill_s(
        self, batch: npt.ArrayLike, tokens: npt.ArrayLike, heads: npt.ArrayLike
    ) -> FloatArray:
        """Latent attention core of a prefill (no projections)."""
        raise NotImplementedError

    def mla_decode_s(
        self,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        heads: npt.ArrayLike,
        kv_dtype: DType = "bf16",
    ) -> FloatArray:
        """Latent attention core of one decode step (no projections)."""
        raise NotImplementedError

    def moe_s(
        self,
        tokens: npt.ArrayLike,
        hidden: int,
        inner: int,
        top_k: int,
        experts: int,
        moe_tp: npt.ArrayLike,
        moe_ep: npt.ArrayLike,
        dtype: DType = "bf16",
    ) -> FloatArray:
        """Routed experts of one layer; `tokens` are those of the whole expert group's pool."""
        raise NotImplementedError

    def collective_s(
        self, kind: Collective, devices: npt.ArrayLike, nbytes: npt.ArrayLike
    ) -> FloatArray:
        """NCCL-like collective inside the scale-up domain."""
        raise NotImplementedError

    def all_reduce_decode_s(self, devices: npt.ArrayLike, nbytes: npt.ArrayLike) -> FloatArray:
        """Custom low-latency all-reduce inside a CUDA graph."""
        raise NotImplementedError
