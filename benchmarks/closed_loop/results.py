"""Predicted against measured: errors, order of strategies, and the table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

_DIFFERENT = 1.15


@dataclass(frozen=True)
class Row:
    """One configuration."""

    kind: str
    group: str
    label: str
    predicted_s: float
    measured_s: float
    spread: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_s / self.measured_s


def mean_error(rows: Iterable[Row]) -> float:
    """Mean of |predicted / measured - 1|."""
    errors = [abs(row.ratio - 1.0) for row in rows]
    return sum(errors) / len(errors)


def right_order(rows: Iterable[Row]) -> tuple[int, int]:
    """(pairs in the right order, pairs) of one group whose measured times differ by over 15 %."""
    right = pairs = 0
    by_group: dict[str, list[Row]] = {}
    for row in rows:
        by_group.setdefault(row.group, []).append(row)
    for group in by_group.values():
        for one, other in itertools.combinations(group, 2):
            slow, fast = sorted((one, other), key=lambda row: -row.measured_s)
            if slow.measured_s > _DIFFERENT * fast.measured_s:
                pairs += 1
                right += slow.predicted_s > fast.predicted_s
    return right, pairs


def table(rows: Iterable[Row]) -> str:
    """Markdown."""
    lines = [
        "| model, load | strategy | predicted ms | measured ms | spread | predicted / measured |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        lines.append(
            f"| {row.group} | {row.label} | {1e3 * row.predicted_s:.2f} | "
            f"{1e3 * row.measured_s:.2f} | {100 * row.spread:.0f} % | {row.ratio:.2f} |"
        )
    return "\n".join(lines)


def verdict(rows: list[Row]) -> str:
    """The figures that count."""
    lines = []
    for kind in dict.fromkeys(row.kind for row in rows):
        chosen = [row for row in rows if row.kind == kind]
        lines.append(f"{kind}: {len(chosen)} configurations, mean error {mean_error(chosen):.1%}")
    right, pairs = right_order(row for row in rows if row.kind == "training")
    share = right / pairs if pairs else 1.0
    lines.append(f"order of training strategies: {right} of {pairs} pairs right ({share:.0%})")
    return "\n".join(lines)
