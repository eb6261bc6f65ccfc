"""Predictions against measurements, as text that fits 100 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.measure.case import Scored
from planner.measure.scores import VERDICTS, Summary
from planner.measure.validation import Outcome, Validation
from planner.report.units import gib, seconds

_PARTS_SHOWN = 6
_REASONS_SHOWN = 8


def render_validation(validation: Validation, *, worst: int, groups: bool = True) -> RenderableType:
    """Figures by file and by group, flagged rows apart, skipped cases, the worst cases."""
    parts: list[RenderableType] = [_files(validation)]
    if groups:
        parts += [
            _groups(name, members) for name, members in validation.groups().items() if members
        ]
    parts += [_skipped(validation), _undecided(validation)]
    parts += [Text(note) for note in validation.notes]
    if worst:
        parts.append(_worst(validation, worst))
    return Group(*parts)


def _columns(table: Table) -> None:
    for name in ("n", "MAPE", "median", "p90", "bias", "tau", "regret"):
        table.add_column(name, justify="right", no_wrap=True)


def _table(title: str, first: str, verdicts: bool) -> Table:
    table = Table(
        title=Text(title),
        title_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column(first, overflow="fold")
    table.add_column("metric", no_wrap=True)
    _columns(table)
    if verdicts:
        table.add_column("right", justify="right", no_wrap=True)
    return table


def _has_verdicts(members: Iterable[dict[str, Summary]]) -> bool:
    return any(metric in VERDICTS for metrics in members for metric in metrics)


def _cells(metric: str, one: Summary, verdicts: bool) -> list[str]:
    if metric in VERDICTS:
        right = None if one.mape is None else 1.0 - one.mape
        return [str(one.n), "", "", "", "", "", "", _percent(right)]
    tau = "-" if one.kendall_tau is None else f"{one.kendall_tau:.2f}"
    figures = [
        str(one.n),
        _percent(one.mape),
        _percent(one.median_ape),
        _percent(one.p90_ape),
        _signed(one.bias),
        tau,
        _percent(one.top1_regret),
    ]
    return [*figures, ""] if verdicts else figures


def _files(validation: Validation) -> Table:
    verdicts = _has_verdicts(validation.files().values())
    table = _table("Files (errors in %)", "file", verdicts)
    table.add_column("skipped", justify="right", no_wrap=True)
    flagged = validation.flagged()
    for name, metrics in validation.files().items():
        for metric, one in metrics.items():
            table.add_row(Text(name), metric, *_cells(metric, one, verdicts), str(one.skipped))
        for metric, one in flagged.get(name, {}).items():
            table.add_row(Text(name), f"({metric})", *_cells(metric, one, verdicts), "flagged")
    return table


def _groups(name: str, members: dict[str, dict[str, Summary]]) -> Table:
    verdicts = _has_verdicts(members.values())
    table = _table(f"{name} (errors in %)", "group", verdicts)
    for group, metrics in members.items():
        for metric, one in metrics.items():
            table.add_row(Text(group), metric, *_cells(metric, one, verdicts))
    return table


def _skipped(validation: Validation) -> RenderableType:
    skipped = [one for one in validation.outcomes if one.counts_as_skipped]
    incomplete = sum(one.incomplete for one in validation.outcomes)
    superseded = sum(one.superseded_by is not None for one in validation.outcomes)
    complete = len(validation.outcomes) - incomplete
    share = f" ({100 * len(skipped) / complete:.1f} %)" if complete else ""
    lines = [
        f"{len(skipped)} of {complete} complete cases skipped{share}; "
        f"{incomplete} incomplete, {superseded} measured again with newer software."
    ]
    reasons = Counter(_without_id(one) for one in skipped)
    lines += [f"  {count} x {reason}" for reason, count in reasons.most_common(_REASONS_SHOWN)]
    return Text("\n".join(lines) + "\n")


def _undecided(validation: Validation) -> RenderableType:
    """Cases for which no verdict can be given, by what would settle it."""
    lacks = Counter(
        one.skipped_because
        for one in validation.outcomes
        if one.incomplete and (one.skipped_because or "").startswith("unknown: ")
    )
    if not lacks:
        return Text("")
    ids = {
        why: next(one.id for one in validation.outcomes if one.skipped_because == why)
        for why in lacks
    }
    lines = [f"  {count} x {why} (first: {ids[why]})" for why, count in lacks.most_common()]
    return Text("\n".join(["Undecided for lack of inputs", *lines]) + "\n")


def _without_id(one: Outcome) -> str:
    return (one.skipped_because or "").replace(f"case {one.id}: ", "")


def _worst(validation: Validation, count: int) -> RenderableType:
    lines = ["Worst cases"]
    for one, figure, ape in validation.worst(count):
        framework = one.prediction.framework if one.prediction is not None else ""
        predicted, measured = (_value(figure, v) for v in (figure.predicted, figure.measured))
        lines.append(
            f"{one.id} ({framework}), {figure.metric}: predicted {predicted}, "
            f"measured {measured} ({_percent(ape)} %)"
        )
        parts = sorted(figure.breakdown.items(), key=lambda item: -item[1])[:_PARTS_SHOWN]
        if parts:
            words = ", ".join(f"{name} {_part(figure, value)}" for name, value in parts if value)
            lines.append(f"    {words}")
    return Text("\n".join(lines) + "\n")


def _part(figure: Scored, value: float) -> str:
    """A part of a prediction; what a verdict rests on is memory."""
    return gib(value) if figure.metric in VERDICTS else _value(figure, value)


def _value(figure: Scored, value: float) -> str:
    if figure.metric == "throughput":
        return f"{value:,.4g} tokens/s"
    if figure.metric == "peak_memory":
        return gib(value)
    if figure.metric in VERDICTS:
        return "fits" if round(value) else "does not fit"
    return seconds(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f}"
