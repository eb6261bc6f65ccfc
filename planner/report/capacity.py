"""A Capacity as text that fits 100 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from planner.report.text import assumptions_text, new_table, workload_line
from planner.report.units import dollars, seconds
from planner.schema.capacity import Capacity, CapacityChoice
from planner.search.capacity import duration_in_words

_SHOWN = 12


def render_capacity(found: Capacity) -> RenderableType:
    """The answer, the choices, what holds no plan, assumptions."""
    head = Text()
    head.append(found.workload.name, style="bold")
    head.append(f"  {found.steps:,.0f} steps{_asked(found)}\n{workload_line(found.workload)}\n")
    head.append("Answer  ", style="bold")
    head.append(f"{found.verdict}.\n")
    table = new_table()
    table.add_column("devices", no_wrap=True)
    unit, unit_s = _unit(found)
    for heading in ("step", f"run, {unit} (80 % range)", "cost", "device-hours", "fits"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("plan", ratio=1)
    for choice in found.choices[:_SHOWN]:
        table.add_row(*_cells(choice, found, unit_s))
    notes = Text()
    if len(found.choices) > _SHOWN:
        notes.append(f"{len(found.choices) - _SHOWN} more in --json.\n")
    for line in found.without_plan:
        notes.append(f"No plan on {line}\n")
    notes.append(
        "Words   yes: in time and within the budget; maybe: not at the slow end of the 80 % range; "
        "knee: least time x cost of its cluster; devices: those that the plan may reserve, "
        "beyond one node in whole nodes.\n"
    )
    return Group(head, table, notes, assumptions_text(found.assumptions))


def _asked(found: Capacity) -> str:
    words = ""
    if found.within_s is not None:
        words += f" within {duration_in_words(found.within_s)}"
    if found.budget_usd is not None:
        words += f", {dollars(found.budget_usd)} at most"
    return words


def _unit(found: Capacity) -> tuple[str, float]:
    """Unit of the runs' durations, and its seconds: hours where the first takes under a day."""
    return ("days", 86_400.0) if found.choices[0].run_s >= 86_400.0 else ("hours", 3600.0)


def _cells(choice: CapacityChoice, found: Capacity, unit_s: float) -> tuple[str, ...]:
    low, high = (value / unit_s for value in choice.run_interval_s)
    asked = found.within_s is not None or found.budget_usd is not None
    fits = "" if not asked else "yes" if choice.surely else "maybe" if choice.meets else "no"
    mark = "knee: " if choice.point.knee else ""
    return (
        choice.devices_in_words,
        seconds(choice.point.step_time_s),
        f"{choice.run_s / unit_s:,.3g} ({low:,.3g} to {high:,.3g})",
        dollars(choice.cost_usd),
        f"{choice.device_hours:,.0f}",
        fits,
        f"{mark}{choice.point.plan.placement}",
    )
