"""The verdict on a case that ran, or ran out of memory."""

from __future__ import annotations

from planner.catalog.hardware import load_device
from planner.cost.memory import usable_bytes, verdict
from planner.measure.case import Scored
from planner.measure.memory_core import TrainingRun


def fits_score(run: TrainingRun, peak_bytes: float, *, ran: bool) -> Scored:
    """1 or 0 for what happened and what is predicted; a tight fit counts as fitting."""
    usable = usable_bytes(load_device(run.device), run.profile)
    predicted = verdict(peak_bytes, usable) != "does not fit"
    parts = {"need": peak_bytes, "usable": usable}
    return Scored("fits", float(ran), float(predicted), parts)
