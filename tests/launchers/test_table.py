"""The table of launchers is what their modules and spaces declare, in docs and on the screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.catalog.spaces import load_space
from planner.cli.main import app
from planner.launchers import get_launcher, launcher_names
from planner.launchers.table import as_data, as_markdown
from planner.launchers.taxonomy import TAXONOMY, support

DOCS = Path(__file__).parents[2] / "docs" / "launchers.md"


def test_the_page_is_up_to_date() -> None:
    assert DOCS.read_text() == as_markdown(), "run tools/launcher_table.py"


@pytest.mark.parametrize("name", launcher_names())
def test_a_strategy_is_planned_when_a_space_offers_it(name: str) -> None:
    launcher = get_launcher(name)
    spaces = [load_space(space) for space in launcher.capabilities.spaces]
    by_id = {entry.id: support(launcher, entry) for entry in TAXONOMY}
    assert by_id["train-pp"].planned == any(max(s.calls["train"].pp) > 1 for s in spaces)
    assert by_id["zero-3"].planned == any(3 in s.calls["train"].zero_stage for s in spaces)
    assert by_id["staleness"].planned == any(s.max_staleness > 0 for s in spaces)
    assert by_id["generate-tp"].largest == max(max(s.calls["generate"].tp) for s in spaces)


@pytest.mark.parametrize("name", launcher_names())
def test_what_a_launcher_has_besides_is_in_the_taxonomy(name: str) -> None:
    assert set(get_launcher(name).capabilities.also) <= {entry.id for entry in TAXONOMY}


def test_the_command_prints_every_launcher_and_strategy() -> None:
    result = CliRunner().invoke(app, ["launchers"], catch_exceptions=False)
    assert result.exit_code == 0
    for name in launcher_names():
        assert name in result.stdout
    for width in (60, 100):
        narrow = CliRunner().invoke(app, ["launchers"], env={"COLUMNS": str(width)}).stdout
        assert max(len(line) for line in narrow.splitlines()) <= width
        assert "…" not in narrow
        for about in as_data().values():
            assert all(algorithm in narrow for algorithm in about["algorithms"])
    data = json.loads(CliRunner().invoke(app, ["launchers", "--json"]).stdout)
    assert data == as_data()


def test_plans_for_a_launcher_come_from_its_better_space() -> None:
    arguments = [
        *("plan", "--algorithm", "grpo", "--actor", "Qwen/Qwen3-1.7B", "--cluster", "h100:1x8"),
        *("--prompts", "32", "--samples", "8", "--response-mean", "500", "--response-max", "1024"),
        *("--launcher", "verl", "--top", "1"),
    ]
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    spaces = get_launcher("verl").capabilities.spaces
    assert found["space"] in spaces
    assert any("also verl's" in note for note in found["assumptions"])
    (plan,) = found["plans"]
    assert "verl" in plan["launchers"]
    assert set(plan["lacking"]) | set(plan["launchers"]) == set(launcher_names())
    both = CliRunner().invoke(app, [*arguments, "--space", "any"])
    assert both.exit_code != 0
