"""Distils the measured kernel tables of `aiconfigurator-core` into hardware_profiles/kernels/.

    pip install -e .[distil]
    python tools/distil_kernels.py            # all devices
    python tools/distil_kernels.py h100-80-sxm

For each device it writes NAME.npz (grids of r, see planner/cost/kernels.py) and NAME.yaml (where
the points come from, how many there are, and the error on points held out).
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kernel_grids as grids
import kernel_points as read
import numpy as np
import yaml
from kernel_errors import held_out_errors

from planner.catalog.hardware import load_device
from planner.cost.kernel_tables import VALUE_SCALE, table_from_arrays
from planner.cost.kernels import COLLECTIVES
from planner.schema import DeviceProfile, DType

PACKAGE = "aiconfigurator-core"
SYSTEMS = {
    "a100-80-sxm": "a100_sxm",
    "h100-80-sxm": "h100_sxm",
    "h200-141-sxm": "h200_sxm",
    "b200-sxm": "b200_sxm",
    "b300-sxm": "b300_sxm",
    "gb200-nvl72": "gb200",
    "gb300-nvl72": "gb300",
    "l40s-48": "l40s",
    "rtx-pro-6000-server": "rtx_pro_6000_server",
}
"""Our device ids and the package's folders."""
CACHE_DTYPES: tuple[DType, ...] = ("bf16", "fp8")
OUT = Path(__file__).resolve().parent.parent / "hardware_profiles" / "kernels"

Points = dict[str, read.Columns]
Arrays = dict[str, Any]


def package_data() -> Path:
    """The folder of the package's tables, one folder a system."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit(f"{PACKAGE} is not installed: pip install -e .[distil]")
    return Path(next(iter(spec.submodule_search_locations))) / "systems" / "data"


def read_points(root: Path, device: DeviceProfile) -> Points:
    """All points of a device, by kernel name; kernels without points are absent."""
    points: Points = {"prefill": read.prefill_attention(root, device)}
    for dtype in device.peak_flop_per_s:
        points[f"gemm_{dtype}"] = read.gemm(root, device, dtype)
        points[f"moe_{dtype}"] = read.moe(root, device, dtype)
    for dtype in CACHE_DTYPES:
        points[f"decode_{dtype}"] = read.decode_attention(root, device, dtype)
        points[f"mla_decode_{dtype}"] = read.mla_decode(root, device, dtype)
    points["mla_prefill"] = read.mla_prefill(root, device)
    points["mla_absorb"] = read.mla_absorb(root, device)
    for kind in COLLECTIVES:
        points[f"collective_{kind}"] = read.collective(root, device, kind)
    points["all_reduce_graph"] = read.all_reduce_graph(root)
    return {name: columns for name, columns in points.items() if len(columns["t"])}


def build_arrays(points: Points, device: DeviceProfile) -> Arrays:
    """The arrays of the .npz file: axes as float32, values of r as int16 in 1/VALUE_SCALE."""
    base = grids.Base(device)
    arrays: Arrays = {}

    def put(name: str, grid: grids.RawGrid) -> None:
        for position, axis in enumerate(grid.axes):
            arrays[f"{name}/axis{position}"] = axis.astype(np.float32)
        arrays[f"{name}/values"] = _pack(grid.values)

    for name, columns in points.items():
        kernel, _, rest = name.partition("_")
        if kernel == "gemm":
            put(f"gemm/{rest}", grids.gemm_grid(columns, base, rest))
        elif kernel == "moe":
            shapes, tokens, values = grids.moe_curves(columns, base, rest)
            arrays[f"moe/{rest}/shapes"] = shapes.astype(np.float32)
            arrays[f"moe/{rest}/tokens"] = tokens.astype(np.float32)
            arrays[f"moe/{rest}/values"] = _pack(values)
        elif kernel == "prefill":
            for size, window in _variants(columns):
                put(f"prefill/{size}/{window}", grids.prefill_grid(columns, base, size, window))
        elif kernel == "decode":
            for size, window in _variants(columns):
                grid = grids.decode_grid(columns, base, size, window, rest)
                put(f"decode/{size}/{window}/{rest}", grid)
        elif name.startswith("mla_decode"):
            dtype = name.removeprefix("mla_decode_")
            put(f"mla_decode/{dtype}", grids.mla_decode_grid(columns, base, dtype))
        elif name == "mla_prefill":
            put(name, grids.mla_prefill_grid(columns, base))
        elif name == "mla_absorb":
            put(name, grids.mla_absorb_grid(columns, base))
        else:
            kind = "all_reduce" if name == "all_reduce_graph" else rest
            put(name, grids.collective_grid(columns, grids.collective_base(device, kind)))
    return arrays


def distil(device_id: str, root: Path) -> None:
    """Write the two files of one device."""
    device = load_device(device_id)
    points = read_points(root, device)
    arrays = build_arrays(points, device)
    np.savez_compressed(OUT / f"{device_id}.npz", **arrays)
    errors = held_out_errors(
        points, lambda kept: table_from_arrays(build_arrays(kept, device), device)
    )
    about = {
        "device": device_id,
        "source": f"{PACKAGE} {version(PACKAGE)}, systems/data/{SYSTEMS[device_id]}",
        "license": "Apache-2.0, NVIDIA CORPORATION & AFFILIATES; see NOTICE",
        "changes": "fastest engine at each point, points that it did not run and faulty points "
        "left out, gaps filled from their neighbours, put on grids of "
        "log(measured time / roofline with latency)",
        "roofline": {
            "peak_flop_per_s": dict(device.peak_flop_per_s),
            "memory_bandwidth_bytes_per_s": device.memory_bandwidth_bytes_per_s,
            "kernel_latency_s": device.kernel_latency_s,
            "scale_up_bandwidth_bytes_per_s": device.scale_up_bandwidth_bytes_per_s,
            "scale_up_latency_s": device.scale_up_latency_s,
        },
        "engines": read.engines(root),
        "points": {name: len(columns["t"]) for name, columns in points.items()},
        "held_out_error": errors,
    }
    with (OUT / f"{device_id}.yaml").open("w", encoding="utf-8") as file:
        yaml.safe_dump(about, file, sort_keys=False, width=100)


def _variants(columns: read.Columns) -> list[tuple[int, int]]:
    """The pairs of head size and window that occur."""
    pairs = zip(columns["head_dim"], columns["window"], strict=True)
    return sorted({(int(size), int(window)) for size, window in pairs})


def _pack(values: Any) -> Any:
    scaled = np.rint(values * VALUE_SCALE)
    if np.abs(scaled).max() > np.iinfo(np.int16).max:
        raise ValueError("a value does not fit in 16 bits")
    return scaled.astype(np.int16)


def main(devices: list[str]) -> None:
    """Distil the named devices, or all."""
    data = package_data()
    for device_id in devices or list(SYSTEMS):
        if device_id not in SYSTEMS:
            raise SystemExit(f"no tables for {device_id}; known: {', '.join(SYSTEMS)}")
        distil(device_id, data / SYSTEMS[device_id])
        size = (OUT / f"{device_id}.npz").stat().st_size
        print(f"{device_id}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
