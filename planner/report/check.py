"""A CheckReport as text that fits 100 columns."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.report.text import WIDTH, degrees, knobs
from planner.report.units import GIB, seconds, short
from planner.schema import CallPrediction
from planner.schema.check import CallChange, CheckReport, IgnoredSetting, OneChange

_SHOWN_PARTS = 3


def render_check(report: CheckReport) -> RenderableType:
    """Verdict, rules broken, times and memory by call, remedies, best plan, what was left out."""
    parts: list[RenderableType] = [_title(report)]
    if report.broken:
        parts.append(_broken(report))
    refused = {key for each in report.broken for key in each.keys}
    unknown = [each for each in report.ignored if each.unknown and each.key not in refused]
    others = [each for each in report.ignored if not each.unknown]
    if unknown:
        parts.append(_ignored("Settings that the launcher does not have", unknown))
    if report.shortages:
        parts.append(_shortages(report))
    if report.prediction is not None:
        parts.append(_calls(report))
    if report.remedies:
        parts.append(_remedies(report))
    parts += [_best(report), _setting_changes(report)]
    if others:
        parts.append(_ignored("Settings that do not enter the prediction", others))
    if report.notes:
        parts.append(_list("Assumed", report.notes))
    return Group(*parts)


def _title(report: CheckReport) -> Text:
    group = report.cluster.groups[0]
    workload = report.workload
    text = Text()
    text.append(f"{report.launcher}", style="bold")
    text.append(
        f" ({report.version}) on {group.nodes} x {group.devices_per_node} {group.device.id}, "
        f"space {report.space}\n"
        f"{workload.algorithm.upper()}: {workload.models['actor'].name}; "
        f"{workload.prompts_per_step} prompts x {workload.samples_per_prompt} samples, prompts up "
        f"to {workload.prompt_length.max_tokens}, responses up to "
        f"{workload.response_length.max_tokens} tokens (mean "
        f"{workload.response_length.mean_tokens:g})\n\n"
    )
    text.append(f"{report.verdict.upper()}", style="bold")
    reasons = []
    if report.broken:
        reasons.append(f"{len(report.broken)} rule{'s' * (len(report.broken) > 1)} broken")
    if report.shortages:
        reasons.append(f"out of memory in {', '.join(each.call for each in report.shortages)}")
    if reasons:
        text.append(f": {'; '.join(reasons)}")
    if report.prediction is not None:
        low, high = report.prediction.step_time_interval_s
        text.append(
            f"{'; ' if reasons else ': '}step time {seconds(report.prediction.step_time_s)} "
            f"({short(low)} to {short(high)} s)"
        )
    text.append("\n")
    return text


def _broken(report: CheckReport) -> Text:
    text = Text()
    text.append("Rules broken\n", style="bold")
    for each in report.broken:
        where = f" ({each.call})" if each.call else ""
        source = f" [{each.source}]" if each.source else ""
        text.append(f"  {each.rule}{where}: {each.message}{source}\n")
        if each.keys:
            text.append(f"    set by   {', '.join(each.keys)}\n")
        if each.nearest:
            text.append(f"    legal    {'; or '.join(each.nearest)}\n")
    return text


def _shortages(report: CheckReport) -> Text:
    text = Text()
    text.append("Memory short\n", style="bold")
    for each in report.shortages:
        items = ", ".join(
            f"{name.replace('_', ' ')} {size / GIB:.1f}" for name, size in each.largest
        )
        where = "of a node" if each.call == "host memory" else "on a device"
        need = f"{each.needed_bytes / GIB:.1f} of {each.room_bytes / GIB:.1f}"
        over = f"{each.short_bytes / GIB:.1f} GiB too much {where} ({need})"
        text.append(f"  {each.call}: {over}; {items} GiB\n")
        if each.cause:
            text.append(f"    {each.cause}\n")
    return text


def _calls(report: CheckReport) -> Table:
    assert report.prediction is not None
    table = Table(box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("call", no_wrap=True)
    table.add_column("degrees and knobs", ratio=3)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("where the time goes", ratio=3)
    table.add_column("GiB/device", justify="right", no_wrap=True)
    table.add_column("largest in memory", ratio=3)
    for name, call in report.prediction.calls.items():
        table.add_row(name, *_cells(call))
    for name, value in report.prediction.overheads_s.items():
        table.add_row(name, "", seconds(value), "", "", "", style="dim")
    return table


def _cells(call: CallPrediction) -> tuple[str, ...]:
    if call.strategy is None:
        return ("CPU", seconds(call.time_s), "", "", "")
    memory = f"{call.memory_bytes['total'] / GIB:.0f}/{call.memory_bytes['capacity'] / GIB:.0f}"
    if call.memory_verdict != "fits":
        memory += " tight" if call.memory_verdict == "tight" else " OVER"
    return (
        f"{degrees(call.strategy, call.kind)}; {knobs(call.strategy, call.kind)}",
        seconds(call.time_s),
        _largest(call.time_parts_s, 1.0, "s"),
        memory,
        _largest(
            {
                name: float(size)
                for name, size in call.memory_bytes.items()
                if name not in ("total", "capacity")
            },
            GIB,
            "",
        ),
    )


def _largest(parts: dict[str, float], unit: float, name: str) -> str:
    ordered = sorted(parts.items(), key=lambda pair: -pair[1])[:_SHOWN_PARTS]
    return ", ".join(
        f"{part.replace('_', ' ')} {short(value / unit)}{' ' + name if name else ''}"
        for part, value in ordered
    )


def _remedies(report: CheckReport) -> Text:
    text = Text(no_wrap=True, overflow="ignore")  # to be copied: broken between settings only
    runs = report.verdict != "will not run"
    title = "One change that helps" if runs else "One change after which it fits"
    text.append(f"{title}\n", style="bold")
    for each in report.remedies:
        text.append("".join(f"  {line}\n" for line in _lines(each.settings, " ", WIDTH - 2)))
        effect = _lines(_effect(report, each).split(" "), " ", WIDTH - 4)
        text.append("".join(f"    {line}\n" for line in effect))
    return text


def _lines(words: Iterable[str], between: str, width: int) -> list[str]:
    """Lines of at most `width`; a word that is longer has a line of its own, and stays whole."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(between) + len(word) <= width:
            lines[-1] += between + word
        else:
            lines.append(word)
    return lines


def _effect(report: CheckReport, change: OneChange) -> str:
    words = f"{change.meaning}: {seconds(change.step_time_s)} a step, {change.verdict}"
    if report.prediction is not None and report.verdict != "will not run":
        words += f", {report.prediction.step_time_s / change.step_time_s:.2f}x faster"
    return words


def _best(report: CheckReport) -> Text:
    text = Text()
    if report.best is None:
        if report.best_note:
            text.append("No plan on these devices\n", style="bold")
            text.append(f"  {report.best_note}\n")
        return text
    text.append("Best plan on the same devices", style="bold")
    faster = f", {report.speedup:.2f}x faster" if report.speedup else ""
    low, high = report.best.step_time_interval_s
    text.append(
        f"  {seconds(report.best.step_time_s)} ({short(low)} to {short(high)} s){faster}: "
        f"{report.best.placement}\n"
    )
    if report.best_note:
        text.append(f"  {report.best_note}\n")
    grouped: dict[str, list[CallChange]] = {}
    for each in report.call_changes:
        grouped.setdefault(each.change, []).append(each)
    for change, calls in grouped.items():
        have = [each.have_s for each in calls if each.have_s is not None]
        before = f"{seconds(sum(have))} -> " if len(have) == len(calls) else ""
        after = seconds(sum(each.want_s for each in calls))
        text.append(f"  {', '.join(each.call for each in calls)}: {change}; {before}{after}\n")
    return text


def _setting_changes(report: CheckReport) -> Text:
    text = Text(no_wrap=True, overflow="ignore")  # to be copied: a broken line would not be a key
    if report.setting_changes:
        text.append("Settings to change for it\n", style="bold")
    for change in report.setting_changes:
        text.append(f"  - {change.key}={change.have}\n" if change.have else "")
        text.append(f"  + {change.key}={change.want}\n" if change.want else "")
    return text


def _ignored(title: str, settings: list[IgnoredSetting]) -> Text:
    text = Text()
    text.append(f"{title}\n", style="bold")
    by_reason: dict[str, list[str]] = {}
    for each in settings:
        by_reason.setdefault(each.reason, []).append(each.key)
    for reason, keys in by_reason.items():
        text.append(f"  {reason.rstrip('.')}: {', '.join(keys)}\n")
    return text


def _list(title: str, lines: tuple[str, ...]) -> Text:
    text = Text()
    text.append(f"{title}\n", style="bold")
    for line in lines:
        text.append(f"  - {line}\n")
    return text
