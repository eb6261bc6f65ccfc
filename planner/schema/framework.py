"""FrameworkProfile: the calibrated constants of a training framework or a generation engine."""

from __future__ import annotations

from typing import Literal

from planner.schema.base import Name, PositiveFloat, Schema


class Constant(Schema):
    """One calibrated figure with its meaning."""

    value: float
    """The figure, in `unit`."""
    unit: Name
    """Unit of value, low and high, for example "s"; "1", "ratio" or "flag" without one."""
    meaning: Name
    """What it stands for, in words."""
    low: float
    """Plausible range, lower end."""
    high: float
    """Plausible range, upper end."""
    source: Name
    """Where the value comes from: a publication, a fit, or an assumption."""
    fitted: bool = False
    """True when `rlmplan fit` adjusts it to measured cases."""


class FrameworkProfile(Schema):
    """Constants that physics leaves open, each with a unit, a meaning and a source."""

    name: Name
    """Name of the profile and of its file."""
    kind: Literal["framework", "engine"]
    """framework: training and the step's overheads; engine: generation."""
    description: Name
    """What it describes, in words; shown with every plan that uses it."""
    constants: dict[Name, Constant]
    """Name -> constant."""
    relative_error: PositiveFloat
    """Standard deviation of log(measured / predicted) on the cases that it was compared with;
    the 80 % interval of a step time is built from it."""
    relative_error_source: Name
    """What relative_error rests on."""

    def value(self, name: str) -> float:
        """The constant's value; KeyError if the profile lacks it."""
        return self.constants[name].value
