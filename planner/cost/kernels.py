"""Kernel times from measured tables: pure, vectorised lookups in seconds.

A table stores, on grids, the logarithm r of measured time over the time that the kernel's work
needs at least: ``t = exp(r) x (max(flop / peak, bytes / bandwidth) + latency)``. r is smooth where
t is not, so it is what is interpolated; beyond a grid's edge r (the efficiency) is held, not the
time; and on a device without a table the same r multiplies that device's own roofline.
No result is below the roofline itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from planner.cost import kernel_work
from planner.cost.grid import Grid, MoECurves
from planner.cost.kernel_work import Work
from planner.errors import InputError
from planner.schema.hardware import DeviceProfile, DType

FloatArray = npt.NDArray[np.float64]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
COLLECTIVES: tuple[Collective, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")

# Windowed attention has its own grid if one was measured with a window this close. Otherwise the
# full-attention efficiency prices it: in decode at a context of one window, in prefill at the
# geometric mean of length and window (checked on windows of 1,024 and 8,192).
_WINDOW_RATIO = 2.0


@dataclass(frozen=True)
class KernelTable:
    """Times of kernels on one device, interpolated from measurements.

    All methods broadcast their array arguments and return float64 seconds of the broadcast shape.
    Tokens, batches and contexts may be fractional (expected values); no argument may be negative.
    Times are of GPU kernels inside a CUDA graph or a full stream: host launch time is not
    included. Raises InputError if the device cannot compute in the asked dtype.
    """

    name: str
    """Device that the efficiencies were measured on."""
    device: str
    """Device that the times are for."""
    is_own: bool
    """False when efficiencies are carried over from another device."""
    peak_flop_per_s: dict[DType, float]
    memory_bandwidth_bytes_per_s: float
    latency_s: float
    scale_up_bandwidth_bytes_per_s: float
    scale_up_latency_s: float
    gemm: dict[DType, Grid]
    """Axes m, n, k."""
    prefill: dict[tuple[int, int], Grid]
    """By head_dim and window (0: full); axes tokens, batch x heads, heads / kv_heads."""
    decode: dict[tuple[int, int, DType], Grid]
    """By head_dim, window (0: full) and cache dtype; axes context, batch x kv_heads,
    heads / kv_heads."""
    mla_prefill: Grid
    """Axes batch, tokens, heads."""
    mla_decode: dict[DType, Grid]
    """By cache dtype; axes batch, context, heads."""
    mla_absorb: Grid
    """Axes tokens, heads."""
    moe: dict[DType, MoECurves]
    collectives: dict[Collective, Grid]
    """Axes devices, bytes."""
    all_reduce_graph: Grid
    """Axes devices, bytes."""

    def scaled_to(self, device: DeviceProfile) -> KernelTable:
        """The same efficiencies over the roofline of `device`.

        The compute-bound part scales with the peak, the memory-bound part with the bandwidth,
        collectives with the scale-up link. With the table's own device nothing changes.
        """
        return replace(
            self,
            device=device.id,
            is_own=device.kernel_table_is_own,
            peak_flop_per_s=dict(device.peak_flop_per_s),
            memory_bandwidth_bytes_per_s=device.memory_bandwidth_bytes_per_s,
            latency_s=device.kernel_latency_s,
            scale_up_bandwidth_bytes_per_s=device.scale_up_bandwidth_bytes_per_s,
            scale_up_latency_s=device.scale_up_latency_s,
        )

    def roofline_s(self, work: Work, dtype: DType = "bf16") -> FloatArray:
        """max(flop / peak, bytes / bandwidth): the bound that no kernel beats."""
        peak = self._peak(dtype)
        bound: FloatArray = np.maximum(
            work.flop / peak, work.nbytes / self.memory_bandwidth_bytes_per_s
        )
        return bound

    def gemm_s(
        self, m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, dtype: DType = "bf16"
    ) -> FloatArray:
        """Dense matrix product [m, k] x [k, n]; both inputs in `dtype`, output bf16.

        fp8 and fp4 exclude the quantisation of activations. Without a measured grid of the dtype
        the bf16 efficiency counts.
        """
        grid = self.gemm.get(dtype) or self.gemm["bf16"]
        return self._time(grid.at(m, n, k), kernel_work.gemm_work(m, n, k, dtype), dtype)

    def prefill_attention_s(
        self,
        batch: npt.ArrayLike,
        tokens: npt.ArrayLike,
        heads: npt.ArrayLike,
        kv_heads: npt.ArrayLike,
        head_dim: int,
        window: int | None = None,
    ) -> FloatArray:
        """Causal attention core, forward, of `batch` sequences of `tokens` each (bf16).

        `heads` and `kv_heads` are those of one device. No projections, no rotary embedding. For
        a packed mix of lengths add the times of the lengths. Head sizes that were not measured
        take the efficiency of the nearest one.
        """
        work = kernel_work.prefill_attention_work(batch, tokens, heads, kv_heads, head_dim, window)
        size, near = _variant(list(self.prefill), head_dim, window)
        length = tokens
        if window is not None and not near:
            length = np.sqrt(np.multiply(tokens, np.minimum(tokens, window)))
        rows = np.multiply(batch, heads)
        grid = self.prefill[(size, near)]
        return self._time(grid.at(length, rows, np.divide(heads, kv_heads)), work)

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
        """Attention core of one decode step: a query token a sequence against `context` tokens.

        `heads` and `kv_heads` are those of one device. No projections. With a window at most
        `window` tokens of context are read.
        """
        read = context if window is None else np.minimum(context, window)
        work = kernel_work.decode_attention_work(batch, read, heads, kv_heads, head_dim, kv_dtype)
        cache: DType = kv_dtype if any(key[2] == kv_dtype for key in self.decode) else "bf16"
        measured = [(size, near) for size, near, dtype in self.decode if dtype == cache]
        size, near = _variant(measured, head_dim, window)
        length = context if near else read
        rows = np.multiply(batch, kv_heads)
        grid = self.decode[(size, near, cache)]
        return self._time(grid.at(length, rows, np.divide(heads, kv_heads)), work)

    def mla_prefill_s(
        self, batch: npt.ArrayLike, tokens: npt.ArrayLike, heads: npt.ArrayLike
    ) -> FloatArray:
        """Latent attention core of a prefill or training forward pass, expanded form (bf16).

        Only the core: the down- and up-projections and the output are matrix products besides.
        The shape is DeepSeek-V3's (nope 128, rope 64, value 128); `heads` of one device.
        """
        work = kernel_work.mla_prefill_work(batch, tokens, heads)
        return self._time(self.mla_prefill.at(batch, tokens, heads), work)

    def mla_decode_s(
        self,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        heads: npt.ArrayLike,
        kv_dtype: DType = "bf16",
    ) -> FloatArray:
        """Latent attention core of one decode step, absorbed form.

        Only the core: query, key-value and output projections are matrix products besides, and
        the two absorbing products are `mla_absorb_s`. The latent is read whole by every device,
        whatever its share of the `heads`.
        """
        grid = self.mla_decode.get(kv_dtype) or self.mla_decode["bf16"]
        work = kernel_work.mla_decode_work(batch, context, heads, kv_dtype)
        # Engines multiply in fp8 where cache and device allow it.
        compute: DType = kv_dtype if kv_dtype in self.peak_flop_per_s else "bf16"
        return self._time(grid.at(batch, context, heads), work, compute)

    def mla_absorb_s(self, tokens: npt.ArrayLike, heads: npt.ArrayLike) -> FloatArray:
        """The two batched products of decode that absorb the KV up-projection (bf16)."""
        work = kernel_work.mla_absorb_work(tokens, heads)
        return self._time(self.mla_absorb.at(tokens, heads), work)

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
        """Routed gated experts of one layer, on the busiest of the moe_tp x moe_ep devices.

        `tokens` are the tokens of the whole pool that the expert group serves: the sum over its
        expert-parallel ranks, not those of one rank. Routing follows a power law of exponent
        1.01, so imbalance between ranks and experts is included. Included: both grouped matrix
        products, activation, permutation. Not included: router, shared experts, all-to-all.
        """
        curves = self.moe.get(dtype) or self.moe["bf16"]
        work = kernel_work.moe_work(tokens, hidden, inner, top_k, experts, moe_tp, moe_ep, dtype)
        ratio = curves.at(tokens, hidden, inner, top_k, experts, moe_tp, moe_ep)
        return self._time(ratio, work, dtype)

    def collective_s(
        self, kind: Collective, devices: npt.ArrayLike, nbytes: npt.ArrayLike
    ) -> FloatArray:
        """NCCL collective among `devices` of one scale-up domain; zero for a single device.

        `nbytes` is the full buffer: the reduced tensor, the gathered result, the tensor before
        scattering, or what one device sends in an all-to-all, its own part included. Measured to
        8 devices (4 on NVL72); beyond that the bus bandwidth is held and latency grows with the
        logarithm of the devices: an estimate.
        """
        return self._collective_time(self.collectives[kind], kind, devices, nbytes)

    def all_reduce_decode_s(self, devices: npt.ArrayLike, nbytes: npt.ArrayLike) -> FloatArray:
        """All-reduce of a decode step: the engines' custom kernels inside a CUDA graph."""
        return self._collective_time(self.all_reduce_graph, "all_reduce", devices, nbytes)

    def _collective_time(
        self, grid: Grid, kind: Collective, devices: npt.ArrayLike, nbytes: npt.ArrayLike
    ) -> FloatArray:
        n = np.maximum(np.asarray(devices, dtype=np.float64), 1.0)
        size = np.asarray(nbytes, dtype=np.float64)
        base = self.collective_base_s(kind, n, size)
        # In-network reduction may beat the ring's bound, but each byte leaves its device once.
        bound = (n - 1) / n * size / self.scale_up_bandwidth_bytes_per_s
        time = np.maximum(np.exp(grid.at(n, size)) * base, bound)
        return np.where((n > 1) & (size > 0), time, 0.0)

    def collective_base_s(
        self, kind: Collective, devices: npt.ArrayLike, nbytes: npt.ArrayLike
    ) -> FloatArray:
        """The time that the grids of collectives are relative to: latency rounds plus bytes."""
        n = np.asarray(devices, dtype=np.float64)
        rounds = 1 + np.log2(n)
        moved = kernel_work.collective_factor(kind, n) * np.asarray(nbytes, dtype=np.float64)
        base: FloatArray = (
            rounds * self.scale_up_latency_s + moved / self.scale_up_bandwidth_bytes_per_s
        )
        return base

    def _time(self, ratio: FloatArray, work: Work, dtype: DType = "bf16") -> FloatArray:
        bound = self.roofline_s(work, dtype)
        time: FloatArray = np.maximum(np.exp(ratio) * (bound + self.latency_s), bound)
        return time

    def _peak(self, dtype: DType) -> float:
        try:
            return self.peak_flop_per_s[dtype]
        except KeyError:
            raise InputError(
                f"{self.device} cannot compute in {dtype}",
                remedy=f"Use one of {', '.join(self.peak_flop_per_s)}.",
            ) from None


def _variant(measured: list[tuple[int, int]], head_dim: int, window: int | None) -> tuple[int, int]:
    """The measured (head size, window) that prices a head size and window; window 0: full.

    The head size with the smallest ratio to `head_dim`, the larger of two equals.
    """
    sizes = [size for size, near in measured if near == 0]
    size = min(sizes, key=lambda one: (abs(math.log(one / head_dim)), -one))
    if window is None:
        return size, 0
    near = min(
        (near for one, near in measured if one == size and near),
        key=lambda one: abs(math.log(one / window)),
        default=0,
    )
    close = near and abs(math.log(near / window)) <= math.log(_WINDOW_RATIO)
    return size, near if close else 0
