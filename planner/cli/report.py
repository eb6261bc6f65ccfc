"""`rlmplan report`, and what `rlmplan plan --html` writes: the report as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from planner.schema import PlanSet


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("report")(report)


def report(
    plans: Annotated[Path, typer.Argument(help="The file that `rlmplan plan --json` wrote.")],
    html: Annotated[Path, typer.Option(help="File to write.")] = Path("report.html"),
    front: Annotated[
        bool, typer.Option(help="Also search the best plan for each number of devices.")
    ] = True,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds that this search may take.")
    ] = None,
) -> None:
    """Write plans as one HTML page: tables, timeline, memory, waterfall, front, launcher files."""
    from planner.cli.export import read_plans
    from planner.cli.files import named_file

    named_file(html, "--html", plans)
    plan_set = read_plans(plans)
    if not plan_set.plans:
        raise InputError("has no plan", where=str(plans), remedy="Plan again")
    try:
        write_report(plan_set, html, front=front, deadline_s=deadline)
    except InputError as error:
        if error.where and error.where.startswith("--html"):
            raise
        where = f"{plans}: {error.where}" if error.where else str(plans)
        raise InputError(error.message, where=where, remedy=error.remedy) from None
    typer.echo(str(html))


def write_report(
    plan_set: PlanSet, path: Path, *, front: bool = True, deadline_s: float | None = None
) -> None:
    """Write the page; InputError when plotly is missing or the file cannot be written."""
    from planner.api import pareto
    from planner.catalog.spaces import load_space
    from planner.cli.files import write_file
    from planner.launchers import get_launcher
    from planner.report.figures import graph_objects
    from planner.report.html.page import ReportData, html_report
    from planner.search.analysis import analyze_plan

    graph_objects()  # What is missing is said before the work.
    workload, cluster = plan_set.workload, plan_set.cluster
    found = None
    if front:
        space = load_space(plan_set.plans[0].assignment.space)
        try:
            found = pareto(workload, cluster, space=space, deadline_s=deadline_s)
        except InfeasibleError:
            found = None
    files = {
        plan.rank: {
            name: get_launcher(name).write(plan, workload, cluster) for name in plan.launchers
        }
        for plan in plan_set.plans
    }
    data = ReportData(plan_set, analyze_plan(plan_set.plans[0], workload, cluster), found, files)
    write_file(path, html_report(data), "--html")
