"""`rlmplan validate`: predictions against measured cases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from planner.measure.validation import Progress, Validation


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("validate")(validate)


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
