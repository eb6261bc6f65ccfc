"""Exported scripts and files of OpenRLHF and TRL, judged by their own parsers and checks.

`make test-launchers` makes the environment; RLMPLAN_LAUNCHER_PYTHON names its Python.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from matrix import write_all
from scripts import started_words

PYTHON = os.environ.get("RLMPLAN_LAUNCHER_PYTHON")
pytestmark = [
    pytest.mark.launcher,
    pytest.mark.skipif(not PYTHON, reason="RLMPLAN_LAUNCHER_PYTHON is not set"),
]
HERE = Path(__file__).parent


def run_check(script: str, *arguments: str) -> list[dict[str, Any]]:
    """One answer for each file or folder."""
    result = subprocess.run(
        [str(PYTHON), str(HERE / script), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
        timeout=570,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def openrlhf_words(folder: Path, *more: str) -> Path:
    words = started_words(folder / "run.sh", *more)
    assert words[:3] == ["ray", "job", "submit"]
    entry = words.index("openrlhf.cli.train_ppo_ray")
    assert words[entry - 3 : entry] == ["--", "python3", "-m"]
    path = folder / "words.json"
    path.write_text(json.dumps(words[entry + 1 :]))
    return path


def test_openrlhf_accepts_every_export_and_reads_the_plan_in_it(tmp_path: Path) -> None:
    cases = write_all("openrlhf", tmp_path)
    assert len(cases) >= 6
    assert len({plan.assignment.staleness > 0 for plan, _, _ in cases.values()}) == 2
    files = [openrlhf_words(tmp_path / name) for name in cases]
    answers = run_check("openrlhf_check.py", *map(str, files))
    assert len(answers) == len(cases)
    for (name, (plan, workload, _)), answer in zip(cases.items(), answers, strict=True):
        assert "error" not in answer, f"{name}: {answer}"
        args = answer["args"]
        train = plan.assignment.strategies["actor_train"]
        engine = plan.assignment.strategies["generate"]
        assert args["actor"]["num_nodes"] * args["actor"]["num_gpus_per_node"] == train.devices
        assert args["ds"]["zero_stage"] == train.zero_stage
        assert args["ds"]["ring_attn_size"] == train.cp
        assert args["vllm"]["num_engines"] == engine.dp
        assert args["vllm"]["tensor_parallel_size"] == engine.tp
        assert args["rollout"]["batch_size"] == workload.prompts_per_step


@pytest.mark.parametrize(
    "wrong",
    [
        ["--vllm_num_engines", "2"],
        ["--rollout.n_samples_per_prompt", "1"],
        ["--ds.zero_stage", "three"],
        ["--train.partial_rollout_enable"],
    ],
)
def test_openrlhf_refuses_what_breaks_its_rules(wrong: list[str], tmp_path: Path) -> None:
    """The check can fail: a wrong flag after an accepted export is refused."""
    name = next(iter(write_all("openrlhf", tmp_path, only="grpo-8b-1x8")))
    good, bad = openrlhf_words(tmp_path / name), tmp_path / "bad.json"
    bad.write_text(json.dumps([*json.loads(good.read_text()), *wrong]))
    answers = run_check("openrlhf_check.py", str(good), str(bad))
    assert "error" not in answers[0]
    assert "error" in answers[1]


def test_trl_accepts_every_export_and_reads_the_plan_in_it(tmp_path: Path) -> None:
    cases = write_all("trl", tmp_path)
    assert len(cases) >= 4
    answers = run_check("trl_check.py", *(str(tmp_path / name) for name in cases))
    for (name, (plan, workload, _)), answer in zip(cases.items(), answers, strict=True):
        assert "error" not in answer, f"{name}: {answer}"
        train = plan.assignment.strategies["actor_train"]
        assert answer["model"] == workload.models["actor"].name
        assert answer["generation_batch_size"] == workload.sequences_per_step
        assert answer["num_processes"] == train.devices
        assert answer["deepspeed"]["zero_stage"] == train.zero_stage
        steps = answer["steps_per_generation"] / answer["gradient_accumulation_steps"]
        assert steps == workload.optimizer_steps
        words = started_words(tmp_path / name / "run.sh")
        assert words[:2] == ["accelerate", "launch"]


@pytest.mark.parametrize(
    "wrong", [["--num_generations", "7"], ["--no_such_flag", "1"], ["--generation_batch_size", "8"]]
)
def test_trl_refuses_what_breaks_its_rules(wrong: list[str], tmp_path: Path) -> None:
    """The check can fail: a wrong flag over an accepted export is refused."""
    name = next(iter(write_all("trl", tmp_path, only="grpo-8b-1x8")))
    (answer,) = run_check("trl_check.py", str(tmp_path / name), "--", *wrong)
    assert "error" in answer
