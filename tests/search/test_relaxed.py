"""Least times of calls: no option of a unit beats them, in any space."""

from __future__ import annotations

import numpy as np
import pytest

from planner.catalog.hardware import parse_cluster
from planner.catalog.spaces import load_space
from planner.catalog.workloads import problem_from
from planner.search.api import instance_of
from planner.search.options import unit_options
from planner.search.problems import class_instance, scopes
from planner.search.relaxed import fastest_space, least_times

MODEL = "Qwen/Qwen3-1.7B"


def nothing() -> None:
    """Nothing ends the pricing."""


@pytest.mark.parametrize(
    ("space_name", "algorithm", "model", "cluster"),
    [
        ("any", "ppo", MODEL, "h100:2x8"),
        ("any", "grpo", "Qwen/Qwen3-30B-A3B", "h100:2x8"),
        ("relayout", "ppo", MODEL, "h100:1x8"),
        ("nemo-rl-megatron", "grpo", MODEL, "h100:1x8"),
        ("openrlhf", "ppo", MODEL, "h100:1x8"),
        ("verl-fsdp", "ppo", MODEL, "a100:1x8+h100:1x8"),
    ],
)
def test_no_option_is_faster(space_name: str, algorithm: str, model: str, cluster: str) -> None:
    roles = ("actor", "critic", "reference", "reward") if algorithm == "ppo" else ("actor",)
    read = problem_from(
        None,
        algorithm=algorithm,
        models=dict.fromkeys(roles, model),
        cluster=cluster,
        prompts=64,
        samples=2,
        response_mean=500.0,
        response_max=2048,
    )
    space = load_space(space_name)
    whole = instance_of(read.workload, parse_cluster(cluster), space)
    compared = 0
    classes = scopes(whole, space, 1.0)
    # Synchronous, the first variant of it, and the last, which is asynchronous where there is one.
    for scope in (*classes[:2], *classes[2:][-1:]):
        instance = class_instance(whole, scope)
        for unit in instance.units:
            options = unit_options(instance, scope, unit).unit
            least = least_times(instance, scope, unit, nothing)
            sizes = zip(least.group.tolist(), least.devices.tolist(), strict=True)
            row = {size: i for i, size in enumerate(sizes)}
            index = [
                row[size]
                for size in zip(options.group.tolist(), options.devices.tolist(), strict=True)
            ]
            assert (options.time_s >= least.time_s[index] * (1 - 1e-12)).all()
            compared += len(index)
    assert compared > 100


def test_a_knob_that_a_rule_speaks_of_keeps_its_values() -> None:
    space = load_space("nemo-rl-megatron")
    fast = fastest_space(space)
    assert fast.calls["train"].offload == space.calls["train"].offload
    free = fastest_space(load_space("any")).calls["train"]
    assert (free.recompute, free.offload, free.optimizer_on_cpu) == (("none",), ("none",), (False,))


def test_least_times_are_reached_where_memory_is_no_limit() -> None:
    read = problem_from(
        None,
        algorithm="grpo",
        models={"actor": MODEL},
        cluster="h100:1x8",
        prompts=16,
        samples=2,
        response_mean=200.0,
        response_max=512,
    )
    space = load_space("any")
    instance = instance_of(read.workload, read.cluster, space)
    scope = scopes(instance, space, 1.0)[0]
    engine = next(unit for unit in instance.units if unit.calls == ("generate",))
    options = unit_options(instance, scope, engine).unit
    least = least_times(instance, scope, engine, nothing)
    for size, time_s in zip(least.devices, least.time_s[:, 0], strict=True):
        reached = options.time_s[options.devices == size, 0]
        np.testing.assert_allclose(reached.min(), time_s)
