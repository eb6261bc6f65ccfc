"""Exported plans executed: TRL trains a tiny random model from them on CPU, for one RL step.

The files are the launcher's own, started by their run.sh with DeepSpeed ZeRO-3 as the plan says.
Flags after it take what a CPU lacks away: vLLM (TRL then generates with transformers).
`make test-launchers` makes the environment; RLMPLAN_LAUNCHER_PYTHON names its Python.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import planner
from planner.catalog.hardware import parse_cluster
from planner.catalog.models import load_model
from planner.catalog.spaces import load_space
from planner.launchers import get_launcher
from planner.schema import LengthDistribution, Plan, Workload

PYTHON = os.environ.get("RLMPLAN_LAUNCHER_PYTHON")
pytestmark = [
    pytest.mark.launcher,
    pytest.mark.skipif(not PYTHON, reason="RLMPLAN_LAUNCHER_PYTHON is not set"),
]
STEPS = 2
FLAGS = {
    "use_cpu": "true",
    "use_vllm": "false",
    "reward_funcs": "tiny_rewards.even",
    "logging_steps": "1",
    "learning_rate": "0.01",  # seen in bf16 weights after two steps
    "report_to": "none",
    "seed": "1",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    script = Path(__file__).with_name("trl_tiny.py")
    subprocess.run([str(PYTHON), str(script), str(folder)], check=True, capture_output=True)
    return folder


def export(model_folder: Path, processes: int, folder: Path) -> tuple[Plan, Workload]:
    """The best colocated plan on so many devices, as TRL's files."""
    model = load_model(str(model_folder)).model_copy(update={"name": str(model_folder)})
    workload = Workload(
        name="tiny",
        algorithm="grpo",
        models={"actor": model, "reference": model},
        prompts_per_step=4,
        samples_per_prompt=4,
        prompt_length=LengthDistribution(mean_tokens=4, max_tokens=16),
        response_length=LengthDistribution(mean_tokens=8, max_tokens=16),
        optimizer_steps=STEPS,
        kl_weight=0.01,
    )
    space = load_space("trl").model_copy(update={"placements": ("colocated",)})
    cluster = parse_cluster(f"h100:1x{processes}")
    plans = planner.plan(workload, cluster, space=space, top=5, deadline_s=10)
    plan = next(p for p in plans.plans if p.calls["actor_train"].mesh.devices == processes)
    for name, content in get_launcher("trl").write(plan, workload, cluster).items():
        (folder / name).write_text(content)
    return plan, workload


@pytest.mark.parametrize("processes", [1, 2])
def test_an_exported_plan_trains(tiny: Path, tmp_path: Path, processes: int) -> None:
    plan, workload = export(tiny / "model", processes, tmp_path)
    trained, record = tmp_path / "trained", tmp_path / "record"
    record.mkdir()
    flags = FLAGS | {"max_steps": str(STEPS), "output_dir": str(trained)}
    binaries = Path(str(PYTHON)).parent
    result = subprocess.run(
        [
            "bash",
            "run.sh",
            *(word for flag, value in flags.items() for word in (f"--{flag}", value)),
        ],
        cwd=tmp_path,
        env=os.environ
        | {
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(tiny),
            "DATASET": str(tiny / "data"),
            "RECORD": str(record),
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "TORCH_EXTENSIONS_DIR": str(binaries.parent / "extensions"),
        },
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    norms = [float(text) for text in re.findall(r"'grad_norm': '([^']+)'", result.stdout)]
    assert len(norms) == STEPS
    assert all(0 < norm < 1e3 for norm in norms)
    # One generation, shared by the processes of the plan, fed all optimizer steps.
    share = workload.sequences_per_step // processes
    assert plan.assignment.strategies["actor_train"].dp == processes
    given = {path.name: path.read_text().split() for path in record.iterdir()}
    assert given == {f"rank-{rank}-of-{processes}": [str(share)] for rank in range(processes)}
    before, after = (tensors(place / "model.safetensors") for place in (tiny / "model", trained))
    assert before.keys() == after.keys()
    changed = [name for name in before if before[name] != after[name]]
    assert "lm_head.weight" in changed
    assert any("mlp" in name for name in changed)


def tensors(path: Path) -> dict[str, bytes]:
    """Name -> bytes of the tensors in a safetensors file, all of them bf16."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    assert {about["dtype"] for about in header.values()} == {"BF16"}
    return {
        name: content[start + about["data_offsets"][0] : start + about["data_offsets"][1]]
        for name, about in header.items()
    }
