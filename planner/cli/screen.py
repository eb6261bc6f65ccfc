"""Reports on the terminal, in colours where it has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType


def show(report: RenderableType) -> None:
    """Print a report: styled on a terminal, plain text into a pipe or file."""
    import sys

    from rich.console import Console

    from planner.report.text import WIDTH, to_text

    if sys.stdout.isatty():
        Console(highlight=False, markup=False, width=WIDTH).print(report)
    else:
        typer.echo(to_text(report), nl=False)
