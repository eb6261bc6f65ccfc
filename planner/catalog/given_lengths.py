"""Lengths as a problem file gives them: what is missing is filled in and noted."""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner.catalog.data import validate
from planner.catalog.lengths import lengths_from_file
from planner.catalog.problem_file import LengthsFile
from planner.errors import InputError
from planner.schema import LengthDistribution
from planner.schema.workload import MAX_LENGTH_TOKENS

# Typical of mathematics prompts: the mean of published NeMo RL runs, and their prompt limit.
_PROMPT_MEAN = 110.0
_PROMPT_MAX = 512
_SIGMA = 0.9  # published steps fit equally well with 0.6 to 1.6
_OTHER_END = 4  # a prompt limit over its mean, when only one of the two is given
_DIGITS = 12  # of a length, leading zeros included


def prompt_or_default(prompt: LengthsFile, notes: list[str]) -> LengthsFile:
    """Prompt lengths with mean and limit filled in."""
    if prompt.file is not None or prompt.histogram is not None:
        return prompt
    mean, limit = prompt.mean, prompt.max
    if mean is None and limit is None:
        mean, limit = _PROMPT_MEAN, _PROMPT_MAX
        notes.append(f"prompt lengths: mean {mean:g}, max {limit} tokens (not given)")
    elif limit is None and mean is not None:
        limit = max(_PROMPT_MAX, math.ceil(_OTHER_END * mean))
        notes.append(f"prompt limit: {limit} tokens (not given)")
    elif mean is None and limit is not None:
        mean = min(_PROMPT_MEAN, max(1.0, limit / _OTHER_END))
        notes.append(f"prompt mean: {mean:g} tokens (not given)")
    return prompt.model_copy(update={"mean": mean, "max": limit})


def lengths(read: LengthsFile, where: str, notes: list[str]) -> LengthDistribution:
    shapes = [read.file is not None, read.histogram is not None, read.mean is not None]
    if sum(shapes) > 1:
        raise InputError(
            "gives the lengths in more than one way",
            where=where,
            remedy="Give one of mean, histogram and file.",
        )
    _refuse_unread(read, where)
    if read.file is not None:
        return lengths_from_file(read.file, field=read.field, max_tokens=read.max)
    if read.histogram is not None:
        return _histogram(read.histogram, read.max, where)
    what = where.rsplit(": ", maxsplit=1)[-1]
    for key, value in (("mean", read.mean), ("max", read.max)):
        if value is None:
            raise InputError(
                f"missing field `{key}`",
                where=where,
                remedy=f"Give the {what}s' {key} in tokens (--{what}-{key}), or a file of lengths.",
            )
    assert read.mean is not None
    assert read.max is not None
    if read.mean > read.max:
        raise InputError(
            f"the mean, {read.mean:g} tokens, exceeds the limit max, {read.max} tokens",
            where=f"{where}.mean",
            remedy=f"Lower the mean, or raise max (--{what}-max).",
        )
    fields = {
        "kind": read.kind or "lognormal",
        "mean_tokens": read.mean,
        "max_tokens": read.max,
        "sigma": read.sigma or _SIGMA,
    }
    if read.kind is None and read.sigma is None:
        notes.append(f"{what} lengths: lognormal with sigma {_SIGMA}, cut at the limit (not given)")
    return validate(LengthDistribution, fields, where)


def _refuse_unread(read: LengthsFile, where: str) -> None:
    """Raise InputError for a key that has no effect beside the others."""
    reasons: list[tuple[str, str]] = []
    if read.file is None:
        reasons.append(("field", "names the length in the items of a `file`, and none is given"))
    for way in ("file", "histogram"):
        if getattr(read, way) is not None:
            reasons += [(key, f"has no effect beside `{way}`") for key in ("kind", "sigma")]
    if read.kind == "fixed":
        reasons.append(("sigma", "has no effect beside `kind: fixed`"))
    for key, reason in reasons:
        if getattr(read, key) is not None:
            raise InputError(reason, where=f"{where}.{key}", remedy=f"Remove `{key}`.")


def _histogram(weights: Mapping[str, float], limit: int | None, where: str) -> LengthDistribution:
    pairs = []
    for text, weight in weights.items():
        whole = text.isascii() and text.isdecimal() and len(text) <= _DIGITS
        if not whole or not 1 <= int(text) <= MAX_LENGTH_TOKENS:
            raise InputError(
                f"{text!r} is not a length in tokens",
                where=f"{where}.histogram",
                remedy="Keys are whole numbers of tokens, values their weights.",
            )
        pairs.append((int(text), weight))
    pairs.sort()
    if not pairs:
        raise InputError("is empty", where=f"{where}.histogram", remedy="Add tokens: weight.")
    total = math.fsum(weight for _, weight in pairs)
    fields = {
        "kind": "histogram",
        # Rounding may lift the mean of equal lengths over the longest.
        "mean_tokens": min(
            math.fsum(tokens * weight for tokens, weight in pairs) / total, pairs[-1][0]
        ),
        "max_tokens": limit or pairs[-1][0],
        "histogram": pairs,
    }
    return validate(LengthDistribution, fields, where)
