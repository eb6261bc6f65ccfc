"""`rlmplan simulate`: a plan replayed over sampled response lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.errors import InputError

_MOST_STEPS = 10_000


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("simulate")(simulate)


def simulate(
    plans: Annotated[Path, typer.Argument(help="The file that `rlmplan plan --json` wrote.")],
    rank: Annotated[int, typer.Option(min=1, help="Which plan.")] = 1,
    steps: Annotated[int, typer.Option(min=1, max=_MOST_STEPS, help="Steps to replay.")] = 16,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Seed of the sampled lengths.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
    timeline: Annotated[
        Path | None,
        typer.Option(
            "--timeline",
            "--trace",
            help="File for the timeline (chrome://tracing, Perfetto): call, mesh, times.",
        ),
    ] = None,
) -> None:
    """Replay a plan step by step: waves, stragglers, full caches, slow verifiers, staleness."""
    from planner.cli.export import read_plans
    from planner.cli.files import named_file, write_file
    from planner.report.trace import call_details
    from planner.simulate.events.replay import simulate as replay
    from planner.simulate.events.timeline import chrome_trace

    named_file(timeline, "--timeline", plans)
    plan_set = read_plans(plans)
    chosen = next((plan for plan in plan_set.plans if plan.rank == rank), None)
    if chosen is None:
        raise InputError(
            f"no plan of rank {rank}",
            where=str(plans),
            remedy=f"The file has ranks {[plan.rank for plan in plan_set.plans]}",
        )
    try:
        found = replay(chosen, plan_set.workload, plan_set.cluster, steps=steps, seed=seed)
    except InputError as error:
        where = f"{plans}: plan of rank {rank}: {error.where}"
        raise InputError(error.message, where=where, remedy=error.remedy) from None
    if timeline is not None:
        details = {name: call_details(call) for name, call in chosen.calls.items()}
        write_file(timeline, chrome_trace(found.spans, details), "--timeline")
    if json:
        import json as encoder

        typer.echo(encoder.dumps(found.as_json(), indent=2, allow_nan=False))
        return
    from planner.report.simulation import render_simulation
    from planner.report.text import to_text

    title = f"plan {rank}: {chosen.placement}"
    typer.echo(to_text(render_simulation(found, title)), nl=False)
