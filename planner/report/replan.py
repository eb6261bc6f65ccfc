"""What a new plan moves, as text that fits 100 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.report.text import (
    cluster_words,
    degrees,
    mesh_words,
    new_table,
    plan_table,
    workload_line,
)
from planner.report.units import gib, percent, seconds
from planner.schema import Replan


def render_replan(replan: Replan) -> RenderableType:
    """The change of the step time, what moves, the new plan, and what is proven."""
    plan_set = replan.plans
    plan = plan_set.plans[0]
    title = Text()
    title.append(plan_set.workload.name, style="bold")
    title.append(f"  on {cluster_words(plan_set.cluster)}  (space {plan_set.space})\n")
    title.append(workload_line(plan_set.workload) + "\n\n")
    change = plan.step_time_s / replan.old_step_time_s - 1
    slower = f"{'+' if change >= 0 else '-'}{percent(abs(change))}"
    title.append(
        f"{replan.lost_devices:,} devices are gone: {seconds(replan.old_step_time_s)} a step "
        f"become {seconds(plan.step_time_s)} ({slower})\n"
    )
    several = len(plan_set.cluster.groups) > 1
    parts: list[RenderableType] = [title]
    if replan.moves:
        parts.append(_moves(replan, several))
    else:
        parts.append(Text("Nothing moves: every model stays on its devices in its layout.\n"))
    parts += [plan_table(plan, name_groups=several), _words(replan)]
    return Group(*parts)


def _moves(replan: Replan, several: bool) -> Table:
    table = new_table()
    table.add_column("moves", no_wrap=True)
    table.add_column("from (old numbers)", ratio=1)
    table.add_column("to (new numbers)", ratio=1)
    table.add_column("because of", no_wrap=True)
    for heading in ("state", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for move in replan.moves:
        kind = "generate" if "generate" in move.calls else "train"
        table.add_row(
            move.unit,
            f"{mesh_words(move.from_mesh, name_group=several)} {degrees(move.from_strategy, kind)}",
            f"{mesh_words(move.to_mesh, name_group=several)} {degrees(move.to_strategy, kind)}",
            move.why,
            gib(move.bytes),
            seconds(move.seconds),
        )
    return table


_BOUND = {
    "new search": "proven by a search of the new cluster",
    "old search": "proven by the search of the old cluster, which contains the new one",
    "work and depth": "work and depth, whatever the plan",
}


def _words(replan: Replan) -> Text:
    plan = replan.plans.plans[0]
    search = replan.plans.search
    text = Text()
    text.append("Bounds  ", style="bold")
    text.append(
        f"no plan is under {seconds(search.bound_s)} ({_BOUND[replan.bound_from]}; gap "
        f"{percent(search.gap)}).\n"
    )
    if plan.step_time_s > replan.least_step_time_s * (1 + 1e-6):
        cost = plan.step_time_s / replan.least_step_time_s - 1
        text.append(
            f"Faster  a plan of {seconds(replan.least_step_time_s)} moves more; this one is "
            f"{percent(cost)} slower.\n"
        )
    if replan.moves:
        text.append(
            f"Moves   {gib(replan.moved_bytes)} in all, {seconds(replan.move_s)} when units move "
            "one after another: what devices lack of weights and optimizer state, over their "
            "scale-out bandwidth; what only lost devices held comes from the last checkpoint.\n"
        )
    text.append(
        "Words   old and new numbers: nodes behind a lost one move up by one.\n"
        f"Search  {replan.wall_s:.2f} s.\n"
    )
    return text
