"""Figures of a plan through plotly: timeline, memory, waterfall, parts of the time.

Names from users are escaped: plotly reads texts as a subset of HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.report.units import GIB, seconds
from planner.schema import Plan
from planner.simulate.events.timeline import Span

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Okabe and Ito's palette, told apart with any colour vision and on black and white alike, and
# lighter and darker shades for longer lists.
PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#8C8C8C"),
    *("#7F5FC7", "#8C5A2B", "#4DB89E", "#E5A6C8", "#2F4B7C", "#C44E52"),
)
_BAR_PX = 44
_TEXT_ROOM = 1.25
_NAME_CHARACTERS = 14
_MARGINS_PX = 70
_LEGEND_PX = 20


def graph_objects() -> Any:
    """plotly.graph_objects; InputError that says what to install when plotly is missing."""
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise InputError(
            "figures need plotly, which is not installed",
            where="report",
            remedy="Install it: pip install 'rlmplan[report]'",
        ) from None
    return go


def colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, in the order in which they come."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(dict.fromkeys(names))}


def words(name: str) -> str:
    """A name for a figure: no underscores, safe for plotly's HTML."""
    return escape(name.replace("_", " "), quote=False)


def finish(figure: go.Figure, rows: int, entries: int) -> go.Figure:
    """Height by the number of bars, a legend below, the style that all figures share."""
    legend_px = _LEGEND_PX * (entries + 1) // 2
    figure.update_layout(
        template="none",
        height=_MARGINS_PX + _BAR_PX * rows + legend_px,
        # A page may show a legend of its own, which wraps better, and take this off.
        meta={"legend_px": legend_px},
        margin={"l": 8, "r": 16, "t": 8, "b": 8},
        legend={
            "orientation": "h",
            "traceorder": "normal",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "x": 0,
        },
        hoverlabel={"align": "left"},
        font={"family": "system-ui, sans-serif", "size": 13},
    )
    figure.update_xaxes(automargin=True, title_standoff=6)
    figure.update_yaxes(automargin=True, title_standoff=6)
    return figure


def timeline(plan: Plan, spans: Sequence[Span]) -> go.Figure:
    """Gantt chart: a row for each mesh, a bar for each call; seconds."""
    go = graph_objects()
    meshes = [mesh for mesh in dict.fromkeys(span.mesh for span in spans) if mesh != "cpu"]
    rows = {mesh: _two_lines(mesh) for mesh in (*sorted(meshes), "cpu")}
    if len(set(rows.values())) < len(rows):  # names that only differ in what was cut
        rows = {mesh: escape(mesh, quote=False) for mesh in rows}
    colour = colours([*plan.calls, *plan.overheads_s])
    figure = go.Figure()
    names = list(dict.fromkeys(span.call for span in spans))
    for name in names:
        own = [span for span in spans if span.call == name]
        figure.add_bar(
            name=words(name),
            orientation="h",
            y=[rows[span.mesh] for span in own],
            base=[span.start_s for span in own],
            x=[span.end_s - span.start_s for span in own],
            customdata=[[span.iteration + 1, span.end_s] for span in own],
            marker={
                "color": colour.get(name, PALETTE[-1]),
                # Steps of an asynchronous plan overlap: every second one is hatched.
                "pattern": {"shape": ["/" if span.iteration % 2 else "" for span in own]},
                "line": {"width": 1, "color": "rgba(128,128,128,0.6)"},
            },
            hovertemplate="%{base:.2f} to %{customdata[1]:.2f} s (%{x:.2f} s), step "
            "%{customdata[0]}<extra>" + words(name) + "</extra>",
        )
    used = {span.mesh for span in spans}
    figure.update_layout(barmode="overlay", bargap=0.25)
    figure.update_xaxes(title="seconds", rangemode="tozero")
    figure.update_yaxes(
        autorange="reversed",
        categoryorder="array",
        categoryarray=[row for mesh, row in rows.items() if mesh in used],
    )
    return finish(figure, len(used), len(names))


def _two_lines(mesh: str) -> str:
    """A mesh's name with its devices under its group, cut so that it fits a telephone."""
    for word in (" nodes ", " node "):
        group, found, rest = mesh.rpartition(word)
        if found:
            if len(group) > _NAME_CHARACTERS:
                group = group[: _NAME_CHARACTERS - 1] + "…"
            devices = (word + rest).strip().replace(" devices ", "<br>devices ")
            return f"{escape(group, quote=False)}<br>{devices}"
    return "CPU" if mesh == "cpu" else escape(mesh, quote=False)


def memory(plan: Plan) -> go.Figure:
    """What fills the fullest device while each call runs, against its capacity; GiB."""
    go = graph_objects()
    calls = {name: call.memory_bytes for name, call in plan.calls.items() if call.memory_bytes}
    return _stack(
        go,
        {
            name: {
                part: size / GIB
                for part, size in items.items()
                if part not in ("total", "capacity")
            }
            for name, items in calls.items()
        },
        "GiB on the fullest device",
        "GiB",
        {name: items["capacity"] / GIB for name, items in calls.items()},
    )


def time_parts(plan: Plan) -> go.Figure:
    """Where the time of each call goes; seconds."""
    calls = {n: call.time_parts_s for n, call in plan.calls.items() if call.time_s > 0}
    return _stack(graph_objects(), calls, "seconds", "s", {})


def _stack(
    go: Any,
    rows: Mapping[str, Mapping[str, float]],
    axis: str,
    unit: str,
    limits: Mapping[str, float],
) -> go.Figure:
    totals: dict[str, float] = {}
    for parts in rows.values():
        for part, value in parts.items():
            totals[part] = totals.get(part, 0.0) + value
    ordered = sorted((part for part in totals if totals[part] > 0), key=lambda p: -totals[p])
    if "reserve" in ordered:
        ordered.remove("reserve")
        ordered.append("reserve")
    colour = colours(ordered)
    labels = [words(name) for name in rows]
    figure = go.Figure()
    for part in ordered:
        figure.add_bar(
            name=words(part),
            orientation="h",
            y=labels,
            x=[parts.get(part, 0.0) for parts in rows.values()],
            marker={"color": colour[part]},
            hovertemplate="%{x:.2f} " + unit + "<extra>" + words(part) + "</extra>",
        )
    if limits:
        figure.add_scatter(
            name="capacity",
            x=list(limits.values()),
            y=[words(name) for name in limits],
            mode="markers",
            marker={
                "symbol": "line-ns",
                "size": 26,
                "line": {"width": 3, "color": "#D62728"},
            },
            hovertemplate="%{x:.2f} " + unit + "<extra>capacity</extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.3)
    figure.update_xaxes(title=axis, rangemode="tozero")
    figure.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=labels)
    return finish(figure, len(rows), len(ordered) + bool(limits))


def waterfall(plan: Plan) -> go.Figure:
    """From the times of calls and overheads, less what runs side by side, to the step; seconds."""
    go = graph_objects()
    steps = waterfall_steps(plan)
    names = [words(name) for name, _ in steps] + ["step"]
    values = [value for _, value in steps] + [plan.step_time_s]
    figure = go.Figure(
        go.Waterfall(
            orientation="h",
            y=names,
            x=values,
            measure=["relative"] * len(steps) + ["total"],
            text=[seconds(abs(value)) for value in values],
            textposition="auto",
            increasing={"marker": {"color": PALETTE[0]}},
            decreasing={"marker": {"color": PALETTE[2]}},
            totals={"marker": {"color": PALETTE[5]}},
            connector={"line": {"width": 1, "color": "rgba(128,128,128,0.6)"}},
            hovertemplate="%{delta:.2f} s<extra>%{y}</extra>",
        )
    )
    figure.update_layout(showlegend=False)
    reached = list(accumulate(value for _, value in steps))
    # Room for the texts beside short bars.
    figure.update_xaxes(title="seconds", range=[0, _TEXT_ROOM * max([*reached, values[-1]])])
    figure.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=names)
    return finish(figure, len(names), 0)


def waterfall_steps(plan: Plan) -> list[tuple[str, float]]:
    """(name, seconds) that add up to the step time."""
    steps = [(name, call.time_s) for name, call in plan.calls.items() if call.time_s > 0]
    steps += [(name, value) for name, value in plan.overheads_s.items() if value > 0]
    rest = plan.step_time_s - sum(value for _, value in steps)
    if abs(rest) > 1e-6 * plan.step_time_s:
        steps.append(("side by side" if rest < 0 else "waiting", rest))
    return steps
