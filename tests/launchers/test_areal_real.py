"""Exported AReaL files, judged by its own loader, dataclasses and allocation parser.

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

PYTHON = os.environ.get("RLMPLAN_LAUNCHER_PYTHON")
pytestmark = [
    pytest.mark.launcher,
    pytest.mark.skipif(not PYTHON, reason="RLMPLAN_LAUNCHER_PYTHON is not set"),
]
CHECK = Path(__file__).parent / "areal_check.py"


def run_check(*cases: str) -> list[dict[str, Any]]:
    result = subprocess.run(
        [str(PYTHON), str(CHECK), *cases],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def test_areal_accepts_every_export_and_reads_the_plan_in_it(tmp_path: Path) -> None:
    cases = write_all("areal", tmp_path)
    assert len(cases) >= 12
    placements = {plan.assignment.meshes["generate"] == plan.assignment.meshes["actor_train"]
                  for plan, _, _ in cases.values()}  # fmt: skip
    assert placements == {True, False}
    answers = run_check(*(str(tmp_path / name / "areal.yaml") for name in cases))
    assert len(answers) == len(cases)
    used = 0
    for (name, (plan, workload, _)), answer in zip(cases.items(), answers, strict=True):
        assert "error" not in answer, f"{name}: {answer}"
        given = plan.assignment
        train, engine = given.strategies["actor_train"], given.strategies["generate"]
        colocated = given.meshes["generate"] == given.meshes["actor_train"]
        for role, strategy in (("actor", train), ("rollout", engine)):
            assert answer[role]["world"] == strategy.devices
            for degree in ("dp", "tp", "pp", "cp"):
                assert answer[role][degree] == getattr(strategy, degree)
        assert answer["actor"]["ep"] == train.ep
        assert answer["actor"]["backend"] == ("fsdp" if train.zero_stage == 3 else "megatron")
        assert answer["rollout"]["beside"] == ("actor" if colocated else None)
        assert ("ref" in answer) == ("reference_logprobs" in given.strategies)
        if "ref" in answer:
            assert answer["ref"]["beside"] == "actor"
            assert answer["ref"]["world"] == train.devices
        used = train.devices if colocated else train.devices + engine.devices
        assert used <= answer["devices"]
        assert answer["prompts"] == workload.prompts_per_step
        assert answer["group_size"] == answer["samples"] == workload.samples_per_prompt
        assert answer["model"] == answer["engine_model"] == workload.models["actor"].name
        assert answer["staleness"] == given.staleness
        assert answer["recompute_logprob"] == ("old_logprobs" in given.strategies)
        # What the trainer asserts before it starts workers.
        assert answer["enable_offload"] or not answer["offload"]
        assert not colocated or answer["weight_update_mode"] == "disk"


@pytest.mark.parametrize(
    "wrong",
    [
        "actor.backend=fsdp:d2p2t2",
        "actor.backend=d4t2",
        "rollout.backend=sglang.d4p1t1",
        "+actor.no_such_key=1",
        "actor.dtype=int8",
        "+actor.mb_spec.packing_algorithm=best",
        "train_dataset.batch_size=many",
    ],
)
def test_areal_refuses_what_breaks_its_rules(wrong: str, tmp_path: Path) -> None:
    """The check can fail: a wrong override after an accepted export is refused."""
    name, *_ = write_all("areal", tmp_path, only="8b-1x8")
    file = tmp_path / name / "areal.yaml"
    accepted, refused = run_check(str(file), f"{file},{wrong}")
    assert "error" not in accepted
    assert "error" in refused
