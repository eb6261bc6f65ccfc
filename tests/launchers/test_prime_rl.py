"""prime-rl: the plan's decisions in its TOML, and its own kind of file read."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from launcher_cases import QWEN_8B, QWEN_30B, Case, grpo, make_plan, nodes
from scripts import started_words

from planner.catalog.hardware import parse_cluster
from planner.errors import InputError
from planner.launchers import get_launcher
from planner.launchers.key_lists import load_keys
from planner.launchers.prime_rl import toml
from planner.launchers.reading import Context, ReadConfig
from planner.schema import Mesh, ModelSpec, Strategy

PRIME = get_launcher("prime-rl")


def case(
    train: Strategy, meshes: tuple[Mesh, Mesh], engine: Strategy, model: ModelSpec = QWEN_8B
) -> Case:
    workload = grpo(
        model,
        models={"actor": model},
        kl_weight=0.0,
        optimizer_steps=1,
        old_logprobs="engine",
        max_staleness=2,
    )
    plan = make_plan(
        workload,
        {"actor_train": train, "generate": engine},
        dict(zip(("actor_train", "generate"), meshes, strict=True)),
        staleness=2,
        space="prime-rl",
    )
    return plan, workload, parse_cluster("h100:4x8")


def one_node(model: ModelSpec = QWEN_8B) -> Case:
    """Half of a node trains, a quarter generates."""
    train = Strategy(dp=2, cp=2, ulysses=2, zero_stage=3, recompute="full", optimizer_on_cpu=True)
    mesh = nodes(0, 1, 4)
    rest = Mesh(group="h100", first_node=0, nodes=1, first_device=4, devices_per_node=2)
    engine = Strategy(tp=2, dp=1, memory_fraction=0.8, max_running_sequences=256)
    return case(train, (mesh, rest), engine, model)


def several_nodes() -> Case:
    """Two nodes train the experts in islands of one, two generate."""
    train = Strategy(
        dp=16, ep=8, zero_stage=3, shard_ranks=8, recompute="none", micro_batch_sequences=2
    )
    return case(train, (nodes(0, 2), nodes(2, 2)), Strategy(tp=4, dp=4), QWEN_30B)


CASES = {"one-node": one_node, "several-nodes": several_nodes}


def read(files: dict[str, str], case: Case, *overrides: str) -> ReadConfig:
    workload, cluster = case[1:]
    return PRIME.read(files, overrides, Context(cluster, workload.models))


@pytest.mark.parametrize("name", CASES)
def test_every_key_that_is_written_is_one_of_prime_rls(name: str) -> None:
    plan, workload, cluster = CASES[name]()
    assert PRIME.supports(plan, workload, cluster) == []
    keys = load_keys("prime-rl")
    written = PRIME.settings(plan.assignment, workload, cluster)
    assert [key for key in written if not keys.knows(key)] == []
    # vLLM's arguments pass through: this one is vLLM's own.
    loose = {key for key in written if key.startswith("inference.") and key not in keys.defaults}
    assert loose == {"inference.vllm.max_num_seqs"}


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_reads_back_the_same(name: str) -> None:
    made = CASES[name]()
    found = read(PRIME.write(*made), made)
    assert found.broken == ()
    assert found.assignment is not None
    assert found.assignment.strategies == made[0].assignment.strategies
    assert found.assignment.staleness == 2


def test_one_node_is_shared_by_numbers_of_gpus() -> None:
    config = tomllib.loads(PRIME.write(*one_node())["rl.toml"])
    assert config["deployment"] == {
        "type": "single_node",
        "gpus_per_node": 8,
        "num_train_gpus": 4,
        "num_infer_gpus": 2,
    }
    model = config["trainer"]["model"]
    assert (model["cp"], model["cp_style"]) == (2, "ulysses")
    assert model["ac"] == {"mode": "full", "freq": 1}
    assert model["full_offload"] is True
    assert "slurm" not in config


def test_several_nodes_need_slurm() -> None:
    config = tomllib.loads(PRIME.write(*several_nodes())["rl.toml"])
    assert config["deployment"]["num_train_nodes"] == 2
    assert config["deployment"]["num_infer_nodes"] == 2
    assert config["slurm"]["job_name"]
    model = config["trainer"]["model"]
    assert (model["ep"], model["dp_replicate"], model["ac"]) == (8, 2, "None")
    # Two sequences of 4,096 tokens in a microbatch, one in the orchestrator.
    assert model["seq_len"] == 2 * config["orchestrator"]["seq_len"] == 8192
    assert config["orchestrator"]["batch_size"] == 64 * 32
    assert config["orchestrator"]["max_off_policy_steps"] == 2


def test_the_script_starts_rl_on_the_file(tmp_path: Path) -> None:
    for name, content in PRIME.write(*one_node()).items():
        (tmp_path / name).write_text(content)
    (tmp_path / "prime").mkdir()
    words = started_words(tmp_path / "run.sh", "@", "env.toml", "--max-steps", "5")
    assert words[:4] == ["uv", "run", "rl", "@"]
    assert words[4] == str(tmp_path / "rl.toml")
    assert words[5:] == ["@", "env.toml", "--max-steps", "5"]


def test_a_file_of_prime_rls_kind_is_read() -> None:
    text = """
seq_len = 16384
[model]
name = "Qwen/Qwen3-30B-A3B"
[deployment]
type = "multi_node"
num_train_nodes = 1
num_infer_nodes = 3
[slurm]
job_name = "math"
[trainer.model]
cp = 2
[trainer.optim]
lr = 1e-6
[orchestrator]
batch_size = 512
group_size = 8
no_such_key = 1
[[orchestrator.train.source]]
name = "math"
[inference.vllm]
tensor_parallel_size = 8
"""
    cluster = parse_cluster("h100:4x8")
    found = PRIME.read(
        {"rl.toml": text}, ["trainer.model.cp-style=ulysses"], Context(cluster, {"actor": QWEN_30B})
    )
    assert found.assignment is not None
    train = found.assignment.strategies["actor_train"]
    # auto: 8 of the 8 ranks; the optimizer is offloaded by default.
    assert (train.cp, train.ulysses, train.ep, train.dp) == (2, 2, 8, 4)
    assert train.recompute == "full"
    assert train.optimizer_on_cpu
    assert found.assignment.strategies["generate"].dp == 3
    assert found.assignment.staleness == 8
    assert found.workload.prompts_per_step == 64
    assert [each.rule for each in found.broken] == ["unknown-key"]
    assert any("ac_offloading" in note for note in found.notes)


@pytest.mark.parametrize(
    ("override", "rule"),
    [
        ("deployment.num_infer_gpus=6", "devices-within-node"),
        ("inference.vllm.tensor_parallel_size=4", "engine-devices-by-tp"),
        ("orchestrator.group_size=31", "batch-of-whole-groups"),
        ("trainer.model.seq_len=1024", "microbatch-holds-longest"),
        ("orchestrator.no_such_key=1", "unknown-key"),
    ],
)
def test_broken_rules_name_the_key(override: str, rule: str) -> None:
    found = read(PRIME.write(*one_node()), one_node(), override)
    broken = {each.rule: each for each in found.broken}
    assert rule in broken
    assert override.partition("=")[0] in broken[rule].keys


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kl_weight": 0.1, "models": {"actor": QWEN_8B, "reference": QWEN_8B}}, "reference"),
        ({"optimizer_steps": 2}, "one optimizer step"),
        ({"old_logprobs": "recompute"}, "old_logprobs"),
    ],
)
def test_what_prime_rl_cannot_run_is_refused(changes: dict[str, Any], reason: str) -> None:
    plan, workload, cluster = one_node()
    changed = workload.model_copy(update=changes)
    assert any(reason in text for text in PRIME.supports(plan, changed, cluster))
    with pytest.raises(InputError):
        PRIME.write(plan, changed, cluster)


def test_a_hostile_name_stays_a_name() -> None:
    name = "x'\"; $(touch made) ${HOME} \\ # é"
    made = one_node(QWEN_8B.model_copy(update={"name": name}))
    assert read(PRIME.write(*made), made).settings["model.name"] == name
    name += "\x7f\n"
    assert tomllib.loads(toml({"a": {"b": name, "c": {"d": True}}, "e": 1.5})) == {
        "a": {"b": name, "c": {"d": True}},
        "e": 1.5,
    }
