"""Length distributions from a user's file of measured lengths."""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.catalog.data import did_you_mean, read_text
from planner.errors import InputError
from planner.schema import LengthDistribution
from planner.schema.workload import MAX_LENGTH_TOKENS

LENGTH_FIELDS = ("length", "response_length", "response_tokens", "num_tokens", "tokens")
"""Fields of a JSON object that are taken as its length when none is named, first match first."""
_SPACE = re.compile(r"[ \t\n]*")
_MAX_FILE_BYTES = 32 * 2**20
_MAX_POINTS = 256
"""Points of a histogram; files with more distinct lengths are condensed to as many."""
_MAX_SHOWN = 40


def lengths_from_file(
    path: str | Path, *, field: str | None = None, max_tokens: int | None = None
) -> LengthDistribution:
    """The distribution of the lengths in a file, tokens.

    The file holds one length a line, a JSON list, or JSON lines; items are numbers or objects
    whose `field` (by default one of LENGTH_FIELDS) is the length. `max_tokens` is the cap: longer
    lengths are cut to it; without one, the longest length is the cap. Files with many distinct
    lengths become a histogram of 256 points with the same mean (up to rounding) and longest.
    Raises InputError naming the file and the line or item.
    """
    where = str(path)
    # Four bytes a length: a file of the largest size holds millions of them.
    lengths = array("I")
    for item, place in _items(Path(path), where):
        lengths.append(_length(item, place, field, where))
    if not lengths:
        raise InputError("holds no lengths", where=where, remedy="Write one length a line.")
    tokens = np.frombuffer(lengths, dtype=np.dtype("I"))
    cap = max_tokens if max_tokens is not None else int(tokens.max())
    points = _condense(*np.unique(np.minimum(tokens, cap), return_counts=True))
    total = sum(weight for _, weight in points)
    mean = sum(tokens * weight for tokens, weight in points) / total
    if len(points) == 1:
        return LengthDistribution(kind="fixed", mean_tokens=mean, max_tokens=cap)
    return LengthDistribution(
        kind="histogram",
        mean_tokens=mean,
        max_tokens=cap,
        histogram=tuple((tokens, float(weight)) for tokens, weight in points),
    )


def _items(path: Path, where: str) -> Iterator[tuple[Any, str]]:
    """(value, place) of every item, one by one: a list's items, or one value a line."""
    text = read_text(
        path, _MAX_FILE_BYTES, where, remedy="Give a sample of the lengths, one a line."
    )
    if text.lstrip().startswith("["):
        yield from _list_items(text, where)
        return
    start, number = 0, 1
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line = text[start:end].strip()
        if line:
            place = f"line {number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                raise _no_json(line, where, place) from None
            yield value, place
        start, number = end + 1, number + 1


def _list_items(text: str, where: str) -> Iterator[tuple[Any, str]]:
    """(value, place) of the items of a JSON list, decoded one at a time to save memory."""
    decode = json.JSONDecoder().raw_decode
    at, index = _after_space(text, text.index("[") + 1), 0
    if text.startswith("]", at):
        at = at + 1
    else:
        while True:
            place = f"item {index}"
            if text.startswith("[", at):
                raise _no_length(text[at : at + _MAX_SHOWN + 1], place, where)
            try:
                value, at = decode(text, at)
            except (ValueError, RecursionError):
                raise _no_json(text[at : at + _MAX_SHOWN + 1], where, place) from None
            yield value, place
            at, index = _after_space(text, at), index + 1
            mark, at = text[at : at + 1], _after_space(text, at + 1)
            if mark == "]":
                break
            if mark != ",":
                raise _no_json("the list does not end", where, place)
    if text[at:].strip():
        raise _no_json(text[at : at + _MAX_SHOWN + 1], where, "what follows the list")


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _no_json(text: str, where: str, place: str) -> InputError:
    return InputError(
        f"{place} is neither a number nor JSON: {_cut(text)!r}",
        where=where,
        remedy="Write one length a line, a JSON list, or JSON lines.",
    )


def _no_length(shown: str, place: str, where: str) -> InputError:
    return InputError(
        f"{place} is not a length in tokens, given {_cut(shown)}",
        where=where,
        remedy=f"A length is a whole number from 1 to {MAX_LENGTH_TOKENS:,}.",
    )


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def _length(item: Any, place: str, field: str | None, where: str) -> int:
    """One item as a whole number of tokens, at least one."""
    value = item
    if isinstance(item, dict):
        names = (field,) if field else LENGTH_FIELDS
        name = next((name for name in names if name in item), None)
        if name is None:
            remedy = f"Known: {', '.join(LENGTH_FIELDS)}."
            if field:
                remedy = did_you_mean(field, list(item)[:_MAX_SHOWN])
            raise InputError(f"{place} has no length field", where=where, remedy=remedy)
        value = item[name]
    if isinstance(value, float) and value.is_integer() and value <= MAX_LENGTH_TOKENS:
        value = int(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 1 <= value <= MAX_LENGTH_TOKENS:
        shown = "a list or object" if isinstance(value, list | dict) else json.dumps(value)
        raise _no_length(shown, place, where)
    return int(value)


def _condense(
    tokens: npt.NDArray[np.uint32], numbers: npt.NDArray[np.intp]
) -> list[tuple[int, int]]:
    """At most _MAX_POINTS (tokens, count) pairs: equal shares of all tokens, each at its mean.

    `tokens` ascend, `numbers` says how often each occurs. The longest length keeps a point of its
    own, since a batch waits for it.
    """
    if len(tokens) <= _MAX_POINTS:
        return list(zip(tokens.tolist(), numbers.tolist(), strict=True))
    counts = numbers[:-1].astype(np.float64)
    mass = counts * tokens[:-1]
    share = (np.cumsum(mass) - mass / 2.0) / mass.sum()
    bins = np.minimum((share * (_MAX_POINTS - 1)).astype(int), _MAX_POINTS - 2)
    merged: Counter[int] = Counter()
    for index in np.unique(bins):
        inside = bins == index
        weight = counts[inside].sum()
        merged[round(float(mass[inside].sum() / weight))] += int(weight)
    merged[int(tokens[-1])] += int(numbers[-1])
    return sorted(merged.items())
