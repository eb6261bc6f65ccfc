"""`rlmplan validate` and `rlmplan fit`: predictions against measured cases."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.errors import InputError

if TYPE_CHECKING:
    from planner.measure.validation import Progress, Validation


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("validate")(validate)
    app.command("fit")(fit)


def validate(
    paths: Annotated[
        list[Path], typer.Argument(help="JSON files of measured cases, or folders of them.")
    ],
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
    only: Annotated[str | None, typer.Option(help="One case, by its id.")] = None,
    worst: Annotated[int, typer.Option(min=0, help="Worst cases shown, with parts.")] = 10,
) -> None:
    """Predict measured cases with the strategies that ran, and compare."""
    from planner.measure.validation import validate as compare

    with _progress_bar() as progress:
        result = compare(paths, only=only, progress=progress)
    if json:
        import json as encoder

        typer.echo(encoder.dumps(result.as_json(), indent=1, allow_nan=False))
    else:
        _show(result, worst)


def fit(
    paths: Annotated[
        list[Path], typer.Argument(help="JSON files of measured cases, or folders of them.")
    ],
    profile: Annotated[
        list[str], typer.Option(help="Profile to fit; repeat to fit several jointly.")
    ],
    constant: Annotated[
        list[str] | None,
        typer.Option(help="Constant to fit (default: those the profile marks as fitted)."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Figure to fit to: step_time, throughput, peak_memory ... (default: the main one "
            "of each kind of case)."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print, write nothing.")] = False,
) -> None:
    """Fit a profile's constants to measured cases, leaving out whole groups to check them."""
    from planner.catalog.frameworks import load_framework
    from planner.measure.fit import fit as run
    from planner.measure.profile_file import number
    from planner.measure.unknown import ENGINE, TRAINER

    if set(profile) & {ENGINE, TRAINER}:
        if len(profile) > 1 or constant or metric:
            raise InputError(
                f"{profile[0]} stands for unmeasured software: only its interval is fitted",
                remedy=f"Give --profile {TRAINER} or --profile {ENGINE} alone.",
            )
        _fit_unknown(paths, profile[0], dry_run)
        return
    result = run(paths, profile, constants=constant, metric=metric)
    for name in profile:
        known = load_framework(name).constants
        for key, value in result.values.get(name, {}).items():
            before = number(result.before[name][key])
            typer.echo(f"{name}: {key} = {number(value)} {known[key].unit} (was {before})")
        if name in result.relative_error:
            typer.echo(f"{name}: relative_error = {result.relative_error[name]:.3f}")
    typer.echo(
        f"{result.cases} cases in {result.groups} groups: mean error "
        f"{100 * result.error_in_sample:.1f} %, with each group left out "
        f"{100 * result.error_left_out:.1f} %; the 80 % interval covers "
        f"{100 * result.coverage:.0f} % of left-out cases"
    )
    for name, key in result.at_edge:
        one = load_framework(name).constants[key]
        typer.echo(
            f"warning: {name}: {key} is at the edge of its plausible range "
            f"{number(one.low)} to {number(one.high)}: a term may be missing",
            err=True,
        )
    if dry_run:
        return
    source = (
        f"rlmplan fit: {result.cases} cases in {result.groups} groups, each group left out in turn"
    )
    for name in profile:
        _write(name, result.values.get(name, {}), result.relative_error.get(name), source)


def _fit_unknown(paths: list[Path], profile: str, dry_run: bool) -> None:
    """The width of the interval of software that nobody measured."""
    from planner.measure.unknown import unknown_cases, unknown_spread

    cases = [one for one in unknown_cases(paths) if one.profile == profile]
    error = unknown_spread(cases)
    frameworks = len({one.framework for one in cases})
    typer.echo(f"{profile}: relative_error = {error:.3f}")
    typer.echo(f"{len(cases)} cases of {frameworks} frameworks, each priced as if unmeasured")
    if not dry_run:
        source = (
            f"rlmplan fit: {len(cases)} cases of {frameworks} frameworks priced as if unmeasured, "
            "frameworks weighing the same"
        )
        _write(profile, {}, error, source)


def _write(profile: str, values: Mapping[str, float], error: float | None, source: str) -> None:
    from planner.catalog.frameworks import profile_path
    from planner.cli.files import write_files
    from planner.measure.profile_file import rewritten

    path = profile_path(profile)
    text = rewritten(path.read_text(encoding="utf-8"), values, error, source)
    try:
        write_files(path.parent, {path.name: text})
    except InputError as error:
        remedy = f"Make {path} writable, or only print the constants: --dry-run."
        raise InputError(error.message, where=error.where, remedy=remedy) from None


@contextmanager
def _progress_bar() -> Iterator[Progress | None]:
    """A bar on stderr when that is a terminal; nothing otherwise."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("predicting", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _show(result: Validation, worst: int) -> None:
    from rich.console import Console

    from planner.report.text import WIDTH, to_text
    from planner.report.validation import render_validation

    text = render_validation(result, worst=worst)
    if sys.stdout.isatty():
        Console(highlight=False, markup=False, width=WIDTH).print(text)
    else:
        typer.echo(to_text(text), nl=False)
