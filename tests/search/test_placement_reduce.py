"""Reducing a problem's options before it is solved."""

from __future__ import annotations

from placement_problems import random_problem

from planner.search.placement.instance import compile_instance
from planner.search.placement.reduce import below, representatives


def test_units_without_options_have_no_representatives() -> None:
    """A target that nothing reaches leaves units empty, and that is for the caller to see."""
    instance = compile_instance(random_problem(0))
    assert all(len(rows) > 0 for rows in representatives(instance).options)
    unreachable = below(instance, 0.0)
    assert all(len(rows) == 0 for rows in unreachable.options)
    assert all(len(rows) == 0 for rows in representatives(unreachable).options)
