"""The verl exporter: the plan's decisions in verl's keys, as overrides and as YAML."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from launcher_cases import (
    QWEN_8B,
    VERL_CASES,
    Case,
    grpo,
    make_plan,
    nodes,
    verl_fsdp_async,
    verl_fsdp_colocated,
    verl_fsdp_ppo,
    verl_megatron_async,
    verl_megatron_colocated,
    verl_megatron_ppo,
)

from planner.catalog.hardware import parse_cluster
from planner.errors import InputError
from planner.launchers import get_launcher, launchers_for
from planner.launchers.verl_files import override_lines
from planner.schema import Mesh, Strategy

VERL = get_launcher("verl")


def overrides(case: Case) -> dict[str, str]:
    lines = VERL.write(*case)["overrides.txt"].splitlines()
    pairs = [line.split("=", 1) for line in lines]
    keys = dict(pairs)
    assert len(keys) == len(pairs)
    return keys


def assert_has(case: Case, expected: dict[str, str]) -> None:
    keys = overrides(case)
    assert {key: keys.get(key) for key in expected} == expected


def test_fsdp_colocated() -> None:
    root = "actor_rollout_ref"
    assert_has(
        verl_fsdp_colocated(),
        {
            "algorithm.adv_estimator": "grpo",
            "data.train_batch_size": "64",
            "data.max_prompt_length": "512",
            "data.max_response_length": "3584",
            f"{root}.model.path": "Qwen/Qwen3-8B",
            f"{root}.model.enable_gradient_checkpointing": "true",
            f"{root}.model.use_remove_padding": "true",
            f"{root}.actor.strategy": "fsdp2",
            f"{root}.actor.ppo_mini_batch_size": "16",
            f"{root}.actor.ulysses_sequence_parallel_size": "2",
            f"{root}.actor.use_dynamic_bsz": "true",
            # two sequences of 4,096 tokens over two devices
            f"{root}.actor.ppo_max_token_len_per_gpu": "4096",
            f"{root}.rollout.log_prob_max_token_len_per_gpu": "8192",
            f"{root}.ref.log_prob_max_token_len_per_gpu": "8192",
            f"{root}.ref.fsdp_config.param_offload": "true",
            f"{root}.actor.fsdp_config.param_offload": "true",
            f"{root}.actor.fsdp_config.optimizer_offload": "true",
            f"{root}.actor.use_kl_loss": "true",
            f"{root}.actor.kl_loss_coef": "0.01",
            f"{root}.rollout.name": "vllm",
            f"{root}.rollout.n": "32",
            f"{root}.rollout.tensor_model_parallel_size": "2",
            f"{root}.rollout.gpu_memory_utilization": "0.7",
            f"{root}.rollout.free_cache_engine": "true",
            "trainer.nnodes": "2",
            "trainer.n_gpus_per_node": "8",
            "trainer.v1.trainer_mode": "sync",
        },
    )
    assert "model_engine" not in overrides(verl_fsdp_colocated())


def test_fsdp_asynchronous_with_log_probs_of_the_engine() -> None:
    root = "actor_rollout_ref"
    assert_has(
        verl_fsdp_async(),
        {
            "algorithm.rollout_correction.bypass_mode": "true",
            f"{root}.actor.use_kl_loss": "false",
            f"{root}.hybrid_engine": "false",
            f"{root}.rollout.nnodes": "1",
            f"{root}.rollout.n_gpus_per_node": "8",
            f"{root}.rollout.checkpoint_engine.backend": "nccl",
            f"{root}.rollout.free_cache_engine": "false",
            "trainer.nnodes": "1",
            "trainer.v1.trainer_mode": "separate_async",
            "trainer.v1.separate_async.parameter_sync_step": "4",
            "trainer.v1.separate_async.num_warmup_batches": "1",
            "trainer.v1.sampler.max_off_policy_threshold": "2",
        },
    )
    keys = overrides(verl_fsdp_async())
    # train_batch_size = parameter_sync_step x ppo_mini_batch_size, which verl asserts at start
    assert int(keys["data.train_batch_size"]) == int(
        keys["trainer.v1.separate_async.parameter_sync_step"]
    ) * int(keys[f"{root}.actor.ppo_mini_batch_size"])
    assert not any(key.startswith(f"{root}.ref.") for key in keys)


def test_fsdp_ppo_with_padded_microbatches_and_a_shared_reward_model() -> None:
    assert_has(
        verl_fsdp_ppo(),
        {
            "algorithm.adv_estimator": "gae",
            "algorithm.use_kl_in_reward": "true",
            "algorithm.kl_ctrl.kl_coef": "0.05",
            "actor_rollout_ref.actor.use_dynamic_bsz": "false",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "4",
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": "4",
            "actor_rollout_ref.actor.fsdp_config.param_offload": "false",
            "actor_rollout_ref.actor.fsdp_config.optimizer_offload": "true",
            "critic.model.path": "Qwen/Qwen3-8B",
            "critic.strategy": "fsdp2",
            "critic.ppo_mini_batch_size": "128",
            "critic.ppo_micro_batch_size_per_gpu": "4",
            "critic.forward_micro_batch_size_per_gpu": "4",
            "critic.fsdp.optimizer_offload": "true",
            "reward.reward_model.enable": "true",
            "reward.reward_model.enable_resource_pool": "false",
            "reward.reward_model.model_path": "Qwen/Qwen3-8B",
            "reward.reward_model.rollout.tensor_model_parallel_size": "2",
            "reward.reward_model.rollout.free_cache_engine": "true",
        },
    )


def test_padded_megatron_critics_have_one_microbatch() -> None:
    plan, workload, cluster = VERL_CASES["megatron-padded-critic"]()
    keys = overrides((plan, workload, cluster))
    assert keys["critic.ppo_micro_batch_size_per_gpu"] == "2"
    # verl's Megatron critic has no such key: Hydra would refuse it.
    assert not any(key.startswith("critic.forward") for key in keys)
    strategies = dict(plan.assignment.strategies)
    strategies["values"] = strategies["values"].model_copy(update={"micro_batch_sequences": 1})
    other = make_plan(workload, strategies, dict(plan.assignment.meshes), space="verl-megatron")
    assert any("same micro_batch_sequences" in r for r in VERL.supports(other, workload, cluster))


def test_megatron_colocated() -> None:
    root = "actor_rollout_ref.actor.megatron"
    assert_has(
        verl_megatron_colocated(),
        {
            "model_engine": "megatron",
            f"{root}.tensor_model_parallel_size": "2",
            f"{root}.pipeline_model_parallel_size": "2",
            f"{root}.virtual_pipeline_model_parallel_size": "2",
            f"{root}.context_parallel_size": "2",
            f"{root}.expert_model_parallel_size": "4",
            f"{root}.expert_tensor_parallel_size": "1",
            f"{root}.sequence_parallel": "true",
            f"{root}.param_offload": "true",
            f"{root}.override_transformer_config.recompute_granularity": "full",
            f"{root}.override_transformer_config.recompute_method": "uniform",
            f"{root}.override_transformer_config.recompute_num_layers": "1",
            "actor_rollout_ref.ref.megatron.param_offload": "true",
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": "2048",
            # eight ranks share the experts: two replicas of tp 4 form one engine
            "actor_rollout_ref.rollout.tensor_model_parallel_size": "4",
            "actor_rollout_ref.rollout.data_parallel_size": "2",
            "actor_rollout_ref.rollout.expert_parallel_size": "8",
        },
    )


def test_megatron_experts_are_split_as_the_plan_says() -> None:
    plan, workload, cluster = verl_megatron_colocated()
    strategies = {
        name: strategy if name == "generate" else strategy.model_copy(update={"etp": 2})
        for name, strategy in plan.assignment.strategies.items()
    }
    plan = make_plan(workload, strategies, dict(plan.assignment.meshes), space="verl-megatron")
    key = "actor_rollout_ref.actor.megatron.expert_tensor_parallel_size"
    assert_has((plan, workload, cluster), {key: "2"})


def test_megatron_uneven_stages_and_optimizer_on_cpu() -> None:
    actor = "actor_rollout_ref.actor"
    transformer = f"+{actor}.megatron.override_transformer_config"
    assert_has(
        verl_megatron_async(),
        {
            f"{transformer}.num_layers_in_first_pipeline_stage": "6",
            f"{transformer}.num_layers_in_last_pipeline_stage": "5",
            f"{actor}.megatron.override_transformer_config.recompute_granularity": "selective",
            f"{actor}.megatron.virtual_pipeline_model_parallel_size": "null",
            f"+{actor}.optim.override_optimizer_config.optimizer_cpu_offload": "true",
            f"+{actor}.optim.override_optimizer_config.optimizer_offload_fraction": "1.0",
            "algorithm.rollout_correction.rollout_is": "token",
            "trainer.nnodes": "12",
            "actor_rollout_ref.rollout.nnodes": "8",
            "trainer.v1.separate_async.num_warmup_batches": "2",
            "trainer.v1.sampler.max_off_policy_threshold": "3",
        },
    )


def test_megatron_ppo_with_a_reward_pool() -> None:
    assert_has(
        verl_megatron_ppo(),
        {
            "critic.megatron.tensor_model_parallel_size": "4",
            "critic.megatron.pipeline_model_parallel_size": "2",
            "critic.ppo_mini_batch_size": "64",
            "critic.ppo_max_token_len_per_gpu": "4096",
            "reward.reward_model.enable_resource_pool": "true",
            "reward.reward_model.nnodes": "1",
            "reward.reward_model.n_gpus_per_node": "8",
            "reward.reward_model.rollout.tensor_model_parallel_size": "4",
            "reward.reward_model.rollout.free_cache_engine": "false",
        },
    )


def test_parts_of_one_node() -> None:
    workload = grpo(QWEN_8B, kl_weight=0.0, old_logprobs="engine")
    plan = make_plan(
        workload,
        {
            "actor_train": Strategy(dp=4, zero_stage=3),
            "generate": Strategy(tp=2, dtype="fp8"),
        },
        {
            "actor_train": Mesh(group="h100", first_node=0, nodes=1, devices_per_node=4),
            "generate": Mesh(
                group="h100", first_node=0, nodes=1, first_device=4, devices_per_node=2
            ),
        },
        staleness=1,
        space="verl-fsdp",
    )
    workload = workload.model_copy(update={"generate_dtype": "fp8", "kv_cache_dtype": "fp8"})
    assert_has(
        (plan, workload, parse_cluster("h100:1x8")),
        {
            "trainer.n_gpus_per_node": "4",
            "actor_rollout_ref.rollout.n_gpus_per_node": "2",
            "actor_rollout_ref.rollout.quantization": "fp8",
            "+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_dtype": "fp8",
        },
    )


@pytest.mark.parametrize("case", VERL_CASES)
def test_yaml_says_what_the_overrides_say(case: str) -> None:
    files = VERL.write(*VERL_CASES[case]())
    config = yaml.safe_load(files["rlmplan_verl.yaml"])
    for line in files["overrides.txt"].splitlines():
        key, value = line.split("=", 1)
        if key == "model_engine":
            assert {"override model_engine": value} in config["defaults"]
            continue
        found: Any = config
        for part in key.removeprefix("+").split("."):
            found = found[part]
        assert override_lines({key: found}) == [line]


def case_with(build: Callable[[], Case], *, staleness: int | None = None, **changes: Any) -> Case:
    plan, workload, cluster = build()
    assignment = plan.assignment
    strategies, meshes = dict(assignment.strategies), dict(assignment.meshes)
    for name, change in changes.items():
        if isinstance(change, Mesh):
            meshes[name] = change
        elif name in strategies:
            strategies[name] = strategies[name].model_copy(update=change)
        else:
            workload = workload.model_copy(update={name: change})
    age = assignment.staleness if staleness is None else staleness
    return make_plan(workload, strategies, meshes, staleness=age), workload, cluster


REFUSED = {
    "engine degrees": (
        lambda: case_with(verl_fsdp_colocated, generate={"pp": 2, "dp": 4}),
        "pp is not 1. Use 1.",
    ),
    "engine experts": (
        lambda: case_with(verl_megatron_colocated, generate={"tp": 2, "ep": 4, "dp": 16}),
        "engine ep 4 with tp 2",
    ),
    "split but synchronous": (
        lambda: case_with(verl_fsdp_async, staleness=0),
        "generation on its own devices with staleness 0",
    ),
    "colocated but stale": (
        lambda: case_with(verl_fsdp_colocated, staleness=1),
        "staleness 1 with generation on the training devices",
    ),
    "skipped log-probs": (
        lambda: case_with(verl_fsdp_async, old_logprobs="skip", optimizer_steps=1),
        "verl always has old log-probs",
    ),
    "minibatch of part of a prompt": (
        lambda: case_with(verl_fsdp_colocated, optimizer_steps=128),
        "64 prompts do not divide by 128",
    ),
    "critic steps": (
        lambda: case_with(verl_fsdp_ppo, samples_per_prompt=4, critic_optimizer_steps=512),
        "256 prompts do not divide by 512 critic steps",
    ),
    "fewer critic steps when asynchronous": (
        lambda: case_with(verl_megatron_ppo, critic_optimizer_steps=1),
        "1 critic steps are not a multiple of 2 actor steps",
    ),
    "ulysses beyond the heads": (
        lambda: case_with(verl_fsdp_async, actor_train={"cp": 3, "dp": 1}, generate={"dp": 3}),
        "do not divide by the Ulysses degree cp 3",
    ),
    "reward model in the trainer's pool when asynchronous": (
        lambda: case_with(verl_megatron_ppo, rewards=nodes(0, 1)),
        "must have its own",
    ),
    "line break in a name": (
        lambda: case_with(
            verl_fsdp_async, models={"actor": QWEN_8B.model_copy(update={"name": "a\nb=1"})}
        ),
        "line break",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_plans_that_verl_cannot_run_are_refused_with_the_reason(name: str) -> None:
    build, reason = REFUSED[name]
    case = build()
    assert reason in "\n".join(VERL.supports(*case))
    with pytest.raises(InputError, match="verl cannot run this plan"):
        VERL.write(*case)
    assert "verl" not in launchers_for(*case)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("/data/my model", "'/data/my model'"),
        ("it's", "'it\\'s'"),
        ("back\\", "'back\\\\'"),
        ("a\\'b", "'a\\\\\\'b'"),
        ("${x}", "'\\${x}'"),
        ("true", "'true'"),
        ("3", "'3'"),
        ("", "''"),
        (None, "null"),
        (False, "false"),
        (0.05, "0.05"),
    ],
)
def test_values_are_written_in_the_grammar_of_overrides(value: Any, written: str) -> None:
    assert override_lines({"key": value}) == [f"key={written}"]


def test_script_gives_every_override_as_one_word(tmp_path: Path) -> None:
    hostile = "x $(touch gone) `touch gone` '; touch gone;"
    plan, workload, cluster = verl_fsdp_async()
    workload = workload.model_copy(
        update={"models": {"actor": QWEN_8B.model_copy(update={"name": hostile})}}
    )
    files = VERL.write(plan, workload, cluster)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    log = tmp_path / "argv"
    python = tmp_path / "py thon"
    python.write_text(
        "#!/usr/bin/env python3\nimport json, sys\n"
        f"open({str(log)!r}, 'w').write(json.dumps(sys.argv[1:]))\n"
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    subprocess.run(
        ["bash", str(tmp_path / "run.sh"), "trainer.total_epochs=1"],
        env=os.environ | {"PYTHON": str(python), "TRAIN_FILES": "a b", "VAL_FILES": "c"},
        check=True,
        timeout=60,
        cwd=tmp_path,
    )
    argv = json.loads(log.read_text())
    assert argv == [
        *("-m", "verl.trainer.main_ppo"),
        *files["overrides.txt"].splitlines(),
        *("data.train_files=a b", "data.val_files=c", "trainer.total_epochs=1"),
    ]
    assert not (tmp_path / "gone").exists()
