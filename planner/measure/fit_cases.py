"""The measured cases that profiles price, for fitting: read once, priced at every call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from planner.catalog.frameworks import lineage
from planner.errors import PlannerError
from planner.measure.case import Prediction, RawCase, Reader
from planner.measure.case_files import case_files, load_cases
from planner.measure.readers import reader_of


@dataclass(frozen=True)
class FitCase:
    """A complete, unflagged case and the figure of it that is fitted."""

    file: str
    row: RawCase
    reader: Reader
    metric: str
    group: str
    strategy_group: str
    framework: str

    @property
    def id(self) -> str:
        """The case's own id."""
        return str(self.row["id"])


def fit_cases(
    paths: Sequence[Path],
    profiles: Sequence[str],
    metric: str | None,
    readers: tuple[Reader, ...],
) -> list[FitCase]:
    """Cases that one of the profiles, or one that inherits from it, prices.

    A configuration that newer software measured again counts once, and so does a case that stands
    in two files. `metric` None: the main figure of each kind of case.
    """
    wanted = set(profiles)
    cases: dict[str, FitCase] = {}
    for path in case_files(paths):
        rows = load_cases(path) or []
        old: set[str] = set()
        for reader in readers:
            if reader.superseded is not None:
                old |= set(reader.superseded([row for row in rows if reader.recognises(row)]))
        for row in rows:
            if row.get("flag") or row["id"] in old or row["id"] in cases:
                continue
            case = _case(path.name, row, reader_of(row, readers), metric)
            if case is not None and wanted & set(lineage(case.framework)):
                cases[case.id] = case
    return list(cases.values())


def _case(file: str, row: RawCase, reader: Reader | None, metric: str | None) -> FitCase | None:
    if reader is None:
        return None
    try:
        if not reader.complete(row):
            return None
        prediction = reader.predict(row)
    except (PlannerError, KeyError, TypeError, ValueError):
        return None  # `rlmplan validate` says why
    name = metric or reader.metric
    if not any(figure.metric == name for figure in prediction.scores):
        return None
    return FitCase(
        file,
        row,
        reader,
        name,
        prediction.group,
        prediction.strategy_group,
        prediction.framework,
    )


def pricer(cases: Sequence[FitCase]) -> Callable[[], list[Prediction]]:
    """Predictions of the cases at every call; readers that can read them once."""
    runs: list[tuple[list[int], Callable[[], list[Prediction]]]] = []
    for reader in {id(case.reader): case.reader for case in cases}.values():
        own = [index for index, case in enumerate(cases) if case.reader is reader]
        rows = [cases[index].row for index in own]
        if reader.prepare is not None:
            runs.append((own, reader.prepare(rows)))
        else:
            runs.append((own, partial(_predict_each, reader, rows)))

    def predictions() -> list[Prediction]:
        result: dict[int, Prediction] = {}
        for own, run in runs:
            result |= dict(zip(own, run(), strict=True))
        return [result[index] for index in range(len(cases))]

    return predictions


def _predict_each(reader: Reader, rows: Sequence[RawCase]) -> list[Prediction]:
    return [reader.predict(row) for row in rows]


def residual(metric: str, prediction: Prediction) -> float:
    """log(predicted / measured) of the figure called `metric`."""
    for figure in prediction.scores:
        if figure.metric == metric:
            return math.log(figure.predicted / figure.measured)
    raise AssertionError("a figure disappeared")
