"""Ask, run, read, tell: the search over knobs with a user's own system as the objective.

Each trial is one short job. Its figures correct the cost model, and the next trial is the best plan
of the corrected model (`proposals`). Failures are observations too. The study is the only memory:
a tuner that was killed, or a second one, goes on from it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from planner.catalog.spaces import load_space
from planner.errors import InputError
from planner.schema import Assignment, Plan, PlanSet, SearchSpace
from planner.search.api import instance_of
from planner.search.ranking import to_plan
from planner.search.tuning.correction import Correction, Prior
from planner.search.tuning.job import Job, fill
from planner.search.tuning.knobs import Settings, make_knobs
from planner.search.tuning.ledger import Ledger, age_s, digest, failure, me
from planner.search.tuning.measured import LogFigures, Measured
from planner.search.tuning.pricing import Point, Pricing
from planner.search.tuning.proposals import ModelSampler, distributions
from planner.search.tuning.study import CONSTRAINTS, make_sampler, open_storage, quiet

_DISCARDS = 40
"""Proposals in a row that may be duplicates or refused before the search has nothing left."""
_STARTS = 4
"""At least so many trials for each exact plan that is tried first."""
_PROBLEM, _PLANS = "rlmplan problem", "rlmplan plans"


@dataclass(frozen=True)
class Budget:
    """What a search may spend, over all tuners of its study; null: no limit."""

    trials: int | None = None
    device_hours: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True)
class Task:
    """What to run, and how to read it."""

    command: str
    """For the shell, with {config}, {script}, {dir} and {trial}."""
    folder: Path
    """Holds one folder for each trial."""
    write: Callable[[Plan, Path], dict[str, str]]
    """Writes a plan's files into a folder; placeholder -> what it stands for."""
    read: Callable[[str], LogFigures]
    """A log's figures."""
    refuse: Callable[[Plan], list[str]] = lambda _: []
    """Why the launcher cannot run a plan; empty when it can."""
    timeout_s: float = 1800.0
    """Of one trial."""


@dataclass(frozen=True)
class Trial:
    """One trial that ran."""

    number: int
    settings: Settings
    placement: str
    status: str
    predicted_step_s: float | None
    """By the corrected model, before it ran."""
    analytic_step_s: float
    """By the model as shipped."""
    step_s: float | None
    peak_memory_bytes: float | None
    message: str


@dataclass(frozen=True)
class TuneResult:
    """What a measured search found."""

    plan: Plan | None
    """The best plan that ran: by the corrected model, which evens out noise; null if none did."""
    settings: Settings
    step_s: float | None
    """Its measured step."""
    estimate_s: float | None
    """Its step by measurements and model together."""
    trials: tuple[Trial, ...]
    factors: dict[str, float]
    """Kind of stage -> measured over predicted time, on this cluster and workload."""
    device_hours: float
    cost_usd: float | None
    discarded: int
    """Proposals that did not run, as duplicates or because the launcher refused them."""
    ended: str
    """Why the search ended, in words."""


def tune(
    plan_set: PlanSet,
    task: Task,
    budget: Budget,
    *,
    storage: str,
    name: str = "rlmplan",
    space: SearchSpace | None = None,
    sampler: str = "model",
    prior: Prior | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> TuneResult:
    """Tune the plans of a search by running them, until the budget is spent.

    Trials that another tuner finished, or this one before it was killed, count and are not run
    again; a job that outlived its tuner is waited for. `prior` says how far the cost model may be
    off; by default as far as its framework profile says.

    Raises InputError for a study of another problem, a storage that cannot be opened, a command
    that cannot be filled in.
    """
    _check(budget, task)
    space = space or load_space(plan_set.space)
    with quiet():
        store = open_storage(storage)
        study = optuna.create_study(
            storage=store, study_name=name, load_if_exists=True, direction="minimize"
        )
        plans = _same_problem(study, plan_set)
        instance = instance_of(plan_set.workload, plan_set.cluster, space)
        knobs = make_knobs(instance, space, plans)
        ledger = Ledger(study, Pricing(knobs))
        error = instance.framework.relative_error
        prior = prior or Prior(kind=max(Prior.kind, error))
        tuner = _Tuner(ledger, plan_set, space, task, budget, prior, seed, progress)
        study.sampler = make_sampler(
            sampler,
            # Another start than that of the trials so far, for samplers that draw at random.
            seed=seed + len(ledger.trials()),
            trials=budget.trials or 10 * _STARTS,
            model=tuner.sampler,
        )
        starts = max(1, (budget.trials or _STARTS) // _STARTS)
        for number in range(1, 1 + min(len(plans), starts)):
            study.enqueue_trial(knobs.settings(number), skip_if_exists=True)
        ended = tuner.run()
        return tuner.result(ended)


class _Tuner:
    def __init__(
        self,
        ledger: Ledger,
        plan_set: PlanSet,
        space: SearchSpace,
        task: Task,
        budget: Budget,
        prior: Prior,
        seed: int,
        progress: Callable[[str], None],
    ) -> None:
        self.ledger = ledger
        self.plan_set = plan_set
        self.space = space
        self.task = task
        self.budget = budget
        self.prior = prior
        self.seed = seed
        self.progress = progress
        self._refused: dict[str, str] = {}

    def sampler(self) -> ModelSampler:
        """The sampler that knows the cost model and what was measured."""
        return ModelSampler(
            self.ledger.pricing,
            seed=self.seed,
            observe=self.ledger.observe,
            failed=failure,
            runnable=lambda point: not self._reason(point),
            prior=self.prior,
        )

    def run(self) -> str:
        """Trials until the budget is spent; why it ended."""
        discards = 0
        while True:
            self._collect()
            spent = self._spent()
            if spent:
                return spent
            asked = self.ledger.study.ask(distributions(self.ledger.pricing.knobs))
            trial = self.ledger.study._storage.get_trial(asked._trial_id)
            why = self._unwanted(trial)
            if why:
                self.ledger.discard(trial, why)
                discards += 1
                if discards >= _DISCARDS:
                    return "no untried settings are left"
                continue
            discards = 0
            self._launch(trial)

    def result(self, ended: str) -> TuneResult:
        """The best of the trials, and all of them."""
        ledger = self.ledger
        trials = ledger.trials()
        correction = self._correction(trials)
        best: tuple[float, int] | None = None
        for trial in trials:
            one = ledger.observe(trial)
            if one is not None:
                estimate = correction.estimate(one.point, deviation=False).step_s
                best = min(best or (math.inf, 0), (estimate, trial.number))
        plan, settings, step_s = None, {}, None
        if best is not None:
            chosen = trials[best[1]]
            settings, step_s = dict(chosen.params), float(chosen.user_attrs["step_s"])
            plan = self._plan(chosen.params)
        counted = ledger.counted(trials)
        hours, money = self._cost(trials)
        return TuneResult(
            plan=plan,
            settings=settings,
            step_s=step_s,
            estimate_s=None if best is None else best[0],
            trials=tuple(_shown(each) for each in counted if each.state.is_finished()),
            factors=correction.factors,
            device_hours=hours,
            cost_usd=money,
            discarded=sum("discarded" in each.user_attrs for each in trials),
            ended=ended,
        )

    def _correction(self, trials: list[FrozenTrial]) -> Correction:
        found = (self.ledger.observe(each) for each in trials if each.state.is_finished())
        return Correction([each for each in found if each is not None], self.prior)

    def _collect(self) -> None:
        """Take over the trials of tuners that died: finish them, or put them back."""
        for trial in self.ledger.trials():
            if not self.ledger.lost(trial):
                continue
            folder = trial.user_attrs.get("folder")
            job = Job(Path(folder)) if folder else None
            if job is None or not (job.exit_code is not None or job.alive() or _young(job, trial)):
                self.ledger.abandon(trial)
                continue
            self.progress(f"trial {trial.number}: taken over from a tuner that is gone")
            in_time = job.wait(self.task.timeout_s)
            if job.exit_code is None and in_time:
                self.ledger.abandon(trial)
            else:
                self._tell(trial, job, in_time=in_time)

    def _spent(self) -> str:
        trials = self.ledger.trials()
        counted = self.ledger.counted(trials)
        if self.budget.trials is not None and len(counted) >= self.budget.trials:
            return f"{self.budget.trials} trials"
        hours, money = self._cost(trials)
        if self.budget.device_hours is not None and hours >= self.budget.device_hours:
            return f"{hours:.3g} device-hours"
        if self.budget.cost_usd is not None and money is not None and money >= self.budget.cost_usd:
            return f"${money:.4g}"
        return ""

    def _unwanted(self, trial: FrozenTrial) -> str:
        """Why a proposal will not run; empty when it will."""
        earlier = [each for each in self.ledger.trials() if each.number < trial.number]
        most = math.inf if self.budget.trials is None else self.budget.trials
        if len(self.ledger.counted(earlier)) >= most:
            return "beyond the budget"
        point = self.ledger.pricing.point(trial.params)
        if point is None:
            return self.ledger.pricing.knobs.broken(trial.params) or "no room in memory"
        if not point.prediction.fits:
            return "does not fit in memory by the model"
        if self.ledger.is_repeated(trial, point.key):
            return "as an earlier trial"
        return self._reason(point)

    def _reason(self, point: Point) -> str:
        if point.key not in self._refused:
            plan = to_plan(
                self.ledger.pricing.knobs.instance, self.space, point.assignment, point.prediction
            )
            self._refused[point.key] = "; ".join(self.task.refuse(plan))
        return self._refused[point.key]

    def _launch(self, trial: FrozenTrial) -> None:
        point = self.ledger.pricing.point(trial.params)
        assert point is not None
        expected = self._correction(self.ledger.trials()).estimate(point)
        folder = self.task.folder / f"trial-{trial.number:04d}"
        job = Job(folder)
        plan = self._plan(trial.params)
        values = self.task.write(plan, folder) | {"trial": str(trial.number)}
        command = fill(self.task.command, values)
        self.ledger.note(
            trial,
            {
                "folder": str(folder.resolve()),
                "placement": plan.placement,
                "analytic_step_s": point.prediction.step_time_s,
                "predicted_step_s": expected.step_s,
                "predicted_deviation": expected.deviation,
                CONSTRAINTS: [point.memory_over],
                "alive_at": time.time(),
                # Written last: a trial with an owner has all of the above.
                "owner": me(),
            },
        )
        self.progress(
            f"trial {trial.number}: {plan.placement}; predicted {expected.step_s:.4g} s a step"
        )
        process = job.start(command)
        try:
            in_time = job.wait(
                self.task.timeout_s,
                process=process,
                beat=lambda: self._beat(trial),
            )
        except BaseException:
            # Interrupted: the settings are put back, and nothing is left running.
            job.stop(process)
            self.ledger.abandon(trial)
            raise
        self._tell(trial, job, in_time=in_time)

    def _beat(self, trial: FrozenTrial) -> None:
        self.ledger.note(trial, {"alive_at": time.time()})

    def _tell(self, trial: FrozenTrial, job: Job, *, in_time: bool) -> None:
        measured = job.outcome(self.task.read, in_time=in_time)
        point = self.ledger.pricing.point(trial.params)
        value = measured.step_s if measured.status == "ok" else None
        self.ledger.record(trial, measured, value if point is not None else None)
        self.progress(_line(trial.number, measured))

    def _plan(self, settings: Settings) -> Plan:
        point = self.ledger.pricing.point(settings)
        assert point is not None
        instance = self.ledger.pricing.knobs.instance
        return to_plan(instance, self.space, point.assignment, point.prediction)

    def _cost(self, trials: list[FrozenTrial]) -> tuple[float, float | None]:
        """Device-hours and US dollars of the trials so far, by the devices of their plans."""
        hours, money = 0.0, 0.0
        priced = True
        for trial in self.ledger.counted(trials):
            point = self.ledger.pricing.point(trial.params)
            if point is None:
                continue
            running = trial.state == TrialState.RUNNING
            wall_s = age_s(trial) if running else float(trial.user_attrs.get("wall_s", 0.0))
            hours += self._plan(trial.params).devices * wall_s / 3600.0
            rate = point.prediction.cost_per_step_usd
            priced = priced and rate is not None
            money += (rate or 0.0) * wall_s / point.prediction.step_time_s
        return hours, money if priced else None


def _young(job: Job, trial: FrozenTrial) -> bool:
    """Its shell may not have left a sign yet."""
    alive_at = float(trial.user_attrs.get("alive_at", 0.0))
    return job.started_at is None and time.time() - alive_at < 2.0


def _line(number: int, measured: Measured) -> str:
    if measured.status == "ok":
        return f"trial {number}: {measured.step_s:.4g} s a step"
    return f"trial {number}: {measured.status}" + (
        f" ({measured.message})" if measured.message else ""
    )


def _shown(trial: FrozenTrial) -> Trial:
    attributes: dict[str, Any] = trial.user_attrs
    return Trial(
        number=trial.number,
        settings=dict(trial.params),
        placement=attributes["placement"],
        status=attributes["status"],
        predicted_step_s=attributes.get("predicted_step_s"),
        analytic_step_s=attributes["analytic_step_s"],
        step_s=attributes.get("step_s"),
        peak_memory_bytes=attributes.get("peak_memory_bytes"),
        message=attributes.get("message", ""),
    )


def _same_problem(study: Study, plan_set: PlanSet) -> list[Assignment]:
    """The plans of the study, which the first tuner wrote; InputError for another problem."""
    problem = digest(
        plan_set.workload.model_dump_json() + plan_set.cluster.model_dump_json() + plan_set.space
    )
    if _PLANS not in study.user_attrs:
        plans = [plan.assignment.model_dump_json() for plan in plan_set.plans]
        study.set_user_attr(_PROBLEM, problem)
        study.set_user_attr(_PLANS, plans)
    if study.user_attrs.get(_PROBLEM) != problem:
        raise InputError(
            f"the study {study.study_name!r} is of another workload, cluster or space",
            where="--study",
            remedy="Give another --study name, or another --storage",
        )
    return [Assignment.model_validate_json(text) for text in study.user_attrs[_PLANS]]


def _check(budget: Budget, task: Task) -> None:
    limits = {
        "--trials": budget.trials,
        "--device-hours": budget.device_hours,
        "--max-spend": budget.cost_usd,
    }
    if all(limit is None for limit in limits.values()):
        raise InputError("no budget", where="--trials", remedy="Give --trials or another budget")
    for option, limit in limits.items():
        if limit is not None and not (0 < limit < math.inf):
            raise InputError(f"a budget of {limit:g}", where=option, remedy="Give more than 0")
    if not (0 < task.timeout_s < math.inf):
        raise InputError(f"{task.timeout_s:g} s", where="--timeout", remedy="Give more than 0")
    if not task.command.strip():
        raise InputError("is empty", where="--command", remedy="For example 'bash {script}'")
