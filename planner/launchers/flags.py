"""Command-line flags: written into launch scripts, and read from them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from planner.errors import InputError
from planner.launchers.settings import Given
from planner.launchers.sources import command_words, flag_words

_SUBMIT = Template(
    """\
#!/usr/bin/env bash
${header}${usage}set -euo pipefail

flags=(
${flags})
${before}runtime_env='{}'
[[ -z "$${RUNTIME_ENV_JSON:-}" ]] || runtime_env="$$RUNTIME_ENV_JSON"
exec ray job submit --address="$${RAY_ADDRESS:-http://127.0.0.1:8265}" \\
  --runtime-env-json="$$runtime_env" \\
  -- $command "$${flags[@]}" "$$@"
"""
)


def flag_lines(flags: Mapping[str, Any]) -> str:
    """One flag a line, quoted for the shell: True is a switch, False and None are left out."""
    lines = []
    for name, value in flags.items():
        if value is None or value is False:
            continue
        words = [f"--{name}"]
        if value is not True:
            words += [str(part) for part in (value if isinstance(value, list) else [value])]
        lines.append(f"  {shlex.join(words)}\n")
    return "".join(lines)


def ray_script(
    header: str, usage: Sequence[str], flags: Mapping[str, Any], command: str, before: str = ""
) -> str:
    """A bash script that submits `command` with the flags to a Ray cluster.

    `before` are lines of bash run first; `command` may refer to variables that they set.
    """
    return _SUBMIT.substitute(
        header=header,
        usage="".join(f"# {line}\n" for line in usage),
        flags=flag_lines(flags),
        before=before,
        command=command,
    )


def given_flags(
    files: Mapping[str, str],
    overrides: Sequence[str],
    entry: Sequence[str],
    switches: frozenset[str],
) -> list[Given]:
    """Flags of the last command that starts `entry`, then those of --set (``name=value``)."""
    given: list[Given] = []
    found = False
    for name, text in files.items():
        words = command_words(text, name, entry)
        if words is not None:
            found = True
            given += flag_words(words, name, switches)
    if not found:
        raise InputError(
            f"no command starts {entry[0]}",
            where=", ".join(files) or "CONFIG",
            remedy="Give the launch script.",
        )
    for text in overrides:
        name, equals, value = text.removeprefix("--").partition("=")
        if not name or not equals:
            raise InputError(f"{text!r} is not name=value", where="--set")
        switch: Any = {"true": True, "false": False}.get(value.lower(), value)
        given.append(Given(name, switch, "--set", literal=True))
    return given
