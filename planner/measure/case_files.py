"""Files of measured cases: lists of rows, and rows in groups that share fields."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.measure.case import RawCase

_GROUP = {"common", "cases"}


def load_cases(path: Path) -> list[RawCase] | None:
    """The cases of a file; None for a JSON document that is not a list of cases.

    A row `{"common": {...}, "cases": [...]}` stands for its cases, each with the common fields,
    so that large files need not repeat a model in every row. Raises InputError for a file that is
    not JSON or whose rows are no cases with an id.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read it: {error.strerror}", where=str(path)) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"not a JSON document: {error}", where=str(path), remedy="Give files of measured cases."
        ) from None
    if isinstance(document, dict):
        return None
    if not isinstance(document, list):
        raise InputError(
            "neither a list of cases nor an object",
            where=str(path),
            remedy="See docs/calibration.md.",
        )
    cases = [case for index, row in enumerate(document) for case in _cases(row, path, index)]
    repeated = [name for name, n in Counter(row["id"] for row in cases).items() if n > 1]
    if repeated:
        raise InputError(f"the id {repeated[0]!r} occurs twice", where=str(path))
    return cases


def _cases(row: Any, path: Path, index: int) -> list[RawCase]:
    """The case, or the cases of a group."""
    where = f"{path}: [{index}]"
    if not isinstance(row, dict):
        raise InputError('no object with a text "id"', where=where)
    if set(row) == _GROUP:
        if not isinstance(row["common"], dict) or not isinstance(row["cases"], list):
            raise InputError('a group is {"common": {...}, "cases": [...]}', where=where)
        if not all(isinstance(one, dict) for one in row["cases"]):
            raise InputError("every case of a group must be an object", where=where)
        members = [{**row["common"], **one} for one in row["cases"]]
    else:
        members = [row]
    if not all(isinstance(one.get("id"), str) for one in members):
        raise InputError('no object with a text "id"', where=where)
    return members


def case_files(paths: Iterable[Path]) -> list[Path]:
    """The files themselves, and all *.json in folders, in order and once each."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.json"))
            if not inside:
                raise InputError("the folder holds no *.json file", where=str(path))
            files += inside
        else:
            files.append(path)
    return list(dict.fromkeys(files))
