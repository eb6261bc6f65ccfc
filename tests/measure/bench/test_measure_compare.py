"""Slow machines are named, healthy ones are not."""

from __future__ import annotations

import pytest
from measured_samples import facts, samples

from planner.catalog.hardware import list_devices
from planner.catalog.kernels import kernel_arrays
from planner.cost.kernel_tables import table_from_arrays
from planner.measure.bench.compare import compare, recognised, warnings
from planner.measure.bench.journal import Sample
from planner.measure.bench.points import Point
from planner.measure.bench.profile import device_file, figures
from planner.measure.bench.table import table_arrays


def compared(now: dict[str, Sample]) -> dict[str, float]:
    """What is slow on a machine whose profile was measured when it was well: name -> slowdown."""
    well = samples()
    device = device_file(figures(well, facts()), facts(), None, "h100-80-sxm").profile()
    base = kernel_arrays("h100-80-sxm")
    table = table_from_arrays(table_arrays(well.values(), device, base), device)
    found = compare(now.values(), figures(now, facts()), table, device)
    assert {one.name for one in found} >= {"matrix products", "memory bandwidth", "collectives"}
    return {one.name: one.slowdown for one in found if one.is_slow}


def test_a_machine_like_its_profile_gets_no_warning() -> None:
    assert compared(samples()) == {}
    assert warnings(samples().values()) == []


def test_a_throttled_clock_slows_products_alone() -> None:
    now = samples(slower=lambda point, rank: 1.5 if point.kernel == "gemm" else 1.0)
    assert compared(now) == {"matrix products": pytest.approx(1.5, rel=0.01)}


def test_a_slow_link_slows_collectives_alone() -> None:
    now = samples(slower=lambda point, rank: 2.0 if point.is_collective else 1.0)
    assert compared(now) == {"collectives": pytest.approx(2.0, rel=0.01)}


def test_one_slow_device_among_eight_is_named() -> None:
    now = samples(
        ranks=8, slower=lambda point, rank: 1.3 if rank == 5 and point.kernel == "gemm" else 1.0
    )
    assert warnings(now.values()) == [
        "rank 5: matrix products 1.30 x the time of the median device"
    ]


def test_unsteady_times_are_named() -> None:
    restless = [Sample(Point("gemm", (i, 8, 8)), (1.0,), 0.6, 5) for i in range(1, 9)]
    assert "vary by 60 %" in warnings(restless)[0]


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-80-sxm"),
        ("NVIDIA H100 PCIe", "h100-80-pcie"),
        ("NVIDIA H200", "h200-141-sxm"),
        ("NVIDIA H20", "h20-96"),
        ("NVIDIA A100-SXM4-80GB", "a100-80-sxm"),
        ("NVIDIA A100-PCIE-40GB", "a100-40-pcie"),
        ("NVIDIA L40S", "l40s-48"),
        ("NVIDIA B200", "b200-sxm"),
        ("NVIDIA GB200", "gb200-nvl72"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD EPYC 9654", None),
    ],
)
def test_drivers_names_lead_to_shipped_profiles(name: str, device: str | None) -> None:
    assert recognised(name) == device
    assert device is None or device in list_devices()
