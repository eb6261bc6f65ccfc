"""A Comparison as text that fits 100 columns."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.text import Text

from planner.report.text import new_table
from planner.report.units import GIB, dollars, seconds, short
from planner.schema.explain import Comparison, Side

_ROWS: tuple[tuple[str, Callable[[Side], str]], ...] = (
    ("cluster", lambda side: side.cluster),
    ("space", lambda side: side.space),
    ("placement", lambda side: side.placement),
    ("devices", lambda side: f"{side.devices:,}"),
    (
        "step time (80 % range)",
        lambda side: (
            f"{seconds(side.step_time_s)} ({short(side.step_time_interval_s[0])} to "
            f"{short(side.step_time_interval_s[1])})"
        ),
    ),
    ("tokens/s", lambda side: f"{side.tokens_per_s:,.0f}"),
    ("tokens/s/device", lambda side: f"{side.tokens_per_s_per_device:,.0f}"),
    ("cost of a step", lambda side: dollars(side.cost_per_step_usd)),
    ("cost of 1e9 tokens", lambda side: dollars(side.cost_per_billion_tokens_usd)),
    (
        "fullest device, GiB",
        lambda side: (
            f"{side.fullest_bytes / GIB:.1f} of {side.fullest_capacity_bytes / GIB:.1f}"
            + ("" if side.fits else " DOES NOT FIT")
        ),
    ),
)


def render_comparison(found: Comparison) -> RenderableType:
    """The verdict, both sides, the calls, and what makes them incomparable."""
    head = Text()
    head.append("Verdict  ", style="bold")
    head.append(f"{found.verdict}.\n")
    sides = new_table()
    sides.add_column("")
    for side in (found.left, found.right):
        sides.add_column(side.name, ratio=1)
    for name, cell in _ROWS:
        left, right = cell(found.left), cell(found.right)
        if left or right:
            sides.add_row(name, left, right)
    calls = new_table()
    calls.add_column("call", no_wrap=True)
    calls.add_column("left", justify="right", no_wrap=True)
    calls.add_column("right", justify="right", no_wrap=True)
    calls.add_column("what differs, left -> right", ratio=1)
    for pair in found.calls:
        calls.add_row(pair.call, _time(pair.left_s), _time(pair.right_s), pair.change)
    notes = Text()
    for side in (found.left, found.right):
        for line in side.broken:
            notes.append(f"{side.name} breaks a rule: {line}\n")
    if found.workload_differs:
        notes.append(
            f"The workloads differ in {', '.join(found.workload_differs)}: step times are not of "
            "the same step; compare tokens a second.\n"
        )
    return Group(head, sides, calls, notes)


def _time(value_s: float | None) -> str:
    return "-" if value_s is None else seconds(value_s)
