"""AReaL: the plan's decisions in its keys, and its allocation language read back."""

from __future__ import annotations

from pathlib import Path

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

AREAL = get_launcher("areal")


def fsdp(split: bool = False, model: ModelSpec = QWEN_8B) -> Case:
    """Qwen3-8B on FSDP2 with tensor parallelism and Ulysses."""
    workload = grpo(model)
    train = Strategy(
        tp=2,
        cp=2,
        dp=2,
        zero_stage=3,
        sequence_parallel=True,
        recompute="full",
        micro_batch_sequences=2,
        offload="none" if split else "all",
    )
    strategies, meshes = actor_unit(train, nodes(0, 1))
    strategies["generate"] = Strategy(
        tp=4 if split else 1, dp=2 if split else 8, memory_fraction=0.6
    )
    meshes["generate"] = nodes(1, 1) if split else nodes(0, 1)
    plan = make_plan(workload, strategies, meshes, staleness=2 * split, space="areal-fsdp")
    return plan, workload, parse_cluster("h100:2x8")


def megatron(split: bool = True, model: ModelSpec = QWEN_30B) -> Case:
    """Qwen3-30B on Megatron with interleaved stages and experts."""
    workload = grpo(model, kl_weight=0.0, models={"actor": model}, old_logprobs="engine")
    train = Strategy(
        tp=2,
        pp=2,
        vpp=2,
        cp=2,
        ep=4,
        dp=2,
        zero_stage=1,
        sequence_parallel=True,
        recompute="selective",
        offload="none" if split else "all",
    )
    strategies = {"actor_train": train}
    meshes = {"actor_train": nodes(0, 2)}
    strategies["generate"] = Strategy(tp=8, ep=8, dp=2) if split else Strategy(dp=16)
    meshes["generate"] = nodes(2, 2) if split else nodes(0, 2)
    plan = make_plan(workload, strategies, meshes, staleness=int(split), space="areal-megatron")
    return plan, workload, parse_cluster("h100:4x8")


CASES = {"fsdp": fsdp, "megatron": megatron}


def read(files: dict[str, str], case: Case, *overrides: str) -> ReadConfig:
    workload, cluster = case[1:]
    return AREAL.read(files, overrides, Context(cluster, workload.models))


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_every_key_that_is_written_is_one_of_areals(name: str, split: bool) -> None:
    plan, workload, cluster = CASES[name](split)
    assert AREAL.supports(plan, workload, cluster) == []
    written = AREAL.settings(plan.assignment, workload, cluster)
    assert [key for key in written if key not in load_keys("areal").defaults] == []


def test_a_split_plan_is_in_the_allocation_language() -> None:
    config = yaml.safe_load(AREAL.write(*megatron())["areal.yaml"])
    assert config["actor"]["backend"] == "megatron:d2p2t2c2e4"
    assert config["rollout"]["backend"] == "sglang:d2t8"
    assert config["sglang"]["ep_size"] == 8
    assert config["actor"]["megatron"] == {
        "virtual_pipeline_parallel_size": 2,
        "recompute_granularity": "selective",
        "recompute_method": None,
        "recompute_num_layers": None,
    }
    assert config["cluster"]["n_nodes"] * config["cluster"]["n_gpus_per_node"] == 32
    assert config["scheduler"]["type"] == "ray"
    assert config["ref"] is None
    assert not config["actor"]["recompute_logprob"]
    assert not config["enable_offload"]


def test_a_colocated_plan_shares_the_actors_devices() -> None:
    config = yaml.safe_load(AREAL.write(*fsdp())["areal.yaml"])
    assert config["actor"]["backend"] == "fsdp:d2t2c2"
    assert config["rollout"]["backend"] == "sglang:d8"
    assert config["rollout"]["scheduling_strategy"] == {"type": "colocation", "target": "actor"}
    assert config["actor"]["weight_update_mode"] == "disk"
    assert config["enable_offload"]
    assert config["actor"]["offload"]
    assert config["ref"]["offload"]
    assert config["ref"]["backend"] == "fsdp:d2t2c2"
    assert config["actor"]["mb_spec"] == {"max_tokens_per_mb": 2 * 4096}
    assert config["scheduler"]["type"] == "local"


def test_the_script_starts_areals_example_on_the_file(tmp_path: Path) -> None:
    for name, content in AREAL.write(*fsdp()).items():
        (tmp_path / name).write_text(content)
    (tmp_path / "areal").mkdir()
    words = started_words(tmp_path / "run.sh", "total_train_steps=2")
    assert words[:3] == ["python3", "examples/math/gsm8k_rl.py", "--config"]
    assert words[3] == str(tmp_path / "areal.yaml")
    assert words[4:] == [
        "cluster.fileroot=root",
        "cluster.name_resolve.nfs_record_root=root/name_resolve",
        "train_dataset.path=data",
        "total_train_steps=2",
    ]


def test_overrides_of_the_script_hold_over_the_file() -> None:
    files = AREAL.write(*megatron())
    files["run.sh"] = files["run.sh"].replace('"$@"', "actor.ppo_n_minibatches=8")
    found = read(files, megatron())
    assert found.workload.optimizer_steps == 8
    assert [each.key for each in found.not_understood if "no such key" in each.reason] == []


@pytest.mark.parametrize(
    ("override", "degrees"),
    [
        ("actor.backend=megatron:d4p2t2e8", {"dp": 4, "pp": 2, "tp": 2, "ep": 8, "etp": 1}),
        (
            "actor.backend='megatron:(attn:d4p2t2|ffn:d2p2t2e2)'",
            {"dp": 4, "pp": 2, "tp": 2, "ep": 2, "etp": 2},
        ),
        ("actor.backend=fsdp:d8c2", {"dp": 8, "cp": 2, "zero_stage": 3}),
    ],
)
def test_backends_are_read(override: str, degrees: dict[str, int]) -> None:
    case = megatron()
    found = read(AREAL.write(*case), case, override, "actor.megatron.recompute_granularity=full")
    assert found.assignment is not None
    train = found.assignment.strategies["actor_train"]
    assert {name: getattr(train, name) for name in degrees} == degrees


def test_the_allocation_mode_of_older_releases_is_read() -> None:
    case = megatron()
    files = {
        "old.yaml": AREAL.write(*case)["areal.yaml"]
        .replace("backend: megatron:d2p2t2c2e4", "backend: null")
        .replace("backend: sglang:d2t8", "backend: null")
    }
    found = read(files, case, "allocation_mode=sglang:d4t4+megatron:d4p2t2e8")
    assert found.assignment is not None
    assert found.assignment.strategies["generate"].tp == 4
    assert found.assignment.strategies["actor_train"].ep == 8
    assert any("allocation_mode" in note for note in found.notes)


@pytest.mark.parametrize(
    ("override", "rule"),
    [
        ("actor.backend=fsdp:d4p2", "fsdp-has-no-stages-or-experts"),
        ("rollout.backend=sglang:d4t2", "colocated-engines-one-a-worker"),
        ("actor.weight_update_mode=xccl", "colocated-updates-from-disk"),
        ("enable_offload=false", "offload-is-enabled"),
        ("cluster.n_gpus_per_node=4", "devices-within-cluster"),
        ("actor.no_such_key=1", "unknown-key"),
    ],
)
def test_broken_rules_name_the_key_and_a_legal_value(override: str, rule: str) -> None:
    case = fsdp()
    found = read(AREAL.write(*case), case, override)
    broken = {each.rule: each for each in found.broken}
    assert rule in broken
    assert override.partition("=")[0].rpartition(".")[0] in " ".join(broken[rule].keys)


@pytest.mark.parametrize("text", ["d8", "sglang.d8p1t1", "sglang:d0", "fsdp:d8", "sglang:"])
def test_a_rollout_backend_that_areal_does_not_read_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read(AREAL.write(*fsdp()), fsdp(), f"rollout.backend={text}")


def test_what_areal_cannot_run_is_refused() -> None:
    plan, workload, cluster = fsdp()
    epochs = workload.model_copy(update={"epochs": 2})
    assert any("trained on once" in text for text in AREAL.supports(plan, epochs, cluster))
    plan.assignment.strategies["generate"] = Strategy(tp=2, dp=4)
    with pytest.raises(InputError, match="tp 2 with generation on the training devices"):
        AREAL.write(plan, workload, cluster)


def test_a_hostile_name_stays_a_name() -> None:
    name = "x'\"; $(touch made) ${HOME} \\ #"
    case = fsdp(model=QWEN_8B.model_copy(update={"name": name}))
    found = read(AREAL.write(*case), case)
    assert found.settings["actor.path"] == name
    assert found.settings["sglang.model_path"] == name
