"""Length distributions from a user's file of measured lengths."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from planner.catalog.data import did_you_mean
from planner.errors import InputError
from planner.schema import LengthDistribution

LENGTH_FIELDS = ("length", "response_length", "response_tokens", "num_tokens", "tokens")
"""Fields of a JSON object that are taken as its length when none is named, first match first."""
MAX_LENGTH_TOKENS = 2**31
"""Longer lengths are taken for a mistake."""
_MAX_FILE_BYTES = 256 * 2**20
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
    items = _items(Path(path), where)
    lengths = [_length(item, place, field, where) for place, item in items]
    if not lengths:
        raise InputError("holds no lengths", where=where, remedy="Write one length a line.")
    cap = max_tokens if max_tokens is not None else max(lengths)
    counts = Counter(min(length, cap) for length in lengths)
    points = _condense(sorted(counts.items()))
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


def _items(path: Path, where: str) -> list[tuple[str, Any]]:
    """(place, value) of every item: a list's items, or one value a line."""
    text = _read(path, where)
    if text.lstrip().startswith("["):
        content = _json(text, where, "the file")
        if not isinstance(content, list):
            raise InputError("not a list", where=where, remedy="Give a JSON list of lengths.")
        return [(f"item {index}", item) for index, item in enumerate(content)]
    return [
        (f"line {number}", _json(line, where, f"line {number}"))
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    ]


def _read(path: Path, where: str) -> str:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise InputError(
                f"larger than {_MAX_FILE_BYTES // 2**20} MiB",
                where=where,
                remedy="Give a sample of the lengths; some thousand are enough.",
            )
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", where=where, remedy="Write one length a line.") from None
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror or error}", where=where, remedy="Check the path."
        ) from None


def _json(text: str, where: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        shown = text.strip()
        shown = shown if len(shown) <= _MAX_SHOWN else shown[:_MAX_SHOWN] + "..."
        raise InputError(
            f"{place} is neither a number nor JSON: {shown!r}",
            where=where,
            remedy="Write one length a line, a JSON list, or JSON lines.",
        ) from None


def _length(item: Any, place: str, field: str | None, where: str) -> int:
    """One item as a whole number of tokens, at least one."""
    value = item
    if isinstance(item, dict):
        names = (field,) if field else LENGTH_FIELDS
        name = next((name for name in names if name in item), None)
        if name is None:
            remedy = f"Known: {', '.join(LENGTH_FIELDS)}."
            if field:
                remedy = did_you_mean(field, [str(key) for key in item])
            raise InputError(f"{place} has no length field", where=where, remedy=remedy)
        value = item[name]
    whole = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value == int(value)
    )
    if not whole or not 1 <= value <= MAX_LENGTH_TOKENS:
        shown = json.dumps(value, default=str)
        shown = shown if len(shown) <= _MAX_SHOWN else shown[:_MAX_SHOWN] + "..."
        raise InputError(
            f"{place} is not a length in tokens, given {shown}",
            where=where,
            remedy="A length is a whole number of at least 1.",
        )
    return int(value)


def _condense(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """At most _MAX_POINTS (tokens, count) pairs: equal shares of all tokens, each at its mean.

    The longest length keeps a point of its own, since a batch waits for it.
    """
    if len(pairs) <= _MAX_POINTS:
        return pairs
    body, longest = pairs[:-1], pairs[-1]
    tokens = np.array([pair[0] for pair in body], dtype=np.float64)
    counts = np.array([pair[1] for pair in body], dtype=np.float64)
    mass = counts * tokens
    share = (np.cumsum(mass) - mass / 2.0) / mass.sum()
    bins = np.minimum((share * (_MAX_POINTS - 1)).astype(int), _MAX_POINTS - 2)
    merged: Counter[int] = Counter()
    for index in np.unique(bins):
        inside = bins == index
        weight = counts[inside].sum()
        merged[round(float(mass[inside].sum() / weight))] += int(weight)
    merged[longest[0]] += longest[1]
    return sorted(merged.items())
