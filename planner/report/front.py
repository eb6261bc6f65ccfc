"""The Pareto front as text that fits 100 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.report.text import assumptions_text, cluster_words, layouts, new_table, workload_line
from planner.report.units import dollars, percent, seconds
from planner.schema import FrontPoint, ParetoFront


def render_front(front: ParetoFront) -> RenderableType:
    """A line for each number of devices, the rule of the knee, what is proven, assumptions."""
    title = Text()
    title.append(front.workload.name, style="bold")
    title.append(f"  on up to {cluster_words(front.cluster)}  (space {front.space})\n")
    title.append(workload_line(front.workload))
    return Group(title, _table(front), _words(front), assumptions_text(front.assumptions))


def _table(front: ParetoFront) -> Table:
    table = new_table()
    for heading in ("devices", "step time", "gap", "$/step", "$/1B tok", "hours/1B tok", "eff."):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("plan", ratio=1)
    for point in front.points:
        table.add_row(*_cells(point, front), style="dim" if point.dominated else None)
    return table


def _cells(point: FrontPoint, front: ParetoFront) -> tuple[str, ...]:
    size = " + ".join(f"{n}" for n in point.size) if len(point.size) > 1 else f"{point.size[0]:,}"
    if point.devices != sum(point.size):
        size += f" (uses {point.devices:,})"
    mark = "knee: " if point.knee else "no gain: " if point.dominated else ""
    if point.best and front.objective != "step_time":
        best = "most" if front.objective.startswith("tokens_per_s") else "least"
        mark = f"{best} {front.objective.replace('_', ' ')}: {mark}"
    gap = 1 - point.bound_s / point.step_time_s
    return (
        size,
        seconds(point.step_time_s),
        percent(gap),
        dollars(point.cost_per_step_usd),
        dollars(point.cost_per_billion_tokens_usd),
        f"{point.device_hours_per_billion_tokens:,.0f}",
        percent(point.scaling_efficiency),
        f"{mark}{point.plan.placement}\n{layouts(point.plan)}",
    )


def _words(front: ParetoFront) -> Text:
    text = Text()
    text.append("Bounds  ", style="bold")
    proof = "every step time is proven best" if front.optimal else "not every proof closed"
    text.append(
        f"{proof} for its number of devices, within the gap shown, in this model and the memory "
        "limit below.\n"
    )
    if any(point.knee for point in front.points):
        text.append(
            "Knee    least step time x cost: with more devices, a per cent of time saved costs "
            "more than a per cent of money.\n"
        )
    if any(point.dominated for point in front.points):
        text.append("No gain fewer devices are as fast.\n")
    if front.without_plan:
        sizes = ", ".join(" + ".join(map(str, size)) for size in front.without_plan)
        text.append(f"No plan on {sizes} device{'' if sizes == '1' else 's'}.\n")
    text.append(
        "Words   hours: device-hours; tok: prompt and response tokens; eff.: tokens a second and "
        "device against the smallest size; devices: those that a plan may reserve.\n"
        f"Search  {front.candidates:,} strategies costed, once for all sizes, "
        f"{front.wall_s:.2f} s.\n"
    )
    return text
