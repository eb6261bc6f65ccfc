"""`rlmplan explain`: why a plan is as it is, and what a change would give."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.errors import InputError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("explain")(explain)


def explain(
    plans: Annotated[Path, typer.Argument(help="The file that `rlmplan plan --json` wrote.")],
    rank: Annotated[int, typer.Option(min=1, help="Which plan.")] = 1,
    replan: Annotated[
        bool,
        typer.Option(help="Also search the best plan under each change; else price this plan."),
    ] = True,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds that each of these searches may take.")
    ] = None,
    space: Annotated[
        str | None, typer.Option(help="Search space (name or YAML file); by default the plan's.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Why this plan: bottlenecks, rivals, what binds, what one change would give, guidelines."""
    from planner.cli.export import read_plans
    from planner.search.explain import explain as explain_plan

    plan_set = read_plans(plans)
    try:
        found = explain_plan(plan_set, rank, space=space, replan=replan, deadline_s=deadline)
    except InputError as error:
        where = f"{plans}: {error.where}" if error.where else str(plans)
        raise InputError(error.message, where=where, remedy=error.remedy) from None
    if json:
        typer.echo(found.model_dump_json(indent=2))
        return
    from planner.cli.screen import show
    from planner.report.explain import render_explanation

    title = f"{plan_set.workload.name} on {plan_set.cluster.name}"
    show(render_explanation(found, title))
