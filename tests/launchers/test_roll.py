"""ROLL: the plan's decisions in its YAML, and its own kind of file read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from launcher_cases import QWEN_8B, QWEN_30B, Case, actor_unit, grpo, make_plan, nodes
from scripts import started_words

from planner.catalog.hardware import parse_cluster
from planner.errors import InputError
from planner.launchers import get_launcher
from planner.launchers.key_lists import load_keys
from planner.launchers.reading import Context, ReadConfig
from planner.schema import ModelSpec, Strategy

ROLL = get_launcher("roll")


def packed(split: bool = True, model: ModelSpec = QWEN_30B) -> Case:
    """Qwen3-30B with all of Megatron's degrees, packed microbatches."""
    workload = grpo(model)
    train = Strategy(
        tp=2,
        pp=2,
        vpp=2,
        cp=2,
        ep=4,
        dp=2,
        zero_stage=1,
        sequence_parallel=True,
        recompute="full",
        offload="all",
        micro_batch_sequences=2,
    )
    strategies, meshes = actor_unit(train, nodes(0, 2), logprob_micro_batch=4)
    strategies["generate"] = Strategy(tp=4, dp=4, memory_fraction=0.7, max_running_sequences=256)
    meshes["generate"] = nodes(2, 2) if split else nodes(0, 2)
    plan = make_plan(workload, strategies, meshes, staleness=2 * split, space="roll")
    return plan, workload, parse_cluster("h100:4x8")


def padded(split: bool = False, model: ModelSpec = QWEN_8B) -> Case:
    """Qwen3-8B, padded microbatches, one optimizer step without old log-probs or a reference."""
    workload = grpo(
        model, optimizer_steps=1, kl_weight=0.0, models={"actor": model}, old_logprobs="skip"
    )
    train = Strategy(
        tp=4,
        dp=2,
        zero_stage=1,
        sequence_parallel=True,
        packing=False,
        micro_batch_sequences=4,
        recompute="selective",
        offload="all",
    )
    strategies = {"actor_train": train, "generate": Strategy(tp=2, dp=4, memory_fraction=0.6)}
    meshes = {"actor_train": nodes(0, 1), "generate": nodes(1, 1) if split else nodes(0, 1)}
    return (
        make_plan(workload, strategies, meshes, space="roll"),
        workload,
        parse_cluster("h100:2x8"),
    )


CASES = {"packed": packed, "padded": padded}


def read(files: dict[str, str], case: Case, *overrides: str) -> ReadConfig:
    workload, cluster = case[1:]
    return ROLL.read(files, overrides, Context(cluster, workload.models))


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_every_key_that_is_written_is_one_of_rolls(name: str, split: bool) -> None:
    plan, workload, cluster = CASES[name](split)
    assert ROLL.supports(plan, workload, cluster) == []
    keys = load_keys("roll")
    written = ROLL.settings(plan.assignment, workload, cluster)
    assert [key for key in written if not keys.knows(key)] == []
    # What passes through to Megatron-Core's adapter and to vLLM.
    loose = {key.rpartition(".")[2] for key in written if ".strategy_config." in key}
    assert loose <= {
        *("tensor_model_parallel_size", "pipeline_model_parallel_size", "sequence_parallel"),
        *("virtual_pipeline_model_parallel_size", "context_parallel_size", "recompute_method"),
        *("expert_model_parallel_size", "expert_tensor_parallel_size", "recompute_granularity"),
        *("recompute_num_layers", "use_distributed_optimizer", "tensor_parallel_size"),
        *("gpu_memory_utilization", "max_model_len", "max_num_seqs", "load_format", "sleep_level"),
    }


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_what_is_written_reads_back_the_same(name: str, split: bool) -> None:
    case = CASES[name](split)
    found = read(ROLL.write(*case), case)
    assert found.broken == ()
    assert found.assignment is not None
    assert found.assignment.strategies == case[0].assignment.strategies
    assert found.assignment.staleness == case[0].assignment.staleness
    assert found.workload.old_logprobs == case[1].old_logprobs
    assert [each.key for each in found.not_understood if "no such key" in each.reason] == []


def test_devices_are_numbered_over_the_cluster() -> None:
    config = yaml.safe_load(ROLL.write(*packed())["roll.yaml"])
    assert config["actor_train"]["device_mapping"] == "list(range(0,16))"
    assert config["reference"]["device_mapping"] == "list(range(0,16))"
    assert config["actor_infer"]["device_mapping"] == "list(range(16,32))"
    assert (config["async_generation_ratio"], config["generate_opt_level"]) == (2, 1)
    train = config["actor_train"]
    assert train["sequence_packing_args"] == {
        "algorithm": "load_balance",
        "max_packed_sequence_length_forward": 4 * 4096,
        "max_packed_sequence_length_train": 2 * 4096,
    }
    # 2,048 samples in four steps over two ranks.
    assert train["training_args"]["gradient_accumulation_steps"] == 256
    assert "sleep_level" not in config["actor_infer"]["strategy_args"]["strategy_config"]


def test_a_colocated_plan_sleeps_and_has_no_reference() -> None:
    config = yaml.safe_load(ROLL.write(*padded())["roll.yaml"])
    assert config["actor_train"]["device_mapping"] == config["actor_infer"]["device_mapping"]
    assert config["actor_infer"]["strategy_args"]["strategy_config"]["sleep_level"] == 2
    assert "reference" not in config
    assert config["init_kl_coef"] == 0.0
    training = config["actor_train"]["training_args"]
    assert training["per_device_train_batch_size"] == 4
    assert training["gradient_accumulation_steps"] == 2048 // (2 * 4)


def test_the_script_copies_the_file_into_the_checkout(tmp_path: Path) -> None:
    for name, content in ROLL.write(*padded()).items():
        (tmp_path / name).write_text(content)
    (tmp_path / "roll").mkdir()
    words = started_words(tmp_path / "run.sh")
    assert words == [
        *("python3", "examples/start_rlvr_pipeline.py"),
        *("--config_path", "rlmplan", "--config_name", "roll"),
    ]
    copied = tmp_path / "roll" / "examples" / "rlmplan" / "roll.yaml"
    assert copied.read_text() == (tmp_path / "roll.yaml").read_text()


@pytest.mark.parametrize(
    ("override", "rule"),
    [
        ("rollout_batch_size=65", "prompts-by-ranks"),
        ("generate_opt_level=0", "async-needs-level-one"),
        (
            "actor_train.sequence_packing_args.max_packed_sequence_length_train=2048",
            "budget-holds-longest",
        ),
        (
            "actor_train.training_args.gradient_accumulation_steps=100",
            "minibatch-divides-batch",
        ),
        (
            "actor_train.strategy_args.strategy_config.tensor_model_parallel_size=3",
            "devices-by-degrees",
        ),
    ],
)
def test_broken_rules_name_the_key(override: str, rule: str) -> None:
    found = read(ROLL.write(*packed()), packed(), override)
    broken = {each.rule: each for each in found.broken}
    assert rule in broken
    assert override.partition("=")[0] in broken[rule].keys


def test_log_probs_kept_from_a_first_epoch_cost_no_pass() -> None:
    found = read(ROLL.write(*padded()), padded(), "ppo_epochs=2")
    assert found.workload.old_logprobs == "engine"
    assert any("kept" in note for note in found.notes)


@pytest.mark.parametrize("text", ["list(range(0,8)) + [9]", "'[0, 2, 4]'", "__import__('os')"])
def test_device_mappings_are_read_and_never_run(text: str) -> None:
    case = padded()
    files = {"roll.yaml": ROLL.write(*case)["roll.yaml"]}
    files["more.yaml"] = yaml.safe_dump({"actor_infer": {"device_mapping": text}})
    with pytest.raises(InputError, match="not a range of devices"):
        read(files, case)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"old_logprobs": "engine"}, "come from the trainer"),
        ({"kv_cache_dtype": "fp8"}, "key-value cache"),
    ],
)
def test_what_roll_cannot_run_is_refused(changes: dict[str, Any], reason: str) -> None:
    plan, workload, cluster = padded()
    changed = workload.model_copy(update=changes)
    assert any(reason in text for text in ROLL.supports(plan, changed, cluster))
    with pytest.raises(InputError):
        ROLL.write(plan, changed, cluster)


def test_a_hostile_name_stays_a_name() -> None:
    name = "x'\"; $(touch made) ${HOME} \\ #"
    case = padded(model=QWEN_8B.model_copy(update={"name": name}))
    assert read(ROLL.write(*case), case).settings["pretrain"] == name
