"""Time-limited searches over the options of every unit: random, annealing, Metropolis, descent.

A state is one option (devices and strategy) for every unit. Its value is that of the best places
and order of calls, found exactly: the published searches draw places at random, too, so this is
generous to them. States that fit nowhere have an infinite value.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

import numpy as np

from planner.search.placement.evaluate import Evaluator
from planner.search.placement.instance import Instance

State = list[int]

# Published search of RLHF plans (ReaL): accepts with probability exp(-beta x cost difference), beta
# 0.001 a millisecond of five iterations. Its code divides in integers, which accepts nearly all
# moves; here the rule is the correct one (Metropolis et al. 1953).
METROPOLIS_PER_S = 0.001 * 1000 * 5
# Annealing: temperature from this part of the first value down to that part, geometrically.
_HOT, _COLD = 0.1, 1e-4


class Walk:
    """One search on one instance, with its clock and the best value met."""

    def __init__(self, instance: Instance, seconds: float, seed: int):
        self.instance = instance
        self.evaluator = Evaluator(instance)
        self.random = random.Random(seed)
        self.seconds = seconds
        self.began = time.monotonic()
        self.best_s = math.inf
        self.evaluated = 0
        self._known: dict[tuple[int, ...], float] = {}

    @property
    def part(self) -> float:
        """Part of the time that has passed."""
        return (time.monotonic() - self.began) / self.seconds

    def value(self, state: State) -> float:
        """Step time without the fixed seconds; inf if it fits nowhere."""
        key = tuple(state)
        if key not in self._known:
            plan = self.evaluator.evaluate(state)
            self._known[key] = math.inf if plan is None else plan.value_s
        self.evaluated += 1
        self.best_s = min(self.best_s, self._known[key])
        return self._known[key]

    def drawn(self) -> State:
        """A random state."""
        return [self.random.randrange(len(rows)) for rows in self.instance.options]

    def changed(self, state: State) -> State:
        """The state with one unit's option drawn again."""
        unit = self.random.randrange(len(state))
        moved = list(state)
        moved[unit] = self.random.randrange(len(self.instance.options[unit]))
        return moved

    def fastest(self) -> State:
        """Every unit's fastest option, whatever the others do."""
        return [int(np.argmin(rows.time_s.sum(axis=1))) for rows in self.instance.options]

    def lean(self) -> State:
        """Every unit's fastest option that needs no more than its share of a device's memory."""
        memory = np.asarray(self.instance.group_memory_bytes)
        state = []
        for rows in self.instance.options:
            peak = rows.resident_bytes + rows.extra_bytes
            fits = peak <= memory[rows.group] / len(self.instance.options)
            time_s = rows.time_s.sum(axis=1)
            state.append(int(np.argmin(np.where(fits, time_s, np.inf) if fits.any() else peak)))
        return state


def random_search(walk: Walk) -> None:
    """Independent draws."""
    while walk.part < 1:
        walk.value(walk.drawn())


def _chain(walk: Walk, temperature_s: Callable[[], float]) -> None:
    """Metropolis chain of one-unit changes from the fastest options."""
    state = walk.fastest()
    value = walk.value(state)
    while walk.part < 1:
        moved = walk.changed(state)
        other = walk.value(moved)
        if not math.isfinite(value):
            accepted = True
        else:
            worse = max(0.0, other - value)
            accepted = walk.random.random() < math.exp(-worse / temperature_s())
        if accepted:
            state, value = moved, other


def metropolis(walk: Walk) -> None:
    """The published search for RLHF plans, at its published temperature."""
    _chain(walk, lambda: 1.0 / METROPOLIS_PER_S)


def annealing(walk: Walk) -> None:
    """The same chain while it cools."""
    scale = sum(float(rows.time_s.sum(axis=1).min()) for rows in walk.instance.options)
    _chain(walk, lambda: scale * _HOT * (_COLD / _HOT) ** min(1.0, walk.part))


def greedy(walk: Walk) -> None:
    """Units in order of work, each with the option that is best beside those already chosen.

    The others stand at a lean option meanwhile; ends by itself.
    """
    options = walk.instance.options
    state = walk.lean()
    work = [float((rows.time_s.sum(axis=1) * rows.devices).min()) for rows in options]
    for unit in sorted(range(len(options)), key=lambda u: -work[u]):
        state = _best_change(walk, state, unit)[0]


def descent(walk: Walk) -> None:
    """Coordinate descent from lean options, then from random ones."""
    start = walk.lean()
    while walk.part < 1:
        state, value = start, walk.value(start)
        while walk.part < 1:
            before = value
            for unit in range(len(state)):
                state, value = _best_change(walk, state, unit)
            if not value < before:
                break
        start = walk.drawn()


def _best_change(walk: Walk, state: State, unit: int) -> tuple[State, float]:
    best, least = state, walk.value(state)
    for row in range(len(walk.instance.options[unit])):
        if walk.part >= 1:
            break
        moved = [*state[:unit], row, *state[unit + 1 :]]
        value = walk.value(moved)
        if value < least:
            best, least = moved, value
    return best, least


SEARCHES: dict[str, Callable[[Walk], None]] = {
    "MCMC": metropolis,
    "descent": descent,
    "annealing": annealing,
    "random": random_search,
    "greedy": greedy,
}
