"""A work-depth analysis as text that fits 100 columns."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.report.units import count, percent, seconds
from planner.schema.analysis import Analysis


def render_analysis(analysis: Analysis, title: str) -> RenderableType:
    """Findings, the table of calls, the limits of the step, and what would move it."""
    head = Text()
    head.append(title, style="bold")
    step = seconds(analysis.step_time_s)
    head.append(f"\nplan {analysis.rank}: {analysis.devices} devices, step {step}\n")
    parts: list[RenderableType] = [head]
    parts += [Text(f"- {line}") for line in analysis.findings]
    parts += [Text(), _calls(analysis), _limits(analysis), Text(), _what_ifs(analysis)]
    return Group(*parts)


_WORDS = (
    "W useful FLOP, Q device-memory bytes, H bytes sent (all devices); D dependent kernels and\n"
    "collectives; W/D least device-seconds over the shortest time on any number of devices.\n"
)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _calls(analysis: Analysis) -> RenderableType:
    work = _table("call", "W", "Q", "H", "D", "W/D", "bound by")
    times = _table("call", "time", "devices", "shortest", "on devices")
    for name, call in analysis.calls.items():
        work.add_row(
            name,
            _scaled(call.work_flop, "FLOP"),
            _scaled(call.traffic_bytes, "B"),
            _scaled(sum(call.network_bytes.values()), "B"),
            count(call.depth),
            f"{call.parallelism:,.0f}",
            call.bound_by,
        )
        times.add_row(
            name,
            seconds(call.time_s),
            str(call.devices),
            seconds(call.least_s),
            str(call.least_s_devices),
        )
    work.add_row(
        "step",
        _scaled(analysis.work_flop, "FLOP"),
        _scaled(analysis.traffic_bytes, "B"),
        _scaled(analysis.network_bytes, "B"),
        count(analysis.depth),
        f"{analysis.parallelism:,.0f}",
        analysis.bound_by,
    )
    times.add_row(
        "step",
        seconds(analysis.step_time_s),
        str(analysis.devices),
        seconds(analysis.shortest_path_s),
        "(critical path)",
    )
    return Group(work, Text(_WORDS), times, Text())


def _scaled(value: float, unit: str) -> str:
    """Three significant digits with a prefix: "49.5 PFLOP"."""
    for factor, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {letter}{unit}"
    return f"{value:.3g} {unit}"


def _limits(analysis: Analysis) -> Table:
    table = _table("no step is shorter than", "seconds", "of step time")
    for name, value in sorted(analysis.limits_s.items(), key=lambda item: -item[1]):
        if value > 0:
            table.add_row(name, seconds(value), percent(value / analysis.step_time_s))
    return table


def _what_ifs(analysis: Analysis) -> Table:
    table = _table("the same plan with", "step time", "shorter by")
    for each in analysis.what_ifs:
        table.add_row(each.change, seconds(each.step_time_s), percent(each.saving))
    return table
