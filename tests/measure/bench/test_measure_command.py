"""`rlmplan measure`: without torch a clear message, with it a profile, resumed after a stop."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli.main import app
from planner.errors import InputError

SCRIPT = Path(__file__).with_name("measure_small.py")
ROOT = Path(__file__).parents[3]


def test_without_torch_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    result = CliRunner().invoke(app, ["measure", "-o", str(tmp_path / "out")])
    assert isinstance(result.exception, InputError)
    assert "rlmplan[measure]" in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "a/b"], "no file name"),
        (["--compare", "h101"], "no cluster type or device"),
        (["--compare", "missing.yaml"], "no such file"),
        (["-o", ""], "the name is empty"),
    ],
)
def test_bad_options_are_refused_before_anything_is_measured(
    arguments: list[str], message: str
) -> None:
    result = CliRunner().invoke(app, ["measure", *arguments])
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)


def _python_with_torch() -> str | None:
    if importlib.util.find_spec("torch"):
        return sys.executable
    return None


def _small_measurement(python: str, folder: Path) -> None:
    """A few points alone, then with two ranks, stopped after some and resumed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for ranks in (1, 2):
        target = folder / str(ranks)
        target.mkdir()
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        for most in (4, 1000):
            done = subprocess.run(
                [python, *(launch if ranks > 1 else []), str(SCRIPT), str(target), str(most)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr[-3000:]
        lines = (target / "journal.jsonl").read_text().splitlines()
        keys = [line.split('"key": "')[1].split('"')[0] for line in lines[1:]]
        assert len(keys) == len(set(keys))
        assert any(key.startswith("gemm") for key in keys)
        assert any(key.startswith("all_reduce") for key in keys) == (ranks > 1)


@pytest.mark.skipif(_python_with_torch() is None, reason="torch is not installed here")
def test_a_small_measurement_here(tmp_path: Path) -> None:
    _small_measurement(sys.executable, tmp_path)


@pytest.mark.launcher
def test_a_small_measurement_in_the_launcher_environment(tmp_path: Path) -> None:
    python = os.environ.get("RLMPLAN_LAUNCHER_PYTHON")
    if not python:
        pytest.skip("RLMPLAN_LAUNCHER_PYTHON names no environment")
    _small_measurement(python, tmp_path)
