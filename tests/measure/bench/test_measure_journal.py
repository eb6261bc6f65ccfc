"""The journal keeps what was finished, whatever happens next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.measure.bench.journal import Journal, Sample
from planner.measure.bench.points import Point

MACHINE = {"device": "cpu", "threads": 1}


def sample(index: int) -> Sample:
    return Sample(Point("gemm", (index + 1, 64, 64)), (0.001 * (index + 1), 0.002), 0.1, 5)


def test_a_journal_opened_again_has_all_samples(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, MACHINE)
    for index in range(3):
        journal.append(sample(index))
    again = Journal(path, MACHINE)
    assert again.samples == {sample(i).point.key: sample(i) for i in range(3)}


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
@given(data=st.data())
def test_a_kill_at_any_byte_loses_only_the_line_in_writing(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "journal.jsonl"
    path.unlink(missing_ok=True)
    journal = Journal(path, MACHINE)
    for index in range(5):
        journal.append(sample(index))
    content = path.read_bytes()
    header = content.index(b"\n") + 1
    cut = data.draw(st.integers(header, len(content)))
    path.write_bytes(content[:cut])
    complete = content[:cut].count(b"\n") - 1
    again = Journal(path, MACHINE)
    assert complete <= len(again.samples) <= complete + 1
    again.append(sample(9))
    keys = [json.loads(line)["key"] for line in path.read_text().splitlines()[1:]]
    assert len(keys) == len(set(keys)) == len(again.samples)
    assert Journal(path, MACHINE).samples == again.samples


def test_another_machines_journal_is_refused_with_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path, MACHINE).append(sample(0))
    before = path.read_bytes()
    with pytest.raises(InputError, match="threads: 1 -> 2"):
        Journal(path, {**MACHINE, "threads": 2})
    assert path.read_bytes() == before


def test_a_file_that_is_no_journal_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("notes\n")
    with pytest.raises(InputError, match="no journal"):
        Journal(path, MACHINE)
    assert path.read_text() == "notes\n"


def test_a_collective_takes_its_slowest_rank_and_a_kernel_the_median() -> None:
    kernel = Sample(Point("gemm", (1, 1, 1)), (1.0, 2.0, 9.0), 0.0, 5)
    collective = Sample(Point("all_reduce", (3, 64)), (1.0, 2.0, 9.0), 0.0, 5)
    assert kernel.seconds == 2.0
    assert collective.seconds == 9.0
