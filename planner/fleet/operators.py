"""Operators: small changes of a genome. Each returns a changed genome, or the same if none fits."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from planner.fleet.genome import Genome, Individual
from planner.fleet.problem import FleetProblem

Operator = Callable[[FleetProblem, Individual, random.Random], Genome]
_PLACES = 3
"""Places beyond the best few are left to chance in no useful way."""


def swap(problem: FleetProblem, current: Individual, rng: random.Random) -> Genome:
    """Two tasks change places in the order."""
    order = list(current.genome.order)
    i, j = rng.randrange(len(order)), rng.randrange(len(order))
    order[i], order[j] = order[j], order[i]
    return replace(current.genome, order=tuple(order))


def shift(problem: FleetProblem, current: Individual, rng: random.Random) -> Genome:
    """A task moves to another position of the order."""
    order = list(current.genome.order)
    task = order.pop(rng.randrange(len(order)))
    order.insert(rng.randrange(len(order) + 1), task)
    return replace(current.genome, order=tuple(order))


def neighbours(problem: FleetProblem, current: Individual, rng: random.Random) -> Genome:
    """Two tasks that follow one another in the order change places."""
    order = list(current.genome.order)
    if len(order) > 1:
        i = rng.randrange(len(order) - 1)
        order[i], order[i + 1] = order[i + 1], order[i]
    return replace(current.genome, order=tuple(order))


def reshare(problem: FleetProblem, current: Individual, rng: random.Random) -> Genome:
    """A task gets any other share."""
    return _reshare(problem, current.genome, rng.randrange(len(problem.tasks)), rng)


def resize(problem: FleetProblem, current: Individual, rng: random.Random) -> Genome:
    """A task gets the next larger or smaller share (options are in order of group and nodes)."""
    task = rng.randrange(len(problem.tasks))
    return _step(problem, current.genome, task, rng.choice((-1, 1)))


def reshare_late(problem: FleetProblem, current: Individual, rng: random.Random) -> Genome:
    """A task that decides the objective gets another share."""
    return _reshare(problem, current.genome, _late(problem, current, rng), rng)


def advance_late(problem: FleetProblem, current: Individual, rng: random.Random) -> Genome:
    """A task that decides the objective moves forward in the order."""
    task = _late(problem, current, rng)
    order = list(current.genome.order)
    place = order.index(task)
    order.pop(place)
    order.insert(rng.randrange(place + 1), task)
    return replace(current.genome, order=tuple(order))


def trade(problem: FleetProblem, current: Individual, rng: random.Random) -> Genome:
    """A task that decides the objective grows, another one shrinks."""
    late = _late(problem, current, rng)
    grown = _step(problem, current.genome, late, 1)
    other = rng.randrange(len(problem.tasks))
    return grown if other == late else _step(problem, grown, other, -1)


def keep_weights(problem: FleetProblem, current: Individual, rng: random.Random) -> Genome:
    """A task follows another one with the same weights, with a share of the same size."""
    tasks = problem.tasks
    task = rng.randrange(len(tasks))
    mates = [t for t in range(len(tasks)) if t != task and tasks[t].weights == tasks[task].weights]
    if not mates:
        return current.genome
    mate = rng.choice(mates)
    wanted = tasks[mate].options[current.genome.options[mate]]
    alike = [
        o
        for o, option in enumerate(tasks[task].options)
        if option.group == wanted.group and option.nodes == wanted.nodes
    ]
    options = list(current.genome.options)
    if alike:
        options[task] = alike[0]
    order = [t for t in current.genome.order if t != task]
    order.insert(order.index(mate) + 1, task)
    return replace(current.genome, options=tuple(options), order=tuple(order))


def move_place(problem: FleetProblem, current: Individual, rng: random.Random) -> Genome:
    """A task takes another of its places."""
    ranks = list(current.genome.ranks)
    task = rng.randrange(len(ranks))
    ranks[task] = 0 if ranks[task] else rng.randrange(1, _PLACES + 1)
    return replace(current.genome, ranks=tuple(ranks))


OPERATORS: tuple[Operator, ...] = (
    swap,
    shift,
    neighbours,
    reshare,
    resize,
    reshare_late,
    advance_late,
    trade,
    keep_weights,
    move_place,
)
PRIOR_RATES = (0.057, 0.053, 0.040, 0.098, 0.088, 0.095, 0.066, 0.052, 0.089, 0.018)
"""Part of each operator's changes that were improvements, when all were tried equally often: mean
of both objectives over 16 random fleets of eight jobs, 400 evaluations each."""


def _late(problem: FleetProblem, current: Individual, rng: random.Random) -> int:
    """A task of the job that ends last or of the one that is most late, by chance."""
    runs = current.schedule.runs
    if rng.random() < 0.5:
        last = max(range(len(runs)), key=lambda t: runs[t].end_s)
    else:

        def lateness(t: int) -> float:
            job = problem.jobs[problem.tasks[t].job]
            return -1.0 if job.due_s is None else job.weight * (runs[t].end_s - job.due_s)

        last = max(range(len(runs)), key=lateness)
    # Its nodes or slots were taken by something: often by a task of the same job, or one that
    # ends where it starts.
    start = runs[last].start_s
    blocking = [t for t in range(len(runs)) if abs(runs[t].end_s - start) <= 1e-9 * (1 + start)]
    return rng.choice([last, last, *blocking])


def _reshare(problem: FleetProblem, genome: Genome, task: int, rng: random.Random) -> Genome:
    count = len(problem.tasks[task].options)
    if count == 1:
        return genome
    other = rng.randrange(count - 1)
    options = list(genome.options)
    options[task] = other + (other >= options[task])
    return replace(genome, options=tuple(options))


def _step(problem: FleetProblem, genome: Genome, task: int, step: int) -> Genome:
    options = list(genome.options)
    options[task] = min(max(options[task] + step, 0), len(problem.tasks[task].options) - 1)
    return replace(genome, options=tuple(options))
