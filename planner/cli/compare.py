"""`rlmplan compare`: two plans, a plan and a launcher's configuration, or two clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.errors import InputError

if TYPE_CHECKING:
    from planner.catalog.workloads import Problem
    from planner.search.compare import Compared


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("compare")(compare)


def compare(
    left: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A plan: plans.json, or plans.json:RANK. A problem file (YAML), which is planned. "
            "With --launcher a launcher's configuration. With --problem or --preset a cluster.",
        ),
    ],
    right: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    launcher: Annotated[
        str | None,
        typer.Option(help="Whose configuration the files that are not JSON are."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Devices of the configuration; by default those of the plan beside it."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting over the configuration, in the launcher's syntax."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Model, or ROLE=MODEL, where the configuration's name is not known."),
    ] = None,
    problem: Annotated[
        Path | None, typer.Option(help="Problem file to plan on the clusters A and B.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Or a preset to plan on them (`rlmplan workloads list`).")
    ] = None,
    space: Annotated[str | None, typer.Option(help="Search space of what is planned.")] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Two plans side by side: time, cost, memory, and what differs call by call."""
    from planner.catalog.hardware import parse_cluster
    from planner.catalog.workloads import problem_from
    from planner.search.compare import compare as compare_plans

    texts = [left, right]
    sides: list[Compared | None] = [None, None]
    for index, text in enumerate(texts):
        if problem is not None or preset is not None:
            given = problem_from(problem, preset=preset, cluster=text, space=space)
            sides[index] = _planned(text, given)
        elif _is_plan(text):
            sides[index] = _plan(text)
        elif launcher is None:
            sides[index] = _planned(text, problem_from(Path(text), space=space))
    for index, text in enumerate(texts):
        if sides[index] is None:
            assert launcher is not None
            other = sides[1 - index]
            if cluster is None and other is None:
                raise InputError(
                    "the devices of the configuration are not known",
                    where="--cluster",
                    remedy="Give them, for example --cluster h100:4x8.",
                )
            devices = parse_cluster(cluster) if cluster else other.cluster  # type: ignore[union-attr]
            sides[index] = _configuration(
                text, launcher, devices, overrides or [], model or [], other
            )
    a, b = sides
    assert a is not None
    assert b is not None
    found = compare_plans(a, b)
    if json:
        typer.echo(found.model_dump_json(indent=2))
        return
    from planner.cli.screen import show
    from planner.report.compare import render_comparison

    show(render_comparison(found))


def _is_plan(text: str) -> bool:
    name, _, rank = text.rpartition(":")
    return text.endswith(".json") or (rank.isdecimal() and name.endswith(".json"))


def _plan(text: str) -> Compared:
    from planner.cli.export import read_plans
    from planner.search.compare import Compared
    from planner.search.explain import pick

    name, rank = text, 1
    if not text.endswith(".json"):
        name, _, number = text.rpartition(":")
        rank = int(number)
    plan_set = read_plans(Path(name))
    try:
        chosen = pick(plan_set, rank)
    except InputError as error:
        raise InputError(error.message, where=name, remedy=error.remedy) from None
    return Compared(text[-200:], chosen, plan_set.workload, plan_set.cluster)


def _planned(text: str, given: Problem) -> Compared:
    from planner.api import plan
    from planner.search.compare import Compared

    found = plan(
        given.workload,
        given.cluster,
        space=given.space,
        objective=given.objective or "step_time",
        limits=given.limits,
        tokens=given.tokens,
        top=1,
        deadline_s=given.deadline_s,
    )
    return Compared(text[-200:], found.plans[0], given.workload, given.cluster)


def _configuration(
    text: str,
    launcher: str,
    cluster: object,
    overrides: list[str],
    model: list[str],
    other: Compared | None,
) -> Compared:
    from planner.cli.check import models_of, read_configuration
    from planner.launchers import get_launcher
    from planner.launchers.priced import priced_plan
    from planner.launchers.reading import Context

    lengths: tuple[float | None, float | None] = (None, None)
    models = models_of(model)
    if other is not None:
        # The configuration does not say how long responses are on average: the plan does.
        workload = other.workload
        lengths = (workload.prompt_length.mean_tokens, workload.response_length.mean_tokens)
        models = dict(workload.models) | models
    context = Context(cluster, models, *lengths)  # type: ignore[arg-type]
    return priced_plan(
        text[-200:],
        get_launcher(launcher),
        read_configuration([Path(text)]),
        overrides,
        context,
    )
