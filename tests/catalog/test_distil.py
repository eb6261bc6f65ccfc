"""The committed kernel tables are what the tool makes of the package that they name."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("device_id", ["a100-80-sxm", "h100-80-sxm", "gb200-nvl72"])
def test_distilling_again_gives_the_committed_table(
    device_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("aiconfigurator_core")
    if version("aiconfigurator-core") != "0.12.0":
        pytest.skip("the tables were made from aiconfigurator-core 0.12.0")
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    distil = importlib.import_module("distil_kernels")
    hardware = importlib.import_module("planner.catalog.hardware")

    device = hardware.load_device(device_id)
    root = distil.package_data() / distil.SYSTEMS[device_id]
    made = distil.build_arrays(distil.read_points(root, device), device)
    with np.load(ROOT / "hardware_profiles" / "kernels" / f"{device_id}.npz") as committed:
        assert set(committed.files) == set(made)
        for name in committed.files:
            np.testing.assert_array_equal(committed[name], made[name], err_msg=name)
