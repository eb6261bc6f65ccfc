"""`rlmplan replan`: a new plan after nodes were lost or a cluster changed, and what moves."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.files import output_folder
from planner.errors import InputError

_PERCENT = 100.0


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("replan")(replan)


def replan(
    plans: Annotated[Path, typer.Argument(help="The file that `rlmplan plan --json` wrote.")],
    rank: Annotated[int, typer.Option(min=1, help="The plan that runs now.")] = 1,
    without_nodes: Annotated[
        list[str] | None,
        typer.Option(
            help="Nodes that are gone: GROUP:NUMBER,NUMBER,FIRST-LAST, from 0; may be repeated."
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="The new cluster instead: NAME:NODESxDEVICES or a YAML file."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Move as little state as possible, however slow.")
    ] = False,
    within: Annotated[
        float,
        typer.Option(
            min=0, help="Move least among plans at most this many per cent slower than the fastest."
        ),
    ] = 0.0,
    thorough: Annotated[
        bool,
        typer.Option("--thorough", help="Search the whole new cluster, and prove a bound for it."),
    ] = False,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds that --thorough may take.")
    ] = None,
    space: Annotated[
        str | None, typer.Option(help="Search space; by default the old plan's.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            parser=output_folder,
            help="Folder for plans.json, the new plan (rlmplan export reads it).",
        ),
    ] = None,
) -> None:
    """Plan again after a change of the cluster, starting from a plan that runs."""
    from planner.api import replan as plan_again
    from planner.catalog.hardware import parse_cluster
    from planner.cli.export import read_plans
    from planner.cli.files import write_files

    if (cluster is None) == (not without_nodes):
        raise InputError(
            "give the nodes that are gone, or the new cluster",
            where="--without-nodes, --cluster",
            remedy="For example --without-nodes h100:3,7",
        )
    if not math.isfinite(within):
        raise InputError(f"{within} is no percentage", where="--within", remedy="See --keep")
    found = plan_again(
        read_plans(plans),
        None if cluster is None else parse_cluster(cluster),
        rank=rank,
        without=_nodes(without_nodes) if without_nodes else None,
        within=math.inf if keep else within / _PERCENT,
        thorough=thorough,
        deadline_s=deadline,
        space=space,
    )
    if output is not None:
        write_files(output, {"plans.json": found.plans.model_dump_json(indent=2) + "\n"})
    if json:
        typer.echo(found.model_dump_json(indent=2))
        return
    from planner.cli.screen import show
    from planner.report.replan import render_replan

    show(render_replan(found))
    if output is not None:
        typer.echo(f"Written to {output}")


def _nodes(texts: list[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for text in texts:
        group, colon, numbers = text.rpartition(":")
        if not colon or not group:
            raise _unclear(text)
        for part in numbers.split(","):
            first, dash, last = part.strip().partition("-")
            ends = [first, last] if dash else [first, first]
            if not all(end.isascii() and end.isdecimal() and len(end) <= 6 for end in ends):
                raise _unclear(text)
            begin, end = (int(word) for word in ends)
            if begin > end:
                raise _unclear(text)
            found.setdefault(group, []).extend(range(begin, end + 1))
    return found


def _unclear(text: str) -> InputError:
    return InputError(
        f"{text!r} names no nodes",
        where="--without-nodes",
        remedy="Write GROUP:NUMBERS, for example h100:3,7 or h100:0-3.",
    )
