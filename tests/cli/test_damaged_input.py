"""A small run of tools/fuzz.py: damaged input is answered or refused, in time, no traceback."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["fuzz"]


def test_every_reader_refuses_damage_with_a_message(fuzz, tmp_path: Path) -> None:
    chosen = fuzz.targets(tmp_path)
    results = fuzz.run(chosen, 8 * len(chosen), 11, tmp_path, None)
    assert {name: dict(r.faults) for name, r in results.items() if r.faults} == {}
    assert all(r.answered + r.refused == 8 for r in results.values())
    assert sum(r.refused for r in results.values()) > len(results)
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith("input")] == []


def test_faults_would_be_seen(fuzz, tmp_path: Path) -> None:
    def broken(path: Path) -> None:
        raise KeyError(path.name)

    chosen = {"broken": fuzz.Target(broken, ("a: 1",), ".yaml")}
    (result,) = fuzz.run(chosen, 3, 0, tmp_path, tmp_path / "kept").values()
    assert sum(result.faults.values()) == 3
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_damage_is_reproducible_and_changes_something(fuzz) -> None:
    seed = "a: 1\nb: {c: [1, 2]}\n"
    one = [fuzz.damaged(seed, random.Random(s)) for s in range(50)]
    assert one == [fuzz.damaged(seed, random.Random(s)) for s in range(50)]
    assert sum(text.decode(errors="replace") != seed for text in one) > 40
