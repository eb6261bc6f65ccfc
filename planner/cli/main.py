"""Entry point of `rlmplan`: the commands, and one place that turns errors into messages."""

from __future__ import annotations

import os
import sys

import typer

from planner import __version__
from planner.cli import (
    analyze,
    capacity,
    catalog,
    check,
    compare,
    detect,
    doctor,
    explain,
    export,
    fleet,
    init,
    launchers,
    measure,
    pareto,
    plan,
    replan,
    report,
    simulate,
    sweep,
    tune,
    validate,
    workloads,
)
from planner.errors import PlannerError

app = typer.Typer(
    name="rlmplan",
    help="Parallelism plans for RL post-training of language models: fast, proven, executable.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"rlmplan {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Shared options."""


plan.register(app)
init.register(app)
detect.register(app)
doctor.register(app)
analyze.register(app)
pareto.register(app)
capacity.register(app)
fleet.register(app)
explain.register(app)
compare.register(app)
replan.register(app)
report.register(app)
simulate.register(app)
tune.register(app)
sweep.register(app)
export.register(app)
check.register(app)
launchers.register(app)
catalog.register(app)
validate.register(app)
measure.register(app)
workloads.register(app)


def run() -> None:
    """Run the command line; exits with 0, 1 (error), 2 (bad input) or 3 (no plan fits)."""
    if sys.stdout is None:  # closed by the caller, who still wants the exit code
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        app()
    except PlannerError as error:
        typer.echo(f"rlmplan: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of a pipe (head, less) went away: not an error of ours.
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        typer.echo(f"rlmplan: {name}{error.strerror or error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    run()
