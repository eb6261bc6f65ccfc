"""Algorithms in each launcher's settings: what is written for one is read as that one."""

from __future__ import annotations

from typing import Any

import pytest
from launcher_cases import QWEN_8B, Case, grpo
from test_round_trip import assert_same, read_back

import planner
from planner.catalog.hardware import parse_cluster
from planner.launchers import get_launcher, launcher_names
from planner.launchers.algorithm_settings import GROUPED, fitting
from planner.launchers.numbers import stage_ends
from planner.launchers.reading import Context

CASES: dict[str, Case] = {}


def case(launcher: str) -> Case:
    """A plan of the launcher's first space for GRPO without KL, searched for once."""
    if launcher not in CASES:
        workload = grpo(QWEN_8B, kl_weight=0.0, models={"actor": QWEN_8B})
        if launcher == "prime-rl":  # its loss takes the engine's log-probabilities
            changes = {"old_logprobs": "engine", "optimizer_steps": 1}
            workload = workload.model_copy(update=changes)
        cluster = parse_cluster("h100:2x8")
        space = get_launcher(launcher).capabilities.spaces[0]
        plans = planner.plan(workload, cluster, space=space, top=5, deadline_s=10, gap=0.1)
        supports = get_launcher(launcher).supports
        CASES[launcher] = next(
            (plan, workload, cluster)
            for plan in plans.plans
            if not supports(plan, workload, cluster)
        )
    return CASES[launcher]


PAIRS = [
    (launcher, algorithm)
    for launcher in launcher_names()
    for algorithm in get_launcher(launcher).capabilities.algorithms
    if algorithm != "ppo"
]


@pytest.mark.parametrize(("launcher", "algorithm"), PAIRS)
def test_an_algorithm_is_written_and_read_as_itself(launcher: str, algorithm: str) -> None:
    plan, workload, cluster = case(launcher)
    changes = {"algorithm": algorithm, "max_staleness": plan.assignment.staleness}
    workload = workload.model_copy(update=changes)
    assert get_launcher(launcher).supports(plan, workload, cluster) == []
    assert_same(read_back(launcher, (plan, workload, cluster)), plan, workload)


def test_most_launchers_tell_grpo_s_relatives_apart() -> None:
    for launcher in ("verl", "openrlhf", "slime", "trl"):
        assert {"grpo", "gspo", "dr-grpo"} <= set(get_launcher(launcher).capabilities.algorithms)


@pytest.mark.parametrize(
    ("settings", "algorithm", "note"),
    [
        ({"algorithm.adv_estimator": "rloo"}, "grpo", "rloo: priced as grpo"),
        ({"algorithm.adv_estimator": "grpo", "actor_rollout_ref.rollout.n": 1}, "reinforce-pp", ""),
        (
            {
                "algorithm.adv_estimator": "grpo",
                "actor_rollout_ref.actor.clip_ratio_high": 0.28,
                "actor_rollout_ref.actor.use_kl_loss": "true",
            },
            "grpo",
            "dapo with a KL term",
        ),
    ],
)
def test_what_verl_has_otherwise_is_priced_with_the_same_calls(
    settings: dict[str, Any], algorithm: str, note: str
) -> None:
    base = {
        "actor_rollout_ref.model.path": "Qwen/Qwen3-8B",
        "actor_rollout_ref.rollout.n": 8,
        "data.train_batch_size": 64,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 64,
        "actor_rollout_ref.actor.use_dynamic_bsz": "true",
    }
    text = "".join(f"{key}={value}\n" for key, value in (base | settings).items())
    context = Context(parse_cluster("h100:1x8"))
    read = get_launcher("verl").read({"overrides.txt": text}, [], context)
    assert read.workload.algorithm == algorithm
    assert any(note in each for each in read.notes)


def test_groups_need_samples() -> None:
    notes: list[str] = []
    for algorithm in GROUPED:
        assert fitting(algorithm, 8, 0.0, notes) == algorithm
        assert fitting(algorithm, 1, 0.0, notes) == "reinforce-pp"
    assert fitting("ppo", 1, 0.1, notes) == "ppo"


@pytest.mark.parametrize("launcher", ["verl", "openrlhf", "trl"])
def test_adapters_are_written_and_read(launcher: str) -> None:
    plan, workload, cluster = case(launcher)
    changes = {"lora_rank": 32, "max_staleness": plan.assignment.staleness}
    workload = workload.model_copy(update=changes)
    assert_same(read_back(launcher, (plan, workload, cluster)), plan, workload)


def test_launchers_that_write_no_adapters_say_so() -> None:
    plan, workload, cluster = case("slime")
    workload = workload.model_copy(update={"lora_rank": 32})
    reasons = get_launcher("slime").supports(plan, workload, cluster)
    assert reasons == ["no setting is written for lora_rank of the workload"]


def test_a_given_pipeline_end_leaves_the_rest_even() -> None:
    assert stage_ends(0, 6, 61, 12) == (5, 6)
    assert stage_ends(4, 0, 61, 20) == (4, 3)
    assert stage_ends(0, 0, 61, 12) == (0, 0)
    assert stage_ends(3, 2, 61, 16) == (3, 2)
    assert stage_ends(0, 7, 61, 12) == (0, 7)
