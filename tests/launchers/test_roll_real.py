"""Exported ROLL files, judged by its own RLVRConfig.

ROLL is on no package index: ROLL_CHECKOUT names a checkout, ROLL_PYTHON a Python with what its
configuration imports (torch, ray, transformers, hydra-core, dacite and others).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from matrix import write_all
from test_roll import CASES, ROLL

CHECKOUT, PYTHON = os.environ.get("ROLL_CHECKOUT"), os.environ.get("ROLL_PYTHON")
pytestmark = [
    pytest.mark.launcher,
    pytest.mark.skipif(not (CHECKOUT and PYTHON), reason="ROLL_CHECKOUT is not set"),
]
CHECK = Path(__file__).parent / "roll_check.py"


def run_check(*cases: str) -> list[dict[str, Any]]:
    paths = (Path(str(CHECKOUT)), Path(str(CHECKOUT)) / "mcore_adapter" / "src")
    result = subprocess.run(
        [str(PYTHON), str(CHECK), *cases],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "HF_HUB_OFFLINE": "1"},
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def test_roll_accepts_every_export_and_reads_the_plan_in_it(tmp_path: Path) -> None:
    cases = write_all("roll", tmp_path)
    for name, make in CASES.items():
        (tmp_path / name).mkdir()
        cases[name] = make()
        (tmp_path / name / "roll.yaml").write_text(ROLL.write(*cases[name])["roll.yaml"])
    answers = run_check(*(str(tmp_path / name / "roll.yaml") for name in cases))
    assert len(answers) == len(cases)
    for (name, (plan, workload, _)), answer in zip(cases.items(), answers, strict=True):
        assert "error" not in answer, f"{name}: {answer}"
        given = plan.assignment
        train, engine = given.strategies["actor_train"], given.strategies["generate"]
        assert len(answer["train"]) == train.devices
        assert len(answer["engine"]) == engine.devices
        shared = given.meshes["actor_train"] == given.meshes["generate"]
        assert bool(set(answer["train"]) & set(answer["engine"])) == shared
        has_reference = "reference_logprobs" in given.strategies
        assert answer["reference"] == (answer["train"] if has_reference else None)
        assert answer["engine_devices"] == engine.tp
        assert answer["megatron"]["tensor_model_parallel_size"] == train.tp
        assert answer["megatron"]["pipeline_model_parallel_size"] == train.pp
        assert answer["vllm"]["max_num_seqs"] == engine.max_running_sequences
        step = answer["size"] * answer["accumulation"] * train.dp
        assert step == workload.sequences_per_step // workload.optimizer_steps
        assert answer["recomputes_logprobs"] == ("old_logprobs" in given.strategies)
        assert answer["asynchronous"] == (given.staleness > 0)
        assert answer["longest"] == workload.max_sequence_tokens
        assert answer["most_tokens"] == workload.response_length.max_tokens
        assert answer["samples"] == workload.samples_per_prompt
        assert answer["prompts"] == workload.prompts_per_step
        assert set(answer["model"]) == {workload.models["actor"].name}


@pytest.mark.parametrize(
    "wrong",
    [
        "rollout_batch_size=65",
        "actor_train.strategy_args.strategy_config.tensor_model_parallel_size=3",
        "generate_opt_level=0",
        "actor_infer.strategy_args.strategy_name=hf_infer",
        "adv_estimator=best",
    ],
)
def test_roll_refuses_what_breaks_its_rules(wrong: str, tmp_path: Path) -> None:
    """The check can fail: a wrong override after an accepted export is refused."""
    file = tmp_path / "roll.yaml"
    file.write_text(ROLL.write(*CASES["packed"]())["roll.yaml"])
    accepted, refused = run_check(str(file), f"{file},{wrong}")
    assert "error" not in accepted
    assert "error" in refused
