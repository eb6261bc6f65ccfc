"""Making kernel tables: gaps, engines, and that the committed ones are what the tool makes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A module of `tools/` by its name."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    return importlib.import_module


def points(rows: list[tuple[float, float, float, float]]) -> dict[str, np.ndarray]:
    """Columns of (engine, m, n, seconds)."""
    return dict(zip(("engine", "m", "n", "t"), np.array(rows).T, strict=True))


def test_a_point_that_the_faster_engine_did_not_run_is_left_out(
    tool: Callable[[str], ModuleType],
) -> None:
    fast = [(0.0, m, 1.0, 1e-5 * m) for m in (1.0, 2.0, 8.0)]
    slow = [(1.0, m, 1.0, 2e-5 * m) for m in (1.0, 2.0, 4.0, 8.0, 16.0, 128.0)]
    rows = points(fast + slow)
    kept = tool("kernel_engines").fastest_where_known(rows, [rows["n"]], rows["m"])
    # 4 lies between points of the fast engine, 16 just beyond them, 128 too far to tell.
    np.testing.assert_array_equal(kept["m"], [1, 2, 8, 128])
    np.testing.assert_allclose(kept["t"], [1e-5, 2e-5, 8e-5, 256e-5])
    assert "engine" not in kept


def test_a_point_stays_when_the_absent_engine_is_slower(
    tool: Callable[[str], ModuleType],
) -> None:
    slow = [(0.0, m, 1.0, 3e-5) for m in (1.0, 4.0)]
    fast = [(1.0, m, 1.0, 1e-5) for m in (1.0, 2.0, 4.0)]
    rows = points(slow + fast)
    kept = tool("kernel_engines").fastest_where_known(rows, [rows["n"]], rows["m"])
    np.testing.assert_array_equal(kept["m"], [1, 2, 4])
    np.testing.assert_allclose(kept["t"], 1e-5)


def test_no_points_stay_no_points(tool: Callable[[str], ModuleType]) -> None:
    empty = {name: np.zeros(0) for name in ("engine", "m", "n", "t")}
    kept = tool("kernel_engines").fastest_where_known(empty, [empty["n"]], empty["m"])
    assert len(kept["t"]) == 0


def test_a_point_that_the_cache_served_goes_with_all_its_engines(
    tool: Callable[[str], ModuleType],
) -> None:
    served = [(0.0, 1.0, 1.0, 1e-6), (1.0, 1.0, 1.0, 3e-6)]
    one_of_three = [(0.0, 2.0, 1.0, 1e-6), (1.0, 2.0, 1.0, 3e-6), (2.0, 2.0, 1.0, 4e-6)]
    rows = points(served + one_of_three + [(0.0, 3.0, 1.0, 3e-6)])
    kept = tool("kernel_engines").without_cached(rows, rows["t"] < 2e-6)
    np.testing.assert_array_equal(kept["m"], [2, 2, 3])
    np.testing.assert_array_equal(kept["engine"], [1, 2, 0])


def test_gaps_follow_the_coordinate_that_measurements_depend_on(
    tool: Callable[[str], ModuleType],
) -> None:
    axes = (np.arange(6.0), np.arange(6.0))
    product = axes[0][:, None] + axes[1][None, :]  # logarithms add
    truth = np.sin(2 * product)  # no line along an axis is smooth
    values = truth.copy()
    gaps = ([1, 2, 3, 4], [3, 1, 4, 2])
    values[gaps] = np.nan
    coordinates = np.array([[1, 1], [0, 1]]) / [[1], [100]]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1) @ coordinates.T
    by_neighbours = values.copy()
    tool("kernel_fill").fill_grid(values, axes, (0, 1), places)
    tool("kernel_fill").fill_grid(by_neighbours, axes, (0, 1))
    assert np.abs(values - truth).max() < 0.1
    assert np.abs(by_neighbours - truth).max() > 0.4


def test_correlated_gaps_lie_on_the_line_between_their_neighbours(
    tool: Callable[[str], ModuleType],
) -> None:
    axes = (np.arange(2.0), np.array([0.0, 1.0, 2.0, 4.0, 5.0]))
    truth = 3.0 * axes[0][:, None] + 0.1 * axes[1][None, :]
    values = truth.copy()
    values[0, 3] = np.nan
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1) / [1.0, 30.0]
    tool("kernel_fill").fill_grid(values, axes, (1, 0), places)
    np.testing.assert_allclose(values, truth, atol=0.01)


def test_sparse_curves_are_kept_but_not_those_of_two_points(
    tool: Callable[[str], ModuleType],
) -> None:
    tokens = np.array([*2.0 ** np.arange(8), 1, 16, 128, 1, 128])
    inner = np.repeat([512.0, 768.0, 1024.0], [8, 3, 2])
    one = {"hidden": 2048.0, "top_k": 2.0, "experts": 16.0, "tp": 1.0, "ep": 1.0}
    columns = {name: np.full(len(tokens), value) for name, value in one.items()}
    columns |= {"inner": inner, "tokens": tokens, "t": 1e-5 * tokens**0.5}
    hardware = importlib.import_module("planner.catalog.hardware")
    grids = tool("kernel_grids")
    base = grids.Base(hardware.load_device("h100-80-sxm"))
    shapes, _, values = grids.moe_curves(columns, base, "bf16")
    np.testing.assert_array_equal(shapes[:, 1], [512, 768])
    assert np.isfinite(values).all()


def test_gaps_of_a_grid_follow_a_step_that_all_lines_have(
    tool: Callable[[str], ModuleType],
) -> None:
    rng = np.random.default_rng(0)
    axes = (np.log(2.0 ** np.arange(12)), np.log(2.0 ** np.arange(10)))
    step = np.where(np.arange(12) >= 6, 0.5, 0.0)
    truth = 0.1 * axes[0][:, None] - 0.05 * axes[1][None, :] + step[:, None]
    gaps = rng.random(truth.shape) < 0.2
    values = np.where(gaps, np.nan, truth)
    tool("kernel_fill").fill_grid(values, axes, (0, 1))
    np.testing.assert_array_equal(values[~gaps], truth[~gaps])
    inside = gaps.copy()
    inside[[0, -1], :] = inside[:, [0, -1]] = False
    assert inside.sum() > 10
    assert np.median(np.abs(values - truth)[inside]) < 0.01
    assert np.abs(values - truth)[inside].max() < 0.15  # the step is 0.5


def test_a_grid_without_any_value_is_refused(tool: Callable[[str], ModuleType]) -> None:
    with pytest.raises(ValueError, match="no point at all"):
        tool("kernel_fill").fill_grid(np.full((3, 2), np.nan), (np.arange(3.0),) * 2, (0, 1))


def test_gaps_of_a_curve_bend_as_like_curves_do(tool: Callable[[str], ModuleType]) -> None:
    log_x = np.log(2.0 ** np.arange(8))
    bent = np.where(np.arange(8) == 4, 0.3, 0.0)
    values = 0.2 * log_x[None, :] + bent[None, :] + np.arange(10.0)[:, None]
    truth = values.copy()
    values[3, 4] = np.nan
    filled = tool("kernel_fill").fill_curves(values, log_x, np.arange(10.0)[:, None])
    straight = (truth[3, 3] + truth[3, 5]) / 2
    assert abs(filled[3, 4] - truth[3, 4]) < 0.25 * abs(straight - truth[3, 4])
    known = ~np.isnan(values)
    np.testing.assert_array_equal(filled[known], values[known])


@pytest.mark.slow
@pytest.mark.parametrize("device_id", ["a100-80-sxm", "h100-80-sxm", "gb200-nvl72"])
def test_distilling_again_gives_the_committed_table(
    device_id: str, tool: Callable[[str], ModuleType]
) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("aiconfigurator_core")
    if version("aiconfigurator-core") != "0.12.0":
        pytest.skip("the tables were made from aiconfigurator-core 0.12.0")
    distil = tool("distil_kernels")
    hardware = importlib.import_module("planner.catalog.hardware")

    device = hardware.load_device(device_id)
    root = distil.package_data() / distil.SYSTEMS[device_id]
    made = distil.build_arrays(distil.read_points(root, device), device)
    with np.load(ROOT / "hardware_profiles" / "kernels" / f"{device_id}.npz") as committed:
        assert set(committed.files) == set(made)
        for name in committed.files:
            np.testing.assert_array_equal(committed[name], made[name], err_msg=name)
