"""Turns scattered kernel points into full grids of r = log(measured / roofline with latency)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from kernel_engines import Columns
from kernel_fill import fill_curves, fill_grid

from planner.cost import kernel_work
from planner.cost.kernel_work import Work
from planner.schema import DeviceProfile

FloatArray = npt.NDArray[np.float64]

GEMM_ROWS = [1, 2, 3, 4, 6, 8, 12, 16, 17, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256]
GEMM_ROWS += [512, 768, 1024, 1280, 1536, 1792, 2048, 2304, 2560, 2816, 3072, 3328, 3584]
GEMM_ROWS += [3840, 4096, 4352, 8192, 16384, 32768]
GROUP_SIZES = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32]
"""Query heads for each KV head, as measured."""
_FEWEST_POINTS = 3  # of a curve

# Of the smaller tables, how alike measurements are by the ratio of their coordinates: each row is
# a coordinate, a product of axes, over its correlation length (in e-folds). The lengths are those
# of least error over all devices, on points left out of four fifths of the tables (the first
# fifth, which alone is held out of large tables, was not used).
_MLA_PREFILL = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1]]) / [[3], [3], [100]]
"""Of batch, tokens, heads: heads of all sequences are alike, so batch x heads counts first."""
_MLA_DECODE = np.diag(1 / np.array([0.3, 30, 10]))
"""Of batch, context, heads: one batch size tells little of another."""
_COLLECTIVE = np.diag(1 / np.array([1, 30]))
"""Of devices, bytes."""


@dataclass(frozen=True)
class RawGrid:
    """Axes (coordinates, not logarithms) and the values of r on them."""

    axes: tuple[FloatArray, ...]
    values: FloatArray


@dataclass(frozen=True)
class Base:
    """The time that r is relative to, on one device."""

    device: DeviceProfile

    def compute_dtype(self, dtype: str) -> str:
        """`dtype` if the device computes in it, else bf16."""
        return dtype if dtype in self.device.peak_flop_per_s else "bf16"

    def seconds(self, work: Work, dtype: str = "bf16") -> FloatArray:
        """Roofline plus the latency of one kernel."""
        peak = self.device.peak_flop_per_s[dtype]  # type: ignore[index]
        bandwidth = self.device.memory_bandwidth_bytes_per_s
        roofline = np.maximum(work.flop / peak, work.nbytes / bandwidth)
        return np.asarray(roofline + self.device.kernel_latency_s)


def gemm_grid(points: Columns, base: Base, dtype: str) -> RawGrid:
    """Grid over m, n, k."""
    work = kernel_work.gemm_work(points["m"], points["n"], points["k"], dtype)  # type: ignore[arg-type]
    ratio = np.log(points["t"] / base.seconds(work, dtype))
    rows = np.intersect1d(GEMM_ROWS, points["m"])
    axes = (rows, np.unique(points["n"]), np.unique(points["k"]))
    return _grid(axes, [points["m"], points["n"], points["k"]], ratio, (2, 1, 0))


def prefill_grid(points: Columns, base: Base, head_dim: int, window: int) -> RawGrid:
    """Grid over tokens, batch x heads, heads / kv_heads for one head size and window."""
    rows = (points["head_dim"] == head_dim) & (points["window"] == window)
    b, s, a, g, t = (points[name][rows] for name in ("batch", "tokens", "heads", "kv_heads", "t"))
    work = kernel_work.prefill_attention_work(b, s, a, g, head_dim, window or None)
    return _attention_grid(s, b * a, a / g, np.log(t / base.seconds(work)), window)


def decode_grid(points: Columns, base: Base, head_dim: int, window: int, kv_dtype: str) -> RawGrid:
    """Grid over context, batch x kv_heads, heads / kv_heads for one head size and window."""
    rows = (points["head_dim"] == head_dim) & (points["window"] == window)
    b, c, a, g, t = (points[name][rows] for name in ("batch", "context", "heads", "kv_heads", "t"))
    read = np.minimum(c, window) if window else c
    work = kernel_work.decode_attention_work(b, read, a, g, head_dim, kv_dtype)  # type: ignore[arg-type]
    return _attention_grid(c, b * g, a / g, np.log(t / base.seconds(work)), window)


def mla_prefill_grid(points: Columns, base: Base) -> RawGrid:
    """Grid over batch, tokens, heads."""
    coordinates = [points["batch"], points["tokens"], points["heads"]]
    ratio = np.log(points["t"] / base.seconds(kernel_work.mla_prefill_work(*coordinates)))
    axes = tuple(np.unique(x) for x in coordinates)
    return _grid(axes, coordinates, ratio, (2, 0, 1), _MLA_PREFILL)


def mla_decode_grid(points: Columns, base: Base, kv_dtype: str) -> RawGrid:
    """Grid over batch, context, heads."""
    coordinates = [points["batch"], points["context"], points["heads"]]
    work = kernel_work.mla_decode_work(*coordinates, kv_dtype)  # type: ignore[arg-type]
    ratio = np.log(points["t"] / base.seconds(work, base.compute_dtype(kv_dtype)))
    axes = tuple(np.unique(x) for x in coordinates)
    return _grid(axes, coordinates, ratio, (2, 0, 1), _MLA_DECODE)


def mla_absorb_grid(points: Columns, base: Base) -> RawGrid:
    """Grid over tokens, heads."""
    coordinates = [points["tokens"], points["heads"]]
    ratio = np.log(points["t"] / base.seconds(kernel_work.mla_absorb_work(*coordinates)))
    return _grid(tuple(np.unique(x) for x in coordinates), coordinates, ratio, (0, 1))


def moe_curves(
    points: Columns, base: Base, dtype: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shapes [c, 6], tokens [t], values [c, t]; curves of fewer than three points left out.

    A sparse curve with its gaps filled says more of its own shape than its neighbours would.
    """
    names = ("hidden", "inner", "top_k", "experts", "tp", "ep")
    shape_columns = np.stack([points[name] for name in names], axis=1)
    work = kernel_work.moe_work(points["tokens"], *shape_columns.T, dtype)  # type: ignore[misc]
    ratio = np.log(points["t"] / base.seconds(work, dtype))
    shapes, place = np.unique(shape_columns, axis=0, return_inverse=True)
    tokens = np.unique(points["tokens"])
    values = np.full((len(shapes), len(tokens)), np.nan)
    values[place.ravel(), np.searchsorted(tokens, points["tokens"])] = ratio
    enough = (~np.isnan(values)).sum(axis=1) >= _FEWEST_POINTS
    shapes, values = shapes[enough], values[enough]
    hidden, inner, top_k, experts, tp, ep = np.log(shapes).T
    features = np.stack([hidden, inner - tp, experts - ep, top_k - experts, ep], axis=1)
    return shapes, tokens, fill_curves(values, np.log(tokens), features)


def collective_base(
    device: DeviceProfile, kind: str
) -> Callable[[FloatArray, FloatArray], FloatArray]:
    """Latency rounds plus bytes over the link, as `KernelTable.collective_base_s` has it."""

    def seconds(devices: FloatArray, nbytes: FloatArray) -> FloatArray:
        moved = kernel_work.collective_factor(kind, devices) * nbytes
        rounds = 1 + np.log2(devices)
        link = device.scale_up_bandwidth_bytes_per_s
        return np.asarray(rounds * device.scale_up_latency_s + moved / link)

    return seconds


def collective_grid(
    points: Columns, base_s: Callable[[FloatArray, FloatArray], FloatArray]
) -> RawGrid:
    """Grid over devices, bytes."""
    n, size = points["devices"], points["nbytes"]
    ratio = np.log(points["t"] / base_s(n, size))
    return _grid((np.unique(n), np.unique(size)), [n, size], ratio, (1, 0), _COLLECTIVE)


def _attention_grid(
    length: FloatArray, rows: FloatArray, group: FloatArray, ratio: FloatArray, window: int
) -> RawGrid:
    axes = (np.unique(length), np.unique(rows), np.intersect1d(GROUP_SIZES, group))
    # Beyond what fits in memory: full attention is as efficient as with fewer rows, windowed
    # attention takes as long as with a shorter context.
    order = (0, 1, 2) if window else (1, 2, 0)
    return _grid(axes, [length, rows, group], ratio, order)


def _grid(
    axes: tuple[FloatArray, ...],
    coordinates: Sequence[FloatArray],
    ratio: FloatArray,
    fill_order: tuple[int, ...],
    correlation: FloatArray | None = None,
) -> RawGrid:
    """Median of r in each cell; points off the axes are left out, empty cells are filled.

    `correlation` [d, axes] turns logarithms of the axes into coordinates in correlation lengths.
    """
    on_axes = np.ones(len(ratio), dtype=bool)
    for axis, coordinate in zip(axes, coordinates, strict=True):
        on_axes &= np.isin(coordinate, axis)
    shape = tuple(len(axis) for axis in axes)
    places = [
        np.searchsorted(axis, coordinate[on_axes])
        for axis, coordinate in zip(axes, coordinates, strict=True)
    ]
    cells = np.ravel_multi_index(places, shape)
    order = np.lexsort([ratio[on_axes], cells])
    cells, sorted_ratio = cells[order], ratio[on_axes][order]
    found, start, count = np.unique(cells, return_index=True, return_counts=True)
    values = np.full(shape, np.nan)
    middle_low, middle_high = start + (count - 1) // 2, start + count // 2
    values.flat[found] = (sorted_ratio[middle_low] + sorted_ratio[middle_high]) / 2
    float_axes = tuple(np.asarray(axis, dtype=np.float64) for axis in axes)
    log_axes = tuple(np.log(axis) for axis in float_axes)
    places = None
    if correlation is not None:
        places = np.stack(np.meshgrid(*log_axes, indexing="ij"), axis=-1) @ correlation.T
    fill_grid(values, log_axes, fill_order, places)
    return RawGrid(float_axes, values)
