"""Launchers against the taxonomy of strategies: `rlmplan launchers` and docs/launchers.md."""

from __future__ import annotations

from typing import Any

from planner.launchers import get_launcher, launcher_names
from planner.launchers.taxonomy import TAXONOMY, support

_INTRO = """\
# Launchers

Written by `tools/launcher_table.py` from what the launcher modules and their search spaces declare;
`rlmplan launchers` prints the same. **yes** or **up to N**: plans may use it and `rlmplan export`
writes it. **own**: the launcher has it under the setting named, but no plan uses it. Empty: the
launcher, or the part of it that plans are made for, does not have it.

"""


def as_data() -> dict[str, Any]:
    """Everything the table shows, for JSON."""
    found: dict[str, Any] = {}
    for name in launcher_names():
        launcher = get_launcher(name)
        about = launcher.capabilities
        found[name] = {
            "version": launcher.version,
            "backends": about.backends,
            "spaces": list(about.spaces),
            "algorithms": list(about.algorithms),
            "checked_by": about.checked_by,
            "strategies": {
                entry.id: {
                    "planned": (here := support(launcher, entry)).planned,
                    "largest": here.largest,
                    "setting": here.setting,
                }
                for entry in TAXONOMY
            },
        }
    return found


def rows() -> list[tuple[str, ...]]:
    """One row a strategy: its meaning, then one cell a launcher."""
    launchers = [get_launcher(name) for name in launcher_names()]
    return [
        (
            f"{entry.group}: {entry.meaning}",
            *(support(launcher, entry).word for launcher in launchers),
        )
        for entry in TAXONOMY
    ]


def as_markdown() -> str:
    """The page docs/launchers.md."""
    lines = [_INTRO]
    lines.append("| launcher | version | backends | spaces | algorithms |\n|---|---|---|---|---|\n")
    for name, about in as_data().items():
        spaces = ", ".join(f"`{space}`" for space in about["spaces"])
        algorithms = ", ".join(about["algorithms"])
        lines.append(
            f"| `{name}` | {about['version']} | {about['backends']} | {spaces} | {algorithms} |\n"
        )
    names = launcher_names()
    lines.append(f"\n| strategy | {' | '.join(names)} |\n|---|{'---|' * len(names)}\n")
    for row in rows():
        lines.append(f"| {' | '.join(_code(cell) for cell in row)} |\n")
    lines.append("\n## What judges exported files\n\n")
    for name, about in as_data().items():
        lines.append(f"- `{name}`: {about['checked_by']}.\n")
    return "".join(lines)


def _code(cell: str) -> str:
    """A setting as code."""
    own, colon, setting = cell.partition("own: ")
    return f"own: `{setting}`" if colon and not own else cell
