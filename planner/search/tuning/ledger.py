"""The trials of a measured search as the study keeps them: who runs what, and what was found.

All that a later process needs is in the study (an Optuna study like any other, readable in a
dashboard) and, while a job runs, in its folder.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from planner.search.tuning.correction import Observation
from planner.search.tuning.measured import Measured
from planner.search.tuning.pricing import Point, Pricing

DISCARDED = "discarded"
"""User attribute of trials that never ran: a duplicate, a broken rule, beyond the budget."""
ABANDONED = "abandoned"
_LOST_S = 300.0
"""A trial on another machine that gave no sign of life for so long is lost."""
_UNBORN_S = 60.0
"""A trial that was asked for but never started is lost after so long."""
_LEAST_NOISE, _NOISE = 0.01, 0.03
"""Standard deviation of the log of a measured mean: at least, and where the log has one step."""


def me() -> str:
    """This process, as it signs its trials."""
    return f"{socket.gethostname()}:{os.getpid()}:{_born(os.getpid())}"


def _born(pid: int) -> str:
    """When a process started, in ticks since boot; empty where the system does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def owner_lives(owner: str, alive_at: float) -> bool:
    """Whether the process that signed a trial is there; by its signs of life on other machines."""
    host, pid, born = owner.rsplit(":", 2)
    if host != socket.gethostname():
        return time.time() - alive_at < _LOST_S
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass
    return _born(int(pid)) == born


@dataclass(frozen=True)
class Ledger:
    """Reads and writes the trials of one study."""

    study: Study
    pricing: Pricing

    def trials(self) -> list[FrozenTrial]:
        """All trials, oldest first."""
        return list(self.study.get_trials(deepcopy=False))

    def counted(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        """Trials that use the budget: those that ran, and those that run."""
        return [each for each in trials if self.uses_budget(each)]

    def uses_budget(self, trial: FrozenTrial) -> bool:
        """Whether a trial ran or runs, as opposed to waiting, discarded or abandoned ones."""
        attributes = trial.user_attrs
        if trial.state == TrialState.WAITING or DISCARDED in attributes:
            return False
        if trial.state == TrialState.RUNNING:
            return "owner" in attributes or age_s(trial) < _UNBORN_S
        return attributes.get("status") not in (None, ABANDONED)

    def lost(self, trial: FrozenTrial) -> bool:
        """Whether a running trial has nobody who will finish it."""
        if trial.state != TrialState.RUNNING:
            return False
        owner = trial.user_attrs.get("owner")
        if owner is None:
            return age_s(trial) > _UNBORN_S
        return not owner_lives(owner, float(trial.user_attrs.get("alive_at", 0.0)))

    def key(self, trial: FrozenTrial) -> str:
        """Equal for trials of the same assignment; empty for settings that mean none."""
        if set(self.pricing.knobs.values) - set(trial.params):
            return ""
        point = self.pricing.point(trial.params)
        return "" if point is None else point.key

    def is_repeated(self, trial: FrozenTrial, key: str) -> bool:
        """Whether an earlier trial has, or will have, the figures of this one.

        What crashed may have done so by accident, and is run once more.
        """
        accidents = 0
        for other in self.trials():
            if other.number >= trial.number or not self.uses_budget(other):
                continue
            if self.key(other) != key:
                continue
            if failure(other) not in ("crash", "no figure"):
                return True
            accidents += 1
        return accidents > 1

    def record(self, trial: FrozenTrial, measured: Measured, value: float | None) -> None:
        """Finish a trial; one that somebody else finished stays as it is."""
        attributes: dict[str, Any] = {
            "status": measured.status,
            "step_s": measured.step_s,
            "stages_s": dict(measured.stages_s),
            "peak_memory_bytes": measured.peak_memory_bytes,
            "steps": measured.steps,
            "spread": measured.spread,
            "wall_s": round(measured.wall_s, 3),
            "message": measured.message,
        }
        if not self.note(trial, attributes):
            return
        state = TrialState.COMPLETE
        if value is None:
            # What will not run teaches Optuna's samplers as a pruned trial; an accident nothing.
            will_not = measured.status in ("out of memory", "timeout")
            state = TrialState.PRUNED if will_not else TrialState.FAIL
        self.study.tell(trial.number, value, state=state, skip_if_finished=True)

    def abandon(self, trial: FrozenTrial) -> None:
        """A trial that never finished: its settings will be tried again."""
        if not set(self.pricing.knobs.values) - set(trial.params):
            self.study.enqueue_trial(dict(trial.params), skip_if_exists=False)
        self.note(trial, {"status": ABANDONED})
        self.study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def discard(self, trial: FrozenTrial, why: str) -> None:
        """A trial that will not run."""
        self.note(trial, {DISCARDED: why})
        self.study.tell(trial.number, state=TrialState.PRUNED, skip_if_finished=True)

    def note(self, trial: FrozenTrial, attributes: dict[str, Any]) -> bool:
        """Add to a running trial; False when it has been finished meanwhile."""
        storage = self.study._storage
        try:
            for name, content in attributes.items():
                storage.set_trial_user_attr(trial._trial_id, name, content)
        except UpdateFinishedTrialError:
            return False
        return True

    def observe(self, trial: FrozenTrial) -> Observation | None:
        """What a finished trial says about the cost model; None where it failed."""
        attributes = trial.user_attrs
        if trial.state != TrialState.COMPLETE or attributes.get("status") != "ok":
            return None
        point = self.pricing.point(trial.params)
        if point is None:
            return None
        steps, spread = int(attributes["steps"]), attributes.get("spread")
        noise = _NOISE if not spread else max(_LEAST_NOISE, float(spread) / steps**0.5)
        stages = {
            name: float(seconds)
            for stage, seconds in attributes["stages_s"].items()
            if (name := stage_calls(stage, point))
        }
        return Observation(point, float(attributes["step_s"]), stages, noise)


def failure(trial: FrozenTrial) -> str:
    """Why a finished trial has no figure; empty where it has one, or never ran."""
    status = trial.user_attrs.get("status")
    return "" if status in (None, "ok", ABANDONED) else str(status)


def stage_calls(stage: str, point: Point) -> str:
    """The calls that a stage of a log stands for, joined by "+"; empty where the plan has none.

    Stages are names of calls, kinds of calls, or several of those joined by "+".
    """
    names = []
    for part in stage.split("+"):
        if part in point.stages_s:
            names.append(part)
        else:
            names += [name for name, kind in point.kinds.items() if kind == part]
    return "+".join(dict.fromkeys(names))


def age_s(trial: FrozenTrial) -> float:
    """Seconds since a trial was asked for."""
    if trial.datetime_start is None:
        return 0.0
    return time.time() - trial.datetime_start.timestamp()


def digest(text: str) -> str:
    """A short name for a long text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
