"""Error and speed of the kernel tables.

    pip install -e .[distil]
    python benchmarks/kernels.py                      # all devices
    python benchmarks/kernels.py h100-80-sxm

1. one measured point in five held out, of kernels with few points each fifth in turn (all, and
   those of 10 us or more: timers resolve 2 us);
2. whole lines held out: every other n of the GEMM grid; one MoE model at a time;
3. one device's kernels predicted from another device's table;
4. loading time and lookups a second.

Errors are |predicted / measured - 1|: median and 90th percentile.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import kernel_errors
import kernel_grids
from distil_kernels import SYSTEMS, build_arrays, package_data, read_points
from kernel_engines import Columns, pick

from planner.catalog.hardware import load_device
from planner.cost.grid import Grid, MoECurves
from planner.cost.kernel_tables import load_kernels, table_from_arrays
from planner.cost.kernels import KernelTable
from planner.schema import DeviceProfile

FloatArray = npt.NDArray[np.float64]
Points = dict[str, Columns]
LONG_S = 10e-6
TARGET_MEDIAN, TARGET_P90 = 0.05, 0.15
# Pairs of different generation, memory or class: what a device without a table faces.
CARRIED = (
    ("h100-80-sxm", "h200-141-sxm"),
    ("h100-80-sxm", "a100-80-sxm"),
    ("h100-80-sxm", "b200-sxm"),
    ("b200-sxm", "gb200-nvl72"),
    ("a100-80-sxm", "h100-80-sxm"),
    ("l40s-48", "rtx-pro-6000-server"),
)
LOOKUPS = 1_000_000


def main(names: list[str]) -> None:
    """Print all tables for the named devices, or all devices."""
    data = package_data()
    devices = [load_device(name) for name in names or SYSTEMS]
    points = {d.id: read_points(data / SYSTEMS[d.id], d) for d in devices}
    for device in devices:
        held_out(device, points[device.id])
        unseen_gemm(device, points[device.id])
        unseen_models(device, points[device.id])
    for source, target in CARRIED:
        if source in points and target in points:
            carried(source, load_device(target), points[target])
    speed()


def held_out(device: DeviceProfile, points: Points) -> None:
    """One point in five; a mark where an error is above its target."""
    found = kernel_errors.held_out_predictions(
        points, lambda kept: table_from_arrays(build_arrays(kept, device), device)
    )
    print(f"\n{device.id}: one point in five held out")
    print(f"{'kernel':36}{'points':>8}{'median':>9}{'p90':>9}   {'10 us or more':>13}")
    for name, (missing, error) in found.items():
        long = error[missing["t"] >= LONG_S]
        high = np.median(error) > TARGET_MEDIAN or np.percentile(error, 90) > TARGET_P90
        print(
            f"{name:36}{len(error):8}{_share(error, 50):>9}{_share(error, 90):>9}"
            f"{_share(long, 50):>9}{_share(long, 90):>9}{'  *' if high else ''}"
        )


def unseen_gemm(device: DeviceProfile, points: Points) -> None:
    """Every other n of the grid left out: shapes between the measured ones."""
    base, table = kernel_grids.Base(device), load_kernels(device)
    for dtype in table.gemm:
        columns = points[f"gemm_{dtype}"]
        left_out = np.isin(columns["n"], np.unique(columns["n"])[1:-1:2])
        raw = kernel_grids.gemm_grid(pick(columns, ~left_out), base, dtype)
        grid = Grid(tuple(np.log(axis) for axis in raw.axes), raw.values)
        without = replace(table, gemm={dtype: grid, "bf16": grid})
        _report(
            f"gemm_{dtype}, every other n left out", without, f"gemm_{dtype}", columns, left_out
        )


def unseen_models(device: DeviceProfile, points: Points) -> None:
    """One MoE model left out at a time: models that were never measured."""
    base, table = kernel_grids.Base(device), load_kernels(device)
    for dtype in table.moe:
        columns = points[f"moe_{dtype}"]
        shape = np.stack([columns[c] for c in ("hidden", "inner", "top_k", "experts")], axis=1)
        errors = []
        for model in np.unique(shape, axis=0):
            left_out = np.all(shape == model, axis=1)
            shapes, tokens, values = kernel_grids.moe_curves(pick(columns, ~left_out), base, dtype)
            curves = MoECurves(shapes, np.log(tokens), values)
            without = replace(table, moe={dtype: curves, "bf16": curves})
            errors.append(_errors(without, f"moe_{dtype}", pick(columns, left_out)))
        _print_line(f"moe_{dtype}, one model left out at a time", np.concatenate(errors))


def carried(source: str, target: DeviceProfile, points: Points) -> None:
    """Efficiencies of `source` over the roofline of `target`, against what was measured there."""
    profile = target.model_copy(update={"kernel_table": source, "kernel_table_is_own": False})
    table = load_kernels(profile)
    print(f"\n{target.id} predicted from {source}: median of log(predicted / measured), spread")
    for name, columns in points.items():
        log = np.log(kernel_errors.predict(table, name, columns) / columns["t"])
        print(f"  {name:28}{np.median(log):+8.2f}{np.std(log):8.2f}")


def speed() -> None:
    """Loading and looking up."""
    device = load_device("h100-80-sxm")
    start = time.perf_counter()
    table = load_kernels(device)
    print(f"\nload {1e3 * (time.perf_counter() - start):.1f} ms (cached when read before)")
    rng = np.random.default_rng(0)
    m = rng.uniform(1, 40_000, LOOKUPS)
    n = rng.choice([4096.0, 6144.0, 11008.0], LOOKUPS)
    start = time.perf_counter()
    table.gemm_s(m, n, 4096)
    print(f"GEMM lookups {LOOKUPS / (time.perf_counter() - start) / 1e6:.1f} million a second")


def _report(
    what: str, table: KernelTable, name: str, columns: Columns, rows: npt.NDArray[np.bool_]
) -> None:
    _print_line(what, _errors(table, name, pick(columns, rows)))


def _errors(table: KernelTable, name: str, columns: Columns) -> FloatArray:
    return np.asarray(np.abs(kernel_errors.predict(table, name, columns) / columns["t"] - 1))


def _print_line(what: str, error: FloatArray) -> None:
    print(f"{what:36}{len(error):8}{_share(error, 50):>9}{_share(error, 90):>9}")


def _share(error: FloatArray, percentile: float) -> str:
    return f"{100 * np.percentile(error, percentile):.1f} %" if len(error) else "-"


if __name__ == "__main__":
    main(sys.argv[1:])
