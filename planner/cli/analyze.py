"""`rlmplan analyze`: work, depth and limits of a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.errors import InputError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("analyze")(analyze)


def analyze(
    file: Annotated[
        Path | None,
        typer.Argument(help="A problem file (YAML), or what `rlmplan plan --json` wrote."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Instead of a file: a named workload with its cluster (`rlmplan workloads list`)."
        ),
    ] = None,
    rank: Annotated[int, typer.Option(min=1, help="Which plan.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Work, depth, W/D, traffic and messages of every call; what bounds the step, what moves it.

    A problem file, or a preset, is planned first.
    """
    if file is None and preset is None:
        raise InputError(
            "names no problem",
            where="analyze",
            remedy="Give a problem file or a plan file, or --preset (`rlmplan workloads list`).",
        )
    from planner.report.analysis import render_analysis
    from planner.report.text import to_text
    from planner.search.analysis import analyze_plan

    if file is not None and preset is None and file.suffix.lower() == ".json":
        from planner.cli.export import read_plans

        plan_set = read_plans(file)
    else:
        from planner.api import plan as find_plans
        from planner.catalog.workloads import problem_from

        problem = problem_from(file, preset=preset)
        plan_set = find_plans(
            problem.workload, problem.cluster, space=problem.space, top=max(rank, problem.top or 5)
        )
    chosen = next((each for each in plan_set.plans if each.rank == rank), None)
    if chosen is None:
        raise InputError(
            f"no plan of rank {rank}",
            where=f"--preset {preset}" if file is None else str(file),
            remedy=f"There are ranks 1 to {len(plan_set.plans)}",
        )
    analysis = analyze_plan(chosen, plan_set.workload, plan_set.cluster)
    if json:
        typer.echo(analysis.model_dump_json(indent=2))
        return
    title = f"{plan_set.workload.name} on {plan_set.cluster.name}"
    typer.echo(to_text(render_analysis(analysis, title)), nl=False)
