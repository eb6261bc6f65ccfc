"""Every kind of bad input of docs/reliability.md gets what the page says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "reliability_table.py"


def test_the_page_shows_what_bad_input_gets() -> None:
    spec = importlib.util.spec_from_file_location("reliability_table", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    sys.modules["reliability_table"] = tool
    spec.loader.exec_module(tool)
    rows = tool.table().splitlines()[2:]
    assert len(rows) == len(tool.KINDS) > 30
    for row in rows:
        what, code, message = (cell.strip() for cell in row.strip("|").split(" | ", 2))
        assert int(code) == (3 if "limit that nothing" in what or "fits nowhere" in what else 2)
        assert message
        assert "Traceback" not in message
    page = (ROOT / "docs" / "reliability.md").read_text()
    missing = [row for row in rows if row not in page]
    assert missing == [], "run tools/reliability_table.py"
