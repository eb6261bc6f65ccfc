"""What a reader of measured cases returns, and the registry of readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

RawCase = dict[str, Any]


@dataclass(frozen=True)
class Scored:
    """One measured figure of a case with its prediction."""

    metric: str
    """step_time, throughput, generation, train, logprob, refit, peak_memory or fits."""
    measured: float
    """SI units (seconds, bytes); tokens/s for throughput; 1 or 0 for fits."""
    predicted: float
    breakdown: dict[str, float] = field(default_factory=dict)
    """Predicted parts in the metric's unit, for the list of worst cases."""


@dataclass(frozen=True)
class Prediction:
    """All scored figures of a case, and where it belongs."""

    group: str
    """Source / model / device: a fit is cross-validated by leaving whole groups out."""
    strategy_group: str
    """Equal for cases that differ only in their strategy: ranks are compared within it."""
    framework: str
    """Name of the framework or engine profile that was used."""
    scores: tuple[Scored, ...]


@dataclass(frozen=True)
class Reader:
    """Reads one form of case. `predict` raises InputError for what it cannot read or model."""

    name: str
    recognises: Callable[[RawCase], bool]
    predict: Callable[[RawCase], Prediction]
    metric: str = "step_time"
    """The metric under which a case that could not be predicted is counted."""
    complete: Callable[[RawCase], bool] = lambda case: bool(case.get("complete", True))
    """False for a case that lacks something a prediction needs; it is not predicted."""
    lacks: Callable[[RawCase], str | None] | None = None
    """What an incomplete case would have to state ("unknown: set x"); None when that cannot be
    said."""
    prepare: Callable[[Sequence[RawCase]], Callable[[], list[Prediction]]] | None = None
    """Like `predict` for many cases, which are read once and priced at every call: fitting is
    faster. Only called with cases that `predict` could predict."""
    superseded: Callable[[Sequence[RawCase]], dict[str, str]] | None = None
    """Ids of cases that repeat another one's configuration -> the id of the one that is scored."""
