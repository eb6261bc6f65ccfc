"""Exported prime-rl files, judged by its own pydantic RLConfig and all its validators.

prime-rl is on no package index: PRIME_RL_CHECKOUT names a checkout, PRIME_RL_PYTHON a Python with
the dependencies of its packages/prime-rl-configs.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from matrix import write_all
from test_prime_rl import CASES, PRIME

CHECKOUT, PYTHON = os.environ.get("PRIME_RL_CHECKOUT"), os.environ.get("PRIME_RL_PYTHON")
pytestmark = [
    pytest.mark.launcher,
    pytest.mark.skipif(not (CHECKOUT and PYTHON), reason="PRIME_RL_CHECKOUT is not set"),
]
CHECK = Path(__file__).parent / "prime_rl_check.py"


def run_check(*cases: str) -> list[dict[str, Any]]:
    source = Path(str(CHECKOUT)) / "packages" / "prime-rl-configs" / "src"
    result = subprocess.run(
        [str(PYTHON), str(CHECK), *cases],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(source)},
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def test_prime_rl_accepts_every_export_and_reads_the_plan_in_it(tmp_path: Path) -> None:
    cases = write_all("prime-rl", tmp_path)
    for name, make in CASES.items():
        (tmp_path / name).mkdir()
        cases[name] = make()
        (tmp_path / name / "rl.toml").write_text(PRIME.write(*cases[name])["rl.toml"])
    answers = run_check(*(str(tmp_path / name / "rl.toml") for name in cases))
    assert len(answers) == len(cases)
    kinds = set()
    for (name, (plan, workload, _)), answer in zip(cases.items(), answers, strict=True):
        assert "error" not in answer, f"{name}: {answer}"
        given = plan.assignment
        train, engine = given.strategies["actor_train"], given.strategies["generate"]
        mesh, rest = given.meshes["actor_train"], given.meshes["generate"]
        place = answer["deployment"]
        kinds.add(place["type"])
        if place["type"] == "single_node":
            assert (place["num_train_gpus"], place["num_infer_gpus"]) == (
                mesh.devices,
                rest.devices,
            )
            assert answer["dp"] == engine.dp
        else:
            assert (place["num_train_nodes"], place["num_infer_nodes"]) == (mesh.nodes, rest.nodes)
            assert answer["dp"] == place["gpus_per_node"] // engine.tp
        # Microbatches go to every data-parallel rank that prime-rl counts.
        assert answer["workers"] == train.dp
        assert answer["cp"] == train.cp
        assert answer["cp_style"] == ("ulysses" if train.ulysses > 1 else "ring")
        assert answer["ep"] == train.ep
        assert answer["recompute"] == (train.recompute == "full")
        assert not answer["activation_offload"]
        assert not answer["optim_cpu_offload"]
        assert answer["optimizer_on_cpu"] == train.optimizer_on_cpu
        assert answer["micro_tokens"] == train.micro_batch_sequences * answer["tokens"]
        assert answer["batch"] == workload.sequences_per_step
        assert answer["group"] == workload.samples_per_prompt
        assert answer["staleness"] == given.staleness
        assert answer["tp"] == engine.tp
        assert answer["max_num_seqs"] == engine.max_running_sequences
        assert set(answer["model"]) == {workload.models["actor"].name}
    assert kinds == {"single_node", "multi_node"}


@pytest.mark.parametrize(
    "wrong",
    [
        "--deployment.num-infer-gpus=6",
        "--inference.vllm.tensor-parallel-size=3",
        "--orchestrator.group-size=31",
        "--orchestrator.no-such-key=1",
        "--trainer.model.cp-style=tree",
        "--trainer.model.optim-cpu-offload=true",
    ],
)
def test_prime_rl_refuses_what_breaks_its_rules(wrong: str, tmp_path: Path) -> None:
    """The check can fail: a wrong flag after an accepted export is refused."""
    file = tmp_path / "rl.toml"
    file.write_text(PRIME.write(*CASES["one-node"]())["rl.toml"])
    accepted, refused = run_check(str(file), f"{file},{wrong}")
    assert "error" not in accepted
    assert "error" in refused
