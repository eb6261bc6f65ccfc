"""Where settings come from: YAML files, Hydra overrides, and the words of a launch command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

import yaml

from planner.catalog.data import parse_yaml
from planner.errors import InputError
from planner.launchers.settings import Given
from planner.launchers.shell import Unknown, Word, commands

_OVERRIDE = re.compile(r"(\+\+|\+|~)?([A-Za-z_][^\s=]*?)(?:@[^=]*)?=(.*)", re.DOTALL)
_QUOTED = re.compile(r"\s*(['\"])(.*)\1\s*", re.DOTALL)


def flatten(content: Any, where: str, prefix: str = "") -> list[Given]:
    """Nested mappings as dotted keys; an empty mapping and a list are values."""
    if not isinstance(content, dict) or (prefix and not content):
        return [Given(prefix, content, where)]
    found: list[Given] = []
    for key, value in content.items():
        found += flatten(value, where, f"{prefix}.{key}" if prefix else str(key))
    return found


def read_yaml(text: str, name: str) -> dict[str, Any]:
    """A mapping from YAML text; InputError that names the file."""
    content = parse_yaml(text, name)
    if not isinstance(content, dict):
        raise InputError("is not a mapping of keys to values", where=name)
    return content


def override(text: str, where: str) -> Given:
    """A Hydra override, ``key=value``; InputError for another text."""
    match = _OVERRIDE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is not key=value", where=where)
    return Given(match[2], hydra_value(match[3]), where, added=bool(match[1]))


def hydra_value(text: str) -> Any:
    """A value in the grammar of Hydra's overrides."""
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        mark, inner = quoted[1], quoted[2]
        inner = re.sub(rf"(\\*)\\{mark}", lambda m: m[1][: len(m[1]) // 2] + mark, inner)
        trailing = len(inner) - len(inner.rstrip("\\"))
        return inner[: len(inner) - trailing // 2] if trailing else inner
    stripped = text.strip()
    if stripped.lower() in ("", "null"):
        return None
    if stripped.startswith(("[", "{")) or re.fullmatch(r"[-+0-9.].*|true|false", stripped, re.I):
        try:
            return yaml.safe_load(stripped)
        except yaml.YAMLError:
            return stripped
    return stripped


def command_words(text: str, name: str, entry: Sequence[str]) -> list[Word] | None:
    """The words after the entry point in the last command that starts it; None without one."""
    found: list[Word] | None = None
    for words in commands(text):
        for at, word in enumerate(words):
            if isinstance(word, str) and any(
                word == start or PurePath(word).name == start for start in entry
            ):
                found = words[at + 1 :]
    return found


def override_words(words: Iterable[Word], where: str) -> list[Given]:
    """The overrides among a command's words; other words are passed over."""
    found = []
    for word in words:
        text = word.text if isinstance(word, Unknown) else word
        match = _OVERRIDE.fullmatch(text)
        if match is None:
            continue
        value = Unknown(match[3]) if isinstance(word, Unknown) else hydra_value(match[3])
        found.append(Given(match[2], value, where, added=bool(match[1])))
    return found


def flag_words(words: Sequence[Word], where: str, switches: frozenset[str]) -> list[Given]:
    """Flags (``--name value``, ``--name=value``, switches) among a command's words.

    `switches` are the flags without a value. A flag followed by another flag counts as one too.
    """
    found: list[Given] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if isinstance(word, Unknown):
            if word.text.startswith("--") and "=" in word.text:
                name, _, value = word.text[2:].partition("=")
                found.append(Given(name, Unknown(value), where))
            elif "[@]" in word.text or word.text.startswith("${"):
                found.append(Given(word.text, Unknown(word.text), where))
            continue
        if not word.startswith("--") or len(word) < 3:
            continue
        name, equals, value = word[2:].partition("=")
        if equals:
            found.append(Given(name, value, where, literal=True))
        elif name in switches or at == len(words) or _is_flag(words[at]):
            found.append(Given(name, True, where))
        else:
            values: list[Word] = []
            while at < len(words) and not _is_flag(words[at]):
                values.append(words[at])
                at += 1
            unknown = next((item for item in values if isinstance(item, Unknown)), None)
            plain = [item for item in values if isinstance(item, str)]
            content: Any = unknown or (plain[0] if len(plain) == 1 else plain)
            found.append(Given(name, content, where, literal=True))
    return found


def _is_flag(word: Word) -> bool:
    text = word.text if isinstance(word, Unknown) else word
    return (text.startswith("--") and len(text) > 2) or "[@]" in text
