"""`rlmplan pareto`: step time, cost and scaling efficiency for every number of devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import options
from planner.errors import InputError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("pareto")(pareto)


def pareto(
    file: Annotated[Path | None, typer.Argument(help="Problem file (YAML). See examples/.")] = None,
    preset: options.Preset = None,
    algorithm: options.Algorithm = None,
    actor: options.Actor = None,
    critic: options.Critic = None,
    reward: options.Reward = None,
    reference: options.Reference = None,
    model: options.Model = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Largest cluster: NAME:NODESxDEVICES or a YAML file.",
            rich_help_panel=options.WORKLOAD,
        ),
    ] = None,
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
    objective: Annotated[
        str | None,
        typer.Option(
            help="Which point is marked as best: an objective of `rlmplan plan`.",
            rich_help_panel=options.SEARCH,
        ),
    ] = None,
    tokens: options.Tokens = None,
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
    if file is None and preset is None and algorithm is None:
        raise InputError(
            "names no problem",
            where="pareto",
            remedy="Give a problem file, --algorithm and what goes with it, or --preset "
            "(`rlmplan workloads list`).",
        )
    from functools import partial

    from planner.api import pareto as find_front
    from planner.api import pareto_for_launcher
    from planner.catalog.workloads import problem_from

    options.one_of_space_and_launcher(space, launcher)
    roles = {"actor": actor, "critic": critic, "reward": reward, "reference": reference}
    problem = problem_from(
        file,
        preset=preset,
        algorithm=algorithm,
        models=options.models(roles, model),
        cluster=cluster,
        prompts=prompts,
        samples=samples,
        prompt_mean=prompt_mean,
        prompt_max=prompt_max,
        response_mean=response_mean,
        response_max=response_max,
        lengths=lengths,
        max_staleness=max_staleness,
        space=space,
        objective=objective,
        tokens=tokens,
        deadline=deadline,
    )
    find = (
        partial(find_front, space=problem.space)
        if launcher is None
        else partial(pareto_for_launcher, launcher)
    )
    front = find(
        problem.workload,
        problem.cluster,
        objective=problem.objective or "step_time",
        tokens=problem.tokens,
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
