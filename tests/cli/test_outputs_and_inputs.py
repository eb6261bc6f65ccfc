"""What a command writes never replaces what it reads, and closed output is no traceback."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli.main import app
from planner.errors import InputError
from planner.schema.model import MoESpec
from planner.search.tuning.study import open_storage

EXAMPLE = Path(__file__).parents[2] / "examples" / "grpo-qwen2.5-7b-1x8-h100.yaml"


@pytest.mark.parametrize(
    "options",
    [
        ["--html", "p.yaml"],
        ["--trace", "./p.yaml"],
        ["--html", "x.html", "--trace", "x.html"],
    ],
)
def test_outputs_do_not_replace_inputs_or_one_another(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text(EXAMPLE.read_text())
    result = CliRunner().invoke(app, ["plan", "p.yaml", *options])
    assert isinstance(result.exception, InputError)
    assert "would replace another file" in str(result.exception)
    assert Path("p.yaml").read_text() == EXAMPLE.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]


@pytest.mark.parametrize("arguments", ["doctor", "launchers", f"plan {EXAMPLE} --details 0"])
def test_a_closed_standard_output_is_no_traceback(arguments: str) -> None:
    command = f'"{sys.executable}" -m planner.cli.main {arguments} >&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def _open(address: str) -> str:
    open_storage(address)
    return "opened"


def test_two_tuners_may_create_one_storage(tmp_path: Path) -> None:
    address = str(tmp_path / "study.db")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_open, [address] * 2) == ["opened"] * 2


def test_routing_groups_must_reach_as_many_experts_as_a_token_takes() -> None:
    fields = {"num_experts": 64, "top_k": 8, "expert_ffn_size": 1024, "expert_groups": 64}
    with pytest.raises(ValueError, match="reach 1 experts, top_k is 8"):
        MoESpec(**fields, groups_per_token=1)
    assert MoESpec(**fields, groups_per_token=8).groups_per_token == 8
