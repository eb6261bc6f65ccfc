"""`rlmplan export`: a plan as files of its launcher."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.files import output_folder
from planner.errors import InputError

if TYPE_CHECKING:
    from planner.schema import Plan, PlanSet

_LIMIT_BYTES = 64 * 2**20
"""Far above any plan set."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("export")(export)


def export(
    plans: Annotated[Path, typer.Argument(help="The file that `rlmplan plan --json` wrote.")],
    to: Annotated[str, typer.Option(help="Launcher; see `rlmplan launchers`.")],
    rank: Annotated[int, typer.Option(min=1, help="Which plan.")] = 1,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", parser=output_folder, help="Folder for the launcher's files."
        ),
    ] = Path("out"),
    ray: Annotated[
        bool,
        typer.Option("--ray", help="Also Ray placement groups that keep to the plan's nodes."),
    ] = False,
) -> None:
    """Write the configuration and launch script of one plan."""
    from planner.cli.files import write_files
    from planner.cli.local_models import with_absolute_paths
    from planner.launchers import get_launcher, priced_by

    launcher = get_launcher(to)
    plan_set = read_plans(plans)
    chosen = _pick(plan_set, rank, plans)
    _check(chosen, plan_set, str(plans))
    reasons = launcher.supports(chosen, plan_set.workload, plan_set.cluster)
    if reasons:
        raise InputError(
            f"{to} cannot run plan {rank}: {'; '.join(reasons)}",
            where=str(plans),
            remedy=f"Plan with --launcher {to}, so that the search keeps to what {to} can run",
        )
    own = priced_by(launcher, chosen, plan_set.workload, plan_set.cluster)
    if chosen.assignment.space not in launcher.capabilities.spaces:
        if own.assignment.space in launcher.capabilities.spaces:
            words = f"with {to}'s own it takes {own.step_time_s:.1f} s a step"
        else:
            words = f"{to}'s own differ"
        typer.echo(
            f"note: planned in the space {chosen.assignment.space} with the overheads of "
            f"{chosen.assignment.framework} ({chosen.step_time_s:.1f} s a step); {words}. Plan in "
            "one of its own spaces for its best plan.",
            err=True,
        )
    workload, notes = with_absolute_paths(plan_set.workload)
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    files = launcher.write(own, workload, plan_set.cluster)
    if ray:
        from planner.launchers.ray_placement import ray_files

        files = files | ray_files(chosen, plan_set.cluster)
    for path in write_files(output, files):
        typer.echo(str(path))


def read_plans(path: Path) -> PlanSet:
    """The plan set in a file; InputError names the file and the field that is wrong."""
    import json

    from planner.catalog.data import read_text, validate
    from planner.schema import SCHEMA_VERSION, PlanSet

    try:
        content = json.loads(read_text(path, _LIMIT_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"not JSON ({error})",
            where=str(path),
            remedy="Give the output of `rlmplan plan ... --json`",
        ) from error
    found = validate(PlanSet, content, str(path))
    if found.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"has schema_version {found.schema_version}, this planner reads {SCHEMA_VERSION}",
            where=str(path),
            remedy="Plan again with this version",
        )
    ranks = [plan.rank for plan in found.plans]
    if len(set(ranks)) < len(ranks):
        raise InputError(f"has plans of equal rank: {ranks}", where=str(path))
    return found


def _check(chosen: Plan, plan_set: PlanSet, where: str) -> None:
    """Refuse a plan that was edited into something that does not hold together."""
    from planner.simulate.check import check_calls
    from planner.simulate.evaluate import evaluate

    place = f"{where}: plan of rank {chosen.rank}"
    try:
        again = evaluate(chosen, plan_set.workload, plan_set.cluster)
        check_calls(chosen, again.calls)
    except InputError as error:
        where = f"{place}: {error.where}"
        raise InputError(error.message, where=where, remedy=error.remedy) from None
    if not again.fits or not chosen.fits:
        over = [name for name, call in again.calls.items() if call.memory_verdict == "does not fit"]
        raise InputError(
            f"does not fit in memory ({', '.join(over) or 'fits is false'})",
            where=place,
            remedy="Plan again",
        )


def _pick(plan_set: PlanSet, rank: int, path: Path) -> Plan:
    for plan in plan_set.plans:
        if plan.rank == rank:
            return plan
    ranks = [plan.rank for plan in plan_set.plans]
    raise InputError(
        f"no plan of rank {rank}", where=str(path), remedy=f"The file has ranks {ranks}"
    )
