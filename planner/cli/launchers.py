"""`rlmplan launchers`: which launcher has which strategy."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("launchers")(launchers)


def launchers(
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Show which launcher has which strategy, and what plans may use of it."""
    from planner.launchers import launcher_names
    from planner.launchers.table import as_data, rows

    if json:
        from json import dumps

        typer.echo(dumps(as_data(), indent=2))
        return
    from shutil import get_terminal_size

    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from planner.report.text import WIDTH, to_text

    about = as_data()
    width = min(WIDTH, get_terminal_size((WIDTH, 24)).columns)
    table = Table(box=None, width=width, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("strategy", ratio=3, overflow="fold")
    for name in launcher_names():
        table.add_column(name, ratio=1, overflow="fold")
    for row in rows():
        # Settings are long: --json and docs/launchers.md name them.
        table.add_row(
            row[0], *("own" if cell.startswith("own") else cell or "-" for cell in row[1:])
        )
    algorithms = Text("\nalgorithms\n")
    for name in about:
        algorithms.append(f"  {name}: {', '.join(about[name]['algorithms'])}\n")
    algorithms.append(
        "\nyes, up to N: plans may use it; own: the launcher has it, plans do not use it\n"
        "(--json names the setting)"
    )
    typer.echo(to_text(Group(table, algorithms), width=width), nl=False)
