"""What one run of a configuration showed, as it is kept in the study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["ok", "crash", "out of memory", "timeout", "no figure"]
FAILED: tuple[Status, ...] = ("crash", "out of memory", "timeout", "no figure")

GENERATE = "generate"
FORWARD = "forward"
TRAIN = "train"
WEIGHT_SYNC = "weight sync"
KINDS = (GENERATE, FORWARD, TRAIN, WEIGHT_SYNC)
"""Stages of a log that stand for all calls of a kind; any other name is that of one call."""


@dataclass(frozen=True)
class LogFigures:
    """What a log says about the steps of one run; times in seconds, memory in bytes."""

    steps_s: tuple[float, ...] = ()
    """Every step, in order."""
    stages_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Stage -> every step's. Stages are names of calls, or those of `KINDS`; several joined by "+"
    where the log has one figure for them."""
    peak_memory_bytes: float | None = None
    """Most that a device had allocated."""


@dataclass(frozen=True)
class Measured:
    """The outcome of one run."""

    status: Status
    step_s: float | None = None
    stages_s: Mapping[str, float] = field(default_factory=dict)
    peak_memory_bytes: float | None = None
    steps: int = 0
    """Steps that the figures are means of; the first one is left out where there are others."""
    spread: float | None = None
    """Standard deviation of those steps over their mean; null for one step."""
    message: str = ""
    """What went wrong, in words."""
    wall_s: float = 0.0
    """Of the whole run."""
