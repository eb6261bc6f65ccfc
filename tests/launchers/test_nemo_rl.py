"""The NeMo RL exporter: the plan's decisions in NeMo RL's keys, and nothing that it lacks."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from launcher_cases import (
    NEMO_CASES,
    Case,
    actor_unit,
    grpo,
    make_plan,
    nemo_colocated,
    nemo_ppo_reward,
    nemo_split_deepseek,
    nodes,
    ppo,
    ppo_strategies,
)

from planner.catalog.hardware import parse_cluster
from planner.errors import InputError
from planner.launchers import get_launcher, launcher_names, launchers_for
from planner.schema import Mesh, Strategy

KEYS = json.loads((Path(__file__).parent / "nemo_rl_keys.json").read_text())
NEMO = get_launcher("nemo-rl")


def config_of(case: Case) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(NEMO.write(*case)["nemo_rl.yaml"])
    return loaded


def dotted(section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        name = f"{prefix}.{key}" if prefix else key
        yield name, value
        if isinstance(value, dict):
            yield from dotted(value, name)


@pytest.mark.parametrize("case", NEMO_CASES)
def test_every_key_exists_in_nemo_rl(case: str) -> None:
    plan, workload, cluster = NEMO_CASES[case]()
    config = config_of((plan, workload, cluster))
    del config["defaults"]
    known = {*KEYS[workload.algorithm], *KEYS["typed"], *KEYS["open"]}
    unknown = [
        key
        for key, _ in dotted(config)
        if key not in known and not key.startswith(tuple(f"{part}." for part in KEYS["open"]))
    ]
    assert unknown == []


def test_colocated_plan() -> None:
    keys = dict(dotted(config_of(nemo_colocated())))
    expected = {
        "defaults": "grpo_math_1B_megatron.yaml",
        "grpo.num_prompts_per_step": 64,
        "grpo.num_generations_per_prompt": 32,
        "grpo.async_grpo.enabled": False,
        "grpo.skip_reference_policy_logprobs_calculation": False,
        "loss_fn.reference_policy_kl_penalty": 0.01,
        "loss_fn.use_importance_sampling_correction": False,
        "loss_fn.force_on_policy_ratio": False,
        "policy.model_name": "Qwen/Qwen3-30B-A3B",
        "policy.train_global_batch_size": 512,
        "policy.train_micro_batch_size": 1,
        "policy.logprob_batch_size": 4,
        "policy.max_total_sequence_length": 4096,
        "policy.dtensor_cfg.enabled": False,
        "policy.megatron_cfg.enabled": True,
        "policy.megatron_cfg.tensor_model_parallel_size": 1,
        "policy.megatron_cfg.expert_model_parallel_size": 8,
        "policy.megatron_cfg.sequence_parallel": False,
        "policy.megatron_cfg.activation_checkpointing": False,
        "policy.megatron_cfg.moe_grouped_gemm": True,
        "policy.megatron_cfg.num_layers_in_first_pipeline_stage": None,
        "policy.sequence_packing.enabled": True,
        "policy.generation.colocated.enabled": True,
        "policy.generation.colocated.resources.num_nodes": None,
        "policy.generation.vllm_cfg.tensor_parallel_size": 2,
        "policy.generation.vllm_cfg.gpu_memory_utilization": 0.6,
        "policy.generation.vllm_cfg.async_engine": False,
        "policy.generation.vllm_kwargs.max_num_seqs": 256,
        "cluster.num_nodes": 4,
        "cluster.gpus_per_node": 8,
    }
    assert {key: keys[key] for key in expected} == expected


def test_split_asynchronous_plan_of_deepseek() -> None:
    """The values that NeMo RL's own recipe grpo-deepseek-v3-64n8g-async-1off has."""
    keys = dict(dotted(config_of(nemo_split_deepseek())))
    expected = {
        "grpo.async_grpo.enabled": True,
        "grpo.async_grpo.max_trajectory_age_steps": 1,
        "grpo.async_grpo.in_flight_weight_updates": True,
        "loss_fn.use_importance_sampling_correction": True,
        "policy.train_micro_batch_size": 1,
        "policy.logprob_batch_size": 2,
        "policy.offload_optimizer_for_logprob": True,
        "policy.megatron_cfg.pipeline_model_parallel_size": 16,
        "policy.megatron_cfg.expert_model_parallel_size": 16,
        "policy.megatron_cfg.num_layers_in_first_pipeline_stage": 3,
        "policy.megatron_cfg.num_layers_in_last_pipeline_stage": 2,
        "policy.megatron_cfg.activation_checkpointing": True,
        "policy.megatron_cfg.recompute_granularity": "full",
        "policy.megatron_cfg.apply_rope_fusion": False,
        "policy.generation.colocated.enabled": False,
        "policy.generation.colocated.resources.num_nodes": 32,
        "policy.generation.colocated.resources.gpus_per_node": 8,
        "policy.generation.vllm_cfg.tensor_parallel_size": 32,
        "policy.generation.vllm_cfg.gpu_memory_utilization": 0.8,
        "policy.generation.vllm_cfg.async_engine": True,
        "cluster.num_nodes": 64,
    }
    assert {key: keys[key] for key in expected} == expected


def test_ppo_plan_with_a_reward_model() -> None:
    keys = dict(dotted(config_of(nemo_ppo_reward())))
    expected = {
        "defaults": "ppo_math_1B_megatron.yaml",
        "ppo.num_prompts_per_step": 256,
        "ppo.ppo_epochs": 1,
        "ppo.max_num_epochs": -1,
        "ppo.async_ppo.enabled": True,
        "ppo.reward_scaling.enabled": False,
        "ppo.reward_shaping.enabled": False,
        "ppo.skip_reference_policy_logprobs_calculation": False,
        "policy.megatron_cfg.tensor_model_parallel_size": 2,
        "policy.megatron_cfg.context_parallel_size": 2,
        "policy.megatron_cfg.recompute_granularity": "selective",
        "policy.make_sequence_length_divisible_by": 8,
        "value.megatron_cfg.enabled": True,
        "value.megatron_cfg.tensor_model_parallel_size": 4,
        "value.megatron_cfg.sequence_parallel": True,
        "value.sequence_packing.enabled": True,
        "value.reward_model_cfg.enabled": False,
        "value.train_global_batch_size": 128,
        "data.default.env_name": "reward_model",
        "env.reward_model.model_name": "Qwen/Qwen3-8B",
        "env.reward_model.resources.num_nodes": 1,
        "env.reward_model.resources.gpus_per_node": 8,
        "env.reward_model.dtensor_cfg.tensor_parallel_size": 2,
        "env.reward_model.batch_size": 4,
        "policy.generation.colocated.resources.num_nodes": 1,
        "cluster.num_nodes": 4,
    }
    assert {key: keys[key] for key in expected} == expected


def test_devices_of_a_single_node_are_added_up() -> None:
    workload = grpo()
    train_mesh = Mesh(group="h100", first_node=0, nodes=1, first_device=0, devices_per_node=4)
    engine_mesh = Mesh(group="h100", first_node=0, nodes=1, first_device=4, devices_per_node=2)
    strategies, meshes = actor_unit(Strategy(dp=4, ep=4, zero_stage=1), train_mesh)
    strategies["generate"], meshes["generate"] = Strategy(tp=2), engine_mesh
    case = (make_plan(workload, strategies, meshes), workload, parse_cluster("h100:1x8"))
    config = config_of(case)
    assert config["cluster"] == {"num_nodes": 1, "gpus_per_node": 6}
    resources = config["policy"]["generation"]["colocated"]["resources"]
    assert resources == {"num_nodes": 1, "gpus_per_node": 2}


def test_skipped_log_probs_force_the_ratio_and_free_the_microbatches() -> None:
    """Qwen3-32B's recipe: tp 4, microbatch 1 for training and 4 for the reference."""
    workload = grpo(optimizer_steps=1, old_logprobs="skip")
    train = Strategy(tp=4, ep=8, dp=8, zero_stage=1, sequence_parallel=True, offload="all")
    strategies, meshes = actor_unit(train, nodes(0, 4), logprob_micro_batch=4)
    del strategies["old_logprobs"], meshes["old_logprobs"]
    strategies["generate"], meshes["generate"] = Strategy(tp=2, dp=16), nodes(0, 4)
    case = (make_plan(workload, strategies, meshes), workload, parse_cluster("h100:4x8"))
    config = config_of(case)
    assert config["loss_fn"]["force_on_policy_ratio"] is True
    assert config["policy"]["train_global_batch_size"] == 2048
    assert config["policy"]["logprob_batch_size"] == 4


def test_precisions() -> None:
    workload = grpo(train_dtype="fp8", generate_dtype="fp8", kv_cache_dtype="fp8", kl_weight=0.0)
    train = Strategy(dp=32, ep=8, zero_stage=1, offload="all", dtype="fp8")
    strategies, meshes = actor_unit(train, nodes(0, 4))
    del strategies["reference_logprobs"], meshes["reference_logprobs"]
    strategies["generate"] = Strategy(tp=2, dp=16, dtype="fp8")
    meshes["generate"] = nodes(0, 4)
    case = (make_plan(workload, strategies, meshes), workload, parse_cluster("h100:4x8"))
    config = config_of(case)
    assert config["policy"]["megatron_cfg"]["fp8_cfg"] == {"enabled": True}
    assert config["policy"]["generation"]["vllm_cfg"]["precision"] == "fp8"
    assert config["policy"]["generation"]["vllm_cfg"]["kv_cache_dtype"] == "fp8"
    assert config["grpo"]["skip_reference_policy_logprobs_calculation"] is True


def changed(case: Case, **updates: dict[str, Any]) -> Case:
    """The case with some fields of some calls' strategies changed."""
    plan, workload, cluster = case
    strategies = {
        name: strategy.model_copy(update=updates.get(name, {}))
        for name, strategy in plan.assignment.strategies.items()
    }
    meshes = dict(plan.assignment.meshes)
    staleness = plan.assignment.staleness
    return make_plan(workload, strategies, meshes, staleness=staleness), workload, cluster


def test_experts_are_split_as_the_plan_says() -> None:
    split = {"ep": 4, "etp": 2}
    case = changed(
        nemo_colocated(), actor_train=split, old_logprobs=split, reference_logprobs=split
    )
    section = config_of(case)["policy"]["megatron_cfg"]
    assert section["expert_model_parallel_size"] == 4
    assert section["expert_tensor_parallel_size"] == 2


def moved(case: Case, **meshes: Mesh) -> Case:
    plan, workload, cluster = case
    staleness = plan.assignment.staleness
    return (
        make_plan(
            workload,
            dict(plan.assignment.strategies),
            dict(plan.assignment.meshes) | meshes,
            staleness=staleness,
        ),
        workload,
        cluster,
    )


def with_workload(case: Case, **updates: Any) -> Case:
    return case[0], case[1].model_copy(update=updates), case[2]


def stale(case: Case, staleness: int) -> Case:
    plan, workload, cluster = case
    assignment = plan.assignment
    return (
        make_plan(
            workload,
            dict(assignment.strategies),
            dict(assignment.meshes),
            staleness=staleness,
        ),
        workload,
        cluster,
    )


def ppo_offload_none() -> Case:
    workload = ppo()
    train = Strategy(dp=16, zero_stage=1)
    strategies, meshes = ppo_strategies(train, train, nodes(0, 2))
    strategies["generate"], meshes["generate"] = Strategy(dp=8), nodes(2, 1)
    return make_plan(workload, strategies, meshes), workload, parse_cluster("h100:3x8")


REFUSED = {
    "staleness on shared devices": (
        lambda: stale(nemo_colocated(), 1),
        "staleness 1 with generation on the training devices",
    ),
    "too stale": (lambda: stale(nemo_split_deepseek(), 9), "staleness 9 is above 8"),
    "weights stay when colocated": (
        lambda: changed(
            nemo_colocated(),
            actor_train={"offload": "none"},
            old_logprobs={"offload": "none"},
            reference_logprobs={"offload": "none"},
        ),
        "offload none with generation on the same devices",
    ),
    "half overlapping": (
        lambda: moved(nemo_colocated(), generate=nodes(2, 4)),
        "generation uses some but not all",
    ),
    "degrees and mesh differ": (
        lambda: moved(nemo_split_deepseek(), generate=nodes(32, 16)),
        "generate has degrees for 256 devices on 128",
    ),
    "two log-prob microbatches": (
        lambda: changed(nemo_colocated(), old_logprobs={"micro_batch_sequences": 2}),
        "differ in micro_batch_sequences",
    ),
    "layout of a unit": (
        lambda: changed(nemo_colocated(), old_logprobs={"ep": 4}),
        "old_logprobs and actor_train differ in ep",
    ),
    "microbatches of the critic": (
        lambda: changed(nemo_ppo_reward(), values={"micro_batch_sequences": 2}),
        "values and critic_train must have the same micro_batch_sequences",
    ),
    "engine beyond async": (
        lambda: changed(nemo_split_deepseek(), generate={"tp": 8, "ep": 32, "dp": 32}),
        "engine ep 32 above tp 8",
    ),
    "reward model among others": (
        lambda: moved(nemo_ppo_reward(), rewards=nodes(1, 1)),
        "must have its own",
    ),
    "critic elsewhere": (
        lambda: moved(nemo_ppo_reward(), critic_train=nodes(0, 1), values=nodes(0, 1)),
        "critic_train is not on the actor's devices",
    ),
    "ppo without offload": (ppo_offload_none, "offload none in PPO"),
    "engine log-probs": (
        lambda: with_workload(nemo_colocated(), old_logprobs="engine"),
        "old log-probs cannot come from the engine",
    ),
    "several epochs": (
        lambda: with_workload(nemo_colocated(), epochs=2),
        "GRPO trains one epoch",
    ),
    "fp8 cache": (
        lambda: with_workload(nemo_colocated(), kv_cache_dtype="fp8"),
        "an fp8 KV cache needs fp8 generation",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_plans_that_nemo_rl_cannot_run_are_refused_with_the_reason(name: str) -> None:
    build, reason = REFUSED[name]
    case = build()
    assert reason in "\n".join(NEMO.supports(*case))
    with pytest.raises(InputError, match="nemo-rl cannot run this plan"):
        NEMO.write(*case)
    assert "nemo-rl" not in launchers_for(*case)


def test_incomplete_and_foreign_plans() -> None:
    plan, workload, cluster = nemo_colocated()
    strategies, meshes = dict(plan.assignment.strategies), dict(plan.assignment.meshes)
    del strategies["generate"], meshes["generate"]
    partial = make_plan(workload, strategies, meshes)
    assert NEMO.supports(partial, workload, cluster) == [
        "the plan says nothing of the call generate"
    ]
    assert "no node group" in NEMO.supports(plan, workload, parse_cluster("a100:4x8"))[0]
    other = workload.model_copy(update={"algorithm": "dpo"})
    assert "only grpo and ppo are exported" in NEMO.supports(plan, other, cluster)[0]


def test_registry() -> None:
    assert {"nemo-rl", "verl"} <= set(launcher_names())
    assert "nemo-rl" in launchers_for(*nemo_colocated())
    with pytest.raises(InputError, match="unknown launcher"):
        get_launcher("nemo")


HOSTILE = "x\"; $(touch gone) `touch gone` '; touch gone\n# ${oc.env:HOME}"


def test_names_of_the_user_cannot_become_code(tmp_path: Path) -> None:
    plan, workload, cluster = nemo_colocated()
    model = workload.models["actor"].model_copy(update={"name": HOSTILE})
    workload = workload.model_copy(
        update={"name": HOSTILE, "models": {"actor": model, "reference": model}}
    )
    files = NEMO.write(plan, workload, cluster)
    config = yaml.safe_load(files["nemo_rl.yaml"])
    # OmegaConf turns the escaped `\${` back into text.
    assert config["policy"]["model_name"].replace("\\${", "${") == HOSTILE
    calls = run_script(tmp_path, files, "launch.sh", {"SLURM": "1", "CONTAINER": "i m"})
    assert not (tmp_path / "checkout" / "gone").exists()
    assert f"--job-name={HOSTILE}" in calls[0]["argv"]


def test_script_runs_the_entry_point_with_the_config(tmp_path: Path) -> None:
    files = NEMO.write(*nemo_ppo_reward())
    calls = run_script(tmp_path, files, "launch.sh", {}, "ppo.max_num_steps=3", "a b")
    config = tmp_path / "checkout" / "examples" / "configs" / "rlmplan_nemo_rl.yaml"
    assert config.read_text() == files["nemo_rl.yaml"]
    assert calls == [
        {
            "argv": [
                *("run", "examples/run_ppo.py", "--config", str(config)),
                *("ppo.max_num_steps=3", "a b"),
            ],
            "COMMAND": None,
            "GPUS_PER_NODE": None,
        }
    ]


def test_script_submits_a_slurm_job(tmp_path: Path) -> None:
    files = NEMO.write(*nemo_colocated())
    environment = {"SLURM": "1", "CONTAINER": "image", "SBATCH_ARGS": "--account=a --time=1:0:0"}
    (call,) = run_script(tmp_path, files, "launch.sh", environment, "a b")
    assert call["argv"] == [
        *("--nodes=4", "--job-name=grpo test", "--account=a", "--time=1:0:0", "ray.sub")
    ]
    assert call["GPUS_PER_NODE"] == "8"
    assert "uv run examples/run_grpo.py --config" in str(call["COMMAND"])
    assert "a\\ b" in str(call["COMMAND"])


def run_script(
    folder: Path, files: dict[str, str], script: str, environment: dict[str, str], *words: str
) -> list[dict[str, Any]]:
    """Run a launch script where `uv`, `sbatch` and the Python write down how they were called."""
    (folder / "checkout" / "examples" / "configs").mkdir(parents=True)
    tools = folder / "bin"
    tools.mkdir()
    log = folder / "calls"
    for tool in ("uv", "sbatch", "python"):
        path = tools / tool
        path.write_text(
            "#!/usr/bin/env python3\nimport json, os, sys\n"
            "call = {'argv': sys.argv[1:], 'COMMAND': os.environ.get('COMMAND'),"
            " 'GPUS_PER_NODE': os.environ.get('GPUS_PER_NODE')}\n"
            f"open({str(log)!r}, 'a').write(json.dumps(call) + '\\n')\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    out = folder / "out put"
    out.mkdir()
    for name, content in files.items():
        (out / name).write_text(content)
    result = subprocess.run(
        ["bash", str(out / script), *words],
        env=os.environ
        | {"PATH": f"{tools}:{os.environ['PATH']}", "NEMO_RL_DIR": str(folder / "checkout")}
        | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in log.read_text().splitlines()]
