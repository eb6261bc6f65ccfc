"""`rlmplan doctor`: is everything here that planning needs, and what optional parts are missing."""

from __future__ import annotations

from typing import Annotated

import typer

# Module -> (what it is for, what installs it).
_OPTIONAL = {
    "torch": ("rlmplan measure", "rlmplan[measure]"),
    "ray": ("placement groups, rlmplan sweep on Ray", "ray"),
    "plotly": ("HTML report and figures", "rlmplan[report]"),
    "pandas": ("PlanSet.to_dataframe()", "pandas"),
    "pyarrow": ("kernel tables distilled anew", "rlmplan[distil]"),
}
_REQUIRED = ("ortools", "numpy", "networkx", "optuna", "pydantic", "yaml", "typer", "rich")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("doctor")(doctor)


def doctor(
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Check the installation: versions, data files, solver, machine; exit code 1 when broken."""
    import json as encoder

    from planner.measure.health import health

    found = health(_REQUIRED, _OPTIONAL)
    broken = [row for row in found if row["state"] == "broken"]
    if json:
        typer.echo(encoder.dumps({"ok": not broken, "checks": found}, indent=2))
    else:
        marks = {"ok": "ok", "missing": "--", "broken": "BROKEN"}
        width = max(len(row["check"]) for row in found)
        for row in found:
            typer.echo(f"{marks[row['state']]:>6}  {row['check']:<{width}}  {row['detail']}")
        typer.echo("Ready to plan." if not broken else "Not ready: see the lines marked BROKEN.")
    raise typer.Exit(1 if broken else 0)
