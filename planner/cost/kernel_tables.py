"""From the arrays of a kernel file to a device's kernel table."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from planner.catalog.kernels import KernelArrays, kernel_arrays
from planner.cost.grid import Grid, MoECurves
from planner.cost.kernels import COLLECTIVES, KernelTable
from planner.schema import DeviceProfile, DType

VALUE_SCALE = 4096
"""Grid values are 16-bit integers in units of 1/4096: a resolution of 0.02 % in time."""


def load_kernels(device: DeviceProfile) -> KernelTable:
    """Kernel times of a device: its own table, or another device's efficiencies scaled to it.

    Collectives come from `device.collective_table` where the profile names one. Tables are read
    once and shared; they are immutable. Raises InputError if a table does not exist.
    """
    grids = _grids(device.kernel_table)
    if device.collective_table is not None:
        others = _grids(device.collective_table)
        grids = grids | {name: others[name] for name in ("collectives", "all_reduce_graph")}
    return _table(grids, device)


def table_from_arrays(arrays: KernelArrays, device: DeviceProfile) -> KernelTable:
    """A table for `device` from the arrays of a kernel file."""
    return _table(_grids_of(arrays), device)


def _table(grids: dict[str, Any], device: DeviceProfile) -> KernelTable:
    return KernelTable(
        name=device.kernel_table,
        device=device.id,
        is_own=device.kernel_table_is_own,
        peak_flop_per_s=dict(device.peak_flop_per_s),
        memory_bandwidth_bytes_per_s=device.memory_bandwidth_bytes_per_s,
        latency_s=device.kernel_latency_s,
        scale_up_bandwidth_bytes_per_s=device.scale_up_bandwidth_bytes_per_s,
        scale_up_latency_s=device.scale_up_latency_s,
        **grids,
    )


def _grids_of(arrays: KernelArrays) -> dict[str, Any]:
    """The grids of a kernel file, by field of KernelTable."""
    by_kernel: dict[str, list[tuple[str, ...]]] = {}
    for name in arrays:
        if name.endswith("/values"):
            key = tuple(name.split("/")[:-1])
            by_kernel.setdefault(key[0], []).append(key[1:])

    def grid(*key: str) -> Grid:
        return _grid(arrays, "/".join(key))

    def by_dtype(kernel: str) -> dict[DType, Grid]:
        return {cast(DType, key[0]): grid(kernel, *key) for key in by_kernel[kernel]}

    return {
        "gemm": by_dtype("gemm"),
        "prefill": {
            (int(key[0]), int(key[1])): grid("prefill", *key) for key in by_kernel["prefill"]
        },
        "decode": {
            (int(key[0]), int(key[1]), cast(DType, key[2])): grid("decode", *key)
            for key in by_kernel["decode"]
        },
        "mla_prefill": grid("mla_prefill"),
        "mla_decode": by_dtype("mla_decode"),
        "mla_absorb": grid("mla_absorb"),
        "moe": {cast(DType, key[0]): _curves(arrays, f"moe/{key[0]}") for key in by_kernel["moe"]},
        "collectives": {kind: grid(f"collective_{kind}") for kind in COLLECTIVES},
        "all_reduce_graph": grid("all_reduce_graph"),
    }


def _grid(arrays: KernelArrays, name: str) -> Grid:
    values = arrays[f"{name}/values"]
    axes = tuple(_log(arrays[f"{name}/axis{position}"]) for position in range(values.ndim))
    return Grid(axes, _unpack(values))


def _curves(arrays: KernelArrays, name: str) -> MoECurves:
    shapes = arrays[f"{name}/shapes"].astype(np.float64)
    tokens = _log(arrays[f"{name}/tokens"])
    return MoECurves(shapes, tokens, _unpack(arrays[f"{name}/values"]))


def _log(axis: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.asarray(np.log(axis.astype(np.float64)))


def _unpack(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return values.astype(np.float64) / VALUE_SCALE


@cache
def _grids(name: str) -> dict[str, Any]:
    """The grids of the table called `name`; shared, so nobody writes to them."""
    return _grids_of(kernel_arrays(name))
