"""Which operator to try next: learned from what each has brought so far, or by plain chance."""

from __future__ import annotations

import random
from collections.abc import Sequence
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
    """A bandit: operators are chosen by their rates of improvement, learned as the search goes.

    Probability matching (Goldberg 1990; compared with others in Thierens, GECCO 2005). An
    operator's rate is its successes over its trials, both discounted so that recent ones count
    more, on top of `PRIOR_TRIALS` trials at the rate that it had on other instances. The chance of
    an operator is in proportion to its rate to the power `POWER`, and at least `LEAST`, so that one
    that becomes useful later is noticed.
    """

    PRIOR_TRIALS = 20.0
    DISCOUNT = 0.98
    POWER = 2.5
    LEAST = 0.02

    def __init__(self, prior_rates: Sequence[float]):
        self._prior = tuple(prior_rates)
        self._tried = [0.0] * len(prior_rates)
        self._improved = [0.0] * len(prior_rates)

    def choose(self, rng: random.Random) -> int:
        """Index of the operator to use."""
        return rng.choices(range(len(self._prior)), weights=self.probabilities())[0]

    def learn(self, operator: int, improved: bool) -> None:
        """Count the operator's trial, and older ones for a little less."""
        self._tried[operator] = self.DISCOUNT * self._tried[operator] + 1.0
        self._improved[operator] = self.DISCOUNT * self._improved[operator] + improved

    def rates(self) -> list[float]:
        """What each operator is thought to improve, as a part of its trials."""
        return [
            (improved + self.PRIOR_TRIALS * prior) / (tried + self.PRIOR_TRIALS)
            for prior, tried, improved in zip(self._prior, self._tried, self._improved, strict=True)
        ]

    def probabilities(self) -> list[float]:
        """Probability of each operator; they sum to one."""
        weights = [rate**self.POWER for rate in self.rates()]
        total = sum(weights)
        rest = 1 - len(weights) * self.LEAST
        return [self.LEAST + rest * weight / total for weight in weights]
