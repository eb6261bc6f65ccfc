"""A plan's devices as Ray bundles: each device once, calls on common devices in one group."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from launcher_cases import NEMO_CASES, QWEN_8B, VERL_CASES, grpo
from typer.testing import CliRunner

import planner
from planner.catalog.hardware import parse_cluster
from planner.cli.main import app
from planner.launchers import ray_groups
from planner.launchers.ray_placement import ray_files, ray_placement
from planner.schema import Mesh, Plan

CLUSTER = parse_cluster("h100:6x8")


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    first = draw(st.integers(0, 5))
    count = draw(st.integers(1, 6 - first))
    if count > 1:
        return Mesh(group="h100", first_node=first, nodes=count, devices_per_node=8)
    start = draw(st.integers(0, 7))
    width = draw(st.integers(1, 8 - start))
    return Mesh(group="h100", first_node=first, nodes=1, first_device=start, devices_per_node=width)


def with_meshes(found: dict[str, Mesh]) -> Plan:
    plan, _, _ = VERL_CASES["fsdp-async"]()
    assignment = plan.assignment.model_copy(update={"meshes": found})
    return plan.model_copy(update={"assignment": assignment})


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), meshes(), min_size=1))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_bundles_are_the_devices_of_the_plan(found: dict[str, Mesh]) -> None:
    placement = ray_placement(with_meshes(found), CLUSTER)
    seen: dict[tuple[str, int], tuple[int, int]] = {}
    for call, mesh in found.items():
        place = placement["calls"][call]
        bundles = placement["groups"][place["group"]]["bundles"]
        assert len(place["bundles"]) == len(set(place["bundles"])) == mesh.devices
        devices = [
            (mesh.first_node + node, mesh.first_device + device)
            for node in range(mesh.nodes)
            for device in range(mesh.devices_per_node)
        ]
        for (node, device), index in zip(devices, place["bundles"], strict=True):
            assert bundles[index]["node"] == f"h100-{node}"
            assert bundles[index]["resources"][f"rlmplan-h100-{node}"] > 0
            # A bundle is one device, whichever call it is read from.
            assert seen.setdefault((place["group"], index), (node, device)) == (node, device)
    assert len(set(seen.values())) == len(seen)
    # No bundle without a call, and no node has more bundles than devices.
    assert len(seen) == sum(len(group["bundles"]) for group in placement["groups"].values())
    for one, mesh in found.items():
        for other, mesh2 in found.items():
            if mesh.overlaps(mesh2):
                calls = placement["calls"]
                assert calls[one]["group"] == calls[other]["group"]


def test_separate_pools_are_separate_groups() -> None:
    plan, _, cluster = NEMO_CASES["ppo-reward"]()
    placement = ray_placement(plan, cluster)
    groups = {call: place["group"] for call, place in placement["calls"].items()}
    assert len(placement["groups"]) == 3
    assert groups["actor_train"] == groups["values"]
    assert len({groups["actor_train"], groups["generate"], groups["rewards"]}) == 3


def test_start_commands_give_each_node_its_resource() -> None:
    plan, _, cluster = VERL_CASES["megatron-colocated"]()
    commands = ray_groups.start_commands(ray_placement(plan, cluster))
    assert list(commands) == ["h100-0", "h100-1", "h100-2", "h100-3"]
    assert [name for name, command in commands.items() if "--head" in command] == ["h100-0"]
    for name, command in commands.items():
        words = shlex.split(command)
        resources = next(word for word in words if word.startswith("--resources="))
        assert json.loads(resources.partition("=")[2]) == {f"rlmplan-{name}": 1}
        assert "--num-gpus=8" in words


def test_the_written_module_stands_alone(tmp_path: Path) -> None:
    """It runs where neither the planner nor Ray is installed, up to the commands that start Ray."""
    import subprocess
    import sys

    plan, _, cluster = VERL_CASES["fsdp-async"]()
    for name, content in ray_files(plan, cluster).items():
        (tmp_path / name).write_text(content)
    result = subprocess.run(
        [sys.executable, "-I", "-S", str(tmp_path / "ray_groups.py"), "nodes"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.count("ray start") == 2


def test_export_writes_it_beside_the_launchers_files(tmp_path: Path) -> None:
    plans = planner.plan(
        grpo(QWEN_8B), parse_cluster("h100:2x8"), space="verl-fsdp", top=1, deadline_s=5, gap=0.1
    )
    path = tmp_path / "plans.json"
    path.write_text(plans.model_dump_json())
    args = ["export", str(path), "--to", "verl", "-o", str(tmp_path / "out"), "--ray"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    placement = ray_groups.load(tmp_path / "out" / "ray_placement.json")
    assert set(placement["calls"]) == set(plans.plans[0].assignment.meshes)
    assert (tmp_path / "out" / "run.sh").exists()
