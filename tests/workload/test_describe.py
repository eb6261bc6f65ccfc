"""Sentences about a workload's special fields."""

from __future__ import annotations

import pytest
from algorithm_workloads import workload_for

from planner.workload.algorithms import build_graph
from planner.workload.describe import workload_notes
from planner.workload.graph import calls_in_order


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grpo", []),
        ("dapo", ["1 round of generation on average, of 300 % of the batch each with 50% "]),
        ("c3po", ["50,000 tokens in every optimizer step; 68% of the responses"]),
        ("agentic", ["4 turns a trajectory; after the first 150 new and 0 repeated"]),
        ("dipo", ["0.50 passes for each token, 4 tokens a pass"]),
        ("expert-iteration", ["the actor trains on 1,024 replayed sequences"]),
    ],
)
def test_notes(name: str, expected: list[str]) -> None:
    workload = workload_for(name)
    notes = workload_notes(workload, calls_in_order(build_graph(workload)))
    assert len(notes) == len(expected)
    for note, start in zip(notes, expected, strict=True):
        assert note.startswith(start)
