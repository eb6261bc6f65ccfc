"""References between settings, in the syntax of OmegaConf: `${a.b}`, `${mul:${a}, 2}`.

Only what the launchers' own configurations use: absolute and relative (`${.name}`) references and
the resolvers oc.select, mul, add, sub, div, max and min. Nothing is executed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import yaml

_ESCAPED = re.compile(r"(\\*)\\\$\{")
_RESOLVER = re.compile(r"([A-Za-z_][A-Za-z_.]*):(.*)", re.DOTALL)
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "mul": operator.mul,
    "add": operator.add,
    "sub": operator.sub,
    "div": operator.truediv,
    "max": max,
    "min": min,
}

Lookup = Callable[[str], Any]


class UnresolvedError(Exception):
    """A reference whose value is not known: to an environment variable, say."""


def resolve(text: str, key: str, lookup: Lookup) -> Any:
    """The value of `text`, found at `key`; `lookup` gives the values of other keys.

    Raises UnresolvedError, with the reference, when one cannot be followed.
    """
    if "${" not in text:
        return text
    pieces = _pieces(text)
    values = [
        _reference(piece, key, lookup) if refers else _unescape(piece) for refers, piece in pieces
    ]
    return values[0] if len(pieces) == 1 else "".join(map(str, values))


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: match[1][: len(match[1]) // 2] + "${", text)


def _pieces(text: str) -> list[tuple[bool, str]]:
    """(is a reference, its inside or the literal text), in order; braces may nest."""
    pieces: list[tuple[bool, str]] = []
    literal = ""
    at = 0
    while at < len(text):
        escapes = len(literal) - len(literal.rstrip("\\"))
        if text.startswith("${", at) and escapes % 2 == 0:
            end = _closing(text, at + 2)
            if end < 0:
                raise UnresolvedError(text)
            if literal:
                pieces.append((False, literal))
                literal = ""
            pieces.append((True, text[at + 2 : end]))
            at = end + 1
        else:
            literal += text[at]
            at += 1
    if literal or not pieces:
        pieces.append((False, literal))
    return pieces


def _closing(text: str, at: int) -> int:
    depth = 1
    while at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
        at += 1
    return -1


def _reference(body: str, key: str, lookup: Lookup) -> Any:
    resolver = _RESOLVER.fullmatch(body)
    if resolver is None:
        return lookup(_absolute(body.strip(), key))
    name = resolver[1]
    arguments = _arguments(resolver[2])
    if name == "oc.select" and 1 <= len(arguments) <= 2:
        found = lookup(_absolute(arguments[0], key))
        return _literal(arguments[1], key, lookup) if found is None and arguments[1:] else found
    values = [_literal(argument, key, lookup) for argument in arguments]
    if name in _ARITHMETIC and values and all(isinstance(v, int | float) for v in values):
        try:
            return reduce(_ARITHMETIC[name], values)
        except (ZeroDivisionError, OverflowError):
            pass
    raise UnresolvedError(f"${{{body}}}")


def _arguments(text: str) -> list[str]:
    """Arguments of a resolver, split at commas outside of braces."""
    parts, depth = [""], 0
    for character in text:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _literal(text: str, key: str, lookup: Lookup) -> Any:
    if "${" in text:
        return resolve(text, key, lookup)
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _absolute(name: str, key: str) -> str:
    """A key from a reference: leading dots count sections upwards from the one that holds it."""
    dots = len(name) - len(name.lstrip("."))
    if dots == 0:
        return name
    parents = key.split(".")[:-dots]
    return ".".join([*parents, name[dots:]])
