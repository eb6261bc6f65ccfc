"""`rlmplan detect`: this machine, or what a cluster manager knows, as a cluster file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.errors import InputError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("detect")(detect)


def detect(
    source: Annotated[
        str,
        typer.Option(
            help="auto, machine (nvidia-smi, rocm-smi), slurm (sinfo), kubernetes (kubectl) or ray."
        ),
    ] = "auto",
    partition: Annotated[
        str | None, typer.Option(help="Partition of Slurm; all of them if not given.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Cluster file to write, for --cluster and `cluster:`."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Read the accelerators of this machine or cluster into a cluster file."""
    import json as encoder

    import yaml

    from planner.catalog.hardware import cluster_from
    from planner.cli.files import write_file
    from planner.measure.detect.cluster import detect as read

    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise InputError(
            "a cluster file ends in .yaml", where=f"--output {output}", remedy="Rename it."
        )
    found = read(source, partition=partition)
    cluster = cluster_from(found.content, found.source, "detected")
    notes = [*found.notes, *cluster.assumptions]
    head = [f"# Read from {found.source} by rlmplan detect."]
    head += [f"# - {note}" for note in notes]
    text = "\n".join(head) + "\n" + yaml.safe_dump(found.content, sort_keys=False)
    if output is not None:
        write_file(output, text, "--output")
    if json:
        shown = {"source": found.source, "cluster": found.content, "notes": notes}
        typer.echo(encoder.dumps(shown, indent=2))
        return
    typer.echo(text, nl=False)
    if output is not None:
        typer.echo(f"Written to {output}; plan with --cluster {output}", err=True)
