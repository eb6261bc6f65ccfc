"""`rlmplan capacity`: how many of which devices a run needs, and what it costs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from planner.cli import options
from planner.errors import InputError

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("capacity")(capacity)


def capacity(
    file: Annotated[Path | None, typer.Argument(help="Problem file (YAML). See examples/.")] = None,
    steps: Annotated[
        float | None, typer.Option(help="Steps of the run (or --tokens).", show_default=False)
    ] = None,
    within: Annotated[
        str | None, typer.Option(help="Time that the run may take: 7d, 12h, 90m, 1w.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="US dollars that it may cost.")] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            help="Largest cluster to consider, NAME:NODESxDEVICES or a YAML file; repeat it for "
            "several kinds of devices. By default the problem's."
        ),
    ] = None,
    preset: options.Preset = None,
    algorithm: options.Algorithm = None,
    actor: options.Actor = None,
    model: options.Model = None,
    prompts: options.Prompts = None,
    samples: options.Samples = None,
    prompt_mean: options.PromptMean = None,
    prompt_max: options.PromptMax = None,
    response_mean: options.ResponseMean = None,
    response_max: options.ResponseMax = None,
    lengths: options.Lengths = None,
    max_staleness: options.MaxStaleness = None,
    space: options.Space = None,
    launcher: options.Launcher = None,
    tokens: options.Tokens = None,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds that the search of each cluster may take.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Say how many of which devices a run needs within a time or a budget, and what it costs.

    Beyond one node, clusters are searched in whole nodes. Exit code 3: nothing meets the limits.
    """
    from planner.api import capacity as find_capacity
    from planner.catalog.hardware import parse_cluster
    from planner.catalog.workloads import problem_from

    if (steps is None) == (tokens is None):
        raise InputError(
            "gives both" if steps is not None else "gives neither",
            where="--steps, --tokens",
            remedy="Say how long the run is, for example --steps 5000.",
        )
    options.one_of_space_and_launcher(space, launcher)
    within_s = None if within is None else _duration_s(within)
    problem = problem_from(
        file,
        preset=preset,
        algorithm=algorithm,
        models=options.models({"actor": actor}, model),
        cluster=cluster[0] if cluster else None,
        prompts=prompts,
        samples=samples,
        prompt_mean=prompt_mean,
        prompt_max=prompt_max,
        response_mean=response_mean,
        response_max=response_max,
        lengths=lengths,
        max_staleness=max_staleness,
        space=space,
    )
    workload = problem.workload
    if steps is None:
        assert tokens is not None
        steps = tokens / (workload.sequences_per_step * workload.mean_sequence_tokens)
    found = find_capacity(
        workload,
        [problem.cluster, *(parse_cluster(text) for text in (cluster or [])[1:])],
        steps=steps,
        within_s=within_s,
        budget_usd=budget,
        space=problem.space,
        launcher=launcher,
        deadline_s=deadline if deadline is not None else problem.deadline_s,
    )
    if json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        from planner.cli.screen import show
        from planner.report.capacity import render_capacity

        show(render_capacity(found))
    if not any(choice.meets for choice in found.choices):
        raise typer.Exit(3)  # as InfeasibleError: well asked, and nothing does it


def _duration_s(text: str) -> float:
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhdw])", text.strip(), re.ASCII)
    if match is None:
        raise InputError(
            f"{text!r} is no duration",
            where="--within",
            remedy="Write a number with s, m, h, d or w, such as 7d or 36h.",
        )
    return float(match.group(1)) * _SECONDS[match.group(2)]
