"""Kernel tables: measured points, physical laws, and what happens off the grid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog.data import load_yaml
from planner.catalog.hardware import list_devices, load_device
from planner.catalog.kernels import list_kernel_tables
from planner.cost import kernel_work
from planner.cost.grid import Grid, MoECurves
from planner.cost.kernel_tables import load_kernels, table_from_arrays
from planner.cost.kernels import COLLECTIVES, KernelTable
from planner.errors import InputError

CASES = json.loads((Path(__file__).parent.parent / "cases" / "kernel_points.json").read_text())
H100 = load_kernels(load_device("h100-80-sxm"))
A100 = load_kernels(load_device("a100-80-sxm"))
H100_PEAK, H100_BANDWIDTH = 989e12, 3.35e12


def predict(point: dict[str, Any]) -> float:
    table = load_kernels(load_device(point["device"]))
    p = point
    kernel, _, rest = p["kernel"].partition("_")
    dtype: Any = p["kernel"].split("_")[-1]
    if kernel == "gemm":
        return float(table.gemm_s(p["m"], p["n"], p["k"], dtype))
    if kernel == "moe":
        shape = (p["hidden"], p["inner"], p["top_k"], p["experts"])
        return float(table.moe_s(p["tokens"], *shape, p["tp"], p["ep"], dtype))
    if kernel == "prefill":
        heads = (p["heads"], p["kv_heads"], p["head_dim"])
        return float(
            table.prefill_attention_s(p["batch"], p["tokens"], *heads, p["window"] or None)
        )
    if kernel == "decode":
        heads = (p["heads"], p["kv_heads"], p["head_dim"])
        window = p["window"] or None
        return float(table.decode_attention_s(p["batch"], p["context"], *heads, dtype, window))
    if p["kernel"] == "mla_prefill":
        return float(table.mla_prefill_s(p["batch"], p["tokens"], p["heads"]))
    if p["kernel"] == "mla_absorb":
        return float(table.mla_absorb_s(p["tokens"], p["heads"]))
    if kernel == "mla":
        return float(table.mla_decode_s(p["batch"], p["context"], p["heads"], dtype))
    if p["kernel"] == "all_reduce_graph":
        return float(table.all_reduce_decode_s(p["devices"], p["nbytes"]))
    kind: Any = rest
    return float(table.collective_s(kind, p["devices"], p["nbytes"]))


def test_measured_points_are_reproduced() -> None:
    ratio = np.array([predict(p) / p["measured_s"] for p in CASES["points"]])
    error = np.abs(ratio - 1)
    assert len(error) > 200
    assert np.median(error) < 0.02
    assert np.quantile(error, 0.9) < 0.10
    assert np.all((ratio > 0.5) & (ratio < 2.0))


@pytest.mark.parametrize("name", list_kernel_tables())
def test_held_out_errors_recorded_with_each_table_meet_the_targets(name: str) -> None:
    about = load_yaml(Path(__file__).parents[2] / "hardware_profiles" / "kernels" / f"{name}.yaml")
    errors = about["held_out_error"]
    assert len(errors) >= 13
    for kernel, error in errors.items():
        assert error["median"] < 0.05, kernel
        assert error["p90"] <= 0.15, kernel


def test_tables_are_small_and_say_where_they_come_from() -> None:
    folder = Path(__file__).parents[2] / "hardware_profiles" / "kernels"
    sizes = [path.stat().st_size for path in folder.glob("*.npz")]
    assert len(sizes) >= 6
    assert max(sizes) < 1.5e6
    assert sum(sizes) < 12e6
    for name in list_kernel_tables():
        about = load_yaml(folder / f"{name}.yaml")
        assert about["source"].startswith("aiconfigurator-core 0.12.0")
        assert "Apache-2.0" in about["license"]
        assert about["engines"]


@pytest.mark.parametrize("device_id", list_devices())
def test_every_device_has_finite_kernel_times(device_id: str) -> None:
    device = load_device(device_id)
    table = load_kernels(device)
    assert table.device == device_id
    assert table.is_own == device.kernel_table_is_own
    times = [
        table.gemm_s([1, 4096, 10**6], 4096, 4096),
        table.prefill_attention_s(2, [128, 8192, 200_000], 32, 8, 128),
        table.decode_attention_s([1, 64, 5000], 4096, 32, 8, 128),
        table.mla_prefill_s(1, [128, 8192], 16),
        table.mla_decode_s([1, 64], 4096, 16),
        table.moe_s([1, 4096, 10**6], 2048, 768, 8, 128, 1, 8),
        *(table.collective_s(kind, [2, 8, 64], 2**20) for kind in COLLECTIVES),
        table.all_reduce_decode_s([2, 8, 64], 2**16),
    ]
    for time in times:
        assert np.all(np.isfinite(time))
        assert np.all(time > 0)


sizes = st.integers(1, 100_000)


@given(m=sizes, n=sizes, k=sizes, dtype=st.sampled_from(["bf16", "fp8"]))
def test_gemm_never_beats_the_roofline(m: int, n: int, k: int, dtype: Any) -> None:
    peak = H100.peak_flop_per_s[dtype]
    width = 2 if dtype == "bf16" else 1
    bound = max(2 * m * n * k / peak, (width * k * (m + n) + 2 * m * n) / H100_BANDWIDTH)
    assert H100.gemm_s(m, n, k, dtype) >= bound * (1 - 1e-12)


@given(
    b=st.integers(1, 512),
    s=st.integers(1, 200_000),
    g=st.integers(1, 16),
    q=st.integers(1, 16),
    d=st.sampled_from([64, 80, 96, 128, 256]),
)
def test_attention_never_beats_the_roofline(b: int, s: int, g: int, q: int, d: int) -> None:
    flop = 4 * b * g * q * d * s * (s + 1) / 2
    assert H100.prefill_attention_s(b, s, g * q, g, d) >= flop / H100_PEAK * (1 - 1e-12)
    cache = 2 * b * g * s * d * 2
    assert H100.decode_attention_s(b, s, g * q, g, d) >= cache / H100_BANDWIDTH * (1 - 1e-12)


@given(
    tokens=st.integers(1, 100_000),
    tp=st.sampled_from([1, 2, 4, 8]),
    ep=st.sampled_from([1, 2, 8, 32, 128]),
    shape=st.sampled_from([(2048, 768, 8, 128), (7168, 2048, 8, 256), (5120, 1536, 8, 160)]),
)
def test_experts_never_beat_the_roofline(
    tokens: int, tp: int, ep: int, shape: tuple[int, int, int, int]
) -> None:
    hidden, inner, top_k, _ = shape
    flop = 6 * hidden * inner * tokens * top_k / tp / ep
    assert H100.moe_s(tokens, *shape, tp, ep) >= flop / H100_PEAK * (1 - 1e-12)


def test_beyond_the_grid_the_rate_is_held_not_the_time() -> None:
    edge, far = H100.gemm_s([32_768, 327_680], 8192, 8192)
    assert far / edge == pytest.approx(10, rel=0.02)
    edge, far = H100.decode_attention_s(2048, [131_072, 1_310_720], 8, 8, 128)
    assert far / edge == pytest.approx(10, rel=0.02)
    edge, far = H100.collective_s("all_gather", 8, np.array([2.0**30, 2.0**33]))
    assert far / edge == pytest.approx(8, rel=0.02)
    edge, far = H100.moe_s([16_384, 163_840], 2048, 768, 8, 128, 1, 1)
    assert far / edge == pytest.approx(10, rel=0.05)


def test_results_broadcast_and_equal_single_lookups() -> None:
    m = np.array([[1.0], [77.0], [5000.0]])
    n = np.array([[512, 4096, 11008, 65536]])
    together = H100.gemm_s(m, n, 4096)
    assert together.shape == (3, 4)
    assert together.dtype == np.float64
    single = [[float(H100.gemm_s(a, b, 4096)) for b in n[0]] for a in m[:, 0]]
    np.testing.assert_allclose(together, single)
    moe = H100.moe_s(m, 2048, 768, 8, 128, 1, np.array([[1, 2, 4, 8]]))
    assert moe.shape == (3, 4)
    assert moe[1, 2] == H100.moe_s(77.0, 2048, 768, 8, 128, 1, 4)


def test_decode_time_is_continuous_in_the_batch() -> None:
    batch = np.linspace(1, 300, 5000)
    time = H100.decode_attention_s(batch, 4000.0, 8, 1, 128)
    assert np.max(np.abs(np.diff(np.log(time)))) < 0.05


def test_fp8_without_measurements_takes_the_efficiency_of_bf16() -> None:
    gemm_bf16 = {"bf16": H100.gemm["bf16"]}
    only = KernelTable(**{**H100.__dict__, "gemm": gemm_bf16})
    m, n, k = 8192, 8192, 8192
    bound = 2 * m * n * k / np.array([989e12, 1979e12]) + H100.latency_s
    bf16, fp8 = only.gemm_s(m, n, k), only.gemm_s(m, n, k, "fp8")
    assert bf16 / bound[0] == pytest.approx(fp8 / bound[1])


def test_a_dtype_that_the_device_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="a100-80-sxm cannot compute in fp8"):
        A100.gemm_s(128, 4096, 4096, "fp8")


def test_scaling_to_the_same_device_changes_nothing() -> None:
    same = H100.scaled_to(load_device("h100-80-sxm"))
    assert same.gemm_s(300, 5120, 5120) == H100.gemm_s(300, 5120, 5120)


def test_a_scaled_table_follows_peak_bandwidth_and_link() -> None:
    h100 = load_device("h100-80-sxm")
    fast = h100.model_copy(
        update={
            "id": "twice",
            "peak_flop_per_s": {"bf16": 2 * H100_PEAK},
            "memory_bandwidth_bytes_per_s": 3 * H100_BANDWIDTH,
            "scale_up_bandwidth_bytes_per_s": 4 * h100.scale_up_bandwidth_bytes_per_s,
            "kernel_table_is_own": False,
        }
    )
    table = load_kernels(fast)
    assert not table.is_own
    compute = H100.gemm_s(16_384, 16_384, 16_384) / table.gemm_s(16_384, 16_384, 16_384)
    assert compute == pytest.approx(2, rel=0.01)
    memory = [t.decode_attention_s(512, 8192.0, 8, 8, 128) for t in (H100, table)]
    assert memory[0] / memory[1] == pytest.approx(3, rel=0.02)
    link = [t.collective_s("all_gather", 8, 2.0**30) for t in (H100, table)]
    assert link[0] / link[1] == pytest.approx(4, rel=0.03)


def test_a_pcie_card_takes_collectives_measured_over_pcie() -> None:
    pcie = load_kernels(load_device("h100-80-pcie"))
    card = load_kernels(load_device("rtx-pro-6000-server"))
    assert pcie.gemm is H100.gemm
    size = 2.0**28
    own, other = (t.collective_s("all_reduce", 8, size) for t in (pcie, card))
    assert own == pytest.approx(other, rel=0.01)  # both have 64 GB/s
    assert own > 5 * H100.collective_s("all_reduce", 8, size)


def test_an_unmeasured_head_size_takes_the_nearest_efficiency() -> None:
    def rate(head_dim: int) -> float:
        flop = kernel_work.prefill_attention_work(1, 8192, 32, 8, head_dim).flop
        return float(flop / H100.prefill_attention_s(1, 8192, 32, 8, head_dim))

    assert rate(96) == pytest.approx(rate(128), rel=0.02)
    assert rate(72) == pytest.approx(rate(64), rel=0.02)
    assert rate(64) != pytest.approx(rate(128), rel=0.02)


def test_windows_bound_the_work_of_attention() -> None:
    for window in (128, 1024, 4096):
        full = H100.prefill_attention_s(1, 32_768, 32, 8, 128)
        windowed = H100.prefill_attention_s(1, 32_768, 32, 8, 128, window)
        assert windowed < 0.5 * full
        near, far = H100.decode_attention_s(64, [2 * window, 131_072], 32, 8, 128, "bf16", window)
        assert far / near == pytest.approx(1, rel=0.25)


def test_a_window_longer_than_the_sequence_is_full_attention() -> None:
    full = H100.prefill_attention_s(4, 2048, 32, 8, 128)
    assert H100.prefill_attention_s(4, 2048, 32, 8, 128, 32_768) == pytest.approx(float(full))
    full = H100.decode_attention_s(4, 2048, 32, 8, 128)
    assert H100.decode_attention_s(4, 2048, 32, 8, 128, "bf16", 32_768) == full


def test_splitting_experts_over_more_devices_never_costs_more() -> None:
    tokens = np.array([[1], [16], [256], [4096], [16_384]])
    shares = np.array([[1, 2, 4, 8, 16, 32, 64]])
    time = H100.moe_s(tokens, 2048, 768, 8, 128, 1, shares)
    assert np.all(np.diff(time, axis=1) <= 1e-12 + 0.001 * time[:, 1:])


def test_expert_time_grows_with_tokens() -> None:
    tokens = np.array([1, 2, 4, 8, 16, 64, 256, 1024, 4096, 16_384])
    time = H100.moe_s(tokens, 4096, 1536, 8, 128, 2, 4)
    assert np.all(np.diff(time) >= -1e-3 * time[1:])


def test_an_unmeasured_moe_lies_near_its_neighbours() -> None:
    own = H100.moe_s([64, 4096], 2048, 768, 8, 128, 1, 8)
    close = H100.moe_s([64, 4096], 2048, 832, 8, 128, 1, 8)
    np.testing.assert_allclose(close / own, 832 / 768, rtol=0.15)


def test_one_device_needs_no_collective() -> None:
    for kind in COLLECTIVES:
        assert H100.collective_s(kind, 1, 2**20) == 0
        assert H100.collective_s(kind, 8, 0) == 0
    assert H100.all_reduce_decode_s(1, 2**20) == 0


@given(st.sampled_from(COLLECTIVES), st.integers(2, 72), st.integers(9, 36))
def test_collectives_grow_with_bytes_and_obey_the_link(kind: Any, n: int, power: int) -> None:
    small, large = H100.collective_s(kind, n, np.array([2.0**power, 2.0 ** (power + 1)]))
    assert large >= small * 0.97  # extrapolated devices carry the noise of the last measured
    assert small >= (n - 1) / n * 2.0**power / 450e9 * (1 - 1e-12)


def test_a_decode_all_reduce_beats_nccl_at_small_sizes_only() -> None:
    small, large = 2**14, 2**29
    assert H100.all_reduce_decode_s(8, small) < 0.5 * H100.collective_s("all_reduce", 8, small)
    ratio = H100.all_reduce_decode_s(8, large) / H100.collective_s("all_reduce", 8, large)
    assert ratio == pytest.approx(1, rel=0.1)


def test_more_devices_than_measured_take_longer() -> None:
    for kind in COLLECTIVES:
        times = H100.collective_s(kind, np.array([8, 16, 32, 72]), 2**16)
        assert np.all(np.diff(times) > 0)


@settings(max_examples=50)
@given(st.floats(0.5, 20), st.floats(0.5, 200))
def test_a_grid_is_linear_in_logarithms_and_constant_outside(x: float, y: float) -> None:
    axes = (np.log([1.0, 2.0, 8.0]), np.log([1.0, 10.0, 100.0]))
    values = 2.0 * axes[0][:, None] - 3.0 * axes[1][None, :]
    grid = Grid(axes, values)
    inside_x, inside_y = np.clip(x, 1, 8), np.clip(y, 1, 100)
    expected = 2 * np.log(inside_x) - 3 * np.log(inside_y)
    assert grid.at(x, y) == pytest.approx(expected, abs=1e-12)


def test_a_grid_with_one_point_on_an_axis_is_constant_there() -> None:
    grid = Grid((np.log([4.0]), np.log([1.0, 2.0])), np.array([[5.0, 7.0]]))
    np.testing.assert_allclose(grid.at([1, 100], [1, 2]), [5, 7])


def test_nearest_curves_are_read_at_equal_rows_per_expert() -> None:
    shapes = np.array([[1024, 512, 2, 16, 1, 1.0]])
    log_tokens = np.log([1.0, 10.0, 100.0])
    curves = MoECurves(shapes, log_tokens, np.array([[1.0, 2.0, 3.0]]))
    assert curves.at(10.0, 1024, 512, 2, 16, 1, 1) == pytest.approx(2.0)
    # A tenth of the experts: as many rows per expert come from a tenth of the tokens.
    assert curves.at(10.0, 1024, 512, 2, 160, 1, 1) == pytest.approx(1.0)


def test_an_incomplete_set_of_arrays_is_an_error() -> None:
    with pytest.raises(KeyError):
        table_from_arrays({}, load_device("h100-80-sxm"))


def test_an_unknown_table_is_refused_with_a_suggestion() -> None:
    device = load_device("h100-80-sxm").model_copy(update={"kernel_table": "h100-80"})
    with pytest.raises(InputError, match="Did you mean h100-80-sxm"):
        load_kernels(device)
