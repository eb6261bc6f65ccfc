"""Which operator to try next: learned from what each has brought so far, or by plain chance."""

from __future__ import annotations

import random
from typing import Protocol


class Selector(Protocol):
    """Chooses an operator, then hears how it went."""

    def choose(self, rng: random.Random) -> int:
        """Index of the operator to use."""

    def learn(self, operator: int, improved: bool) -> None:
        """Whether the operator's last change improved the individual that it was applied to."""


class Uniform:
    """Every operator with the same probability."""

    def __init__(self, operators: int):
        self._operators = operators

    def choose(self, rng: random.Random) -> int:
        """Index of the operator to use."""
        return rng.randrange(self._operators)

    def learn(self, operator: int, improved: bool) -> None:
        """Learns nothing."""


class Learned:
    """A bandit: operators are chosen in proportion to their recent rates of improvement.

    Probability matching (Goldberg 1990; compared with others in Thierens, GECCO 2005): the rate
    of an operator is an exponential mean of its outcomes, started at 1 so that each is tried, and
    none falls below a least probability, so that one that becomes useful later is noticed.
    """

    def __init__(self, operators: int, *, memory: float = 0.05, least: float = 0.02):
        self._rates = [1.0] * operators
        self._memory = memory
        self._least = least

    def choose(self, rng: random.Random) -> int:
        """Index of the operator to use."""
        return rng.choices(range(len(self._rates)), weights=self.probabilities())[0]

    def learn(self, operator: int, improved: bool) -> None:
        """Move the operator's rate towards the outcome."""
        rate = self._rates[operator]
        self._rates[operator] = rate + self._memory * ((1.0 if improved else 0.0) - rate)

    def probabilities(self) -> list[float]:
        """Probability of each operator; they sum to one."""
        total = sum(self._rates)
        count = len(self._rates)
        if total <= 0:
            return [1 / count] * count
        rest = 1 - count * self._least
        return [self._least + rest * rate / total for rate in self._rates]
