"""A fleet plan as text that fits 100 columns."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.report.text import WIDTH
from planner.report.units import percent, seconds
from planner.schema import FleetPlan, FleetSchedule

_MOST_ASSUMPTIONS = 12


def render_fleet(plan: FleetPlan) -> RenderableType:
    """The front if there is one, the first schedule job by job, the proof, the assumptions."""
    parts: list[RenderableType] = [_title(plan)]
    if len(plan.schedules) > 1:
        parts.append(_front(plan))
    parts += [_runs(plan, plan.schedules[0]), _totals(plan), _proof(plan), _assumptions(plan)]
    return Group(*parts)


def hours(value_s: float) -> str:
    """A time of a schedule, in hours: "12.50 h"."""
    return f"{value_s / 3600:,.2f} h"


def _title(plan: FleetPlan) -> Text:
    groups = " + ".join(
        f"{group.nodes} x {group.devices_per_node} {group.device.id}"
        for group in plan.cluster.groups
    )
    text = Text()
    text.append(f"{len(plan.schedules[0].jobs)} jobs", style="bold")
    slots = "" if plan.slots is None else f", {plan.slots:,} slots"
    text.append(f" on {groups}{slots}  ({plan.objective}, {plan.optimizer})\n")
    return text


def _front(plan: FleetPlan) -> Table:
    table = _table()
    for heading in ("#", "makespan", "weighted tardiness", "tardy jobs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, schedule in enumerate(plan.schedules, 1):
        late = sum(job.tardiness_s > 0 for job in schedule.jobs)
        table.add_row(
            str(number),
            hours(schedule.makespan_s),
            hours(schedule.weighted_tardiness_s),
            str(late),
        )
    return table


def _runs(plan: FleetPlan, schedule: FleetSchedule) -> Table:
    """One row a phase; what concerns the whole job stands in the row of its last phase."""
    table = _table()
    table.add_column("job", overflow="fold", ratio=3)
    table.add_column("phase", overflow="fold", ratio=2)
    table.add_column("nodes", overflow="fold", ratio=3)
    for heading in ("step", "start", "reload", "end", "due", "tardiness", "weight"):
        table.add_column(heading, justify="right", no_wrap=True)
    for job in schedule.jobs:
        runs = [run for run in schedule.runs if run.job == job.name]
        last = max(range(len(runs)), key=lambda i: runs[i].end_s)
        for i, run in enumerate(runs):
            final = i == last
            first, end = run.first_node, run.first_node + run.nodes - 1
            place = f"{first}" if first == end else f"{first}-{end}"
            table.add_row(
                job.name if i == 0 else "",
                run.phase,
                f"{run.nodes} ({run.group} {place})",
                seconds(run.step_time_s),
                hours(run.start_s),
                seconds(run.setup_s) if run.setup_s else "-",
                hours(run.end_s),
                ("-" if job.due_s is None else hours(job.due_s)) if final else "",
                (hours(job.tardiness_s) if job.tardiness_s else "-") if final else "",
                f"{job.weight:g}" if final else "",
            )
    return table


def _totals(plan: FleetPlan) -> Text:
    schedule = plan.schedules[0]
    text = Text()
    text.append("Result  ", style="bold")
    use = ", ".join(f"{name} {percent(share)}" for name, share in schedule.utilisation.items())
    text.append(
        f"makespan {hours(schedule.makespan_s)}, weighted tardiness "
        f"{hours(schedule.weighted_tardiness_s)}; in use: {use}.\n"
    )
    return text


def _proof(plan: FleetPlan) -> Text:
    text = Text()
    text.append("Bounds  ", style="bold")
    text.append(
        f"{plan.status}: with the shares considered no schedule ends before "
        f"{hours(plan.makespan_bound_s)} or has less weighted tardiness than "
        f"{hours(plan.weighted_tardiness_bound_s)} (gap {percent(plan.gap)}).\n"
    )
    text.append(f"Search  {plan.evaluations:,} schedules evaluated, {plan.wall_s:.2f} s.\n")
    return text


def _assumptions(plan: FleetPlan) -> Text:
    text = Text()
    text.append("Assumed\n", style="bold")
    for line in plan.assumptions[:_MOST_ASSUMPTIONS]:
        text.append(f"  - {line}\n")
    hidden = len(plan.assumptions) - _MOST_ASSUMPTIONS
    if hidden > 0:
        text.append(f"  {hidden} more in --json.\n")
    return text


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False, padding=(0, 1, 0, 0))
