"""Exported NeMo RL files, judged by NeMo RL's own loader and types.

Needs a checkout of NVIDIA-NeMo/RL (its package is not published): NEMO_RL_CHECKOUT names it, and
NEMO_RL_PYTHON a Python with its dependencies.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from launcher_cases import NEMO_CASES, SEARCHES, Case, nemo_colocated

import planner
from planner.catalog.hardware import parse_cluster
from planner.launchers import get_launcher

CHECKOUT = os.environ.get("NEMO_RL_CHECKOUT")
PYTHON = os.environ.get("NEMO_RL_PYTHON") or os.environ.get("RLMPLAN_LAUNCHER_PYTHON")
pytestmark = [
    pytest.mark.launcher,
    pytest.mark.skipif(
        not (CHECKOUT and PYTHON), reason="NEMO_RL_CHECKOUT and NEMO_RL_PYTHON are not set"
    ),
]
CHECK = Path(__file__).parent / "nemo_rl_check.py"


def run_check(case: Case, folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    plan, workload, cluster = case
    config = folder / "nemo_rl.yaml"
    config.write_text(get_launcher("nemo-rl").write(plan, workload, cluster)["nemo_rl.yaml"])
    return subprocess.run(
        [*map(str, (PYTHON, CHECK, CHECKOUT, config)), workload.algorithm, *overrides],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("case", NEMO_CASES)
def test_nemo_rl_accepts_the_export_and_knows_every_key(case: str, tmp_path: Path) -> None:
    result = run_check(NEMO_CASES[case](), tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    assert answer["unknown"] == []
    config, plan = answer["config"], NEMO_CASES[case]()[0]
    train = plan.assignment.strategies["actor_train"]
    megatron = config["policy"]["megatron_cfg"]
    assert megatron["pipeline_model_parallel_size"] == train.pp
    assert config["policy"]["sequence_packing"]["train_mb_tokens"] == (
        train.micro_batch_sequences * config["policy"]["max_total_sequence_length"]
    )
    assert config["policy"]["dtensor_cfg"]["enabled"] is False


@pytest.mark.parametrize("name", [name for name in SEARCHES if name.startswith("nemo")])
def test_nemo_rl_accepts_the_best_plan_of_a_search(name: str, tmp_path: Path) -> None:
    space, workload, cluster = SEARCHES[name]
    plans = planner.plan(workload, parse_cluster(cluster), space=space, top=2, deadline_s=20)
    for plan in plans.plans:
        result = run_check((plan, plans.workload, plans.cluster), tmp_path)
        assert result.returncode == 0, result.stderr[-3000:]
        assert json.loads(result.stdout.splitlines()[-1])["unknown"] == []


@pytest.mark.parametrize(
    "override",
    [
        "policy.megatron_cfg.tensor_model_parallel_size=two",
        "~policy.megatron_cfg.pipeline_model_parallel_size",
        "cluster.num_nodes=many",
    ],
)
def test_nemo_rl_refuses_wrong_and_missing_values(override: str, tmp_path: Path) -> None:
    """The check can fail: one wrong value in an accepted export is refused."""
    assert run_check(nemo_colocated(), tmp_path, override).returncode != 0
