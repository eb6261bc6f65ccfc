"""FrameworkProfile: the calibrated constants of a training framework or a generation engine."""

from __future__ import annotations

from typing import Literal

from planner.schema.base import Name, PositiveFloat, Schema


class Constant(Schema):
    """One calibrated figure with its meaning."""

    value: float
    unit: Name
    meaning: Name
    low: float
    """Plausible range, lower end."""
    high: float
    source: Name
    fitted: bool = False
    """True when `rlmplan fit` adjusts it to measured cases."""


class FrameworkProfile(Schema):
    """Constants that physics leaves open, each with a unit, a meaning and a source."""

    name: Name
    kind: Literal["framework", "engine"]
    description: Name
    constants: dict[Name, Constant]
    relative_error: PositiveFloat
    """Standard deviation of log(measured / predicted) on the cases that it was compared with;
    the 80 % interval of a step time is built from it."""
    relative_error_source: Name

    def value(self, name: str) -> float:
        """The constant's value; KeyError if the profile lacks it."""
        return self.constants[name].value
