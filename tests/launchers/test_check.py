"""`check`: verdicts, rules in the launcher's words, true remedies, the best plan as a diff."""

from __future__ import annotations

from typing import Any

import pytest
from launcher_cases import nemo_colocated, verl_fsdp_colocated

from planner.catalog.hardware import parse_cluster
from planner.errors import InputError
from planner.launchers import get_launcher
from planner.launchers.check import check
from planner.launchers.reading import Context
from planner.schema.check import CheckReport

ROOT = "actor_rollout_ref"
BASE = {
    "algorithm.adv_estimator": "grpo",
    "data.train_batch_size": 64,
    "data.max_prompt_length": 1024,
    "data.max_response_length": 3072,
    f"{ROOT}.model.path": "Qwen/Qwen3-8B",
    f"{ROOT}.actor.ppo_mini_batch_size": 32,
    f"{ROOT}.actor.use_dynamic_bsz": "true",
    f"{ROOT}.actor.ppo_max_token_len_per_gpu": 8192,
    f"{ROOT}.rollout.name": "vllm",
    f"{ROOT}.rollout.n": 8,
    f"{ROOT}.rollout.tensor_model_parallel_size": 4,
    f"{ROOT}.rollout.gpu_memory_utilization": 0.6,
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 8,
}


HEADS_28 = {
    f"{ROOT}.model.path": "Qwen/Qwen2.5-7B",
    f"{ROOT}.rollout.tensor_model_parallel_size": 8,
}


def run(
    changes: dict[str, Any] | None = None, cluster: str = "h100:1x8", **more: Any
) -> CheckReport:
    text = "".join(f"{key}={value}\n" for key, value in (BASE | (changes or {})).items())
    context = Context(parse_cluster(cluster))
    more.setdefault("search", False)
    return check(get_launcher("verl"), {"overrides.txt": text}, [], context, **more)


def rules(report: CheckReport) -> set[str]:
    return {each.rule for each in report.broken}


def test_a_good_configuration_fits_and_is_priced() -> None:
    report = run()
    assert report.verdict == "fits"
    assert report.broken == ()
    assert report.prediction is not None
    assert report.prediction.step_time_s > 0
    assert report.strategies["generate"].tp == 4
    assert report.strategies["actor_train"].micro_batch_sequences == 2


def test_a_remedy_does_what_it_says() -> None:
    """Applying the first single change gives the step time that was promised for it."""
    report = run()
    first = report.remedies[0]
    changed = dict(setting.split("=", 1) for setting in first.settings)
    again = run(changed)
    assert again.prediction is not None
    assert again.prediction.step_time_s == pytest.approx(first.step_time_s)
    assert report.prediction is not None
    assert first.step_time_s < report.prediction.step_time_s
    assert again.verdict == first.verdict


def test_the_best_plan_is_a_diff_of_the_launchers_keys_that_gives_its_time() -> None:
    report = run(search=True)
    assert report.best is not None
    assert report.speedup is not None
    assert report.speedup > 1
    changes = {each.key: each.want for each in report.setting_changes if each.want}
    again = run(changes)
    assert again.broken == ()
    assert again.prediction is not None
    assert again.prediction.step_time_s == pytest.approx(report.best.step_time_s, rel=1e-6)
    assert any(
        each.call == "generate" and "tp 4 -> " in each.change for each in report.call_changes
    )


@pytest.mark.parametrize(
    ("changes", "rule", "key", "legal"),
    [
        (
            HEADS_28,
            "heads-by-tp",
            f"{ROOT}.rollout.tensor_model_parallel_size",
            f"{ROOT}.rollout.tensor_model_parallel_size=4",
        ),
        (
            {f"{ROOT}.rollout.tensor_model_parallel_size": 3},
            "devices-by-degrees",
            f"{ROOT}.rollout.tensor_model_parallel_size",
            f"{ROOT}.rollout.tensor_model_parallel_size=4",
        ),
        (
            {f"{ROOT}.actor.ppo_mini_batch_size": 48},
            "minibatch-divides-batch",
            f"{ROOT}.actor.ppo_mini_batch_size",
            f"{ROOT}.actor.ppo_mini_batch_size=64",
        ),
        (
            {f"{ROOT}.actor.ppo_max_token_len_per_gpu": 2048},
            "budget-holds-longest",
            f"{ROOT}.actor.ppo_max_token_len_per_gpu",
            f"{ROOT}.actor.ppo_max_token_len_per_gpu=4096",
        ),
        (
            {f"{ROOT}.rollout.enable_chunked_prefill": "false"},
            "prefill-holds-longest",
            f"{ROOT}.rollout.max_model_len",
            f"{ROOT}.rollout.max_model_len=4096 with {ROOT}.rollout.max_num_batched_tokens=8192",
        ),
        (
            {"trainer.nnodes": 2},
            "devices-within-cluster",
            "trainer.nnodes",
            None,
        ),
        (
            {f"{ROOT}.rollout.tensor_model_paralel_size": 2},
            "unknown-key",
            f"{ROOT}.rollout.tensor_model_paralel_size",
            None,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "." not in value else "",
)
def test_broken_rules_name_key_and_nearest_legal_value(
    changes: dict[str, Any], rule: str, key: str, legal: str | None
) -> None:
    report = run(changes)
    assert report.verdict == "will not run"
    broken = next(each for each in report.broken if each.rule == rule)
    assert key in broken.keys
    if legal is not None:
        assert legal in broken.nearest


def test_legal_values_are_legal() -> None:
    report = run(HEADS_28)
    for setting in report.broken[0].nearest:
        key, _, value = setting.partition("=")
        again = run({f"{ROOT}.model.path": "Qwen/Qwen2.5-7B", key: value})
        assert "heads-by-tp" not in rules(again)


def test_out_of_memory_names_the_call_and_its_largest_items() -> None:
    large = {f"{ROOT}.actor.ppo_max_token_len_per_gpu": 65536}
    report = run(large)
    assert report.verdict == "will not run"
    assert report.broken == ()
    (short,) = [each for each in report.shortages if each.call == "actor_train"]
    assert short.largest[0][0] == "logits"
    assert short.short_bytes > 0
    assert report.remedies
    remedy = dict(setting.split("=", 1) for setting in report.remedies[0].settings)
    assert run(large | remedy).verdict != "will not run"


def test_a_token_budget_between_two_sequences_is_priced_as_it_is() -> None:
    memory = {}
    for tokens in (4096, 6144, 8192):
        report = run({f"{ROOT}.actor.ppo_max_token_len_per_gpu": tokens})
        assert report.prediction is not None
        memory[tokens] = report.prediction.calls["actor_train"].memory_bytes["logits"]
    assert memory[6144] == pytest.approx((memory[4096] + memory[8192]) / 2, rel=1e-3)


def test_host_memory_that_offloading_exceeds_is_a_shortage(tmp_path: Any) -> None:
    small = tmp_path / "small.yaml"
    small.write_text(
        "name: small\n"
        "groups: [{device: h100, nodes: 1, devices_per_node: 8, host_memory_gib: 64}]\n"
    )
    fsdp = f"{ROOT}.actor.fsdp_config"
    offload = {f"{fsdp}.{name}_offload": "true" for name in ("param", "optimizer")}
    report = run(offload, cluster=str(small))
    assert [each.call for each in report.shortages] == ["host memory"]
    assert run(offload).verdict == "fits"


def test_what_does_not_enter_is_listed_with_the_reason() -> None:
    offload = f"{ROOT}.model.enable_activation_offload"
    report = run({offload: "true", "trainer.logger": "console", f"+{ROOT}.x": 1})
    reasons = {each.key: each.reason for each in report.ignored}
    assert "not priced" in reasons[offload]
    assert reasons["trainer.logger"] == "no influence on the plan"
    assert "no such key" in reasons[f"{ROOT}.x"]
    assert report.verdict == "fits"  # Hydra takes a key after a plus


@pytest.mark.parametrize("backend", ["fsdp", "fsdp2", "megatron", "veomni", "fdsp"])
def test_a_trainer_that_is_not_modelled_is_said(backend: str) -> None:
    key = f"{ROOT}.actor.strategy"
    said = [note for note in run({key: backend}).notes if note.startswith(key)]
    modelled = backend in ("fsdp", "fsdp2", "megatron")
    assert said == ([] if modelled else [f"{key} {backend}: priced as fsdp"])


def test_set_holds_over_the_files() -> None:
    context = Context(parse_cluster("h100:1x8"))
    text = "".join(f"{key}={value}\n" for key, value in BASE.items())
    report = check(
        get_launcher("verl"),
        {"o.txt": text},
        [f"{ROOT}.rollout.tensor_model_parallel_size=2"],
        context,
        search=False,
    )
    assert report.strategies["generate"].tp == 2


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"trainer.nnodes": "many"}, "trainer.nnodes"),
        ({f"{ROOT}.model.path": "nobody/knows"}, "model.path"),
        ({f"{ROOT}.rollout.gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
    ],
)
def test_what_cannot_be_read_is_bad_input_with_its_place(
    changes: dict[str, Any], where: str
) -> None:
    with pytest.raises(InputError, match=where):
        run(changes)


@pytest.mark.parametrize(
    ("launcher", "case"), [("verl", verl_fsdp_colocated), ("nemo-rl", nemo_colocated)]
)
def test_an_exported_plan_breaks_no_rule(launcher: str, case: Any) -> None:
    plan, workload, cluster = case()
    files = get_launcher(launcher).write(plan, workload, cluster)
    report = check(
        get_launcher(launcher), files, [], Context(cluster, workload.models), search=False
    )
    assert report.broken == ()


def test_inherited_nemo_rl_files_are_read_from_the_bottom_up() -> None:
    base = "grpo: {num_prompts_per_step: 64, num_generations_per_prompt: 8}\n"
    files = {
        "base.yaml": "defaults: grpo_math_1B_megatron.yaml\n" + base,
        "mine.yaml": "defaults: base.yaml\npolicy: {train_global_batch_size: 256, "
        "model_name: Qwen/Qwen3-8B, max_total_sequence_length: 2048}\n"
        "cluster: {num_nodes: 1, gpus_per_node: 8}\n",
    }
    read = get_launcher("nemo-rl").read(files, [], Context(parse_cluster("h100:1x8")))
    assert read.workload.prompts_per_step == 64
    assert read.workload.optimizer_steps == 2
    assert read.space == "nemo-rl-megatron"
    with pytest.raises(InputError, match=r"mine\.yaml: defaults"):
        get_launcher("nemo-rl").read(
            {"mine.yaml": "defaults: nowhere.yaml\n"}, [], Context(parse_cluster("h100:1x8"))
        )
