"""The memetic optimizer, and the plainer ones that it is measured against.

A steady-state genetic algorithm whose children are improved by simulated annealing; which change
the annealing tries next is learned (see `selector`). After Grumbach et al., "A Memetic Algorithm
With Reinforcement Learning for Sociotechnical Production Scheduling", IEEE Access 11 (2023),
with jobs for operations, node ranges for machines, slots for workers, and reloads for set-ups.
For the Pareto front a third of the budget goes to each objective and to mixtures of both.
"""

from __future__ import annotations

import math
import random

from planner.fleet.genome import Genome, Individual, crossover, random_genome, rule_genomes
from planner.fleet.operators import OPERATORS, PRIOR_RATES
from planner.fleet.optimizer import BudgetSpentError, Objective, Search
from planner.fleet.problem import Schedule
from planner.fleet.selector import Learned, Selector, Uniform

_POPULATION = 6
_CHAIN = 50
"""Steps of the annealing of one child."""
_CROSSED = 0.1
"""Children that begin as a cross of two parents; the others begin as a copy of one."""
_HOT, _COLD = 0.003, 0.0001
"""Temperatures at the start and at the end, relative to the objective."""
_TIE = 0.01
"""Weight of what was not asked for (the other objective, the mean end): it breaks ties."""
_POLISH = 1000
"""Evaluations before a search ends because its objective meets the bound: among schedules that are
equally good in it, the energy prefers those that are better in the other."""
_STAGES: dict[Objective, tuple[float | None, ...]] = {
    "makespan": (0.0,),
    "tardiness": (1.0,),
    "pareto": (0.0, 1.0, None),
}
"""Weight of the tardiness in each part of the search; None: drawn anew for each child."""


def memetic(search: Search) -> None:
    """Genetic search with annealed children and learned operators."""
    _spend(search, Learned(PRIOR_RATES), _CHAIN)


def memetic_uniform(search: Search) -> None:
    """`memetic` with every operator equally likely."""
    _spend(search, Uniform(len(OPERATORS)), _CHAIN)


def ga(search: Search) -> None:
    """The same genetic search without annealing: one random change of each child."""
    _spend(search, Uniform(len(OPERATORS)), 1)


def anneal(search: Search) -> None:
    """Simulated annealing from the best dispatch rule, one chain for each part of the search."""
    _spend(search, Uniform(len(OPERATORS)), None)


def random_search(search: Search) -> None:
    """Random genomes until the budget is spent."""
    try:
        while not _finished(search):
            _evaluate(search, random_genome(search.problem, search.rng))
    except BudgetSpentError:
        return


def _spend(search: Search, selector: Selector, chain: int | None) -> None:
    """Evolve a population part by part; `chain` None: anneal one individual instead."""
    try:
        population = _first(search, 1 if chain is None else _POPULATION)
        stages = _STAGES[search.objective]
        for part, weight in enumerate(stages):
            stage = _Stage(search, part / len(stages), (part + 1) / len(stages))
            while not _finished(search) and search.spent < stage.end:
                mixed = search.rng.random() if weight is None else weight
                energy = _Energy(search, mixed)
                if chain is None:
                    best = min(population, key=energy.of)
                    population.append(_anneal(stage, best, energy, selector, _CHAIN))
                    population = sorted(population, key=energy.of)[:_POPULATION]
                else:
                    _breed(stage, population, energy, selector, chain)
    except BudgetSpentError:
        return


def _finished(search: Search) -> bool:
    """Whether nothing is left to gain; the other objective gets a fair try before that."""
    return search.done and search.evaluations >= _POLISH


class _Stage:
    """A part of the search, with its own cooling."""

    def __init__(self, search: Search, start: float, end: float):
        self.search = search
        self.start = start
        self.end = end

    @property
    def temperature(self) -> float:
        """Falls geometrically from hot to cold over the stage."""
        gone = (self.search.spent - self.start) / (self.end - self.start)
        return float(_HOT * (_COLD / _HOT) ** min(1.0, max(0.0, gone)))


class _Energy:
    """What is minimised: the objectives relative to the best known, in one number."""

    def __init__(self, search: Search, weight: float):
        first, last = search.front[0], search.front[-1]
        total = sum(job.weight for job in search.problem.jobs) or 1.0
        self._makespan_s = first.makespan_s or 1.0
        self._all_late_s = self._makespan_s * total
        # A mixture compares the objectives by their range over the front, one alone by its value.
        span = first.weighted_tardiness_s if 0 < weight < 1 else last.weighted_tardiness_s
        self._tardiness_s = max(span, 1e-3 * self._all_late_s)
        self._weight = weight

    def of(self, individual: Individual) -> float:
        """Energy of an individual; about 1 for the best known."""
        schedule: Schedule = individual.schedule
        makespan = schedule.makespan_s / self._makespan_s
        late = schedule.weighted_tardiness_s / self._all_late_s
        mean_end = sum(run.end_s for run in schedule.runs) / len(schedule.runs) / self._makespan_s
        wanted = (1 - self._weight) * makespan
        wanted += self._weight * schedule.weighted_tardiness_s / self._tardiness_s
        return wanted + _TIE * (self._weight * makespan + (1 - self._weight) * late + mean_end)


def _evaluate(search: Search, genome: Genome) -> Individual:
    return Individual(genome, search.evaluate(genome.options, genome.order, genome.ranks))


def _first(search: Search, size: int) -> list[Individual]:
    """The dispatch rules' schedules, filled up with random ones."""
    rules = [_evaluate(search, genome) for genome in rule_genomes(search.problem)]
    rules.sort(key=lambda each: each.schedule.key)
    kept = rules[: max(1, size // 2)]
    by_tardiness = min(rules, key=lambda each: each.schedule.weighted_tardiness_s)
    if by_tardiness not in kept:
        kept.append(by_tardiness)
    while len(kept) < size:
        kept.append(_evaluate(search, random_genome(search.problem, search.rng)))
    return kept


def _breed(
    stage: _Stage, population: list[Individual], energy: _Energy, selector: Selector, chain: int
) -> None:
    """One child, improved; it replaces the worst individual if it is better and new."""
    search, rng = stage.search, stage.search.rng
    if chain == 1 or rng.random() < _CROSSED:
        a, b = (_tournament(population, energy, rng) for _ in range(2))
        start = _evaluate(search, crossover(a.genome, b.genome, rng))
    else:
        start = min(population, key=energy.of)
    child = _anneal(stage, start, energy, selector, chain)
    keys = {each.schedule.key for each in population}
    worst = max(range(len(population)), key=lambda i: energy.of(population[i]))
    if child.schedule.key not in keys and energy.of(child) < energy.of(population[worst]):
        population[worst] = child


def _tournament(population: list[Individual], energy: _Energy, rng: random.Random) -> Individual:
    return min((rng.choice(population) for _ in range(2)), key=energy.of)


def _anneal(
    stage: _Stage, start: Individual, energy: _Energy, selector: Selector, steps: int
) -> Individual:
    """The best individual on a chain of random changes, worse ones accepted by temperature."""
    search, rng = stage.search, stage.search.rng
    best = current = start
    best_value = value = energy.of(start)
    for _ in range(steps):
        operator = selector.choose(rng)
        genome = OPERATORS[operator](search.problem, current, rng)
        if genome == current.genome:
            selector.learn(operator, False)
            continue
        changed = _evaluate(search, genome)
        changed_value = energy.of(changed)
        selector.learn(operator, changed_value < value)
        worse = changed_value - value
        if worse <= 0 or rng.random() < math.exp(-worse / stage.temperature):
            current, value = changed, changed_value
            if value < best_value:
                best, best_value = current, value
    return best
