"""Measured cases predicted as if nobody had measured their software: whole frameworks left out.

The profiles "generic" and "generic-engine" stand for such software. Their constants are carried
over from other software, not fitted; only the width of their interval comes from cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from planner.catalog.frameworks import lineage, load_framework
from planner.errors import InputError, PlannerError
from planner.measure import inference_cases, rl_step_cases, training_cases
from planner.measure.case import Prediction, RawCase, Reader
from planner.measure.case_files import case_files, load_cases
from planner.measure.fit import INTERVAL_SHARE, NORMAL_80
from planner.measure.fit_cases import residual
from planner.measure.inference_cases import read_inference_case
from planner.measure.readers import all_readers, reader_of
from planner.measure.rl_cases import read_rl_case

TRAINER, ENGINE = "generic", "generic-engine"
_UNMEASURED = "software that nobody measured"


@dataclass(frozen=True)
class Unknown:
    """A case, predicted by the generic profile."""

    id: str
    profile: str
    """TRAINER or ENGINE."""
    framework: str
    """The software that ran it: the nearest to the root of its profile's lineage."""
    kind: str
    """training, rl or inference."""
    residual: float
    """log(predicted / measured)."""


def unknown_cases(paths: Sequence[Path]) -> list[Unknown]:
    """All complete, unflagged steps and loads of the files, each case once."""
    readers = all_readers()
    found: dict[str, Unknown] = {}
    for path in case_files(paths):
        rows = load_cases(path) or []
        training = [row for row in rows if training_cases.recognises(row)]
        old = set(training_cases.superseded(training))
        for row in rows:
            reader = reader_of(row, readers)
            if reader is None or row.get("flag") or row["id"] in old or row["id"] in found:
                continue
            one = _unknown(row, reader)
            if one is not None:
                found[row["id"]] = one
    return list(found.values())


def _unknown(row: RawCase, reader: Reader) -> Unknown | None:
    try:
        if not reader.complete(row):
            return None
        if reader is training_cases.READER:
            setup = {**row["setup"], "framework": _UNMEASURED}
            prediction = training_cases.predict({**row, "setup": setup})
            framework = row["setup"]["framework"]
            return _row(row, TRAINER, framework, "training", prediction, "step_time")
        if reader is rl_step_cases.READER:
            read = read_rl_case(row)
            generic = read.assignment.model_copy(update={"framework": TRAINER, "engine": ENGINE})
            prediction = rl_step_cases.prediction(row, replace(read, assignment=generic))
            framework = row["framework"].split(" ")[0]
            return _row(row, TRAINER, framework, "rl", prediction, "step_time")
        if reader is inference_cases.READER:
            load = read_inference_case(row)
            engine = load_framework(ENGINE)
            context = replace(load.context, framework=engine, engine=engine)
            prediction = inference_cases.prediction(row, replace(load, context=context))
            framework = lineage(load.context.engine.name)[-1]
            return _row(row, ENGINE, framework, "inference", prediction, "throughput")
    except (PlannerError, KeyError, TypeError, ValueError):
        return None  # `rlmplan validate` says why
    return None


def _row(
    row: RawCase, profile: str, framework: str, kind: str, prediction: Prediction, metric: str
) -> Unknown | None:
    if all(figure.metric != metric for figure in prediction.scores):
        return None
    return Unknown(row["id"], profile, framework, kind, residual(metric, prediction))


def unknown_spread(cases: Sequence[Unknown]) -> float:
    """Normal-equivalent spread of the residuals; every framework weighs the same.

    The next framework is one more draw of a framework, not of a case. Raises InputError without
    cases.
    """
    if not cases:
        raise InputError("no case can be priced as unmeasured software")
    names = [one.framework for one in cases]
    sizes = np.array([abs(one.residual) for one in cases])
    weights = np.array([1.0 / names.count(name) for name in names])
    order = np.argsort(sizes)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(sizes[order][np.searchsorted(share, INTERVAL_SHARE)] / NORMAL_80)
