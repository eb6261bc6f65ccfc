"""FLOP and device-memory bytes of single kernels: what the hardware must at least do.

Measured kernel tables store the ratio of the measured time to the time that this work needs, so
the same functions price a kernel on devices that were never measured.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.schema.hardware import DType

FloatArray = npt.NDArray[np.float64]

DTYPE_BYTES: dict[DType, float] = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5}
"""Bytes of one weight or input element; outputs of matrix products are bf16."""
_OUT_BYTES = 2.0
# DeepSeek-V2 and -V3 latent attention (arXiv:2405.04434, arXiv:2412.19437): the measured shape.
MLA_NOPE, MLA_ROPE, MLA_VALUE, MLA_LATENT = 128, 64, 128, 512


class Work(NamedTuple):
    """Work of one kernel on one device; arrays of the broadcast shape of the inputs."""

    flop: FloatArray
    nbytes: FloatArray


def gemm_work(m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, dtype: DType) -> Work:
    """Matrix product [m, k] x [k, n]: 2mnk FLOP; both inputs and the bf16 output move once."""
    m, n, k = _float(m), _float(n), _float(k)
    return Work(2 * m * n * k, DTYPE_BYTES[dtype] * k * (m + n) + _OUT_BYTES * m * n)


def prefill_attention_work(
    batch: npt.ArrayLike,
    tokens: npt.ArrayLike,
    heads: npt.ArrayLike,
    kv_heads: npt.ArrayLike,
    head_dim: int,
    window: int | None = None,
) -> Work:
    """Causal attention: 4 x heads x head_dim FLOP for each query-key pair that the mask keeps.

    Q, K, V and the output (bf16) move once. With a window of w tokens a sequence of s >= w keeps
    w s - w(w-1)/2 pairs.
    """
    b, s, a, g = _float(batch), _float(tokens), _float(heads), _float(kv_heads)
    w = s if window is None else np.minimum(s, window)
    pairs = w * s - w * (w - 1) / 2
    return Work(4 * b * a * head_dim * pairs, 2 * b * s * head_dim * (2 * a + 2 * g))


def decode_attention_work(
    batch: npt.ArrayLike,
    context: npt.ArrayLike,
    heads: npt.ArrayLike,
    kv_heads: npt.ArrayLike,
    head_dim: int,
    kv_dtype: DType,
) -> Work:
    """One query token for each of `batch` sequences: the whole KV cache is read once."""
    b, c, a, g = _float(batch), _float(context), _float(heads), _float(kv_heads)
    kv = 2 * b * g * c * head_dim * DTYPE_BYTES[kv_dtype]
    return Work(4 * b * a * head_dim * c, kv + 2 * 2 * b * a * head_dim)


def mla_prefill_work(batch: npt.ArrayLike, tokens: npt.ArrayLike, heads: npt.ArrayLike) -> Work:
    """Latent attention, expanded form (prefill, training): keys of nope + rope, own values."""
    b, s, a = _float(batch), _float(tokens), _float(heads)
    width = MLA_NOPE + MLA_ROPE + MLA_VALUE
    return Work(b * a * width * s * (s + 1), 2 * b * s * a * 2 * width)


def mla_decode_work(
    batch: npt.ArrayLike, context: npt.ArrayLike, heads: npt.ArrayLike, kv_dtype: DType
) -> Work:
    """Latent attention, absorbed form (decode): all heads share one latent of 512 + 64."""
    b, c, a = _float(batch), _float(context), _float(heads)
    cache = b * c * (MLA_LATENT + MLA_ROPE) * DTYPE_BYTES[kv_dtype]
    moved = 2 * b * a * (2 * MLA_LATENT + MLA_ROPE)
    return Work(2 * b * a * c * (2 * MLA_LATENT + MLA_ROPE), cache + moved)


def mla_absorb_work(tokens: npt.ArrayLike, heads: npt.ArrayLike) -> Work:
    """The two batched products that absorb the KV up-projection into decode (bf16)."""
    t, a = _float(tokens), _float(heads)
    flop = 2 * t * a * MLA_LATENT * (MLA_NOPE + MLA_VALUE)
    weights = 2 * a * MLA_LATENT * (MLA_NOPE + MLA_VALUE)
    return Work(flop, weights + 2 * t * a * (2 * MLA_LATENT + MLA_NOPE + MLA_VALUE))


def moe_work(
    tokens: npt.ArrayLike,
    hidden: npt.ArrayLike,
    inner: npt.ArrayLike,
    top_k: npt.ArrayLike,
    experts: npt.ArrayLike,
    moe_tp: npt.ArrayLike,
    moe_ep: npt.ArrayLike,
    dtype: DType,
) -> Work:
    """Gated experts of one layer on one of tp x ep devices, evenly loaded.

    `tokens` of the whole pool visit `top_k` of `experts` each; the expected share of experts that
    at least one token hits is 1 - (1 - k/E)^T. Weights of hit experts and activations move once.
    The busiest device has one token and one expert at least.
    """
    t, h, f = _float(tokens), _float(hidden), _float(inner) / _float(moe_tp)
    k, e, ep = _float(top_k), _float(experts), _float(moe_ep)
    copies = np.maximum(t * k / ep, 1.0)
    hit = e / ep * -np.expm1(t * np.log1p(-np.minimum(k / e, 1 - 1e-12)))
    weights = 3 * h * f * np.maximum(hit, 1.0) * DTYPE_BYTES[dtype]
    return Work(6 * h * f * copies, weights + copies * _OUT_BYTES * (2 * h + 3 * f))


def collective_factor(kind: str, devices: npt.ArrayLike) -> FloatArray:
    """Bytes that cross each device's link for each byte of the full buffer, ring algorithms."""
    n = _float(devices)
    once = (n - 1) / n
    return 2 * once if kind == "all_reduce" else once


def _float(value: npt.ArrayLike) -> FloatArray:
    return np.asarray(value, dtype=np.float64)
