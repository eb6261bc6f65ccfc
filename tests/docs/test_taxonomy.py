"""The table of strategies names fields, spaces and presets that exist."""

import re
from pathlib import Path

from planner.catalog.presets import list_presets
from planner.catalog.spaces import list_spaces
from planner.schema import MoESpec, SearchSpace, Strategy, Workload

TEXT = (Path(__file__).parents[2] / "docs" / "taxonomy.md").read_text()


def rows(section: str) -> list[list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


INSIDE, BETWEEN = (rows(part) for part in TEXT.split("Between calls"))


def test_every_parallelism_of_the_taxonomy_has_a_row() -> None:
    names = " ".join(row[0] for row in INSIDE + BETWEEN)
    for word in ("data", "tensor", "pipeline", "sequence", "context", "expert"):
        assert word in names
    for word in ("colocated", "disaggregated", "asynchronous", "overlap"):
        assert word in names


def test_fields_exist() -> None:
    known = {*Strategy.model_fields, *Workload.model_fields, *SearchSpace.model_fields}
    known |= set(MoESpec.model_fields)
    for row in INSIDE:
        fields = re.findall(r"`(\w+)(?:: \{[^`]*)?`", row[1])
        assert fields
        assert set(fields) <= known, row
    for row in BETWEEN:
        words = re.findall(r"`(\w+)(?::[^`]*)?`", row[1])
        assert set(words) <= known | set(list_spaces()), row


def test_what_shows_a_strategy_exists() -> None:
    presets, spaces = set(list_presets()), set(list_spaces())
    for row in INSIDE + BETWEEN:
        shown = re.findall(r"`([\w.-]+)`", row[-1])
        assert shown, row
        assert set(shown) <= presets | spaces, row
