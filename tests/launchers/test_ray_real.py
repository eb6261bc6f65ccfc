"""Exported placement groups in a real Ray cluster of several nodes with logical GPUs.

`make test-launchers` makes the environment; RLMPLAN_LAUNCHER_PYTHON names its Python.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from launcher_cases import Case, nemo_ppo_reward, nodes, verl_fsdp_async, verl_megatron_colocated

from planner.launchers.ray_placement import ray_files

PYTHON = os.environ.get("RLMPLAN_LAUNCHER_PYTHON")
pytestmark = [
    pytest.mark.launcher,
    pytest.mark.skipif(not PYTHON, reason="RLMPLAN_LAUNCHER_PYTHON is not set"),
]


def half_nodes() -> Case:
    """Training on the second half of a node, generation on the first half: two pools of it."""
    plan, workload, cluster = verl_fsdp_async()
    train = nodes(2, 1).model_copy(update={"first_device": 4, "devices_per_node": 4})
    engine = nodes(2, 1).model_copy(update={"devices_per_node": 4})
    meshes = {call: engine if call == "generate" else train for call in plan.assignment.meshes}
    assignment = plan.assignment.model_copy(update={"meshes": meshes})
    return plan.model_copy(update={"assignment": assignment}), workload, cluster


CASES = {
    "colocated-4-nodes": verl_megatron_colocated,
    "reward-apart": nemo_ppo_reward,
    "asynchronous": verl_fsdp_async,
    "half-nodes": half_nodes,
}


def test_every_bundle_lands_on_the_node_that_the_plan_names(tmp_path: Path) -> None:
    plans = []
    for name, case in CASES.items():
        plan, _, cluster = case()
        (tmp_path / name).mkdir()
        for file, content in ray_files(plan, cluster).items():
            (tmp_path / name / file).write_text(content)
        plans.append(plan)
    check = Path(__file__).with_name("ray_check.py")
    result = subprocess.run(
        [str(PYTHON), str(check), *(str(tmp_path / name) for name in CASES)],
        capture_output=True,
        text=True,
        env=os.environ | {"RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"},
        timeout=400,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    *answers, missing = [
        json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")
    ]
    assert len(answers) == len(CASES)
    for plan, answer in zip(plans, answers, strict=True):
        for call, mesh in plan.assignment.meshes.items():
            names = [f"{mesh.group}-{mesh.first_node + i}" for i in range(mesh.nodes)]
            assert answer["ranks"][f"{call} 0"] == names[0]
            assert answer["ranks"][f"{call} {mesh.devices - 1}"] == names[-1]
        distinct = {
            (mesh.group, node, device)
            for mesh in plan.assignment.meshes.values()
            for node in range(mesh.first_node, mesh.first_node + mesh.nodes)
            for device in range(mesh.first_device, mesh.first_device + mesh.devices_per_node)
        }
        per_node = [node for places in answer["bundles"].values() for node in places]
        assert sorted(per_node) == sorted(f"{group}-{node}" for group, node, _ in distinct)
        assert all(want == have for _, _, want, have in answer["told"])
    assert "h100-0" in missing["error"]
    assert missing["left"] == []
    assert missing["exit"] == 0
    assert len(missing["said"]) == plans[0].assignment.meshes["actor_train"].devices
