"""Time of weight-matrix products, forward and backward, never below the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.arrays import DTYPES, FloatArray, IntArray
from planner.cost.context import CallContext
from planner.cost.distinct import distinct
from planner.cost.kernel_work import gemm_work
from planner.cost.shapes import Gemm
from planner.schema import DeviceProfile, DType

# Power over dense bf16 peak of GB300 (1,400 W, 2.5 PFLOP/s); H100's is higher still.
_UNTHROTTLED_W_S_PER_FLOP = 1400.0 / 2.5e15


@dataclass(frozen=True)
class LinearTime:
    """Seconds of a series of products; arrays of shape [u]."""

    forward: FloatArray
    backward: FloatArray
    """Input and weight gradients."""
    last_forward: FloatArray
    """Forward time of the last product alone (what early-stopping recomputation skips)."""


def linear_time(
    context: CallContext,
    gemms: Sequence[Gemm],
    tokens: FloatArray,
    dtype: IntArray,
    local_split: IntArray | int = 1,
) -> LinearTime:
    """Products of `tokens` [u] rows with the given matrices (arrays [u] of sizes) in series.

    Matrices with `local_tokens` see tokens / `local_split` rows. Forward (m, n, k), input gradient
    (m, k, n), weight gradient (n, k, m); weights beside low-rank adapters are frozen and have no
    gradient (the adapters' own products are a few per cent and left out).
    """
    frozen = context.workload.lora_rank > 0
    forward = np.zeros_like(tokens)
    backward = np.zeros_like(tokens)
    last = np.zeros_like(tokens)
    for gemm in gemms:
        rows = tokens / local_split if gemm.local_tokens else tokens
        first, inverse = distinct(rows, gemm.n, gemm.k, dtype)
        m, n, k, code = rows[first], gemm.n[first], gemm.k[first], dtype[first]
        last = gemm_s(context, m, n, k, code)[inverse]
        forward += last
        backward += gemm_s(context, m, k, n, code)[inverse]
        if not frozen:
            backward += gemm_s(context, n, k, m, code)[inverse]
    return LinearTime(forward=forward, backward=backward, last_forward=last)


def gemm_s(
    context: CallContext, m: FloatArray, n: FloatArray, k: FloatArray, dtype: IntArray
) -> FloatArray:
    """One product [m, k] x [k, n], shape [u]: table / `gemm_efficiency`, at least the roofline.

    A dtype that the device lacks is priced as bf16 (`can_run` says so; callers refuse it).
    """
    device = context.group.device
    efficiency = context.framework.value("gemm_efficiency") * _sustained_clock(context)
    seconds = np.empty(m.shape)
    for code, name in enumerate(DTYPES):
        rows = dtype == code
        if not rows.any():
            continue
        runs: DType = name if name in device.peak_flop_per_s else "bf16"
        sizes = m[rows], n[rows], k[rows]
        table = context.kernels.gemm_s(*sizes, dtype=runs) / efficiency
        seconds[rows] = np.maximum(table, gemm_bound_s(device, *sizes, runs))
    return seconds


def _sustained_clock(context: CallContext) -> float:
    """Clock under a sustained load over that of the short bursts that tables are measured with.

    A device whose power limit is small for its peak throttles: (power / peak over that of the
    least limited part) ^ `power_exponent`.
    """
    device, exponent = context.group.device, context.framework.value("power_exponent")
    if not exponent or device.tdp_w is None:
        return 1.0
    watts = device.tdp_w / device.peak_flop_per_s["bf16"]
    return float(min(1.0, watts / _UNTHROTTLED_W_S_PER_FLOP) ** exponent)


def gemm_bound_s(
    device: DeviceProfile, m: FloatArray, n: FloatArray, k: FloatArray, dtype: DType
) -> FloatArray:
    """Roofline of one product, shape [u]: work at peak, or each operand moved once.

    Weights of a model do not stay in a cache between two uses, although a benchmark's do.
    """
    work = gemm_work(m, n, k, dtype)
    return np.maximum(
        work.flop / device.peak_flop_per_s[dtype],
        work.nbytes / device.memory_bandwidth_bytes_per_s,
    )


def grouped_time(
    context: CallContext,
    gemms: Sequence[Gemm],
    rows: FloatArray,
    groups: FloatArray,
    dtype: IntArray,
) -> LinearTime:
    """`groups` [u] equal experts that share `rows` [u] token copies, shape [u].

    The geometric mean of two extremes, each expert a product of its own and all rows in one
    product, times the constant `grouped_gemm_factor`.
    """
    factor = context.framework.value("grouped_gemm_factor")
    each = linear_time(context, gemms, rows / groups, dtype)
    pooled = linear_time(context, gemms, rows, dtype)

    def between(one: FloatArray, pool: FloatArray) -> FloatArray:
        # The roofline of reading every expert's weights is in `one`; the mean may not undercut it.
        mean = np.sqrt(groups * one * pool) * factor
        return np.asarray(np.maximum(mean, pool))

    return LinearTime(
        forward=between(each.forward, pooled.forward),
        backward=between(each.backward, pooled.backward),
        last_forward=between(each.last_forward, pooled.last_forward),
    )
