"""A simulated plan as text that fits 100 columns."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.report.units import percent, seconds
from planner.simulate.events.timeline import GenerationResult, Simulation, Statistics


def render_simulation(found: Simulation, title: str) -> RenderableType:
    """Step time, calls against the analytic model, generation, and use of every mesh."""
    step = found.step_time_s
    head = Text()
    head.append(title, style="bold")
    head.append(
        f"\nstep {seconds(step.mean)} on average over {found.steps} steps (median "
        f"{seconds(step.p50)}, 90th percentile {seconds(step.p90)}, most {seconds(step.most)});\n"
        f"the analytic model says {seconds(found.analytic_step_time_s)} "
        f"({100 * found.difference:+.1f} %).\n"
    )
    parts: list[RenderableType] = [head, _calls(found), Text()]
    if found.generation is not None:
        parts.append(Text(_generation(found.generation, _against_analytic(found))))
    parts.append(_meshes(found))
    return Group(*parts)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _calls(found: Simulation) -> RenderableType:
    table = _table("call", "mean", "median", "90th percentile", "analytic")
    for name, call in found.calls.items():
        table.add_row(name, *_cells(call.time_s), seconds(call.analytic_s))
    if found.overhead_s:
        table.add_row("outside calls", *[seconds(found.overhead_s)] * 4)
    return table


def _cells(values: Statistics) -> tuple[str, str, str]:
    return seconds(values.mean), seconds(values.p50), seconds(values.p90)


def _against_analytic(found: Simulation) -> str:
    """How the time of generation compares with the analytic one, preemptions included."""
    call = found.calls.get("generate")
    if call is None or call.analytic_s <= 0:
        return ""
    more = 100 * (call.time_s.mean / call.analytic_s - 1)
    return f"\n(generation as a whole: {more:+.1f} % against the analytic model)"


def _generation(found: GenerationResult, longer: str) -> str:
    if found.mode == "drain":
        words = (
            f"Generation drains each batch: replicas have work {percent(found.busy_share)} of the "
            f"time,\nthe slowest ends {percent(found.imbalance)} after the mean, the tail below "
            f"half full takes {percent(found.tail_share)}.\n"
        )
    else:
        words = (
            "Generation flows: whoever ends is replaced. Responses end "
            f"{found.versions_behind_mean:.2f} batches after the one\nin which they began on "
            f"average, {found.versions_behind_max:.0f} at most; "
            f"{percent(found.over_stale_share)} more than the staleness.\n"
        )
    if found.preemptions_per_step:
        words += (
            "Samples longer than the mean overflow the cache, which in the plan's own prediction "
            "holds\nmean ones: "
            f"{found.preemptions_per_step:,.0f} sequences a step are preempted and computed again"
            f"{longer}.\n"
        )
    return words


def _meshes(found: Simulation) -> RenderableType:
    table = _table("mesh", "in use")
    for mesh, share in found.utilisation.items():
        table.add_row(mesh, percent(share))
    return table
