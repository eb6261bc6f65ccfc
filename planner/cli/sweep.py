"""`rlmplan sweep`: plans of many models, clusters, sizes and algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import options


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("sweep")(sweep)


def sweep(
    file: Annotated[
        Path | None, typer.Argument(help="Problem file (YAML) that the options change.")
    ] = None,
    algorithm: Annotated[list[str] | None, typer.Option(help="Repeat for several.")] = None,
    actor: Annotated[list[str] | None, typer.Option(help="Models; repeat for several.")] = None,
    cluster: Annotated[
        list[str] | None, typer.Option(help="NAME:NODESxDEVICES; repeat for several.")
    ] = None,
    prompts: Annotated[
        list[int] | None, typer.Option(help="Prompts in a step; repeat for several.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="ROLE=MODEL for other roles; ROLE=actor for the actor's model."),
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Responses for each prompt.")] = None,
    response_mean: Annotated[float | None, typer.Option(help="Mean response, tokens.")] = None,
    response_max: Annotated[int | None, typer.Option(help="Longest response, tokens.")] = None,
    space: Annotated[str, typer.Option(help="Search space, as of `rlmplan plan`.")] = "any",
    objective: Annotated[str, typer.Option(help="As of `rlmplan plan`.")] = "step_time",
    deadline: Annotated[
        float | None,
        typer.Option(help="Seconds for each search; with one, answers may differ from run to run."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="JSON-lines file; cases that it holds are not planned again."
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Local processes (default: one for each core).")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster instead: auto, ray://HOST:PORT, local."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON lines on stdout.")] = False,
) -> None:
    """Plan every combination of models, clusters, sizes and algorithms; resumable."""
    import json as encoder

    from planner.sweep import Row, cases
    from planner.sweep import sweep as run

    many = cases(
        file,
        algorithms=algorithm or (),
        actors=actor or (),
        clusters=cluster or (),
        prompts=prompts or (),
        models=[(role, name or "") for role, name in options.by_role(model or []).items()],
        space=space,
        objective=objective,
        deadline_s=deadline,
        samples=samples,
        response_mean=response_mean,
        response_max=response_max,
    )

    def shown(done: int, row: Row) -> None:
        what = f"{row['step_time_s']:.1f} s" if row["status"] == "planned" else row["status"]
        name = " ".join(str(row[key]) for key in ("algorithm", "actor", "cluster") if row[key])
        typer.echo(f"{done}/{len(many)} {name}: {what}", err=True)

    rows = run(many, path=output, processes=processes, address=ray, progress=shown)
    if json:
        for row in rows:
            typer.echo(encoder.dumps(row, sort_keys=True))
        return
    from planner.cli.screen import show
    from planner.report.sweep import render_sweep

    show(render_sweep(rows))
