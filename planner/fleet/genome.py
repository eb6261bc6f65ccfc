"""Genomes: a share for each task, the order of dispatch, and which of its places it takes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from planner.fleet.problem import FleetProblem, Schedule


@dataclass(frozen=True)
class Genome:
    """Decisions for n tasks; `decode` turns them into a schedule, whatever they are."""

    options: tuple[int, ...]
    """Index of each task's option."""
    order: tuple[int, ...]
    """Tasks in order of dispatch."""
    ranks: tuple[int, ...]
    """Which of its places each task takes: 0 is the one where it ends first."""


@dataclass(frozen=True)
class Individual:
    """A genome and its schedule."""

    genome: Genome
    schedule: Schedule


def random_genome(problem: FleetProblem, rng: random.Random) -> Genome:
    """Any share, any order, the earliest place."""
    options = tuple(rng.randrange(len(task.options)) for task in problem.tasks)
    order = list(range(len(problem.tasks)))
    rng.shuffle(order)
    return Genome(options, tuple(order), (0,) * len(order))


def rule_genomes(problem: FleetProblem) -> list[Genome]:
    """Dispatch rules with fixed rules for the shares: the usual ways to do it by hand."""
    return [
        Genome(options, order, (0,) * len(order))
        for options in _shares(problem)
        for order in _orders(problem, options)
    ]


def _shares(problem: FleetProblem) -> list[tuple[int, ...]]:
    """Least node-seconds, least time, and least product of both (a compromise)."""
    rules: list[Callable[[int, float], float]] = [
        lambda nodes, time_s: nodes * time_s,
        lambda nodes, time_s: time_s,
        lambda nodes, time_s: nodes * time_s * time_s,
    ]
    found = []
    for rule in rules:
        choice = []
        for task in problem.tasks:
            costs = [rule(each.nodes, each.run_s + each.setup_s) for each in task.options]
            choice.append(costs.index(min(costs)))
        found.append(tuple(choice))
    return list(dict.fromkeys(found))


def _orders(problem: FleetProblem, options: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Longest first, earliest due first, and heaviest first."""
    tasks = range(len(problem.tasks))
    run_s = [problem.tasks[t].options[options[t]].run_s for t in tasks]
    terms = [problem.jobs[problem.tasks[t].job] for t in tasks]
    due_s = [float("inf") if each.due_s is None else each.due_s for each in terms]
    return [
        tuple(sorted(tasks, key=lambda t: (problem.tasks[t].release_s, -run_s[t]))),
        tuple(sorted(tasks, key=lambda t: (-run_s[t], t))),
        tuple(sorted(tasks, key=lambda t: (due_s[t], -terms[t].weight, t))),
        tuple(sorted(tasks, key=lambda t: (run_s[t] / max(terms[t].weight, 1e-9), t))),
    ]


def crossover(a: Genome, b: Genome, rng: random.Random) -> Genome:
    """`a` with the shares, places and relative order that `b` gives to a part of the tasks.

    Between a tenth and a half of the tasks come from `b`; they keep the positions that they have
    in `a` together, in `b`'s order (order-based crossover, Davis 1991).
    """
    part = rng.uniform(0.1, 0.5)
    from_b = [rng.random() < part for _ in a.options]
    options = tuple(y if new else x for x, y, new in zip(a.options, b.options, from_b, strict=True))
    ranks = tuple(y if new else x for x, y, new in zip(a.ranks, b.ranks, from_b, strict=True))
    moved = iter([task for task in b.order if from_b[task]])
    order = tuple(next(moved) if from_b[task] else task for task in a.order)
    return Genome(options, order, ranks)
