"""Predict measured cases with the strategies that ran, and compare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from planner.errors import InputError, PlannerError
from planner.measure.case import Prediction, RawCase, Reader, Scored
from planner.measure.readers import all_readers, reader_of
from planner.measure.scores import VERDICTS, Score, Summary, summarise

Progress = Callable[[int, int], None]
"""Called with (cases done, cases in all)."""


@dataclass(frozen=True)
class Outcome:
    """One case: its prediction, or why there is none."""

    id: str
    file: str
    flag: str | None
    metric: str
    """Under which the case counts when it has no prediction."""
    prediction: Prediction | None = None
    skipped_because: str | None = None
    incomplete: bool = False
    """Something that a prediction needs was not published; not counted as skipped."""
    superseded_by: str | None = None
    """The case that measured the same configuration with newer software and is scored instead."""

    @property
    def scored(self) -> bool:
        """True when it counts in the summary figures."""
        return self.prediction is not None and self.flag is None and self.superseded_by is None

    @property
    def counts_as_skipped(self) -> bool:
        """A complete case without a prediction."""
        return self.skipped_because is not None and not self.incomplete


@dataclass(frozen=True)
class Validation:
    """All cases of a run."""

    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()
    """Files that hold no cases in this form."""

    def files(self) -> dict[str, dict[str, Summary]]:
        """File -> metric -> figures, flagged and superseded cases left out."""
        return {
            name: _by_metric([one for one in self.outcomes if one.file == name])
            for name in dict.fromkeys(one.file for one in self.outcomes)
        }

    def groups(self) -> dict[str, dict[str, dict[str, Summary]]]:
        """File -> group (source / model / device) -> metric -> figures."""
        result: dict[str, dict[str, dict[str, Summary]]] = {}
        for name in dict.fromkeys(one.file for one in self.outcomes):
            members: dict[str, list[Outcome]] = {}
            for one in self.outcomes:
                if one.file == name and one.prediction is not None and one.scored:
                    members.setdefault(one.prediction.group, []).append(one)
            result[name] = {group: _by_metric(ones) for group, ones in sorted(members.items())}
        return result

    def flagged(self) -> dict[str, dict[str, Summary]]:
        """File -> metric -> figures of the flagged cases alone."""
        result: dict[str, dict[str, Summary]] = {}
        for name in dict.fromkeys(one.file for one in self.outcomes):
            ones = [one for one in self.outcomes if one.file == name and one.flag is not None]
            if ones:
                result[name] = {
                    metric: summarise(scores) for metric, scores in _scores(ones).items()
                }
        return result

    def worst(self, count: int) -> list[tuple[Outcome, Scored, float]]:
        """The scored figures with the largest errors: (case, figure, error), worst first."""
        rows = [
            (one, figure, _score(figure, one.prediction).ape)
            for one in self.outcomes
            if one.scored and one.prediction is not None
            for figure in one.prediction.scores
        ]
        rows.sort(key=lambda row: (-row[2], row[0].id, row[1].metric))
        return rows[:count]

    def as_json(self) -> dict[str, Any]:
        """The document that `rlmplan validate --json` prints."""
        flagged = self.flagged()
        files: dict[str, Any] = {}
        for name, metrics in self.files().items():
            files[name] = {metric: _summary_json(metric, s) for metric, s in metrics.items()}
            for metric, summary in flagged.get(name, {}).items():
                files[name].setdefault(metric, _summary_json(metric, summarise([])))
                files[name][metric]["flagged"] = _summary_json(metric, summary)
        groups = {
            name: {
                group: {metric: _summary_json(metric, s) for metric, s in metrics.items()}
                for group, metrics in members.items()
            }
            for name, members in self.groups().items()
        }
        return {
            "files": files,
            "groups": groups,
            "cases": [row for one in self.outcomes for row in _case_rows(one)],
            "notes": list(self.notes),
        }


def load_cases(path: Path) -> list[RawCase] | None:
    """The cases of a file; None for a JSON document that is not a list of cases.

    Raises InputError for a file that is not JSON or whose rows are no cases with an id.
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
            "neither a list of cases nor an object", where=str(path), remedy="See docs/accuracy.md."
        )
    for index, row in enumerate(document):
        if not isinstance(row, dict) or not isinstance(row.get("id"), str):
            raise InputError('no object with a text "id"', where=f"{path}: [{index}]")
    repeated = [name for name, n in Counter(row["id"] for row in document).items() if n > 1]
    if repeated:
        raise InputError(f"the id {repeated[0]!r} occurs twice", where=str(path))
    return document


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


def validate(
    paths: Sequence[Path],
    *,
    only: str | None = None,
    readers: tuple[Reader, ...] | None = None,
    progress: Progress | None = None,
) -> Validation:
    """Predict every complete case of the files; what cannot be read is skipped with a reason.

    `only` keeps one case id. Raises InputError for a bad file or when `only` is in none.
    """
    readers = all_readers() if readers is None else readers
    work: list[tuple[str, RawCase]] = []
    superseded: dict[tuple[str, str], str] = {}
    notes: list[str] = []
    files = case_files(paths)
    names = _file_names(files)
    for path in files:
        cases = load_cases(path)
        if cases is None:
            notes.append(f"{names[path]}: no list of cases, nothing to compare")
            continue
        for reader in readers:
            if reader.superseded is not None:
                own = [case for case in cases if reader.recognises(case)]
                for old, new in reader.superseded(own).items():
                    superseded[names[path], old] = new
        work += [(names[path], case) for case in cases if only in (None, case["id"])]
    if only is not None and not work:
        raise InputError(f"no case has the id {only!r}", where=", ".join(map(str, files)))
    outcomes: list[Outcome] = []
    for done, (name, case) in enumerate(work):
        if progress is not None:
            progress(done, len(work))
        outcomes.append(_outcome(name, case, readers, superseded.get((name, case["id"]))))
    if progress is not None:
        progress(len(work), len(work))
    return Validation(tuple(outcomes), tuple(notes))


def _outcome(
    file: str, case: RawCase, readers: tuple[Reader, ...], superseded_by: str | None
) -> Outcome:
    flag = case.get("flag") or None
    name = case["id"]
    reader = reader_of(case, readers)
    if reader is None:
        complete = bool(case.get("complete", True))
        return Outcome(
            name,
            file,
            flag,
            "step_time",
            skipped_because="no reader knows this form of case",
            incomplete=not complete,
        )
    if not reader.complete(case):
        why = "incomplete: something that a prediction needs was not published"
        return Outcome(name, file, flag, reader.metric, skipped_because=why, incomplete=True)
    try:
        prediction = reader.predict(case)
    except PlannerError as error:
        return Outcome(name, file, flag, reader.metric, skipped_because=str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # A field that is missing or has another type than in any case seen so far.
        what = f"case {name}: cannot be read: {type(error).__name__}: {error}"
        return Outcome(name, file, flag, reader.metric, skipped_because=" ".join(what.split()))
    return Outcome(
        name, file, flag, reader.metric, prediction=prediction, superseded_by=superseded_by
    )


def _file_names(files: list[Path]) -> dict[Path, str]:
    """File names; the whole path where two files share a name."""
    count = Counter(path.name for path in files)
    return {path: path.name if count[path.name] == 1 else str(path) for path in files}


def _score(figure: Scored, prediction: Prediction | None) -> Score:
    group = prediction.strategy_group if prediction is not None else ""
    return Score(figure.metric, figure.measured, figure.predicted, group)


def _scores(outcomes: Iterable[Outcome]) -> dict[str, list[Score]]:
    result: dict[str, list[Score]] = {}
    for one in outcomes:
        if one.prediction is not None:
            for figure in one.prediction.scores:
                result.setdefault(figure.metric, []).append(_score(figure, one.prediction))
    return result


def _by_metric(outcomes: Sequence[Outcome]) -> dict[str, Summary]:
    scores = _scores(one for one in outcomes if one.scored)
    skipped = Counter(one.metric for one in outcomes if one.counts_as_skipped)
    return {
        metric: summarise(scores.get(metric, []), skipped.get(metric, 0))
        for metric in dict.fromkeys([*scores, *skipped])
    }


def _summary_json(metric: str, summary: Summary) -> dict[str, Any]:
    document = asdict(summary)
    if metric in VERDICTS and summary.mape is not None:
        document["share_right"] = 1.0 - summary.mape
    return document


def _case_rows(one: Outcome) -> list[dict[str, Any]]:
    base = {"id": one.id, "file": one.file, "flag": one.flag}
    extra = {
        "skipped_because": one.skipped_because,
        "complete": not one.incomplete,
        "superseded_by": one.superseded_by,
    }
    if one.prediction is None:
        none = dict.fromkeys(("measured", "predicted", "ape"))
        return [{**base, "metric": one.metric, **none, **extra}]
    place = {
        "group": one.prediction.group,
        "strategy_group": one.prediction.strategy_group,
        "framework": one.prediction.framework,
    }
    return [
        {
            **base,
            "metric": figure.metric,
            "measured": figure.measured,
            "predicted": figure.predicted,
            "ape": _score(figure, one.prediction).ape,
            **extra,
            **place,
            "breakdown": figure.breakdown,
        }
        for figure in one.prediction.scores
    ]
