"""The optimizers against one another at equal budgets, and against the exact answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from statistics import mean

import pytest
from fleet_problems import all_keys, front, large_problem, small_problem

from planner.fleet import memetic
from planner.fleet.check import violations
from planner.fleet.optimizer import Objective, Progress, Search
from planner.fleet.selector import Learned
from planner.search.placement.clock import Clock

INSTANCES = range(20)
EVALUATIONS = 250


def run(
    problem_seed: int,
    optimizer: Callable[[Search], None],
    objective: Objective,
    *,
    seed: int = 0,
    budget: int = EVALUATIONS,
    callback: Callable[[Progress], None] | None = None,
) -> Search:
    search = Search(
        large_problem(problem_seed, jobs=7),
        objective,
        budget=budget,
        clock=Clock(None, None),
        seed=seed,
        bounds=(0.0, 0.0),
        callback=callback,
    )
    optimizer(search)
    return search


@cache
def values(name: str, objective: Objective) -> tuple[float, ...]:
    """Best value of each instance; every schedule is checked."""
    found = []
    for seed in INSTANCES:
        search = run(seed, getattr(memetic, name), objective)
        assert violations(search.problem, search.best) == []
        assert search.evaluations <= EVALUATIONS
        found.append(search.best.key[objective == "tardiness"])
    return tuple(found)


@pytest.mark.parametrize("objective", ["makespan", "tardiness"])
@pytest.mark.parametrize("other", ["ga", "random_search", "memetic_uniform"])
def test_memetic_is_at_least_as_good_as_the_plainer_one_on_the_mean(
    objective: Objective, other: str
) -> None:
    assert mean(values("memetic", objective)) <= mean(values(other, objective))


def test_the_same_seed_gives_the_same_schedules() -> None:
    first, second = (run(3, memetic.memetic, "pareto", seed=5) for _ in range(2))
    assert first.front == second.front
    assert first.trace == second.trace
    other = run(3, memetic.memetic, "pareto", seed=6)
    assert other.trace != first.trace


@pytest.mark.parametrize("seed", range(12))
def test_memetic_is_within_five_per_cent_of_the_best_of_all(seed: int) -> None:
    problem = small_problem(seed)
    best = front(all_keys(problem))
    for objective, axis, key in (("makespan", 0, best[0]), ("tardiness", 1, best[-1])):
        search = Search(
            problem, objective, budget=600, clock=Clock(None, None), seed=0, bounds=(0.0, 0.0)
        )
        memetic.memetic(search)
        assert search.best.key[axis] <= key[axis] * 1.05


@pytest.mark.parametrize("seed", range(12))
def test_the_front_contains_the_optimum_of_each_objective(seed: int) -> None:
    problem = small_problem(seed)
    best = front(all_keys(problem))
    search = Search(
        problem, "pareto", budget=1500, clock=Clock(None, None), seed=0, bounds=(0.0, 0.0)
    )
    memetic.memetic(search)
    keys = [each.key for each in search.front]
    assert keys == front(keys)
    assert keys[0][0] == best[0][0]
    assert keys[-1][1] == best[-1][1]


def test_the_trace_descends_and_the_callback_hears_it() -> None:
    heard: list[Progress] = []
    search = run(1, memetic.memetic, "makespan", callback=heard.append)
    assert tuple(heard) == search.outcome().trace
    makespans = [point.makespan_s for point in heard]
    assert makespans == sorted(makespans, reverse=True)
    assert search.outcome().stopped == "budget"


def test_the_bandit_prefers_what_improves_and_forgets_none() -> None:
    bandit = Learned((0.05, 0.05, 0.05))
    assert bandit.probabilities() == pytest.approx([1 / 3] * 3)
    for _ in range(60):
        bandit.learn(0, True)
        bandit.learn(1, False)
    first, second, untried = bandit.probabilities()
    assert first > untried > second >= Learned.LEAST
    assert first + second + untried == pytest.approx(1.0)


def test_cancelling_ends_the_search_with_what_it_has() -> None:
    calls = iter(range(10**6))
    search = Search(
        large_problem(0),
        "makespan",
        budget=None,
        clock=Clock(None, lambda: next(calls) > 30),
        seed=0,
        bounds=(0.0, 0.0),
    )
    memetic.memetic(search)
    assert search.outcome().stopped == "cancelled"
    assert violations(search.problem, search.best) == []
