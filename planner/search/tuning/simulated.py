"""Knobs of exact plans tuned against the discrete-event simulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from planner.catalog.spaces import load_space
from planner.errors import InputError
from planner.schema import Plan, PlanSet, SearchSpace
from planner.search.api import instance_of
from planner.search.ranking import to_plan
from planner.search.tuning.correction import Observation, Prior
from planner.search.tuning.knobs import Settings, make_knobs
from planner.search.tuning.pricing import Point, Pricing
from planner.search.tuning.proposals import ModelSampler, distributions
from planner.search.tuning.study import (
    CONSTRAINTS,
    FidelityPruner,
    feasible,
    make_sampler,
    open_storage,
    quiet,
)
from planner.simulate.events.replay import simulate_instance
from planner.simulate.events.timeline import Simulation
from planner.simulate.instance import Instance

OBJECTIVES = ("time", "cost", "memory")
"""Seconds of a step, US dollars of a step, and the share of memory that stays free."""
_DIRECTIONS: dict[str, Literal["minimize", "maximize"]] = {
    "time": "minimize",
    "cost": "minimize",
    "memory": "maximize",
}
_MARGINS = {0: 0.15, 1: 0.05}
"""The analytic step is within 15 % of the simulated one (benchmarks/simulator.py), one simulated
step within 5 % of the mean of several."""
_NOISE = 0.005
"""Between simulations of alike plans over the same lengths."""
_STARTS = 4
"""At least so many trials for each exact plan that is tried first."""
_PRIOR = Prior(kind=0.05, stage=0.03, strategy=0.04, step=0.05, step_strategy=0.03)
"""How far the simulator is from the analytic model, as log-normal factors."""


@dataclass(frozen=True)
class TrialResult:
    """One trial of a search."""

    number: int
    settings: Settings
    point: Point | None
    """None where a rule forbids the settings."""
    values: tuple[float, ...]
    """Of the objectives; empty for a trial that was pruned or refused."""
    state: str
    """simulated, pruned (a cheaper answer was hopeless), does not fit, or refused."""


@dataclass(frozen=True)
class Tuned:
    """What a search over knobs found."""

    plan: Plan
    """The best plan; for several objectives the one with the shortest step."""
    number: int
    """Of the exact plan that it comes from, from 1."""
    step_s: float
    """Its simulated step."""
    start_s: float
    """Simulated step of the plan that the search started from."""
    changes: dict[str, tuple[Any, Any]]
    """Knob -> (value of the exact plan, value found), where they differ."""
    trials: tuple[TrialResult, ...]
    front: tuple[int, ...]
    """Numbers of the trials that no other beats in all objectives."""

    @property
    def gain(self) -> float:
        """Share of the step that tuning saved."""
        return 1.0 - self.step_s / self.start_s


def tune_plans(
    plan_set: PlanSet,
    trials: int,
    *,
    space: SearchSpace | None = None,
    sampler: str = "model",
    objectives: Sequence[str] = ("time",),
    steps: int = 4,
    seed: int = 0,
    max_staleness: int | None = None,
    storage: str | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Tuned:
    """Tune the knobs of exact plans by `trials` trials in the simulator.

    The plans are the first trials, so the answer is never worse than the best of those that were
    tried. Every trial is priced analytically, then simulated for one step, then for `steps`; it
    ends early where that is hopeless. Deterministic for a seed.

    Parameters: `sampler` is "model" (the analytic model corrected by the finished trials), "tpe",
    "gp" or "random"; `objectives` of `OBJECTIVES`; `max_staleness` a constraint beside that of the
    workload; `storage` an Optuna storage, for a dashboard (default: in memory); `progress` is
    called with the trials done and the best step.

    Raises InputError for options that make no sense and for plans of another launcher's space.
    """
    _check(trials, objectives, steps)
    space = space or load_space(plan_set.space)
    instance = instance_of(plan_set.workload, plan_set.cluster, space)
    plans = plan_set.plans
    if plan_set.objective not in ("step_time", "tokens_per_s"):
        # Money and devices: on the devices of the best plan they go with its step.
        plans = plans[:1]
    knobs = make_knobs(instance, space, [plan.assignment for plan in plans])
    search = _Search(instance, Pricing(knobs), tuple(objectives), steps, seed, max_staleness)
    with quiet():
        study = optuna.create_study(
            storage=None if storage is None else open_storage(storage),
            sampler=make_sampler(sampler, seed=seed, trials=trials, model=search.sampler),
            directions=[_DIRECTIONS[name] for name in objectives],
            pruner=FidelityPruner(_MARGINS),
        )
        study.set_metric_names(list(objectives))
        for number in range(1, 1 + min(len(knobs.plans), max(1, trials // _STARTS))):
            study.enqueue_trial(knobs.settings(number))
        for done in range(trials):
            search.run(study)
            if progress is not None:
                progress(done + 1, search.best_s)
        return _result(search, study, space)


class _Search:
    """The objective, and what it remembers."""

    def __init__(
        self,
        instance: Instance,
        pricing: Pricing,
        objectives: tuple[str, ...],
        steps: int,
        seed: int,
        max_staleness: int | None,
    ) -> None:
        self.instance = instance
        self.pricing = pricing
        self.objectives = objectives
        self.steps = steps
        self.seed = seed
        self.max_staleness = max_staleness
        self.best_s = math.inf
        self.observations: dict[int, Observation] = {}
        self._simulated: dict[tuple[str, int], Simulation] = {}

    def sampler(self) -> ModelSampler:
        """The sampler that knows the analytic model."""
        return ModelSampler(
            self.pricing,
            seed=self.seed,
            observe=lambda trial: self.observations.get(trial.number),
            failed=lambda trial: "",
            runnable=lambda point: self._stale_over(point) <= 0,
            score=self._score,
            prior=_PRIOR,
        )

    def run(self, study: Study) -> None:
        """One trial, told to the study."""
        trial = study.ask(distributions(self.pricing.knobs))
        point = self.pricing.point(trial.params)
        single = len(self.objectives) == 1
        if point is None:
            trial.set_user_attr("refused", self.pricing.knobs.broken(trial.params) or "no room")
            study.tell(trial, state=TrialState.PRUNED if single else TrialState.FAIL)
            return
        trial.set_user_attr(CONSTRAINTS, [point.memory_over, self._stale_over(point)])
        trial.set_user_attr("analytic_step_s", point.prediction.step_time_s)
        if not point.prediction.fits or self._stale_over(point) > 0:
            study.tell(trial, self._values(point, point.prediction.step_time_s))
            return
        if single and self._hopeless(trial, point):
            study.tell(trial, state=TrialState.PRUNED)
            return
        step_s = self._step_s(point, self.steps)
        found = self._simulated[point.key, self.steps]
        stages_s = {name: call.time_s.mean for name, call in found.calls.items()}
        trial.set_user_attr("step_s", step_s)
        trial.set_user_attr("stages_s", stages_s)
        self.observations[trial.number] = Observation(point, step_s, stages_s, _NOISE)
        self.best_s = min(self.best_s, step_s)
        study.tell(trial, self._values(point, step_s))

    def _hopeless(self, trial: optuna.Trial, point: Point) -> bool:
        """Whether the analytic step, or one simulated step, rules the trial out."""
        for fidelity in _MARGINS:
            analytic = fidelity == 0
            step_s = point.prediction.step_time_s if analytic else self._step_s(point, 1)
            trial.report(self._values(point, step_s)[0], fidelity)
            if trial.should_prune():
                return True
        return False

    def _step_s(self, point: Point, steps: int) -> float:
        key = (point.key, steps)
        if key not in self._simulated:
            self._simulated[key] = simulate_instance(
                self.instance, point.assignment, steps=steps, seed=self.seed
            )
        return self._simulated[key].step_time_s.mean

    def _stale_over(self, point: Point) -> float:
        if self.max_staleness is None:
            return 0.0
        return float(point.assignment.staleness - self.max_staleness)

    def _values(self, point: Point, step_s: float) -> list[float]:
        return [_objective(name, point, step_s) for name in self.objectives]

    def _score(self, point: Point, step_s: float, rng: np.random.Generator) -> float:
        """Log of the objective; of several, the worst of them under random weights (ParEGO)."""
        logs = [math.log(max(1e-9, self._cost(name, point, step_s))) for name in self.objectives]
        if len(logs) == 1:
            return logs[0]
        # One draw for a proposal: the generator is that of the trial, and scores are compared.
        weights = np.random.default_rng(rng.bit_generator.seed_seq.entropy).dirichlet(  # type: ignore[attr-defined]
            np.ones(len(logs))
        )
        return float(max(w * x for w, x in zip(weights, logs, strict=True)))

    def _cost(self, name: str, point: Point, step_s: float) -> float:
        value = _objective(name, point, step_s)
        return 1.0 - value if name == "memory" else value


def _objective(name: str, point: Point, step_s: float) -> float:
    if name == "time":
        return step_s
    if name == "memory":
        return -point.memory_over
    cost = point.prediction.cost_per_step_usd
    if cost is None:
        raise InputError(
            "the cluster's devices have no price",
            where="objectives",
            remedy="Give price_usd_per_device_hour, or leave the objective cost out",
        )
    return cost * step_s / point.prediction.step_time_s


def _result(search: _Search, study: Study, space: SearchSpace) -> Tuned:
    pricing = search.pricing
    results, simulated = [], []
    for trial in study.get_trials(deepcopy=False):
        point = pricing.point(trial.params)
        done = trial.number in search.observations
        state = "simulated" if done else "pruned"
        if point is None:
            state = "refused"
        elif not done and not feasible(trial):
            state = "does not fit" if not point.prediction.fits else "too stale"
        values = tuple(trial.values) if done and trial.values else ()
        results.append(TrialResult(trial.number, dict(trial.params), point, values, state))
        if done:
            simulated.append((search.observations[trial.number].step_s, trial))
    if not simulated:
        raise InputError(
            "none of the plans stays within the limits", where="max_staleness", remedy="Raise it"
        )
    step_s, best = min(simulated, key=lambda each: (each[0], each[1].number))
    start_s = min(simulated, key=lambda each: each[1].number)[0]
    point = pricing.point(best.params)
    assert point is not None
    exact = pricing.knobs.settings(int(best.params["plan"]))
    changes = {
        knob: (exact[knob], best.params[knob])
        for knob in exact
        if best.params.get(knob, exact[knob]) != exact[knob] and _matters(pricing, best, knob)
    }
    plan = to_plan(search.instance, space, point.assignment, point.prediction)
    front = tuple(each.number for each in study.best_trials if each.number in search.observations)
    return Tuned(plan, int(best.params["plan"]), step_s, start_s, changes, tuple(results), front)


def with_tuned(plan_set: PlanSet, tuned: Tuned, plan: Plan) -> PlanSet:
    """The plan set with the tuned `plan` first, unless it is one of the exact plans.

    The bound is that of the exact plans' space: knobs beyond its values may reach below it.
    """
    note = (
        f"tuned by {len(tuned.trials)} trials in the simulator: {tuned.step_s:.4g} s a step, "
        f"{tuned.start_s:.4g} s before"
    )
    assumptions = (*plan_set.assumptions, note)
    if any(plan.assignment == each.assignment for each in plan_set.plans):
        return plan_set.model_copy(update={"assumptions": assumptions})
    first = plan.model_copy(update={"bound_s": min(plan_set.search.bound_s, plan.step_time_s)})
    plans = [
        each.model_copy(update={"rank": rank})
        for rank, each in enumerate((first, *plan_set.plans), start=1)
    ]
    return plan_set.model_copy(update={"plans": tuple(plans), "assumptions": assumptions})


def _matters(pricing: Pricing, trial: FrozenTrial, knob: str) -> bool:
    """Whether the plan has the knob at all."""
    exact = pricing.knobs.settings(int(trial.params["plan"]))
    changed = {**trial.params, knob: exact[knob]}
    return pricing.knobs.assignment(changed) != pricing.knobs.assignment(trial.params)


def _check(trials: int, objectives: Sequence[str], steps: int) -> None:
    if trials < 1:
        raise InputError(f"{trials} trials", where="--tune", remedy="Ask for one or more")
    if steps < 1:
        raise InputError(f"{steps} steps", where="steps", remedy="Simulate one step or more")
    strangers = [name for name in objectives if name not in OBJECTIVES]
    if strangers or not objectives or len(set(objectives)) < len(objectives):
        raise InputError(
            f"objectives {', '.join(objectives) or 'missing'}",
            where="--tune-objectives",
            remedy=f"Give some of {', '.join(OBJECTIVES)}, each once",
        )
