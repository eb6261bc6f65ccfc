"""`rlmplan tune`: plans tuned by running them, a few steps each, with the user's own command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli import options
from planner.cli.files import output_folder

BUDGET, RUN, SEARCH = "Budget", "Run", "Search"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("tune")(tune)


def tune(
    file: Annotated[Path, typer.Argument(help="Problem file (YAML), as of `rlmplan plan`.")],
    command: Annotated[
        str,
        typer.Option(
            help="Runs a few steps, for the shell: {config}, {script}, {dir} and {trial} are "
            "filled in, quoted. For example 'bash {script} trainer.total_training_steps=3'.",
            rich_help_panel=RUN,
        ),
    ],
    launcher: Annotated[
        str | None,
        typer.Option(
            help="Writes each trial's files (`rlmplan launchers`); without one {config} is the "
            "plan as JSON.",
            rich_help_panel=RUN,
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds that a trial may take.", rich_help_panel=RUN)
    ] = 1800.0,
    log_format: Annotated[
        str,
        typer.Option(
            help="auto, verl, nemo-rl, openrlhf, slime, trl or json (lines).", rich_help_panel=RUN
        ),
    ] = "auto",
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            parser=output_folder,
            help="Folder of the trials, the study and the best plan.",
            rich_help_panel=RUN,
        ),
    ] = Path("tune"),
    trials: Annotated[
        int | None, typer.Option(help="Trials, of all tuners together.", rich_help_panel=BUDGET)
    ] = None,
    device_hours: Annotated[
        float | None, typer.Option(help="Device-hours of all trials.", rich_help_panel=BUDGET)
    ] = None,
    max_spend: Annotated[
        float | None,
        typer.Option(help="US dollars of all trials' devices.", rich_help_panel=BUDGET),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            envvar="RLMPLAN_STORAGE",
            help="Optuna storage: a .db file (SQLite), another file (journal) or an URL; default "
            "study.db in the output folder. Better in the variable if it has a password.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    study: Annotated[
        str, typer.Option(help="Name of the study in the storage.", rich_help_panel=SEARCH)
    ] = "rlmplan",
    sampler: Annotated[
        str,
        typer.Option(
            help="model (the cost model, corrected by the trials), tpe, gp or random.",
            rich_help_panel=SEARCH,
        ),
    ] = "model",
    space: Annotated[
        str | None, typer.Option(help="Search space, as of `rlmplan plan`.", rich_help_panel=SEARCH)
    ] = None,
    top: Annotated[
        int,
        typer.Option(min=1, max=100, help="Exact plans to start from.", rich_help_panel=SEARCH),
    ] = 8,
    deadline: Annotated[
        float | None,
        typer.Option(help="Seconds for the exact search.", rich_help_panel=SEARCH),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="Of the sampler.", rich_help_panel=SEARCH)
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Tune plans on your own system: run, read the log, correct the model, propose the next.

    Finished trials stay in the storage: the same command goes on after an interruption, and
    several may share one storage.
    """
    from planner.api import plan, plan_for_launcher
    from planner.catalog.spaces import load_space
    from planner.catalog.workloads import problem_from
    from planner.launchers.trial_files import write_trial
    from planner.report.tuning import render_tune, tune_as_data
    from planner.tuning import tune as run

    options.one_of_space_and_launcher(space, launcher)
    problem = problem_from(file, space=space)
    how: dict[str, Any] = {
        "objective": problem.objective or "step_time",
        "limits": problem.limits,
        "tokens": problem.tokens,
        "top": top,
        "deadline_s": deadline or problem.deadline_s,
    }
    if launcher is None:
        plans = plan(problem.workload, problem.cluster, space=problem.space, **how)
    else:
        plans = plan_for_launcher(launcher, problem.workload, problem.cluster, **how)
    found = run(
        plans,
        command,
        output,
        launcher=launcher,
        space=load_space(problem.space if launcher is None else plans.space),
        trials=trials,
        device_hours=device_hours,
        cost_usd=max_spend,
        storage=storage,
        study=study,
        log_format=log_format,
        timeout_s=timeout,
        sampler=sampler,
        seed=seed,
        progress=lambda line: typer.echo(line, err=True),
    )
    if found.plan is not None:
        write_trial(launcher, plans, found.plan, output / "best")
    if json:
        import json as encoder

        typer.echo(encoder.dumps(tune_as_data(found), indent=2, allow_nan=False))
    else:
        from planner.cli.screen import show

        show(render_tune(found))
        if found.plan is not None:
            typer.echo(f"Written to {output / 'best'}")
    if found.plan is None:
        raise typer.Exit(1)
