"""Launchers and search spaces name each other."""

from __future__ import annotations

import pytest

from planner.catalog.spaces import list_spaces, load_space
from planner.launchers import get_launcher, launcher_names
from planner.launchers.key_lists import load_keys
from planner.workload.registry import list_algorithms


def test_every_space_belongs_to_the_launcher_that_declares_it() -> None:
    declared = {
        space: name for name in launcher_names() for space in get_launcher(name).capabilities.spaces
    }
    assert declared == {
        name: load_space(name).launcher for name in list_spaces() if load_space(name).launcher
    }


@pytest.mark.parametrize("name", launcher_names())
def test_declared_algorithms_exist(name: str) -> None:
    capabilities = get_launcher(name).capabilities
    assert capabilities.algorithms
    assert set(capabilities.algorithms) <= set(list_algorithms())


@pytest.mark.parametrize("name", ["verl", "verl-megatron", "nemo-rl-grpo", "nemo-rl-ppo-megatron"])
def test_key_lists_have_a_source_and_defaults(name: str) -> None:
    keys = load_keys(name)
    assert keys.source
    assert len(keys.defaults) > 250
    assert keys.knows(next(iter(keys.defaults)))
    assert not keys.knows("no.such.key")
