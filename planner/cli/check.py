"""`rlmplan check`: would a launcher's configuration run, how fast, and what would be better."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.files import output_folder
from planner.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sized

    from planner.launchers.base import Launcher
    from planner.launchers.reading import ReadConfig
    from planner.schema import ModelSpec
    from planner.schema.check import CheckReport, SettingChange

_LIMIT_BYTES = 4 * 2**20
"""Far above any configuration."""
_CHANGES_FILE = "changes.txt"
"""What the best plan changes: "-" before a setting as it is, "+" before it as it would be."""
_SHOWN_KEYS = 12
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
    preset: Annotated[
        str | None,
        typer.Option(help="Mean lengths of a workload of `rlmplan workloads list`."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            parser=output_folder,
            help="Folder for the best plan as the launcher's files, and for what it changes.",
        ),
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

    A configuration limits the lengths of prompts and responses, and times follow their means: give
    them where they are known, since half of the longest response is only a guess.

    Exit code 0: it fits; 1: it will not run; 2: it cannot be read.
    """
    from planner.catalog.hardware import parse_cluster
    from planner.launchers import get_launcher
    from planner.launchers.check import check as check_config
    from planner.launchers.reading import Context

    if output is not None and not search:
        raise InputError(
            "the best plan is what is written, and --no-search looks for none",
            where="--output",
            remedy="Leave --no-search out.",
        )
    found = get_launcher(launcher)
    if preset is not None:
        means = _preset_means(preset)
        prompt_mean, response_mean = prompt_mean or means[0], response_mean or means[1]
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
    if output is not None:
        _write(found, found.read(files, overrides or [], context), report, output)
    if report.verdict == "will not run":
        raise typer.Exit(1)


def _write(launcher: Launcher, read: ReadConfig, report: CheckReport, folder: Path) -> None:
    """The best plan as the launcher's files, beside the list of what it changes and leaves out."""
    from planner.cli.files import write_files
    from planner.cli.local_models import with_absolute_paths
    from planner.launchers.check import not_carried

    if report.best is None:
        raise InputError(
            f"there is no plan to write: {report.best_note}",
            where=f"--output {folder}",
            remedy="Change what the message names, or look for longer with --deadline.",
        )
    workload = report.workload.model_copy(
        update={"max_staleness": max(report.workload.max_staleness, report.best.staleness)}
    )
    workload, notes = with_absolute_paths(workload)
    files = launcher.write(report.best, workload, report.cluster)
    left = not_carried(launcher, read, report, files)
    changes = "".join(
        "".join(f"{sign} {change.key}={value}\n" for sign, value in _sides(change) if value)
        for change in report.setting_changes
    )
    if left:
        changes += f"# {_left_out(left)} in these files:\n"
        # A value may have lines of its own: each stays a comment.
        settings = "\n".join(f"{key}={value}" for key, value in left.items())
        changes += "".join(f"# {line}\n" for line in settings.splitlines())
    for path in write_files(folder, {**files, _CHANGES_FILE: changes}):
        typer.echo(str(path), err=True)
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    if left:
        shown = ", ".join(list(left)[:_SHOWN_KEYS])
        more = f", ... (all in {_CHANGES_FILE})" if len(left) > _SHOWN_KEYS else ""
        typer.echo(f"note: {_left_out(left)} in these files: {shown}{more}", err=True)


def _left_out(settings: Sized) -> str:
    if len(settings) == 1:
        return "1 of your settings is not the plan's concern and is not"
    return f"{len(settings)} of your settings are not the plan's concern and are not"


def _sides(change: SettingChange) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("-", change.have), ("+", change.want)


def _preset_means(name: str) -> tuple[float | None, float | None]:
    """Mean prompt and response of a preset, tokens; None where it has none."""
    from planner.catalog.presets import preset_content

    content = preset_content(name)
    prompt, response = (content.get(part, {}).get("mean") for part in ("prompt", "response"))
    return prompt, response


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
    """Name -> content of the files, of those in folders, and of what they name beside them: what
    YAML files inherit, and the files that a script reads from its own folder."""
    from planner.catalog.data import read_text

    files: dict[str, str] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(
                each
                for each in path.iterdir()
                if each.suffix in _SUFFIXES and not _is_list_of_changes(each)
            )
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
            elif each.suffix == ".sh":
                files |= _named(each, text, files)
            files[str(each)] = text
    return files


def _is_list_of_changes(path: Path) -> bool:
    """Whether `--output` wrote it: a comparison for people, in no launcher's syntax."""
    from planner.catalog.data import read_text

    if path.name != _CHANGES_FILE:
        return False
    lines = read_text(path, _LIMIT_BYTES).splitlines()
    return all(line.startswith(("- ", "+ ", "# ")) for line in lines)


def _named(script: Path, text: str, known: dict[str, str]) -> dict[str, str]:
    """Settings beside a script that it names: verl's overrides, TRL's configurations."""
    from planner.catalog.data import read_text

    found: dict[str, str] = {}
    for path in sorted(script.parent.iterdir()):
        settings = path.suffix in _SUFFIXES and path.suffix != ".sh" and path.is_file()
        # Exported scripts write "$here/"NAME; elsewhere a name with a folder before it is another.
        named = re.search(rf"(?<![\w./-]){re.escape(path.name)}(?![\w.-])", text)
        by_here = f'"$here/"{path.name}' in text
        if settings and (named or by_here) and str(path) not in known:
            found[str(path)] = read_text(path, _LIMIT_BYTES)
    return found


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
