"""`rlmplan pareto`: step time, cost and scaling efficiency for every number of devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.errors import InputError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("pareto")(pareto)


def pareto(
    file: Annotated[Path | None, typer.Argument(help="Problem file (YAML). See examples/.")] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Instead of a file: a named workload with its cluster (`rlmplan workloads list`)."
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Largest cluster: NAME:NODESxDEVICES or a YAML file.")
    ] = None,
    space: Annotated[str | None, typer.Option(help="Search space: a name or a YAML file.")] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Numbers of devices, such as 8,16,64; with several node groups 16+8,32+8. By "
            "default every number of nodes up to 16, beyond 2^i and 3 x 2^i."
        ),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(help="Seconds after which what is found so far is returned."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Find the best plan for each number of devices: where more devices stop to pay."""
    if file is None and preset is None:
        raise InputError(
            "names no problem",
            where="pareto",
            remedy="Give a problem file, or --preset (`rlmplan workloads list`).",
        )
    from planner.api import pareto as find_front
    from planner.catalog.workloads import problem_from

    problem = problem_from(file, preset=preset, cluster=cluster, space=space, deadline=deadline)
    front = find_front(
        problem.workload,
        problem.cluster,
        space=problem.space,
        sizes=None if sizes is None else _sizes(sizes),
        deadline_s=problem.deadline_s,
    )
    if json:
        typer.echo(front.model_dump_json(indent=2))
        return
    from planner.cli.screen import show
    from planner.report.front import render_front

    show(render_front(front))


def _sizes(text: str) -> list[int | tuple[int, ...]]:
    found: list[int | tuple[int, ...]] = []
    for part in text.split(","):
        words = [word.strip() for word in part.split("+")]
        if not all(word.isascii() and word.isdecimal() and len(word) <= 9 for word in words):
            raise InputError(
                f"{part.strip()!r} is no number of devices",
                where="--sizes",
                remedy="Write numbers with commas between them, such as 8,16,32.",
            )
        numbers = tuple(int(word) for word in words)
        found.append(numbers[0] if len(numbers) == 1 else numbers)
    return found
