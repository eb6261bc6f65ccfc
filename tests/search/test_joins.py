"""Pairs of a unit's calls: leaving most of them out changes nothing that a plan can feel."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from planner.catalog.hardware import parse_cluster
from planner.catalog.spaces import load_space
from planner.catalog.workloads import problem_from
from planner.search import options
from planner.search.api import instance_of
from planner.search.options import UnitOptions, unit_options
from planner.search.scope import Scope


def priced(space_name: str, cluster: str, share: float) -> list[UnitOptions]:
    model = "Qwen/Qwen3-1.7B"
    roles = dict.fromkeys(("actor", "critic", "reference", "reward"), model)
    read = problem_from(
        None,
        algorithm="ppo",
        models=roles,
        cluster=cluster,
        prompts=64,
        samples=2,
        response_mean=500.0,
        response_max=2048,
    )
    space = load_space(space_name)
    instance = instance_of(read.workload, parse_cluster(cluster), space)
    placement = space.placements[0]
    scope = Scope(space, placement, 0, memory_share=share)
    units = [unit for unit in instance.units if len(unit.calls) > 1]
    assert len(units) == 2
    return [unit_options(instance, scope, unit) for unit in units]


@pytest.mark.parametrize(
    ("space", "cluster", "share"),
    [("any", "h100:2x8", 1.0), ("any", "a100-40-sxm:1x8", 0.4), ("verl-fsdp", "h100:1x8", 0.9)],
)
def test_nothing_of_use_is_left_out(
    space: str, cluster: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = priced(space, cluster, share)
    monkeypatch.setattr(
        options,
        "useful_pairs",
        lambda strategies, lead, forward, lead_rows, *_: np.ones(len(lead_rows), dtype=np.bool_),
    )
    everything = priced(space, cluster, share)
    for few, all_pairs in zip(found, everything, strict=True):
        assert len(few.unit.devices) > 0
        assert few.costed == all_pairs.costed
        assert_same(few.unit, all_pairs.unit)
        assert_same(few.variants, all_pairs.variants)
        for name, strategies in few.strategies.items():
            assert_same(strategies, all_pairs.strategies[name])


def assert_same(left: Any, right: Any) -> None:
    for field in fields(left):
        mine, other = getattr(left, field.name), getattr(right, field.name)
        if isinstance(mine, dict):
            for name in mine:
                assert_same(mine[name], other[name])
        else:
            np.testing.assert_array_equal(mine, other, err_msg=field.name)
