"""What managers print -> a cluster file; their tools are stood in for by scripts in PATH."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.catalog.hardware import cluster_from, list_devices, parse_cluster
from planner.cli.main import app
from planner.errors import InputError
from planner.measure.detect.cluster import detect
from planner.measure.detect.names import device_of

NVIDIA = "NVIDIA H100 80GB HBM3, 81559\n" * 8


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a tool into an otherwise empty PATH that prints what it is told."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in ("SLURM_JOB_ID", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)

    def install(name: str, text: str, code: int = 0) -> None:
        (folder / f"{name}.txt").write_text(text)
        script = folder / name
        script.write_text(f"#!/bin/sh\n/bin/cat {folder}/{name}.txt\nexit {code}\n")
        script.chmod(0o755)

    return install


@pytest.mark.parametrize(
    ("name", "gib", "device"),
    [
        ("NVIDIA H100 80GB HBM3", 79.6, "h100-80-sxm"),
        ("NVIDIA-H100-80GB-HBM3", None, "h100-80-sxm"),
        ("NVIDIA H100 PCIe", 79.6, "h100-80-pcie"),
        ("NVIDIA H100 NVL", 93.6, "h100-94-nvl"),
        ("NVIDIA A100-SXM4-40GB", 40.0, "a100-40-sxm"),
        ("NVIDIA A100-SXM4-80GB", 80.0, "a100-80-sxm"),
        ("NVIDIA A100 80GB PCIe", 80.0, "a100-80-pcie"),
        ("NVIDIA A100-PCIE-40GB", 40.0, "a100-40-pcie"),
        ("NVIDIA H200", 140.4, "h200-141-sxm"),
        ("NVIDIA H20", 95.6, "h20-96"),
        ("NVIDIA GB200", 185.0, "gb200-nvl72"),
        ("NVIDIA B200", 179.0, "b200-sxm"),
        ("NVIDIA L40S", 45.0, "l40s-48"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 95.6, "rtx-pro-6000-server"),
        ("NVIDIA GeForce RTX 4090", 24.0, "rtx4090-24"),
        ("nvidia_a100_40gb", None, "a100-40-sxm"),
        ("AMD Instinct MI300X OAM", 192.0, "mi300x"),
        ("h100", None, "h100-80-sxm"),
        ("Tesla V100-SXM2-32GB", 32.0, None),
        ("gpu", None, None),
    ],
)
def test_names_of_drivers_and_managers(name: str, gib: float | None, device: str | None) -> None:
    assert device_of(name, gib) == device


def test_every_profile_goes_by_its_own_name() -> None:
    assert all(device_of(device) == device for device in list_devices())


def test_this_machine(tool) -> None:
    tool("nvidia-smi", NVIDIA)
    found = detect()
    assert found.source == "machine"
    (group,) = found.content["groups"]
    assert (group["device"], group["nodes"], group["devices_per_node"]) == ("h100-80-sxm", 1, 8)
    assert cluster_from(found.content, "test", "x").devices == 8


def test_amd(tool) -> None:
    cards = {
        f"card{i}": {
            "Card Series": "AMD Instinct MI300X OAM",
            "VRAM Total Memory (B)": "206141652992",
        }
        for i in range(4)
    }
    tool("rocm-smi", json.dumps(cards | {"system": {}}))
    (group,) = detect("machine").content["groups"]
    assert (group["device"], group["devices_per_node"]) == ("mi300x", 4)


def test_slurm_counts_a_node_once_and_leaves_out_those_that_are_down(tool) -> None:
    tool(
        "sinfo",
        "n1|gpu:h100:8(S:0-1)|2063512|idle\nn1|gpu:h100:8(S:0-1)|2063512|idle\n"
        "n2|gpu:h100:8|2063000|allocated\nn3|gpu:h100:8|2063000|down*\n"
        "n4|(null)|512000|idle\nn5|gpu:a100:4|1031000|mixed\n",
    )
    found = detect("slurm")
    groups = {g["device"]: (g["nodes"], g["devices_per_node"]) for g in found.content["groups"]}
    assert groups == {"h100-80-sxm": (2, 8), "a100-80-sxm": (1, 4)}
    assert any("is taken for" in note for note in found.notes)


def test_kubernetes(tool) -> None:
    def node(product: str, count: str, unschedulable: bool = False) -> dict:
        return {
            "metadata": {
                "labels": {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": "81559"}
            },
            "spec": {"unschedulable": True} if unschedulable else {},
            "status": {"allocatable": {"nvidia.com/gpu": count, "memory": "2113476Mi"}},
        }

    items = [node("NVIDIA-H100-80GB-HBM3", "8")] * 3
    items += [node("NVIDIA-H100-80GB-HBM3", "8", True), node("Tesla-V100", "8")]
    tool("kubectl", json.dumps({"items": items}))
    found = detect("kubernetes")
    (group,) = found.content["groups"]
    assert (group["nodes"], group["devices_per_node"]) == (3, 8)
    assert any("Tesla-V100" in note for note in found.notes)


def test_ray(tool) -> None:
    nodes = [
        {
            "state": state,
            "resources_total": {"GPU": 8.0, "accelerator_type:H200": 1.0, "memory": 2.0e12},
        }
        for state in ("ALIVE", "ALIVE", "DEAD")
    ]
    tool("ray", json.dumps([*nodes, {"state": "ALIVE", "resources_total": {"CPU": 64.0}}]))
    (group,) = detect("ray").content["groups"]
    assert (group["device"], group["nodes"]) == ("h200-141-sxm", 2)


def test_what_is_missing_fails_or_speaks_nonsense_is_said(tool) -> None:
    with pytest.raises(InputError, match="neither nvidia-smi nor rocm-smi"):
        detect("machine")
    tool("nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch", 18)
    with pytest.raises(InputError, match="Driver/library version mismatch"):
        detect("machine")
    tool("kubectl", "not json")
    with pytest.raises(InputError, match="not the JSON"):
        detect("kubernetes")
    with pytest.raises(InputError, match="is not installed"):
        detect("slurm")
    with pytest.raises(InputError, match="no source 'slrum'"):
        detect("slrum")
    tool("nvidia-smi", "Tesla V100-SXM2-32GB, 32768\n")
    with pytest.raises(InputError, match=r"V100.*docs/adding-a-device"):
        detect("machine")


def test_the_command_writes_a_file_that_plans_take(tool, tmp_path: Path) -> None:
    tool("nvidia-smi", NVIDIA)
    file = tmp_path / "cluster.yaml"
    result = CliRunner().invoke(app, ["detect", "-o", str(file)])
    assert result.exit_code == 0
    assert parse_cluster(file).devices == 8
    shown = CliRunner().invoke(app, ["detect", "--json"])
    assert json.loads(shown.stdout)["cluster"]["groups"][0]["device"] == "h100-80-sxm"
