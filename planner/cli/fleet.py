"""`rlmplan fleet`: shares, places and start times for the jobs of a fleet file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("fleet")(fleet)


def fleet(
    file: Annotated[Path, typer.Argument(help="Fleet file (YAML); see examples/fleet.yaml.")],
    objective: Annotated[
        str | None,
        typer.Option(help="makespan (default), tardiness, or pareto: the front of both."),
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="cp-sat (default, exact), memetic, ga, anneal or random.")
    ] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Schedules evaluated at most.")] = None,
    deadline: Annotated[
        float | None,
        typer.Option(help="Seconds of the search after which the best so far is returned."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**31 - 1, help="Seed of the optimizer.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Share a cluster among several jobs: nodes, places, start times, with a bound."""
    from planner.catalog.fleet import load_fleet

    given = load_fleet(file)
    from planner.fleet.api import plan_fleet

    plan = plan_fleet(
        given.jobs,
        given.cluster,
        slots=given.slots,
        storage_bytes_per_s=given.storage_bytes_per_s,
        objective=objective or given.objective or "makespan",
        optimizer=optimizer or given.optimizer or "cp-sat",
        budget=given.budget if budget is None else budget,
        deadline_s=given.deadline_s if deadline is None else deadline,
        seed=(given.seed or 0) if seed is None else seed,
    )
    if json:
        typer.echo(plan.model_dump_json(indent=2))
        return
    from planner.report.fleet import render_fleet
    from planner.report.text import to_text

    typer.echo(to_text(render_fleet(plan)), nl=False)
