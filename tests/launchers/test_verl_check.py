"""What `check` makes of verl's settings: sharding groups, loss, padding, asynchronous batches."""

from __future__ import annotations

from typing import Any

import pytest

from planner.catalog.hardware import parse_cluster
from planner.launchers import get_launcher
from planner.launchers.check import check
from planner.launchers.reading import Context
from planner.schema.check import CheckReport

ROOT = "actor_rollout_ref"


@pytest.mark.parametrize(("size", "legal"), [(0, False), (3, False), (4, True), (8, True)])
def test_sharding_groups_make_up_the_ranks(size: int, legal: bool) -> None:
    key = f"{ROOT}.actor.fsdp_config.fsdp_size"
    report = checked({key: size})
    broken = [each for each in report.broken if each.rule == "sharding-groups-divide-ranks"]
    assert bool(broken) != legal
    if broken:
        assert f"{key}=-1" in broken[0].nearest
    else:
        assert report.strategies["actor_train"].shard_ranks == (0 if size == 8 else size)


def test_groups_that_shard_less_hold_more() -> None:
    key = f"{ROOT}.actor.fsdp_config.fsdp_size"
    held = [weights_bytes(checked({key: size})) for size in (-1, 4, 2)]
    assert held[0] < held[1] < held[2]


def test_an_entropy_term_keeps_more_of_every_logit() -> None:
    reports = [checked({f"{ROOT}.actor.entropy_coeff": value}) for value in (0, 0.01)]
    logits = [
        report.prediction.calls["actor_train"].memory_bytes["logits"]
        for report in reports
        if report.prediction is not None
    ]
    assert logits[0] < logits[1]


def test_microbatches_without_padding_hold_their_own_lengths() -> None:
    """Forty short responses of a long limit are no forty times the limit."""
    static = {
        f"{ROOT}.actor.use_dynamic_bsz": "false",
        f"{ROOT}.actor.ppo_micro_batch_size_per_gpu": 8,
        f"{ROOT}.rollout.log_prob_micro_batch_size_per_gpu": 8,
    }
    padded = checked(static | {f"{ROOT}.model.use_remove_padding": "false"})
    own = checked(static | {f"{ROOT}.model.use_remove_padding": "true"})
    assert padded.prediction is not None
    assert own.prediction is not None
    one, other = (each.prediction.calls["actor_train"] for each in (own, padded))  # type: ignore[union-attr]
    assert one.memory_bytes["total"] < other.memory_bytes["total"]
    assert one.time_s < other.time_s
    assert own.strategies["actor_train"].packing is False


def test_the_rollouter_counts_its_own_batch() -> None:
    """Fully asynchronous training has train_batch_size 0: a step is what one weight sync brings."""
    settings = {
        "data.train_batch_size": 0,
        f"{ROOT}.actor.ppo_mini_batch_size": 32,
        f"{ROOT}.hybrid_engine": "false",
        "async_training.require_batches": 2,
        "async_training.trigger_parameter_sync_step": 4,
        "rollout.nnodes": 1,
        "rollout.n_gpus_per_node": 8,
    }
    report = checked(
        settings, entry="verl.experimental.fully_async_policy.fully_async_main", cluster="h100:2x8"
    )
    assert report.workload.prompts_per_step == 256
    assert report.workload.optimizer_steps == 8


def weights_bytes(report: CheckReport) -> int:
    assert report.prediction is not None
    return report.prediction.calls["actor_train"].memory_bytes["weights"]


def checked(changes: dict[str, Any], *, entry: str = "", cluster: str = "h100:1x8") -> CheckReport:
    settings = {
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": 64,
        "data.max_prompt_length": 512,
        "data.max_response_length": 1536,
        f"{ROOT}.model.path": "Qwen/Qwen3-8B",
        f"{ROOT}.rollout.name": "vllm",
        f"{ROOT}.rollout.n": 8,
        f"{ROOT}.actor.ppo_mini_batch_size": 64,
        f"{ROOT}.actor.use_dynamic_bsz": "true",
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": 8,
    } | changes
    words = [f"{key}={value}" for key, value in settings.items()]
    text = "".join(f"{word}\n" for word in words)
    files = {"overrides.txt": text}
    if entry:
        files = {"run.sh": f"python3 -m {entry} {' '.join(words)}\n"}
    return check(get_launcher("verl"), files, [], Context(parse_cluster(cluster)), search=False)


def test_a_model_may_be_given_more_positions() -> None:
    settings = {f"{ROOT}.model.path": "Qwen/Qwen2.5-Math-7B", "data.max_response_length": 8192}
    positions = f"{ROOT}.model.override_config.max_position_embeddings"
    rules = [
        {each.rule for each in checked(settings | more).broken}
        for more in ({}, {f"+{positions}": 32768})
    ]
    assert "sequence-within-model" in rules[0]
    assert rules[1] == set()
