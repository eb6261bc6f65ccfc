"""From samples to a kernel table in the planner's format (see planner/cost/kernels.py)."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.catalog.kernels import KernelArrays
from planner.cost import kernel_work
from planner.cost.kernel_tables import VALUE_SCALE, table_from_arrays
from planner.cost.kernels import COLLECTIVES, Collective, KernelTable
from planner.measure.bench.journal import Sample
from planner.schema import DeviceProfile

FloatArray = npt.NDArray[np.float64]

WORD_BYTES = 2
"""The planner counts activations, weights and messages in 2-byte words. A device that computes in
fp32 takes for each of them what the kernel on 4-byte words takes."""


def table_arrays(
    samples: Iterable[Sample], device: DeviceProfile, base: KernelArrays
) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a kernel table of `device`.

    Kernels that were measured have grids of their own; all others (latent attention, experts, other
    dtypes) keep the ratios of `base`, another device's table, over this device's roofline.
    """
    grids = _by_grid(samples)
    roofline = table_from_arrays(base, device)
    arrays = {
        name: values
        for name, values in base.items()
        if not any(_replaces(prefix, name) for prefix in grids)
    }
    for prefix, points in grids.items():
        axes = [sorted({shape[i] for shape in points}) for i in range(len(next(iter(points))))]
        for position, axis in enumerate(axes):
            scale = WORD_BYTES if _is_collective(prefix) and position == 1 else 1
            arrays[f"{prefix}/axis{position}"] = np.array(axis, dtype=np.float64) * scale
        shape = tuple(len(axis) for axis in axes)
        seconds = np.array([_nearest(points, corner) for corner in itertools.product(*axes)])
        corners = np.array(list(itertools.product(*axes)), dtype=np.float64).T
        ratio = np.log(seconds / base_s(roofline, prefix, *corners)).reshape(shape)
        limit = np.iinfo(np.int16).max
        packed = np.clip(np.round(ratio * VALUE_SCALE), -limit, limit)
        arrays[f"{prefix}/values"] = packed.astype(np.int16)
    return arrays


def carried_over(samples: Iterable[Sample], base: KernelArrays) -> list[str]:
    """Grids of `base` that no measurement replaces, by name."""
    grids = _by_grid(samples)
    names = {name.rsplit("/", 1)[0] for name in base if name.endswith("/values")}
    return sorted(one for one in names if not any(_replaces(p, f"{one}/values") for p in grids))


def npz_bytes(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """The content of the table's file."""
    buffer = io.BytesIO()
    save: Any = np.savez_compressed  # its stub takes no names from a mapping
    save(buffer, **arrays)
    return buffer.getvalue()


def base_s(table: KernelTable, prefix: str, *shape: FloatArray) -> FloatArray:
    """The time that a grid's ratios are relative to: roofline and latency, seconds."""
    kernel, *rest = prefix.split("/")
    if kernel == "gemm":
        m, n, k = shape
        work = kernel_work.gemm_work(m, n, k, "bf16")
    elif kernel == "prefill":
        tokens, rows, group = shape
        work = kernel_work.prefill_attention_work(1.0, tokens, rows, rows / group, int(rest[0]))
    elif kernel == "decode":
        context, rows, group = shape
        work = kernel_work.decode_attention_work(rows, context, group, 1.0, int(rest[0]), "bf16")
    else:
        kind: Collective = next((one for one in COLLECTIVES if prefix.endswith(one)), "all_reduce")
        return table.collective_base_s(kind, shape[0], shape[1] * WORD_BYTES)
    return np.asarray(table.roofline_s(work) + table.latency_s)


def grid_name(sample: Sample) -> tuple[str, tuple[int, ...]] | None:
    """(grid of the table, coordinates) of a sample; None for a figure that is in no table."""
    kernel, shape = sample.point.kernel, sample.point.shape
    if kernel == "gemm":
        return "gemm/bf16", shape
    if kernel == "prefill":
        return f"prefill/{shape[0]}/0", shape[1:]
    if kernel == "decode":
        return f"decode/{shape[0]}/0/bf16", shape[1:]
    if kernel in COLLECTIVES:
        return f"collective_{kernel}", shape
    return None


def _by_grid(samples: Iterable[Sample]) -> dict[str, dict[tuple[int, ...], float]]:
    grids: dict[str, dict[tuple[int, ...], float]] = {}
    for sample in samples:
        named = grid_name(sample)
        if named is not None:
            grids.setdefault(named[0], {})[named[1]] = sample.seconds
    if "collective_all_reduce" in grids:
        # No engine's own all-reduce was measured: decode steps use the general one.
        grids["all_reduce_graph"] = grids["collective_all_reduce"]
    return grids


def _replaces(prefix: str, name: str) -> bool:
    """Whether a measured grid takes the place of an array of the base table: attention of all head
    sizes and windows goes together, so that no shape mixes two devices."""
    kernel, *rest = prefix.split("/")
    if kernel in ("prefill", "decode"):
        return name.startswith(f"{kernel}/") and (kernel == "prefill" or f"/{rest[-1]}/" in name)
    return name.startswith(f"{prefix}/")


def _is_collective(prefix: str) -> bool:
    return prefix.startswith("collective_") or prefix == "all_reduce_graph"


def _nearest(points: Mapping[tuple[int, ...], float], corner: tuple[int, ...]) -> float:
    """Seconds at a corner of the grid; where it could not be measured, the nearest point's scaled
    by the sizes, so that its rate is held."""
    if corner in points:
        return points[corner]
    log = np.log(np.array(corner, dtype=np.float64))
    known = min(
        points, key=lambda one: float(np.sum((np.log(np.array(one, dtype=np.float64)) - log) ** 2))
    )
    scale = np.prod(np.array(corner, dtype=np.float64) / np.array(known, dtype=np.float64))
    return points[known] * max(float(scale), 1.0)
