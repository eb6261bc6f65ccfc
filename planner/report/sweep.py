"""A sweep as a table that fits 100 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table

from planner.report.units import seconds


def render_sweep(rows: Sequence[dict[str, Any]]) -> RenderableType:
    """One line for each case: what it was, and its best plan or why there is none."""
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for name, justify in (
        *(("algorithm", "left"), ("actor", "left"), ("cluster", "left"), ("prompts", "right")),
        *(("step", "right"), ("$ a step", "right"), ("placement", "left")),
    ):
        table.add_column(name, justify="right" if justify == "right" else "left")
    for row in rows:
        own = [str(row[name] or "") for name in ("algorithm", "actor", "cluster", "prompts")]
        if row["status"] != "planned":
            table.add_row(*own, row["status"], "", row["message"].splitlines()[0][:60])
            continue
        cost = row["cost_per_step_usd"]
        table.add_row(
            *own,
            seconds(row["step_time_s"]),
            "-" if cost is None else f"{cost:.2f}",
            row["placement"],
        )
    return table
