"""Writes docs/launchers.md from what the launcher modules and their search spaces declare.

python tools/launcher_table.py
"""

from __future__ import annotations

from pathlib import Path

from planner.launchers.table import as_markdown

(Path(__file__).parents[1] / "docs" / "launchers.md").write_text(as_markdown(), encoding="utf-8")
