"""`rlmplan measure`: microbenchmarks of this machine, into a device profile to plan with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from planner.measure.bench.measure import Result

_Progress = Callable[[int, int, Any], None]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("measure")(measure)


def measure(
    output: Annotated[
        str, typer.Option("--output", "-o", help="Folder for the profile, table and journal.")
    ] = "measured",
    name: Annotated[
        str | None, typer.Option(help="Id of the device profile (default: the machine's name).")
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None, typer.Option(help="Default: the GPU where torch finds one.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Coarse grids, under two minutes.")
    ] = False,
    threads: Annotated[
        int, typer.Option(min=1, help="CPU: threads of one process, which is one device.")
    ] = 1,
    compare: Annotated[
        str | None,
        typer.Option(help="Device id or file to compare with (default: the one of this name)."),
    ] = None,
) -> None:
    """Measure this machine's kernels and links into a device profile that plans can use.

    Matrix products, attention, elementwise kernels, memory, latencies and host link; under
    torchrun also collectives inside and across nodes. Needs torch. Started again, it goes on where
    it stopped.
    """
    from planner.cli.files import output_folder, write_files
    from planner.errors import InputError
    from planner.measure.bench.machine import close_machine, open_machine
    from planner.measure.bench.measure import reference_device, run_measurement

    folder = output_folder(output)
    if name is not None and not all(c.isalnum() or c in "-_." for c in name):
        raise InputError(
            f"{name!r} is no file name",
            where="--name",
            remedy="Use letters, digits, dashes, dots and underscores.",
        )
    if compare is not None:
        reference_device(compare)
    machine = open_machine(device, threads)
    try:
        if machine.rank == 0:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(
                    f"cannot be made: {error.strerror}",
                    where=f"--output {folder}",
                    remedy="Give another folder.",
                ) from None
        with _progress_bar(machine.rank == 0) as progress:
            result = run_measurement(
                machine,
                name=name,
                journal_path=folder / "journal.jsonl",
                quick=quick,
                against=compare,
                progress=progress,
            )
    finally:
        close_machine(machine)
    if result is not None:
        paths = write_files(folder, result.files)
        _show(result, [str(path) for path in paths])


def _show(result: Result, paths: list[str]) -> None:
    for figure in result.found.values():
        typer.echo(
            f"{figure.name:34} {figure.value:12.4g} {figure.unit:8} "
            f"(quartiles {100 * figure.spread:.0f} % apart)"
        )
    if result.compared_with is not None:
        typer.echo(f"compared with {result.compared_with}:")
        for one in result.comparisons:
            typer.echo(f"  {one.name}: {one.slowdown:.2f} x its time ({one.points} points)")
    else:
        typer.echo("no shipped profile has this device's name: nothing to compare with")
    for key, reason in list(result.skipped.items())[:5]:
        typer.echo(f"not measured: {key}: {reason}", err=True)
    for text in result.warnings:
        typer.echo(f"warning: {text}", err=True)
    cluster = next(path for path in paths if path.endswith(".cluster.yaml"))
    typer.echo("wrote " + ", ".join(paths))
    typer.echo(f"plan with it: cluster: {cluster}")


@contextmanager
def _progress_bar(here: bool) -> Iterator[_Progress | None]:
    """A bar on stderr when that is a terminal; nothing otherwise."""
    if not here or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring", total=None)
        yield lambda done, total, point: bar.update(
            task, completed=done, total=total, description=f"measuring {point.key}"
        )
