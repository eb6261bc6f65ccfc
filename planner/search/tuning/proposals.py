"""The sampler that knows the cost model: the next trial is the best of many, as corrected so far.

Candidates are settings near the exact plans and near the best trials, and some at random. Each is
priced by the analytic model, corrected by what the finished trials showed (`correction`), and the
one with the largest expected improvement, times the chance that it runs at all, is next. An
Optuna sampler like any other: the study keeps the trials, and several processes may share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from planner.search.tuning.correction import Correction, Observation, Prior, alike_plans
from planner.search.tuning.knobs import PLAN, Knobs, Settings, Value
from planner.search.tuning.pricing import Point, Pricing

_NEAR_BEST = 3
"""Trials whose neighbours are candidates."""
_PAIRS, _RANDOM = 80, 40
"""Candidates that differ from the best in two knobs, and random ones."""
_LOOKED_AT = 12
"""Candidates, best mean first, whose uncertainty is worked out."""
_RUNS_PRIOR = (9.0, 1.0)
"""Runs that succeed and fail, as if seen before: one in ten jobs fails for no fault of its own."""
_TIE = 1e-6
_HOPELESS = 1.5
"""Predicted step over the shortest predicted: no correction of stages turns that around."""

Score = Callable[[Point, float, np.random.Generator], float]
"""What is minimised for a point with a step of so many seconds."""


class ModelSampler(BaseSampler):
    """Proposes by the corrected cost model.

    `observe` reads a finished trial (None: it failed), `failed` says why one failed ("" where it
    did not), `runnable` has the last word on a proposal (a launcher that cannot run it),
    `score` is what is minimised. Deterministic for a seed, the trials of the study and the number
    of the trial asked for.
    """

    def __init__(
        self,
        pricing: Pricing,
        *,
        seed: int,
        observe: Callable[[FrozenTrial], Observation | None],
        failed: Callable[[FrozenTrial], str],
        runnable: Callable[[Point], bool] = lambda _: True,
        score: Score | None = None,
        prior: Prior | None = None,
    ) -> None:
        self.pricing = pricing
        self.seed = seed
        self.observe = observe
        self.failed = failed
        self.runnable = runnable
        self.score = score or (lambda point, step_s, rng: math.log(step_s))
        self.prior = prior

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All knobs: they are proposed together."""
        return distributions(self.pricing.knobs)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The settings of the next trial."""
        rng = np.random.default_rng([self.seed, trial.number])
        trials = [
            each
            for each in study.get_trials(deepcopy=False)
            if each.number != trial.number and PLAN in each.params
        ]
        return dict(self._best(trials, rng))

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """A random value, for a knob that was not proposed."""
        assert isinstance(param_distribution, CategoricalDistribution)
        rng = np.random.default_rng([self.seed, trial.number])
        return param_distribution.choices[int(rng.integers(len(param_distribution.choices)))]

    def correction(self, trials: Sequence[FrozenTrial]) -> Correction:
        """What the finished trials say about the cost model."""
        found = (self.observe(each) for each in trials if each.state.is_finished())
        return Correction([each for each in found if each is not None], self.prior)

    def _best(self, trials: Sequence[FrozenTrial], rng: np.random.Generator) -> Settings:
        correction = self.correction(trials)
        taken = self._taken(trials)
        tried = [
            (
                self.score(one.point, correction.estimate(one.point, deviation=False).step_s, rng),
                one,
            )
            for one in correction.observations
        ]
        best = min((score for score, _ in tried), default=math.inf)
        centres = self._centres(trials, correction, rng)
        candidates: dict[str, tuple[Settings, Point]] = {}
        many = list(self._candidates(centres, rng))
        for settings, point in zip(many, self.pricing.points(many), strict=True):
            if point is not None and point.key not in taken:
                candidates.setdefault(point.key, (settings, point))
        memory = self._memory_limit(trials)
        means = []
        shortest = min(
            (each.prediction.step_time_s for _, each in candidates.values()), default=0.0
        )
        for settings, point in candidates.values():
            if point.memory_over > memory or not point.prediction.fits:
                continue
            if point.prediction.step_time_s > _HOPELESS * shortest:
                continue
            step_s = correction.estimate(point, deviation=False).step_s
            means.append((self.score(point, step_s, rng), point.key, settings, point))
        means.sort(key=lambda each: each[:2])
        failures = [
            (p, bool(self.failed(each)))
            for each in trials
            if each.state.is_finished() and (p := self.pricing.point(each.params)) is not None
        ]
        looked = []
        for mean, key, settings, point in means[:_LOOKED_AT]:
            deviation = max(correction.estimate(point).deviation, _TIE)
            gain = _expected_improvement(mean, deviation, best) * _runs(point, failures)
            looked.append((-gain, mean, key, settings, point))
        looked.sort(key=lambda each: each[:3])
        for *_, settings, point in looked:
            if self.runnable(point):
                return settings
        for _, _, settings, point in means[_LOOKED_AT:]:
            if self.runnable(point):
                return settings
        # Everything near has been tried: a random setting, which the caller may refuse.
        return random_settings(self.pricing.knobs, rng)

    def _taken(self, trials: Sequence[FrozenTrial]) -> set[str]:
        """Configurations that ran well, run now, or will not run; a crash may be an accident."""
        keys = set()
        for each in trials:
            again = each.state.is_finished() and self.failed(each) in ("crash", "no figure")
            if again and sum(self._same(each, other) for other in trials) < 2:
                continue
            point = self.pricing.point(each.params)
            if point is not None:
                keys.add(point.key)
        return keys

    def _same(self, one: FrozenTrial, other: FrozenTrial) -> bool:
        a, b = self.pricing.point(one.params), self.pricing.point(other.params)
        return a is not None and b is not None and a.key == b.key

    def _memory_limit(self, trials: Sequence[FrozenTrial]) -> float:
        """Predicted memory, over what is usable, that ran out: as much will again."""
        full = [
            point.memory_over
            for each in trials
            if each.state.is_finished() and self.failed(each) == "out of memory"
            if (point := self.pricing.point(each.params)) is not None
        ]
        return min(full, default=math.inf) - _TIE

    def _centres(
        self, trials: Sequence[FrozenTrial], correction: Correction, rng: np.random.Generator
    ) -> list[Settings]:
        scored = []
        for each in trials:
            point = self.pricing.point(each.params)
            if point is None or not each.state.is_finished() or self.failed(each):
                continue
            step_s = correction.estimate(point, deviation=False).step_s
            scored.append((self.score(point, step_s, rng), each.number, each.params))
        scored.sort(key=lambda each: each[:2])
        knobs = self.pricing.knobs
        exact: list[Settings] = [knobs.settings(1 + number) for number in range(len(knobs.plans))]
        return [*(params for _, _, params in scored[:_NEAR_BEST]), *exact]

    def _candidates(
        self, centres: Sequence[Settings], rng: np.random.Generator
    ) -> Iterator[Settings]:
        knobs = self.pricing.knobs
        for centre in centres:
            yield centre
            for name, values in knobs.values.items():
                yield from ({**centre, name: value} for value in values if name != PLAN)
        names = [name for name in knobs.values if name != PLAN]
        for i in range(_PAIRS if len(names) > 1 else 0):
            centre = centres[i % len(centres)]
            chosen = rng.choice(len(names), size=2, replace=False)
            pair = {names[j]: _draw(knobs.values[names[j]], rng) for j in chosen}
            yield {**centre, **pair}
        for _ in range(_RANDOM):
            yield random_settings(knobs, rng)


def distributions(knobs: Knobs) -> dict[str, BaseDistribution]:
    """The knobs as Optuna has them: categories, whose values are readable in a dashboard."""
    return {name: CategoricalDistribution(values) for name, values in knobs.values.items()}


def random_settings(knobs: Knobs, rng: np.random.Generator) -> Settings:
    """A value of every knob, drawn evenly."""
    return {name: _draw(values, rng) for name, values in knobs.values.items()}


def _draw(values: Sequence[Value], rng: np.random.Generator) -> Value:
    return values[int(rng.integers(len(values)))]


def _expected_improvement(mean: float, deviation: float, best: float) -> float:
    """Of a normal variable below `best`; before anything is known, minus the mean."""
    if math.isinf(best):
        return math.exp(-mean)
    u = (best - mean) / deviation
    density = math.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)
    return deviation * (u * 0.5 * math.erfc(-u / math.sqrt(2.0)) + density)


def _runs(point: Point, failures: Sequence[tuple[Point, bool]]) -> float:
    """Chance that a configuration runs, by how alike ones did."""
    good, bad = _RUNS_PRIOR
    for other, failed in failures:
        weight = alike_plans(point, other)
        good, bad = (good, bad + weight) if failed else (good + weight, bad)
    return good / (good + bad)
