"""Reads the commands of a shell script without running anything.

Enough of bash for launch scripts: quoting, line continuations, variables, arrays, `${X:-default}`
and `$((arithmetic))`. What depends on the machine (`$(command)`, variables that the script does not
set, variables set differently in branches) stays unknown and is marked so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from planner.errors import InputError

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ASSIGN = re.compile(rf"(?:export\s+|local\s+|declare\s+(?:-\w+\s+)*)?({_NAME})(\+?)=")
_OPENING = {"if", "for", "while", "until", "case", "select"}
_CLOSING = {"fi", "done", "esac"}
_PREFIXES = {"then", "else", "do", "elif", "!", "{", "}", "time"}
_HEREDOC = re.compile(
    r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1[^\n]*\n.*?^\s*\2\s*$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Unknown:
    """A word whose value is not known from the script alone."""

    text: str
    """As it stands in the script."""


Word = str | Unknown


_MOST_EXPANDED = 2**24
"""Characters that the variables of a script may expand to: far above any launch script's, and what
A=$A$A, repeated, would exceed without end."""


@dataclass
class _Variables:
    # A home folder only stands before paths, of which the last name counts.
    values: dict[str, list[Word]] = field(default_factory=lambda: {"HOME": ["~"]})
    left: int = _MOST_EXPANDED

    def read(self, name: str) -> list[Word] | None:
        """The words of a variable; None where it is not set, or too much was expanded before."""
        words = self.values.get(name)
        if words is not None:
            self.left -= sum(1 + len(word) for word in words if isinstance(word, str))
        return words if self.left >= 0 else None

    def set(self, name: str, words: list[Word], *, append: bool, branch: bool) -> None:
        if append:
            words = [*self.values.get(name, []), *words]
        elif branch and self.values.get(name, words) != words:
            words = [Unknown(f"${name}")]
        self.values[name] = words


def commands(text: str) -> list[list[Word]]:
    """The simple commands of a script in order, variables replaced, assignments left out.

    Raises InputError for quotes and brackets that nest too deeply to be followed.
    """
    try:
        return _commands(text)
    except RecursionError:
        raise InputError(
            "quotes and brackets are nested too deeply",
            where="launch script",
            remedy="Write the values out.",
        ) from None


def _commands(text: str) -> list[list[Word]]:
    text = _HEREDOC.sub("", text.replace("\r\n", "\n").replace("\\\n", " "))
    variables = _Variables()
    found: list[list[Word]] = []
    depth = 0
    for raw in _split(text):
        while raw and raw[0] in _PREFIXES:
            raw = raw[1:]
        if not raw:
            continue
        depth += (raw[0] in _OPENING) - (raw[0] in _CLOSING)
        rest = _assignments(raw, variables, branch=depth > 0)
        words = [word for piece in rest for word in _expand(piece, variables)]
        if words:
            found.append(words)
    return found


def _assignments(raw: list[str], variables: _Variables, *, branch: bool) -> list[str]:
    """Record the leading assignments of a command; the words that follow them."""
    if raw[0] in ("export", "local", "declare", "readonly"):
        raw = [word for word in raw[1:] if not word.startswith("-")]
        if not all(_ASSIGN.match(word) for word in raw):
            raw = [word for word in raw if _ASSIGN.match(word)]
    at = 0
    for word in raw:
        match = _ASSIGN.match(word)
        if match is None:
            break
        value = word[match.end() :]
        if value.startswith("(") and value.endswith(")"):
            items = [piece for group in _split(value[1:-1].replace("\n", " ")) for piece in group]
            words = [out for piece in items for out in _expand(piece, variables)]
        else:
            words = [_joined(_expand(value, variables), value)]
        variables.set(match[1], words, append=bool(match[2]), branch=branch)
        at += 1
    return raw[at:]


def _joined(words: list[Word], text: str) -> Word:
    if any(isinstance(word, Unknown) for word in words):
        return Unknown(text)
    return " ".join(word for word in words if isinstance(word, str))


def _split(text: str) -> list[list[str]]:
    """Raw words (quotes kept) of each simple command."""
    result: list[list[str]] = [[]]
    word = ""
    at = 0

    def end_word() -> None:
        nonlocal word
        if word:
            result[-1].append(word)
        word = ""

    while at < len(text):
        character = text[at]
        if character in " \t":
            end_word()
            at += 1
        elif character == "#" and not word:
            at = _until(text, at, "\n")
        elif character in "\n;|&" and not (character == "&" and word.endswith(">")):
            end_word()
            result.append([])
            at += 1
        elif character == "(" and _ASSIGN.fullmatch(word):
            end = _matching(text, at)
            word += text[at:end]
            at = end
        elif character in "()" and not word.endswith("$"):
            end_word()
            result.append([])
            at += 1
        else:
            end = _piece_end(text, at)
            word += text[at:end]
            at = end
    end_word()
    return [words for words in result if words]


def _piece_end(text: str, at: int) -> int:
    """End of a quoted text, a `$(...)`, a `${...}`, or one character."""
    if text[at] == "\\":
        return min(at + 2, len(text))
    if text[at] == "'":
        return _until(text, at + 1, "'") + 1
    if text[at] == '"':
        end = at + 1
        while end < len(text) and text[end] != '"':
            end = _piece_end(text, end) if text[end] in "\\$`" else end + 1
        return min(end + 1, len(text))
    if text[at] == "`":
        return _until(text, at + 1, "`") + 1
    if text.startswith(("$(", "${"), at):
        return _matching(text, at + 1)
    return at + 1


def _until(text: str, at: int, mark: str) -> int:
    found = text.find(mark, at)
    return len(text) if found < 0 else found


def _matching(text: str, at: int) -> int:
    """Just after the bracket that closes the one at `at`."""
    pair = {"(": ")", "{": "}"}[text[at]]
    depth, end = 0, at
    while end < len(text):
        # In ${...} only another ${ nests.
        if text[end] == text[at] and (pair == ")" or end == at or text[end - 1] == "$"):
            depth += 1
            end += 1
        elif text[end] == pair:
            depth -= 1
            end += 1
            if depth == 0:
                return end
        elif text[end] in "\\'\"`":
            end = _piece_end(text, end)
        else:
            end += 1
    return len(text)


def _expand(raw: str, variables: _Variables) -> list[Word]:
    """A raw word with quotes removed and variables replaced; arrays give several words."""
    whole = re.fullmatch(rf'"?\$\{{({_NAME})\[[@*]\]\}}"?', raw)
    if whole:
        words = variables.read(whole[1])
        return [Unknown(raw)] if words is None else list(words)
    out, unknown, quoted = "", False, False
    at = 0
    inside = False  # double quotes
    while at < len(raw):
        character = raw[at]
        if character == "'" and not inside:
            end = _until(raw, at + 1, "'")
            out += raw[at + 1 : end]
            quoted, at = True, end + 1
        elif character == '"':
            inside, quoted = not inside, True
            at += 1
        elif character == "\\" and at + 1 < len(raw):
            keeps = inside and raw[at + 1] not in '"\\$`\n'
            out += raw[at : at + 2] if keeps else raw[at + 1]
            at += 2
        elif character in "$`":
            value, at = _variable(raw, at, variables)
            if value is None:
                unknown = True
            else:
                out += value
        else:
            out += character
            at += 1
    if unknown:
        return [Unknown(raw)]
    if not quoted and "$" in raw and " " in out:
        return list(out.split())
    return [out] if out or quoted else []


def _variable(raw: str, at: int, variables: _Variables) -> tuple[str | None, int]:
    """(value or None, position after it) of what starts at a `$` or a backquote."""
    if raw[at] == "`" or (raw.startswith("$(", at) and not raw.startswith("$((", at)):
        return None, _piece_end(raw, at)
    if raw.startswith("$((", at):
        end = _matching(raw, at + 1)
        return _arithmetic(raw[at + 3 : end - 2], variables), end
    if raw.startswith("${", at):
        end = _matching(raw, at + 1)
        return _parameter(raw[at + 2 : end - 1], variables), end
    match = re.compile(_NAME).match(raw, at + 1)
    if match is None:
        special = at + 1 < len(raw) and raw[at + 1] in "@*#?$!0123456789"
        return (None, at + 2) if special else ("$", at + 1)
    return _value(match[0], variables), match.end()


def _value(name: str, variables: _Variables) -> str | None:
    words = variables.read(name)
    if words is None or any(isinstance(word, Unknown) for word in words):
        return None
    return " ".join(word for word in words if isinstance(word, str))


def _parameter(body: str, variables: _Variables) -> str | None:
    match = re.fullmatch(rf"({_NAME})(?:(:?[-?+=])(.*))?", body, re.DOTALL)
    if match is None:
        return None
    value = _value(match[1], variables)
    if value or match[2] is None or (value == "" and ":" not in match[2]):
        return value
    if match[2] in ("-", ":-", "=", ":=") and match[1] not in variables.values:
        expanded = _expand(match[3], variables)
        joined = _joined(expanded, body)
        return joined if isinstance(joined, str) else None
    return value


_OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: int(a / b),
    ast.FloorDiv: lambda a, b: int(a / b),
    ast.Mod: lambda a, b: a - b * int(a / b),
}


def _arithmetic(text: str, variables: _Variables) -> str | None:
    expanded = re.sub(
        rf"\$?\{{?({_NAME})\}}?", lambda m: _value(m[1], variables) or "unknown", text
    )
    try:
        return str(_compute(ast.parse(expanded.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, OverflowError):
        return None


def _compute(node: Any) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_compute(node.left), _compute(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_compute(node.operand)
    raise ValueError("not arithmetic of whole numbers")
