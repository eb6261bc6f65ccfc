"""`rlmplan workloads`: the algorithms and the presets that `rlmplan plan --preset` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from planner.catalog.presets import Preset

workloads_app = typer.Typer(help="Algorithms and published runs to plan.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.add_typer(workloads_app, name="workloads")


@workloads_app.command("list")
def workloads_list(json: Json = False) -> None:
    """All presets: each algorithm under its own name, then published runs."""
    from planner.catalog.presets import list_presets, load_preset
    from planner.workload.algorithms import list_algorithms

    algorithms = list_algorithms()
    rows = [_row(name, load_preset(name)) for name in list_presets()]
    if json:
        _echo_json(rows)
        return
    width = max(len(row["name"]) for row in rows)
    for heading, chosen in (
        ("algorithms", [row for row in rows if row["name"] in algorithms]),
        ("published runs", [row for row in rows if row["name"] not in algorithms]),
    ):
        typer.echo(f"{heading}:")
        for row in chosen:
            note = "" if row["can_be_planned"] else " (no published configuration)"
            typer.echo(f"  {row['name']:<{width}}  {row['description']}{note}")


@workloads_app.command("show")
def workloads_show(
    name: Annotated[str, typer.Argument(help="A preset (see `rlmplan workloads list`).")],
    json: Json = False,
) -> None:
    """One preset as a problem file, with its sources and what they leave open as comments."""
    from planner.catalog.presets import load_preset

    preset = load_preset(name)
    fields: dict[str, Any] = preset.model_dump(mode="json", exclude_unset=True)
    if json:
        _echo_json({"name": name, **fields})
        return
    import yaml

    lines = [f"{name}: {preset.description}"]
    if preset.problem is None:
        lines.append("no published configuration")
    published = [f"{key}: {value:g}" for key, value in preset.published.items()]
    for heading, items in (
        ("sources", preset.sources),
        ("assumed", preset.assumed),
        ("published", published),
    ):
        if items:
            lines += [f"{heading}:", *(f"  - {item}" for item in items)]
    typer.echo("\n".join(f"# {line}" for line in lines))
    if preset.problem is not None:
        problem = {"name": name, **fields["problem"]}
        typer.echo(yaml.safe_dump(problem, sort_keys=False, allow_unicode=True), nl=False)


def _row(name: str, preset: Preset) -> dict[str, Any]:
    problem = preset.problem
    return {
        "name": name,
        "description": preset.description,
        "algorithm": problem.algorithm if problem else None,
        "can_be_planned": problem is not None,
    }


def _echo_json(value: object) -> None:
    import json as json_module

    typer.echo(json_module.dumps(value, indent=2))
