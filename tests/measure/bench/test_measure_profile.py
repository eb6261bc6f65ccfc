"""From samples to files that the planner plans with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from measured_samples import (
    BYTES_PER_S,
    ELEMENTWISE,
    FLOP_PER_S,
    GRID,
    LATENCY_S,
    LINK_BYTES_PER_S,
    LOSS_BYTES,
    ROUND_S,
    facts,
    samples,
    seconds,
)
from typer.testing import CliRunner

from planner.catalog.hardware import device_file as shipped
from planner.catalog.hardware import parse_cluster
from planner.catalog.kernels import kernel_arrays
from planner.cli.files import write_files
from planner.cli.main import app
from planner.cost.kernel_tables import load_kernels, table_from_arrays
from planner.errors import InputError
from planner.measure.bench.measure import assemble
from planner.measure.bench.points import Point, points
from planner.measure.bench.profile import device_file, figures, trainer_constants
from planner.measure.bench.table import table_arrays


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("measured")
    write_files(path, assemble(samples(), facts(), None, None, {}).files)
    return path


def test_figures_are_those_of_the_machine() -> None:
    found = figures(samples(), facts())
    value = {name: figure.value for name, figure in found.items()}
    assert value["gemm_flop_per_s"] == pytest.approx(FLOP_PER_S, rel=0.01)
    assert value["memory_streaming_bytes_per_s"] == pytest.approx(BYTES_PER_S)
    assert value["kernel_latency_s"] == LATENCY_S
    assert value["scale_up_bytes_per_s"] == pytest.approx(LINK_BYTES_PER_S, rel=0.01)
    assert value["scale_up_collective_bytes_per_s"] == pytest.approx(
        0.5 * LINK_BYTES_PER_S, rel=0.01
    )
    assert value["scale_up_latency_s"] == pytest.approx(ROUND_S, rel=0.02)
    assert value["loss_bytes_per_logit"] == pytest.approx(LOSS_BYTES)
    assert trainer_constants(found)["elementwise_factor"] == pytest.approx(ELEMENTWISE)


def test_the_planner_reads_the_device_from_a_cluster_and_from_a_short_name(folder: Path) -> None:
    cluster = parse_cluster(folder / "box.cluster.yaml")
    short = parse_cluster(f"{folder}/box.yaml:1x2")
    for group in (cluster.groups[0], short.groups[0]):
        assert (group.nodes, group.devices_per_node) == (1, 2)
        assert group.device.peak_flop_per_s["bf16"] == pytest.approx(FLOP_PER_S, rel=0.01)
        assert group.device.scale_up_efficiency == pytest.approx(0.5, rel=0.02)
        kernels = load_kernels(group.device)
        assert kernels.is_own
        assert float(kernels.gemm_s(64, 1024, 1024)) == pytest.approx(
            seconds(Point("gemm", (64, 1024, 1024))), rel=0.01
        )


def test_the_table_gives_back_every_measured_time(folder: Path) -> None:
    table = load_kernels(parse_cluster(folder / "box.cluster.yaml").groups[0].device)
    for point in points("cpu", GRID, node_ranks=2):
        kernel, shape = point.kernel, point.shape
        if kernel == "gemm":
            time_s = table.gemm_s(*shape)
        elif kernel == "prefill" and shape[2] >= shape[3]:
            head_dim, tokens, rows, group = shape
            time_s = table.prefill_attention_s(1, tokens, rows, rows // group, head_dim)
        elif kernel == "decode":
            head_dim, context, rows, group = shape
            time_s = table.decode_attention_s(rows, context, group, 1, head_dim)
        elif kernel in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
            # The planner's message of n 2-byte words is the one of n words that was measured.
            time_s = table.collective_s(kernel, shape[0], 2 * shape[1])  # type: ignore[arg-type]
        else:
            continue
        assert float(time_s) == pytest.approx(seconds(point), rel=2e-3), point.key


def test_a_measured_machine_gets_a_plan(folder: Path) -> None:
    problem = folder / "problem.yaml"
    problem.write_text(
        "algorithm: grpo\nmodels: {actor: Qwen/Qwen2.5-0.5B}\n"
        f"cluster: {folder}/box.cluster.yaml\n"
        "batch: {prompts: 4, samples: 2}\nprompt: {mean: 50, max: 100}\n"
        "response: {mean: 100, max: 200}\n"
    )
    result = CliRunner().invoke(app, ["plan", str(problem), "--details", "0"])
    assert result.exit_code == 0, result.output
    assert "2 devices" in result.output


def test_what_was_not_measured_keeps_the_other_devices_ratios() -> None:
    base = kernel_arrays("h100-80-sxm")
    device = shipped("h100-80-sxm").profile()
    measured = table_from_arrays(table_arrays(samples().values(), device, base), device)
    original = table_from_arrays(base, device)
    assert np.array_equal(measured.moe["bf16"].values, original.moe["bf16"].values)
    assert np.array_equal(measured.gemm["fp8"].values, original.gemm["fp8"].values)
    # One head size was measured; no shape may mix it with another device's windows.
    assert set(measured.prefill) == {(64, 0)}
    assert {key for key in measured.decode if key[2] == "bf16"} == {(64, 0, "bf16")}


def test_a_corner_that_could_not_be_measured_holds_the_nearest_rate() -> None:
    known = samples()
    del known[Point("gemm", (1024, 1024, 1024)).key]
    device = device_file(figures(known, facts()), facts(), None, "h100-80-sxm").profile()
    base = kernel_arrays("h100-80-sxm")
    table = table_from_arrays(table_arrays(known.values(), device, base), device)
    largest = (seconds(Point("gemm", (1024, 1024, 128))) - LATENCY_S) * 8
    assert float(table.gemm_s(1024, 1024, 1024)) == pytest.approx(largest, rel=0.15)


def test_a_known_gpu_keeps_its_peaks_price_and_topology() -> None:
    known = shipped("h100-80-sxm")
    gpu = facts(kind="cuda", dtype_bytes=2, name="NVIDIA H100 80GB HBM3")
    text = assemble(samples(ranks=1), gpu, known, known.id, {}).files["box.yaml"]
    assert isinstance(text, str)
    for line in ("bf16: 989.0", "scale_up_domain_devices: 8", "scale_up_bandwidth_gb_s: 450.0"):
        assert line in text
    assert "scale-up link not measured (one process): from the shipped profile" in text


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "box.npz").write_bytes(b"PK"), "cannot be read"),
        (lambda folder: np.savez(folder / "box.npz", x=np.ones(1)), "lacks gemm"),
        (lambda folder: (folder / "box.npz").unlink(), "cannot be read"),
        (lambda folder: (folder / "box.yaml").write_text("id: box\n"), "missing field"),
        (lambda folder: (folder / "box.yaml").unlink(), "no such file"),
    ],
)
def test_damaged_files_give_one_clear_message(tmp_path: Path, damage, message: str) -> None:
    write_files(tmp_path, assemble(samples(), facts(), None, None, {}).files)
    damage(tmp_path)
    with pytest.raises(InputError, match=message):
        parse_cluster(tmp_path / "box.cluster.yaml")
