"""Figures of a problem: response lengths and their tail, bounds of the step, the Pareto front."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.report.figures import PALETTE, finish, graph_objects, words
from planner.schema import ParetoFront, Workload
from planner.schema.analysis import Analysis
from planner.workload.lengths import expected_maximum, quantile, survival, top_length

if TYPE_CHECKING:
    import plotly.graph_objects as go

_POINTS = 200
_CURVE_ROWS = 6


def lengths(workload: Workload) -> go.Figure:
    """Share of responses that are still being written after so many tokens, and the landmarks."""
    go = graph_objects()
    distribution = workload.response_length
    top = top_length(distribution)
    # The last step down is at the limit itself.
    tokens = np.append(np.linspace(0.0, top * (1 - 1e-9), _POINTS), top)
    figure = go.Figure()
    figure.add_scatter(
        name="still running",
        x=tokens.tolist(),
        y=(100.0 * survival(distribution, tokens)).tolist(),
        mode="lines",
        fill="tozeroy",
        line={"color": PALETTE[0]},
        hovertemplate="%{y:.1f} % longer than %{x:,.0f} tokens<extra></extra>",
    )
    for index, (name, at) in enumerate(landmarks(workload).items()):
        figure.add_scatter(
            name=f"{name}: {at:,.0f} tokens",
            x=[at],
            y=[100.0 * float(survival(distribution, at))],
            mode="markers",
            marker={"size": 12, "color": PALETTE[index + 1], "symbol": index},
            hovertemplate="%{x:,.0f} tokens<extra>" + name + "</extra>",
        )
    figure.update_xaxes(title="response length, tokens", rangemode="tozero", tickformat=",d")
    figure.update_yaxes(title="responses still running, %", range=[0, 105])
    return finish(figure, _CURVE_ROWS, 6)


def landmarks(workload: Workload) -> dict[str, float]:
    """Lengths worth a mark, tokens."""
    distribution = workload.response_length
    longest = expected_maximum(distribution, workload.sequences_per_step)
    return {
        "mean": float(distribution.mean_tokens),
        "90 % end by": float(quantile(distribution, 0.9)),
        "99 % end by": float(quantile(distribution, 0.99)),
        f"longest of {workload.sequences_per_step:,} expected": float(longest),
        "limit": float(distribution.max_tokens),
    }


def bounds(analysis: Analysis) -> go.Figure:
    """Lower bounds on the step beside its time; seconds."""
    go = graph_objects()
    limits = sorted(analysis.limits_s.items(), key=lambda item: -item[1])
    shown = [(name, value) for name, value in limits if value > 0]
    names = [words(name) for name, _ in shown]
    figure = go.Figure()
    figure.add_bar(
        name="no step is shorter than",
        orientation="h",
        y=names,
        x=[value for _, value in shown],
        marker={"color": PALETTE[4]},
        hovertemplate="%{x:.3g} s<extra>%{y}</extra>",
    )
    figure.add_scatter(
        name=f"step time {analysis.step_time_s:.3g} s",
        x=[analysis.step_time_s] * len(names),
        y=names,
        mode="lines+markers",
        line={"color": PALETTE[5], "width": 2},
        hovertemplate="%{x:.3g} s<extra>step time</extra>",
    )
    figure.update_xaxes(title="seconds", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=names)
    return finish(figure, len(names), 2)


def front(found: ParetoFront) -> go.Figure:
    """Step time of each number of devices and what a billion tokens cost, the knee marked."""
    from plotly.subplots import make_subplots

    graph_objects()
    points = sorted(found.points, key=lambda point: sum(point.size))
    devices = [sum(point.size) for point in points]
    priced = all(point.cost_per_billion_tokens_usd is not None for point in points)
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    money = (
        [point.cost_per_billion_tokens_usd for point in points]
        if priced
        else [point.device_hours_per_billion_tokens for point in points]
    )
    money_words = "US dollars for 1e9 tokens" if priced else "device-hours for 1e9 tokens"
    series = (
        (1, "best step time", [point.step_time_s for point in points], 0, "solid"),
        (1, "proven bound", [point.bound_s for point in points], 7, "dot"),
        (2, money_words, money, 1, "solid"),
    )
    for row, name, values, index, dash in series:
        figure.add_scatter(
            row=row,
            col=1,
            name=name,
            x=devices,
            y=values,
            mode="lines+markers",
            line={"color": PALETTE[index], "dash": dash},
            hovertemplate="%{x} devices: %{y:,.4g}<extra>" + name + "</extra>",
        )
    for point in points:
        if point.knee:
            for row, value in ((1, point.step_time_s), (2, money[points.index(point)])):
                figure.add_scatter(
                    row=row,
                    col=1,
                    name="knee",
                    showlegend=row == 1,
                    x=[sum(point.size)],
                    y=[value],
                    mode="markers",
                    marker={"size": 16, "symbol": "star", "color": PALETTE[5]},
                    hovertemplate="%{x} devices: %{y:,.4g}<extra>knee</extra>",
                )
    figure.update_xaxes(title="devices", row=2, col=1)
    figure.update_yaxes(title="seconds a step", rangemode="tozero", row=1, col=1)
    unit = "$ / 1e9 tokens" if priced else "device-h / 1e9 tokens"
    figure.update_yaxes(title=unit, rangemode="tozero", row=2, col=1)
    return finish(figure, 2 * _CURVE_ROWS, 4)
