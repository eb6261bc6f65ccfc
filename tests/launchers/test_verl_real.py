"""Exported verl files, judged by verl's own code (Hydra composition and validate_config).

Needs a Python with verl: `tools/launcher_env.sh` makes one; RLMPLAN_LAUNCHER_PYTHON names it.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from launcher_cases import SEARCHES, VERL_CASES

import planner
from planner.catalog.hardware import parse_cluster
from planner.launchers import get_launcher
from planner.launchers.verl_files import override_lines

PYTHON = os.environ.get("RLMPLAN_LAUNCHER_PYTHON")
pytestmark = [
    pytest.mark.launcher,
    pytest.mark.skipif(not PYTHON, reason="RLMPLAN_LAUNCHER_PYTHON is not set"),
]
CHECK = Path(__file__).parent / "verl_check.py"


def run_check(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return subprocess.run(
        [str(PYTHON), str(CHECK), str(folder), *overrides],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )


def export(case: str, folder: Path) -> None:
    for name, content in get_launcher("verl").write(*VERL_CASES[case]()).items():
        (folder / name).write_text(content)


def read(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = config[part]
    return config


@pytest.mark.parametrize("case", VERL_CASES)
def test_verl_accepts_the_export_and_reads_the_plan_in_it(case: str, tmp_path: Path) -> None:
    export(case, tmp_path)
    result = run_check(tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    config = json.loads(result.stdout.splitlines()[-1])
    plan, workload, _ = VERL_CASES[case]()
    train = plan.assignment.strategies["actor_train"]
    engine = plan.assignment.strategies["generate"]
    assert read(config, "data.train_batch_size") == workload.prompts_per_step
    assert read(config, "actor_rollout_ref.model.path") == workload.models["actor"].name
    assert read(config, "actor_rollout_ref.rollout.tensor_model_parallel_size") == engine.tp
    assert read(config, "trainer.nnodes") * read(config, "trainer.n_gpus_per_node") == train.devices
    strategy = read(config, "actor_rollout_ref.actor.strategy")
    assert strategy == ("fsdp2" if train.zero_stage == 3 else "megatron")
    if strategy == "megatron":
        degrees = read(config, "actor_rollout_ref.actor.megatron")
        assert degrees["pipeline_model_parallel_size"] == train.pp
        assert degrees["expert_model_parallel_size"] == train.ep
        assert read(config, "actor_rollout_ref.ref.megatron.pipeline_model_parallel_size") == (
            train.pp
        )


@pytest.mark.parametrize("name", [name for name in SEARCHES if name.startswith("verl")])
def test_verl_accepts_the_best_plans_of_a_search(name: str, tmp_path: Path) -> None:
    space, workload, cluster = SEARCHES[name]
    plans = planner.plan(workload, parse_cluster(cluster), space=space, top=3, deadline_s=20)
    for plan in plans.plans:
        for file, content in (
            get_launcher("verl").write(plan, plans.workload, plans.cluster).items()
        ):
            (tmp_path / file).write_text(content)
        result = run_check(tmp_path)
        assert result.returncode == 0, result.stderr[-3000:]


@pytest.mark.parametrize(
    ("case", "override"),
    [
        ("fsdp-colocated", "actor_rollout_ref.rollout.expert_parallel_size=3"),
        ("fsdp-colocated", "actor_rollout_ref.rollout.pipeline_model_parallel_size=2"),
        ("fsdp-colocated", "actor_rollout_ref.actor.no_such_key=1"),
        ("fsdp-ppo", "data.train_batch_size=100"),
        (
            "fsdp-ppo",
            "actor_rollout_ref.model.use_remove_padding=false "
            "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2",
        ),
    ],
)
def test_verl_refuses_what_breaks_its_rules(case: str, override: str, tmp_path: Path) -> None:
    """The check can fail: one wrong key in an accepted export is refused."""
    export(case, tmp_path)
    assert run_check(tmp_path, *override.split()).returncode != 0


def test_hydra_reads_every_text_back_as_it_was() -> None:
    texts = [
        *("Qwen/Qwen3-8B", "/data/my model", "it's", "back\\", "a\\'b", "a\\\\'b", "true", "3", ""),
        *("${x}", "\\${x}", "a=b,c", "[1]", "{a: 1}", 'x $(y) `z` "q" #', "~home", "日本"),
    ]
    code = (
        "import json, sys\n"
        "from hydra.core.override_parser.overrides_parser import OverridesParser\n"
        "from omegaconf import OmegaConf\n"
        "parsed = OverridesParser.create().parse_overrides(json.loads(sys.argv[1]))\n"
        "values = [OmegaConf.create({'v': o.value()}).v for o in parsed]\n"
        "print(json.dumps(values))\n"
    )
    lines = [line for text in texts for line in override_lines({"key": text})]
    result = subprocess.run(
        [str(PYTHON), "-c", code, json.dumps(lines)], capture_output=True, text=True, check=True
    )
    assert json.loads(result.stdout) == texts
