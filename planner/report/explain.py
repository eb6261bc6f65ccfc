"""An Explanation as text that fits 100 columns."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.report.text import WIDTH, new_table
from planner.report.units import GIB, dollars, percent, seconds, short
from planner.schema.explain import Explanation, Rival

_RIVALS = 4


def render_explanation(found: Explanation, title: str) -> RenderableType:
    """Reasons, calls, the other plans, what binds, sensitivities, guidelines."""
    head = Text()
    head.append(title, style="bold")
    head.append(f"\nplan {found.rank}: {found.placement}, {seconds(found.step_time_s)} a step\n")
    parts: list[RenderableType] = [head, _lines("Why this plan", found.reasons), _calls(found)]
    if found.rivals:
        parts.append(_rivals(found))
    parts += [_binds(found), _sensitivities(found), _guidelines(found)]
    if found.notes:
        parts.append(_lines("Notes", found.notes))
    return Group(*parts)


def _lines(title: str, lines: Iterable[str], mark: str = "-") -> Group:
    """A heading and lines that hang under their mark."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=len(mark) + 2, justify="right", no_wrap=True)
    table.add_column(ratio=1)
    table.width = WIDTH
    for line in lines:
        table.add_row(mark, line)
    return Group(Text(title, style="bold"), table, Text())


def _calls(found: Explanation) -> Group:
    table = new_table()
    table.add_column("call", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("of step", justify="right", no_wrap=True)
    table.add_column("bottleneck", ratio=2)
    table.add_column("bound by", ratio=1)
    table.add_column("W/D", justify="right", no_wrap=True)
    table.add_column("GiB of device", justify="right", no_wrap=True)
    for name, call in found.calls.items():
        memory = f"{call.memory_bytes / GIB:.1f} / {call.capacity_bytes / GIB:.1f}"
        if call.memory_verdict != "fits":
            memory += " tight" if call.memory_verdict == "tight" else " OVER"
        table.add_row(
            name,
            seconds(call.time_s),
            percent(call.share_of_step),
            f"{call.bottleneck.replace('_', ' ')} {percent(call.bottleneck_share)}",
            call.bound_by,
            "" if call.parallelism is None else f"{call.parallelism:,.0f}",
            memory if call.capacity_bytes else "",
        )
    words = Text(
        "W/D: devices that the call can use (docs/analysis.md); GiB: on the fullest device\n"
    )
    return Group(table, words)


def _rivals(found: Explanation) -> Group:
    lines = []
    for rival in found.rivals[:_RIVALS]:
        lines.append(f"#{rival.rank} {rival.placement}: {_cost(rival)}")
        if rival.costs_most:
            lines.append(f"   {rival.costs_most}")
        calls: dict[str, list[str]] = {}
        for change in rival.changes:
            have = "" if change.have_s is None else f"{short(change.have_s)} -> "
            calls.setdefault(change.change, []).append(
                f"{change.call} {have}{seconds(change.want_s)}"
            )
        lines += [f"   {'; '.join(names)}: {change}" for change, names in calls.items()]
    if len(found.rivals) > _RIVALS:
        lines.append(f"{len(found.rivals) - _RIVALS} more in --json")
    return _lines("Why not the others", lines, " ")


def _cost(rival: Rival) -> str:
    sign = "+" if rival.worse >= 0 else "-"
    words = f"{seconds(rival.step_time_s)} ({sign}{percent(abs(rival.worse))})"
    return f"{words}, a tie within the model's error" if rival.tie else words


def _binds(found: Explanation) -> Group:
    lines = []
    for bind in found.binds:
        saves = f"{bind.change} would save {percent(bind.saving)} of the step, but "
        lines.append(f"{bind.kind}: {saves if bind.change else ''}{bind.message}")
    return _lines("What binds", lines or ["nothing: no plan one change away is faster"])


def _sensitivities(found: Explanation) -> Group:
    title = Text()
    title.append("What one change would give", style="bold")
    table = Table(box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("change", no_wrap=True)
    for heading in ("same plan", "new plan", "gain", "devices", "cost/step"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("new placement", ratio=1)
    for each in found.sensitivities:
        table.add_row(
            each.change,
            "-" if each.same_plan_s is None else seconds(each.same_plan_s),
            "-" if each.replanned_s is None else seconds(each.replanned_s),
            percent(each.saving),
            "-" if each.devices is None else f"{each.devices:,}",
            dollars(each.cost_per_step_usd),
            each.placement,
        )
    return Group(title, table)


def _guidelines(found: Explanation) -> Group:
    title = "Published guidelines that speak of it"
    lines = (
        f"{'agrees' if each.follows else 'DEPARTS'}: {each.rule}. Here: {each.here} [{each.source}]"
        for each in found.guidelines
    )
    return _lines(title, lines)
