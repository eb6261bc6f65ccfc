"""`rlmplan check`: would a launcher's configuration run, how fast, and what would be better."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.errors import InputError

if TYPE_CHECKING:
    from planner.schema import ModelSpec

_LIMIT_BYTES = 4 * 2**20
"""Far above any configuration."""
_SUFFIXES = (".yaml", ".yml", ".sh", ".txt", ".toml")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("check")(check)


def check(
    config: Annotated[
        list[Path],
        typer.Argument(help="The launcher's configuration: YAML, overrides, script, or a folder."),
    ],
    launcher: Annotated[str, typer.Option(help="Whose it is; see `rlmplan launchers`.")],
    cluster: Annotated[str, typer.Option(help="NAME:NODESxDEVICES or a YAML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting over the configuration, in the launcher's syntax."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Model, or ROLE=MODEL, where the configuration's name is not known."),
    ] = None,
    prompt_mean: Annotated[
        float | None, typer.Option(min=1, help="Mean prompt, tokens (default: 1/4 of the limit).")
    ] = None,
    response_mean: Annotated[
        float | None, typer.Option(min=1, help="Mean response, tokens (default: 1/2 of the limit).")
    ] = None,
    max_staleness: Annotated[
        int | None, typer.Option(min=0, help="Staleness that a better plan may have.")
    ] = None,
    search: Annotated[bool, typer.Option(help="Look for the best plan.")] = True,
    deadline: Annotated[
        float, typer.Option(min=0.1, help="Seconds to look for the best plan.")
    ] = 20.0,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Check a launcher's configuration before it costs anything.

    Exit code 0: it fits; 1: it will not run; 2: it cannot be read.
    """
    from planner.catalog.hardware import parse_cluster
    from planner.launchers import get_launcher
    from planner.launchers.check import check as check_config
    from planner.launchers.reading import Context

    found = get_launcher(launcher)
    files = read_configuration(config)
    context = Context(
        parse_cluster(cluster),
        models_of(model or []),
        prompt_mean,
        response_mean,
    )
    report = check_config(
        found,
        files,
        overrides or [],
        context,
        search=search,
        max_staleness=max_staleness,
        deadline_s=deadline,
    )
    if json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        from planner.report.check import render_check
        from planner.report.text import to_text

        typer.echo(to_text(render_check(report)), nl=False)
    if report.verdict == "will not run":
        raise typer.Exit(1)


def models_of(texts: list[str]) -> dict[str, ModelSpec]:
    """Role -> model; a text without a role stands for every role but the reward model."""
    from planner.catalog.models import load_model

    found: dict[str, ModelSpec] = {}
    for text in texts:
        role, equals, reference = text.partition("=")
        if equals and role in ("actor", "critic", "reference", "reward"):
            found[role] = load_model(reference)
        else:
            spec = load_model(text)
            found = {"actor": spec, "critic": spec, "reference": spec} | found
    return found


def read_configuration(paths: list[Path]) -> dict[str, str]:
    """Name -> content of the files, of the files in folders, and of what YAML files inherit."""
    from planner.catalog.data import read_text

    files: dict[str, str] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)
            if not inside:
                raise InputError(
                    f"the folder has no file that ends in {', '.join(_SUFFIXES)}",
                    where=str(path),
                    remedy="Give the configuration files.",
                )
        else:
            inside = [path]
        for each in inside:
            text = read_text(each, _LIMIT_BYTES, remedy="Give a configuration file.")
            if each.suffix in (".yaml", ".yml"):
                files |= _inherited(each, text, files)
            files[str(each)] = text
    return files


def _inherited(path: Path, text: str, known: dict[str, str], depth: int = 0) -> dict[str, str]:
    """Files beside a YAML file that its `defaults` name."""
    from planner.catalog.data import parse_yaml, read_text

    content = parse_yaml(text, str(path))
    defaults = content.get("defaults") if isinstance(content, dict) else None
    found: dict[str, str] = {}
    for name in [defaults] if isinstance(defaults, str) else []:
        parent = path.parent / name
        if parent.is_file() and str(parent) not in known and depth < 16:
            above = read_text(parent, _LIMIT_BYTES)
            found |= _inherited(parent, above, known | found, depth + 1)
            found[str(parent)] = above
    return found
