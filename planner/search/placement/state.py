"""What the parts of the search share: the best plan, the proven bound, and when to stop."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from planner.search.placement.clock import Clock
from planner.search.placement.evaluate import Plan


@dataclass
class Search:
    """State of the search. Values and bounds exclude the fixed seconds of a step."""

    gap: float
    """Relative distance of whole step times (fixed seconds included) at which to stop."""
    limit_s: float
    """Only plans below this are of interest (inf: all)."""
    fixed_s: float
    clock: Clock
    seed: int
    bound_s: float = 0.0
    """No plan takes less; inf if there is none."""
    best: Plan | None = None
    seen: dict[tuple[int, ...], Plan] = field(default_factory=dict)
    """Best plan found for each choice of original options."""

    def offer(self, plan: Plan | None) -> bool:
        """Keep a plan; whether it is the best so far."""
        if plan is None:
            return False
        known = self.seen.get(plan.origin)
        if known is None or plan.value_s < known.value_s:
            self.seen[plan.origin] = plan
        if self.best is None or plan.value_s < self.best.value_s:
            self.best = plan
            return True
        return False

    @property
    def proven_at_s(self) -> float:
        """A bound from here on proves the best plan within the gap; inf without a plan."""
        if self.best is None:
            return math.inf
        return self.best.value_s - self.gap * (self.best.value_s + self.fixed_s)

    @property
    def proven(self) -> bool:
        """The best plan is within the gap of the bound (or it is proven that there is none)."""
        return self.bound_s >= self.proven_at_s

    @property
    def target_s(self) -> float:
        """Plans at or above this need not be found."""
        return min(self.proven_at_s, self.limit_s)

    @property
    def done(self) -> bool:
        """Proven, or nothing of interest is left."""
        return self.bound_s >= self.target_s

    def raise_bound(self, bound_s: float) -> None:
        """Record a valid lower bound."""
        self.bound_s = max(self.bound_s, bound_s)
