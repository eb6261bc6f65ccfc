"""Plans in a notebook: tables and a timeline as HTML, which needs no script, and plotly figures."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.report import figures, problem_figures
from planner.report.html import tables
from planner.report.text import cluster_words, workload_line
from planner.report.units import seconds
from planner.schema import Plan, PlanSet
from planner.simulate.events.timeline import CPU, mesh_name
from planner.simulate.timeline import planned_spans

if TYPE_CHECKING:
    import plotly.graph_objects as go

_LEAST_LABEL_PERCENT = 8.0


def plan_set_html(plan_set: PlanSet) -> str:
    """The ranking, and the first plan as `plan_html` shows it."""
    workload = plan_set.workload
    head = (
        f"<p><b>{escape(workload.name)}</b> on {escape(cluster_words(plan_set.cluster))}<br>"
        f"{escape(workload_line(workload))}</p>"
    )
    if not plan_set.plans:
        return f"{head}<p>no plan</p>"
    return head + tables.ranking(plan_set) + plan_html(plan_set.plans[0])


def plan_html(plan: Plan) -> str:
    """The calls of a plan as a table, and when they run as bars."""
    groups = {mesh.group for mesh in plan.assignment.meshes.values()}
    low, high = plan.step_time_interval_s
    return (
        f"<p><b>#{plan.rank} {escape(plan.placement)}</b>: {seconds(plan.step_time_s)} a step "
        f"(80 %: {seconds(low)} to {seconds(high)})</p>"
        + tables.calls(plan, len(groups) > 1)
        + _bars(plan)
    )


def plan_figures(plan_set: PlanSet, rank: int = 1) -> Mapping[str, go.Figure]:
    """Plotly figures of a plan by name: timeline, waterfall, memory, time_parts, lengths.

    Raises KeyError for a rank that is not there, InputError where plotly is not installed.
    """
    plan = {each.rank: each for each in plan_set.plans}[rank]
    spans = planned_spans(plan, plan_set.workload, plan_set.cluster)
    return {
        "timeline": figures.timeline(plan, spans),
        "waterfall": figures.waterfall(plan),
        "memory": figures.memory(plan),
        "time_parts": figures.time_parts(plan),
        "lengths": problem_figures.lengths(plan_set.workload),
    }


def _bars(plan: Plan) -> str:
    """A row for each mesh, a bar for each call of one iteration; styles stand in the elements,
    since notebooks strip style sheets."""
    rows: dict[str, list[tuple[str, float, float]]] = {}
    for name, call in plan.calls.items():
        if call.time_s > 0:
            mesh = CPU if call.mesh is None else mesh_name(call.mesh)
            rows.setdefault(mesh, []).append((name, call.start_s, call.time_s))
    end_s = max((start + time for row in rows.values() for _, start, time in row), default=0.0)
    colour = figures.colours(list(plan.calls))
    parts = []
    for mesh, row in sorted(rows.items(), key=lambda item: (item[0] == CPU, item[0])):
        bars = []
        for name, start_s, time_s in row:
            width = 100 * time_s / end_s
            label = escape(name.replace("_", " ")) if width >= _LEAST_LABEL_PERCENT else ""
            bars.append(
                f'<div title="{escape(name)}: {start_s:.2f} to {start_s + time_s:.2f} s" '
                f'style="position:absolute;left:{100 * start_s / end_s:.3f}%;width:{width:.3f}%;'
                f"height:100%;background:{colour[name]};color:#fff;font-size:11px;"
                f'overflow:hidden;white-space:nowrap;padding:2px;box-sizing:border-box">'
                f"{label}</div>"
            )
        parts.append(
            f'<div style="font-size:12px">{escape(mesh)}</div>'
            f'<div style="position:relative;height:22px;margin-bottom:4px">{"".join(bars)}</div>'
        )
    return (
        f'<div style="max-width:60rem">{"".join(parts)}'
        f'<div style="font-size:12px">one iteration: 0 to {seconds(end_s)}</div></div>'
    )


def data_frame(plan_set: PlanSet, *, calls: bool = False) -> Any:
    """`PlanSet.to_dataframe`."""
    try:
        import pandas as pd
    except ImportError:
        raise InputError(
            "data frames need pandas, which is not installed",
            where="to_dataframe",
            remedy="Install it: pip install 'rlmplan[report]'",
        ) from None
    rows = _call_rows if calls else _plan_rows
    return pd.DataFrame([row for plan in plan_set.plans for row in rows(plan)])


def _plan_rows(plan: Plan) -> list[dict[str, Any]]:
    low, high = plan.step_time_interval_s
    return [
        {
            "rank": plan.rank,
            "placement": plan.placement,
            "devices": plan.devices,
            "staleness": plan.staleness,
            "step_time_s": plan.step_time_s,
            "step_time_low_s": low,
            "step_time_high_s": high,
            "bound_s": plan.bound_s,
            "work_depth_bound_s": plan.work_depth_bound_s,
            "tokens_per_s_per_device": plan.tokens_per_s_per_device,
            "cost_per_step_usd": plan.cost_per_step_usd,
            "objective_value": plan.objective_value,
            "tie_with_best": plan.tie_with_best,
            "launchers": ", ".join(plan.launchers),
        }
    ]


def _call_rows(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "rank": plan.rank,
            "call": name,
            "kind": call.kind,
            "role": call.role,
            "devices": None if call.mesh is None else call.mesh.devices,
            "start_s": call.start_s,
            "time_s": call.time_s,
            "bottleneck": call.bottleneck,
            "memory_verdict": call.memory_verdict,
            **({} if call.strategy is None else call.strategy.model_dump()),
            **{f"time_s.{part}": value for part, value in call.time_parts_s.items()},
            **{f"memory_bytes.{part}": value for part, value in call.memory_bytes.items()},
        }
        for name, call in plan.calls.items()
    ]
