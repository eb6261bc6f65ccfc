"""Public out-of-memory reports as cases: a verdict from what the report states."""

from __future__ import annotations

from dataclasses import fields

from planner.catalog.models import load_model
from planner.errors import InputError
from planner.measure.case import Prediction, RawCase, Reader, Scored
from planner.measure.memory_verdict import Judgement, Question, judge

_INPUTS = {field.name for field in fields(Question)} - {"model"}
_RAN = 0.0  # all reports are of runs that went out of memory


def _judged(case: RawCase) -> Judgement:
    where = f"case {case['id']}"
    unknown = set(case["inputs"]) - _INPUTS
    if unknown:
        raise InputError(f"unknown inputs {sorted(unknown)}", where=where)
    model = load_model(case["model"]) if case["model"] else None
    return judge(Question(model=model, **case["inputs"]))


def _decided(case: RawCase) -> bool:
    return _judged(case).verdict != "unknown"


def _lacks(case: RawCase) -> str:
    return f"unknown: set {', '.join(_judged(case).decided_by)}"


def _predict(case: RawCase) -> Prediction:
    found = _judged(case)
    parts = {"need": found.need_bytes[1], "usable": found.usable_bytes[0]}
    profile, device = case["inputs"]["profile"], case["inputs"].get("device")
    return Prediction(
        group=f"{profile} / {case['model']} / {device}",
        strategy_group=case["id"],
        framework=profile,
        scores=(Scored("fits", _RAN, float(found.verdict != "does not fit"), parts),),
    )


def _recognises(case: RawCase) -> bool:
    return isinstance(case.get("inputs"), dict) and "verdict" in case


READER = Reader(
    "memory-report", _recognises, _predict, metric="fits", complete=_decided, lacks=_lacks
)
