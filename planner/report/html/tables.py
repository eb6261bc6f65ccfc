"""Tables of the HTML report: every number with its unit, and as data that a program reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from planner.report.text import degrees, knobs, layouts, mesh_words
from planner.report.units import GIB, dollars, percent, seconds, short
from planner.schema import ParetoFront, Plan, PlanSet

Cell = str | tuple[str, float | None]
"""Text, or text of a number with its value in full."""


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Cell]], first: str = "", name: str = ""
) -> str:
    """A table; numbers stand right. On narrow pages each row becomes a card of its cells.

    `first` is the class of the first row, `name` the table's id. Texts are escaped.
    """
    body = []
    kinds = [""] * len(heads)
    for index, row in enumerate(rows):
        cells = []
        for column, (head, cell) in enumerate(zip(heads, row, strict=True)):
            text, value = (cell, None) if isinstance(cell, str) else cell
            number = not isinstance(cell, str)
            text = text.replace(" ", "\u00a0") if number else text  # no unit on a line of its own
            kinds[column] = ' class="n"' if number else kinds[column]
            data = "" if value is None else f' data-value="{value!r}"'
            cells.append(
                f'<td{" class=n" if number else ""} data-label="{escape(head)}"{data}>'
                f"{escape(text)}</td>"
            )
        mark = f' class="{first}"' if first and index == 0 else ""
        body.append(f"<tr{mark}>{''.join(cells)}</tr>")
    head_cells = "".join(
        f"<th{kind}>{escape(head)}</th>" for head, kind in zip(heads, kinds, strict=True)
    )
    given = f' id="{name}"' if name else ""
    return (
        f"<table{given}><thead><tr>{head_cells}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )


def ranking(plan_set: PlanSet) -> str:
    """The ranked plans."""
    heads = (
        "#",
        "placement and layouts",
        "devices",
        "step time",
        "80 % range",
        "tokens/s per device",
    )
    best = plan_set.plans[0]
    rows = []
    for plan in plan_set.plans:
        low, high = plan.step_time_interval_s
        slower = plan.step_time_s / best.step_time_s - 1
        versus = "best" if plan is best else f"{slower:+.1%}{' tie' if plan.tie_with_best else ''}"
        rows.append(
            (
                (str(plan.rank), float(plan.rank)),
                f"{plan.placement}; {layouts(plan)}",
                (f"{plan.devices:,}", float(plan.devices)),
                (seconds(plan.step_time_s), plan.step_time_s),
                (f"{short(low)} to {short(high)} s", None),
                (f"{plan.tokens_per_s_per_device:,.0f}", plan.tokens_per_s_per_device),
                (dollars(plan.cost_per_step_usd), plan.cost_per_step_usd),
                (versus, None),
                ", ".join(plan.launchers) or "none",
            )
        )
    return table((*heads, "cost/step", "step time vs best", "runs on"), rows, "best", "ranking")


def calls(plan: Plan, several_groups: bool) -> str:
    """One plan call by call."""
    heads = ("call", "devices (nodes)", "degrees", "batch and memory knobs", "time")
    rows: list[Sequence[Cell]] = []
    for name, call in plan.calls.items():
        if call.mesh is None or call.strategy is None:
            rows.append((name, "CPU", "", "", (seconds(call.time_s), call.time_s), ("", None), ""))
            continue
        items = call.memory_bytes
        verdict = "" if call.memory_verdict == "fits" else f" {call.memory_verdict}"
        rows.append(
            (
                name,
                mesh_words(call.mesh, name_group=several_groups),
                degrees(call.strategy, call.kind),
                knobs(call.strategy, call.kind),
                (seconds(call.time_s), call.time_s),
                (
                    f"{items['total'] / GIB:.1f} of {items['capacity'] / GIB:.1f} GiB{verdict}",
                    float(items["total"]),
                ),
                call.bottleneck.replace("_", " "),
            )
        )
    for name, value in plan.overheads_s.items():
        rows.append((name, "", "", "", (seconds(value), value), ("", None), ""))
    return table((*heads, "fullest device", "bottleneck"), rows, name=f"calls-{plan.rank}")


def front(found: ParetoFront) -> str:
    """The best plan for each number of devices."""
    heads = ("devices", "step time", "gap", "cost/step", "cost of 1e9 tokens", "efficiency", "plan")
    rows = []
    for point in found.points:
        mark = "knee: " if point.knee else "no gain: " if point.dominated else ""
        rows.append(
            (
                (" + ".join(f"{n:,}" for n in point.size), float(sum(point.size))),
                (seconds(point.step_time_s), point.step_time_s),
                (percent(1 - point.bound_s / point.step_time_s), None),
                (dollars(point.cost_per_step_usd), point.cost_per_step_usd),
                (dollars(point.cost_per_billion_tokens_usd), point.cost_per_billion_tokens_usd),
                (percent(point.scaling_efficiency), point.scaling_efficiency),
                f"{mark}{point.plan.placement}; {layouts(point.plan)}",
            )
        )
    return table(heads, rows, name="front-table")
