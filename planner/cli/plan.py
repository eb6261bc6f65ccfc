"""`rlmplan plan`: from a problem file, or from options, to ranked plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import options
from planner.cli.files import output_folder

if TYPE_CHECKING:
    from planner.schema import PlanSet

OUTPUT, TUNING = "Output", "Tuning in the simulator"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("plan")(plan)


def plan(
    file: Annotated[
        Path | None,
        typer.Argument(help="Problem file (YAML): workload and cluster. See examples/."),
    ] = None,
    preset: options.Preset = None,
    algorithm: options.Algorithm = None,
    actor: options.Actor = None,
    critic: options.Critic = None,
    reward: options.Reward = None,
    reference: options.Reference = None,
    model: options.Model = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="NAME:NODESxDEVICES or a YAML file.", rich_help_panel=options.WORKLOAD),
    ] = None,
    prompts: options.Prompts = None,
    samples: options.Samples = None,
    prompt_mean: options.PromptMean = None,
    prompt_max: options.PromptMax = None,
    response_mean: options.ResponseMean = None,
    response_max: options.ResponseMax = None,
    lengths: options.Lengths = None,
    optimizer_steps: options.OptimizerSteps = None,
    epochs: options.Epochs = None,
    kl_weight: options.KlWeight = None,
    max_staleness: options.MaxStaleness = None,
    space: options.Space = None,
    launcher: options.Launcher = None,
    objective: options.Objective = None,
    tokens: options.Tokens = None,
    max_devices: Annotated[
        int | None, typer.Option(help="Devices a plan may reserve.", rich_help_panel=options.SEARCH)
    ] = None,
    max_step_time: Annotated[
        float | None, typer.Option(help="Longest step, seconds.", rich_help_panel=options.SEARCH)
    ] = None,
    max_cost_per_step: Annotated[
        float | None, typer.Option(help="Dearest step, US dollars.", rich_help_panel=options.SEARCH)
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(
            help="Dearest run until --tokens are spent, US dollars.", rich_help_panel=options.SEARCH
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            help="Distinct plans at most (default 5).",
            rich_help_panel=options.SEARCH,
        ),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which the best plan so far is returned.",
            rich_help_panel=options.SEARCH,
        ),
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="Trials in the simulator for what the exact search holds fixed: running "
            "sequences, memory share, microbatches, recomputation, stages, staleness.",
            rich_help_panel=TUNING,
        ),
    ] = None,
    tune_sampler: Annotated[
        str,
        typer.Option(
            help="model (the cost model, corrected by the trials), tpe, gp or random.",
            rich_help_panel=TUNING,
        ),
    ] = "model",
    tune_for: Annotated[
        list[str] | None,
        typer.Option(
            help="time (default), cost or memory; repeat for several.", rich_help_panel=TUNING
        ),
    ] = None,
    tune_seed: Annotated[
        int,
        typer.Option(min=0, max=2**31 - 1, help="Of sampler and lengths.", rich_help_panel=TUNING),
    ] = 0,
    json: Annotated[
        bool, typer.Option("--json", help="JSON on stdout.", rich_help_panel=OUTPUT)
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            parser=output_folder,
            help="Folder for plans.json and one set of launcher files a plan.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            help="File for the report as one HTML page (needs rlmplan\\[report]).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="File for the best plan's step as a trace (Perfetto, chrome://tracing).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    details: Annotated[
        int, typer.Option(min=0, help="Plans shown call by call.", rich_help_panel=OUTPUT)
    ] = 3,
) -> None:
    """Find the best plans for a workload on a cluster, with a proof."""
    from planner.catalog.workloads import problem_from
    from planner.cli.files import named_file

    named_file(trace, "--trace", file)
    named_file(html, "--html", file, trace)
    if html is not None:
        from planner.report.figures import graph_objects

        graph_objects()
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
        optimizer_steps=optimizer_steps,
        epochs=epochs,
        kl_weight=kl_weight,
        max_staleness=max_staleness,
        space=space,
        objective=objective,
        tokens=tokens,
        max_devices=max_devices,
        max_step_time=max_step_time,
        max_cost_per_step=max_cost_per_step,
        max_cost=max_cost,
        top=top,
        deadline=deadline,
    )
    from functools import partial

    from planner.api import plan as find_plans
    from planner.api import plan_for_launcher

    options.one_of_space_and_launcher(space, launcher)
    chosen = (
        partial(find_plans, space=problem.space)
        if launcher is None
        else partial(plan_for_launcher, launcher)
    )
    plan_set = chosen(
        problem.workload,
        problem.cluster,
        objective=problem.objective or "step_time",
        limits=problem.limits,
        tokens=problem.tokens,
        top=problem.top or 5,
        deadline_s=problem.deadline_s,
    )
    tuned = None
    if tune is not None:
        from planner.catalog.spaces import load_space
        from planner.tuning import tune_in_simulator

        plan_set, tuned = tune_in_simulator(
            plan_set,
            tune,
            space=load_space(problem.space if launcher is None else plan_set.space),
            sampler=tune_sampler,
            objectives=tune_for or ["time"],
            seed=tune_seed,
        )
    if output is not None:
        _write(plan_set, output)
    if html is not None:
        from planner.cli.report import write_report

        write_report(plan_set, html, deadline_s=problem.deadline_s)
    if trace is not None:
        _write_trace(plan_set, trace)
    if json:
        typer.echo(plan_set.model_dump_json(indent=2))
    else:
        _show(plan_set, details)
        if tuned is not None:
            from planner.cli.screen import show
            from planner.report.tuning import render_tuned

            show(render_tuned(tuned))
        if output is not None:
            typer.echo(f"Written to {output}")


def _show(plan_set: PlanSet, details: int) -> None:
    from planner.cli.screen import show
    from planner.report.text import render_plan_set

    show(render_plan_set(plan_set, details=details))


def _write_trace(plan_set: PlanSet, path: Path) -> None:
    from planner.cli.files import write_file
    from planner.report.trace import plan_trace

    best = plan_set.plans[0]
    write_file(path, plan_trace(best, plan_set.workload, plan_set.cluster), "--trace")


def _write(plan_set: PlanSet, folder: Path) -> None:
    from planner.cli.files import write_files
    from planner.launchers import get_launcher

    files = {"plans.json": plan_set.model_dump_json(indent=2) + "\n"}
    for ranked in plan_set.plans:
        for name in ranked.launchers:
            launcher = get_launcher(name)
            for file, content in launcher.write(
                ranked, plan_set.workload, plan_set.cluster
            ).items():
                files[f"plan-{ranked.rank}/{name}/{file}"] = content
    write_files(folder, files)
