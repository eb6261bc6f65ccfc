"""Scripts with flags: OpenRLHF, slime and TRL. Every flag exists, and hostile names stay names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from launcher_cases import QWEN_8B, QWEN_30B, Case, actor_unit, grpo, make_plan, nodes
from scripts import started_words

from planner.catalog.hardware import parse_cluster
from planner.errors import InputError
from planner.launchers import get_launcher
from planner.launchers.flags import flag_lines
from planner.launchers.key_lists import load_keys
from planner.launchers.shell import commands
from planner.launchers.sources import flag_words
from planner.schema import Strategy

HOSTILE = "x'\"; $(touch made) `touch made` ${HOME} \\ #"


def openrlhf(split: bool = False, model: Any = QWEN_8B) -> Case:
    workload = grpo(model)
    train = Strategy(dp=8, zero_stage=3, recompute="full", offload="none" if split else "all")
    strategies, meshes = actor_unit(train, nodes(0, 1))
    strategies["generate"] = Strategy(tp=2, dp=4, memory_fraction=0.6)
    meshes["generate"] = nodes(1, 1) if split else nodes(0, 1)
    plan = make_plan(workload, strategies, meshes, staleness=int(split), space="openrlhf")
    return plan, workload, parse_cluster("h100:2x8")


def trl(split: bool = False, model: Any = QWEN_8B) -> Case:
    workload = grpo(model)
    train = Strategy(dp=8, zero_stage=3, recompute="full", packing=False)
    strategies, meshes = actor_unit(train, nodes(0, 1))
    strategies["generate"] = Strategy(tp=2, dp=4, memory_fraction=0.3)
    meshes["generate"] = nodes(1, 1) if split else nodes(0, 1)
    return (
        make_plan(workload, strategies, meshes, space="trl"),
        workload,
        parse_cluster("h100:2x8"),
    )


def slime(split: bool = False, model: Any = QWEN_30B) -> Case:
    workload = grpo(model)
    train = Strategy(
        tp=4,
        pp=2,
        cp=2,
        ep=4,
        dp=2,
        zero_stage=1,
        sequence_parallel=True,
        recompute="full",
        optimizer_on_cpu=True,
        offload="none" if split else "all",
    )
    strategies, meshes = actor_unit(train, nodes(0, 4), logprob_micro_batch=2)
    strategies["generate"] = Strategy(
        tp=8, ep=8, dp=2 if split else 4, memory_fraction=0.7, max_running_sequences=512
    )
    meshes["generate"] = nodes(4, 2) if split else nodes(0, 4)
    plan = make_plan(workload, strategies, meshes, staleness=int(split), space="slime")
    return plan, workload, parse_cluster("h100:6x8")


CASES = {"openrlhf": openrlhf, "slime": slime, "trl": trl}


def write(launcher: str, case: Case, folder: Path) -> Path:
    for name, content in get_launcher(launcher).write(*case).items():
        (folder / name).write_text(content)
    return folder / "run.sh"


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("launcher", CASES)
def test_every_key_that_is_written_is_one_of_the_launchers(launcher: str, split: bool) -> None:
    plan, workload, cluster = CASES[launcher](split)
    assert get_launcher(launcher).supports(plan, workload, cluster) == []
    keys = load_keys(launcher)
    written = get_launcher(launcher).settings(plan.assignment, workload, cluster)
    assert [key for key in written if not keys.knows(key)] == []
    # Sections that take any key hide a misspelling: SGLang's and accelerate's are known ones.
    loose = {key for key in written if key not in keys.defaults}
    assert loose <= {
        *("sglang-mem-fraction-static", "sglang-max-running-requests", "sglang-ep-size"),
        *(f"accelerate.deepspeed_config.{name}" for name in (
            "deepspeed_multinode_launcher", "zero_stage", "offload_optimizer_device",
            "offload_param_device", "zero3_init_flag", "zero3_save_16bit_model")),
    }  # fmt: skip


def test_slime_has_the_plan_in_megatrons_and_sglangs_flags(tmp_path: Path) -> None:
    words = slime_words(write("slime", slime(), tmp_path))
    flags = {item.key: item.value for item in flag_words(words, "", frozenset())}
    expected = {
        "tensor-model-parallel-size": "4",
        "pipeline-model-parallel-size": "2",
        "context-parallel-size": "2",
        "expert-model-parallel-size": "4",
        "expert-tensor-parallel-size": "1",
        "sequence-parallel": True,
        "recompute-granularity": "full",
        "optimizer-cpu-offload": True,
        "actor-num-nodes": "4",
        "colocate": True,
        "rollout-num-gpus-per-engine": "8",
        "sglang-ep-size": "8",
        "global-batch-size": "512",
        # one sequence of 4,096 tokens over two devices
        "max-tokens-per-gpu": "2048",
        "log-probs-max-tokens-per-gpu": "4096",
        "ref-load": "ref",
    }
    assert {key: flags.get(key) for key in expected} == expected
    assert "rollout-num-gpus" not in flags


def test_slime_starts_the_asynchronous_trainer_for_stale_samples(tmp_path: Path) -> None:
    script = write("slime", slime(split=True), tmp_path)
    assert "train_async.py" in slime_words(script, whole=True)
    flags = {item.key: item.value for item in flag_words(slime_words(script), "", frozenset())}
    assert flags["rollout-num-gpus"] == "16"
    assert "colocate" not in flags


def slime_words(script: Path, *, whole: bool = False) -> list[str]:
    models = script.parent / "slime" / "scripts" / "models"
    models.mkdir(parents=True, exist_ok=True)
    (models / "model.sh").write_text("MODEL_ARGS=(--num-layers 48)\n")
    words = started_words(script)
    assert words[:3] == ["ray", "job", "submit"]
    entry = next(i for i, word in enumerate(words) if word.startswith("train"))
    return words if whole else words[entry + 1 :]


@pytest.mark.parametrize("launcher", CASES)
def test_a_hostile_model_name_stays_a_name(launcher: str, tmp_path: Path) -> None:
    model = (
        QWEN_8B.model_copy(update={"name": HOSTILE})
        if launcher != "slime"
        else (QWEN_30B.model_copy(update={"name": HOSTILE}))
    )
    script = write(launcher, CASES[launcher](model=model), tmp_path)
    words = slime_words(script) if launcher == "slime" else started_words(script)
    assert not (tmp_path / "made").exists()
    assert not (tmp_path / "slime" / "made").exists()
    if launcher == "trl":
        import yaml

        assert yaml.safe_load((tmp_path / "grpo.yaml").read_text())["model_name_or_path"] == HOSTILE
    else:
        assert HOSTILE in words


@pytest.mark.parametrize("launcher", CASES)
def test_what_the_launcher_cannot_do_is_refused_with_the_reason(launcher: str) -> None:
    plan, workload, cluster = CASES[launcher]()
    stale = plan.model_copy(
        update={"assignment": plan.assignment.model_copy(update={"staleness": 1})}
    )
    reasons = get_launcher(launcher).supports(stale, workload, cluster)
    assert any("staleness 1" in reason for reason in reasons)
    with pytest.raises(InputError, match="staleness 1"):
        get_launcher(launcher).write(stale, workload, cluster)
    changed = workload.model_copy(update={"kv_cache_dtype": "fp8"})
    assert get_launcher(launcher).supports(plan, changed, cluster)


def test_flags_are_quoted_and_read_back() -> None:
    lines = flag_lines({"a": HOSTILE, "b": True, "c": False, "d": None, "e": [1, "x y"]})
    (words,) = commands(f"run \\\n{lines.replace(chr(10), ' ')}")
    items = flag_words(words[1:], "", frozenset({"b"}))
    assert {item.key: item.value for item in items} == {"a": HOSTILE, "b": True, "e": ["1", "x y"]}


def test_slimes_own_kind_of_script_is_read() -> None:
    script = """
PERF_ARGS=(
   --tensor-model-parallel-size 2
   --sequence-parallel
   --recompute-granularity full
   # --micro-batch-size 1
   --use-dynamic-batch-size
   --max-tokens-per-gpu 9216
)
ray job submit --address="http://127.0.0.1:8265" -- python3 train.py \\
   --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate \\
   --hf-checkpoint /root/Qwen3-4B --rollout-batch-size 32 --n-samples-per-prompt 8 \\
   --rollout-max-response-len 8192 --global-batch-size 256 \\
   --rollout-num-gpus-per-engine 2 --sglang-mem-fraction-static 0.7 --nosuch 3 \\
   ${MODEL_ARGS[@]} ${PERF_ARGS[@]}
"""
    from planner.launchers.reading import Context

    read = get_launcher("slime").read({"run.sh": script}, [], Context(parse_cluster("h100:1x8")))
    assert read.assignment is not None
    train = read.assignment.strategies["actor_train"]
    assert (train.tp, train.dp, train.recompute, train.offload) == (2, 4, "full", "all")
    assert read.assignment.strategies["generate"].tp == 2
    assert read.workload.models["actor"].name == "Qwen/Qwen3-4B"
    assert read.workload.optimizer_steps == 1
    reasons = {each.key: each.reason for each in read.not_understood}
    assert "no such key" in reasons["nosuch"]
    assert reasons["${MODEL_ARGS[@]}"] == "not known from the script alone"
