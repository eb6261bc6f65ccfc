"""Parallel training of a recommender with an LLM's shape on slow networks (arXiv:2506.17551).

7B with 256,000 tokens and items, short outputs, 16 PCIe devices of two nodes; training alone, by
preference pairs. Published: hybrid plans beat one mode alone by over 30 %.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from priced import price

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import Problem, problem_from
from planner.schema import CallPrediction, SearchSpace, Strategy

ONE_MODE: dict[str, dict[str, tuple[int, ...]]] = {
    "data": {"tp": (1,), "pp": (1,), "cp": (1,)},
    "tensor": {"pp": (1,), "cp": (1,), "dp": (1,)},
    "pipeline": {"tp": (1,), "cp": (1,), "dp": (1,)},
}


@cache
def recommender(node_gbit_s: float, compression: float = 1.0) -> Problem:
    read = problem_from(preset="recommender-7b")
    group = read.cluster.groups[0]
    rate = node_gbit_s * 1e9 / 8 / group.devices_per_node
    device = group.device.model_copy(update={"scale_out_bandwidth_bytes_per_s": rate})
    cluster = read.cluster.model_copy(
        update={"groups": (group.model_copy(update={"device": device}),)}
    )
    exchange = read.workload.gradient_exchange.model_copy(update={"compression": compression})
    workload = read.workload.model_copy(update={"gradient_exchange": exchange})
    return Problem(workload, cluster)


def degrees(mode: str | None) -> SearchSpace:
    """`any` with all ZeRO stages; a mode keeps its own degree alone."""
    space = load_space("any")
    fields: dict[str, Any] = {"zero_stage": (0, 1, 2, 3)}
    rules = space.rules
    if mode is not None:
        own = dict(ONE_MODE[mode])
        if "dp" in own:
            del own["dp"]
            one = rules[0].model_copy(
                update={"id": "one-mode", "check": "dp == 1", "calls": ("train",)}
            )
            rules = (*rules, one)
        fields |= own
    train = space.calls["train"].model_copy(update=fields)
    return space.model_copy(
        update={"calls": {**space.calls, "train": train}, "rules": rules, "sub_node_meshes": False}
    )


def training(problem: Problem, mode: str | None) -> CallPrediction:
    found = planner.plan(problem.workload, problem.cluster, space=degrees(mode), top=1)
    return found.plans[0].calls["actor_train"]


@pytest.mark.parametrize("node_gbit_s", [25.0, 100.0])
def test_a_hybrid_plan_beats_every_single_mode_by_a_third(node_gbit_s: float) -> None:
    problem = recommender(node_gbit_s)
    best = training(problem, None)
    assert best.strategy is not None
    degrees_used = (best.strategy.tp, best.strategy.pp, best.strategy.cp, best.strategy.dp)
    assert sum(degree > 1 for degree in degrees_used) >= 2
    single_s = [training(problem, mode).time_s for mode in ONE_MODE]
    assert min(single_s) > 1.3 * best.time_s


def exposed_s(problem: Problem, strategy: Strategy) -> float:
    layouts = {"": (0, 2, strategy)}
    found = price(problem.workload, problem.cluster, layouts).calls["actor_train"]
    return found.time_parts_s["dp_comm"]


@pytest.mark.parametrize("node_gbit_s", [25.0, 100.0])
def test_tenfold_compression_cuts_exposed_exchange_fivefold(node_gbit_s: float) -> None:
    strategy = Strategy(pp=2, dp=8, zero_stage=0, recompute="full")
    whole, tenth = (exposed_s(recommender(node_gbit_s, c), strategy) for c in (1.0, 10.0))
    assert whole > 1.0
    assert whole / tenth >= 5.0


def test_stages_with_fewer_layers_beside_the_large_head_are_faster() -> None:
    problem = recommender(100.0)

    def seconds(first: int, last: int) -> float:
        strategy = Strategy(
            pp=4,
            dp=4,
            zero_stage=1,
            recompute="full",
            first_stage_layers=first,
            last_stage_layers=last,
        )
        layouts = {"": (0, 2, strategy)}
        return price(problem.workload, problem.cluster, layouts).calls["actor_train"].time_s

    assert seconds(9, 5) < 0.95 * seconds(0, 0)


def test_the_preset_is_planned_with_its_compression() -> None:
    read = problem_from(preset="recommender-7b")
    found = planner.plan(read.workload, read.cluster, space="frontier", top=1)
    assert any("1/10 of a gradient's bytes" in note for note in found.assumptions)
    whole = recommender(100.0)
    plain = planner.plan(whole.workload, whole.cluster, space="frontier", top=1)
    assert found.plans[0].step_time_s < plain.plans[0].step_time_s
