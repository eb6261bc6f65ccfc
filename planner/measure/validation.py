"""Predict measured cases with the strategies that ran, and compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from planner.errors import InputError, PlannerError
from planner.measure.case import Prediction, RawCase, Reader, Scored
from planner.measure.case_files import case_files, load_cases
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


def validate(
    paths: Sequence[Path],
    *,
    only: str | None = None,
    readers: tuple[Reader, ...] | None = None,
    progress: Progress | None = None,
) -> Validation:
    """Predict every complete case of the files; what cannot be read is skipped with a reason.

    `only` keeps one case id. Raises InputError for a bad file, when no file holds a case, or when
    `only` is in none.
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
    if not work:
        what = "no measured case in it" if only is None else f"no case has the id {only!r}"
        raise InputError(
            what, where=", ".join(map(str, files)), remedy="Give files of measured cases."
        )
    together = _predicted_together([case for _, case in work], readers)
    outcomes: list[Outcome] = []
    for done, (name, case) in enumerate(work):
        if progress is not None:
            progress(done, len(work))
        later = superseded.get((name, case["id"]))
        outcomes.append(_outcome(name, case, readers, later, together.get(done)))
    if progress is not None:
        progress(len(work), len(work))
    return Validation(tuple(outcomes), tuple(notes))


# What a reader raises for a field that is missing or has another type than in any case so far.
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)


def _predicted_together(
    cases: Sequence[RawCase], readers: tuple[Reader, ...]
) -> dict[int, Prediction]:
    """Predictions, by place, of readers that price many cases at once.

    Nothing of a reader that refuses one of its cases: they are then predicted one by one.
    """
    found: dict[int, Prediction] = {}
    for reader in readers:
        if reader.prepare is None:
            continue
        try:
            own = [
                place
                for place, case in enumerate(cases)
                if reader_of(case, readers) is reader and reader.complete(case)
            ]
            predictions = reader.prepare([cases[place] for place in own])()
        except (PlannerError, *_MALFORMED):
            continue
        found |= dict(zip(own, predictions, strict=True))
    return found


def _outcome(
    file: str,
    case: RawCase,
    readers: tuple[Reader, ...],
    superseded_by: str | None,
    prediction: Prediction | None = None,
) -> Outcome:
    """What became of a case; `prediction` when it is known already."""
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
    try:
        if not reader.complete(case):
            lacks = reader.lacks(case) if reader.lacks is not None else None
            why = lacks or "incomplete: something that a prediction needs was not published"
            return Outcome(name, file, flag, reader.metric, skipped_because=why, incomplete=True)
        prediction = prediction or reader.predict(case)
    except PlannerError as error:
        return Outcome(name, file, flag, reader.metric, skipped_because=str(error))
    except _MALFORMED as error:
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
