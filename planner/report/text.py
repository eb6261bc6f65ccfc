"""Ranked plans as text that fits 100 columns."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.report.units import GIB, dollars, percent, seconds
from planner.schema import CallPrediction, Plan, PlanSet, Strategy, Workload

WIDTH = 100


def render_plan_set(plan_set: PlanSet, *, details: int = 3) -> RenderableType:
    """The whole answer: ranking, the calls of the first `details` plans, bounds, assumptions."""
    parts: list[RenderableType] = [_title(plan_set), _ranking(plan_set)]
    several = len(plan_set.cluster.groups) > 1
    parts += [_plan(plan, name_groups=several) for plan in plan_set.plans[:details]]
    if len(plan_set.plans) > details:
        hidden = len(plan_set.plans) - details
        parts.append(Text(f"{hidden} more in --json and --output (or --details).\n"))
    parts += [_proof(plan_set), _assumptions(plan_set.assumptions)]
    return Group(*parts)


def to_text(renderable: RenderableType, *, width: int = WIDTH) -> str:
    """Plain text of a renderable, no colours, at most `width` columns."""
    console = Console(
        width=width, color_system=None, force_terminal=False, highlight=False, markup=False
    )
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def degrees(strategy: Strategy, kind: str) -> str:
    """The parallel degrees that are not one: "TP2 PP4 EP8 DP4"; "8 x TP2" for eight engines."""
    named = [
        ("TP", strategy.tp),
        ("PP", strategy.pp),
        ("VPP", strategy.vpp),
        ("CP", strategy.cp),
        ("Ulysses", strategy.ulysses),
        ("EP", strategy.ep),
        ("ETP", strategy.etp),
    ]
    words = [f"{name}{degree}" for name, degree in named if degree > 1]
    if kind == "generate":
        return f"{strategy.dp} x {' '.join(words) or 'TP1'}"
    words.append(f"DP{strategy.dp}")
    if strategy.zero_stage:
        shards = f"/{strategy.shard_ranks}" if strategy.shard_ranks else ""
        words.append(f"ZeRO{strategy.zero_stage}{shards}")
    if strategy.pipeline_schedule != "1f1b":
        words.append(strategy.pipeline_schedule)
    if strategy.first_stage_layers or strategy.last_stage_layers:
        words.append(f"ends {strategy.first_stage_layers}/{strategy.last_stage_layers}")
    return " ".join(words)


def knobs(strategy: Strategy, kind: str) -> str:
    """The batch and memory knobs of a call in a few words."""
    if kind == "generate":
        return f"{strategy.max_running_sequences} seqs, mem {strategy.memory_fraction:.2f}"
    words = [f"mb {strategy.micro_batch_sequences}{'' if strategy.packing else ' padded'}"]
    if kind == "train" and strategy.recompute != "none":
        words.append(f"recompute {strategy.recompute}")
    if kind == "train" and strategy.offload != "none":
        words.append(f"offload {strategy.offload}")
    if kind == "train" and strategy.optimizer_on_cpu:
        words.append("CPU optimizer")
    return ", ".join(words)


def _title(plan_set: PlanSet) -> Text:
    workload = plan_set.workload
    groups = " + ".join(
        f"{group.nodes} x {group.devices_per_node} {group.device.id}"
        for group in plan_set.cluster.groups
    )
    title = Text()
    title.append(f"{workload.name}", style="bold")
    title.append(f"  on {groups}  (space {plan_set.space})\n")
    title.append(_workload_line(workload))
    return title


def _workload_line(workload: Workload) -> str:
    models: dict[str, list[str]] = {}
    for role, model in workload.models.items():
        models.setdefault(model.name, []).append(role)
    who = ", ".join(f"{'+'.join(roles)} {name}" for name, roles in models.items())
    return (
        f"{workload.algorithm.upper()}: {who}; {workload.prompts_per_step} prompts x "
        f"{workload.samples_per_prompt} samples, responses mean "
        f"{workload.response_length.mean_tokens:g} max {workload.response_length.max_tokens} tokens"
    )


def _ranking(plan_set: PlanSet) -> Table:
    table = _table()
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("placement", ratio=1)
    for heading in ("step time (80 % range)", "tok/s/device", "cost/step", "vs best"):
        table.add_column(heading, justify="right", no_wrap=True)
    best = plan_set.plans[0].step_time_s if plan_set.plans else 1.0
    for plan in plan_set.plans:
        low, high = plan.step_time_interval_s
        slower = plan.step_time_s / best - 1
        distance = "best" if plan.rank == 1 else f"+{percent(slower)}"
        if plan.tie_with_best and plan.rank > 1:
            distance += " tie"
        table.add_row(
            str(plan.rank),
            f"{plan.placement}\n{_layouts(plan)}",
            f"{seconds(plan.step_time_s)} ({low:.3g} to {high:.3g})",
            f"{plan.tokens_per_s_per_device:,.0f}",
            dollars(plan.cost_per_step_usd),
            distance,
        )
    return table


def _layouts(plan: Plan) -> str:
    """The layouts of the calls that take the time, since placements may read the same."""
    calls = [
        (call.kind if call.kind == "generate" else call.role, call)
        for call in plan.calls.values()
        if call.kind in ("generate", "train")
    ]
    return "; ".join(
        f"{name} {degrees(call.strategy, call.kind)}" for name, call in calls if call.strategy
    )


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False, padding=(0, 1, 0, 0))


def _plan(plan: Plan, *, name_groups: bool) -> Group:
    title = Text()
    title.append(f"#{plan.rank}  {plan.placement}", style="bold")
    table = _table()
    table.add_column("call", no_wrap=True)
    table.add_column("devices", no_wrap=True)
    table.add_column("degrees", min_width=10, ratio=4)
    table.add_column("batch and memory knobs", min_width=12, ratio=5)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("GiB/device", justify="right", no_wrap=True)
    table.add_column("bottleneck", no_wrap=True)
    for name, call in plan.calls.items():
        table.add_row(name, *_call_cells(call, name_groups))
    for name, value in plan.overheads_s.items():
        table.add_row(name, "", "", "", seconds(value), "", "", style="dim")
    return Group(title, table)


def _call_cells(call: CallPrediction, name_groups: bool) -> tuple[str, ...]:
    if call.mesh is None or call.strategy is None:
        return ("CPU", "", "", seconds(call.time_s), "", "")
    mesh = call.mesh
    nodes = f"{mesh.group + ' ' if name_groups else ''}n{mesh.first_node}"
    if mesh.nodes > 1:
        nodes += f"-{mesh.first_node + mesh.nodes - 1}"
    elif mesh.first_device > 0:
        nodes += f".{mesh.first_device}"
    memory = f"{call.memory_bytes['total'] / GIB:.0f}/{call.memory_bytes['capacity'] / GIB:.0f}"
    if call.memory_verdict != "fits":
        memory += " tight" if call.memory_verdict == "tight" else " OVER"
    return (
        f"{mesh.devices} ({nodes})",
        degrees(call.strategy, call.kind),
        knobs(call.strategy, call.kind),
        seconds(call.time_s),
        memory,
        call.bottleneck.replace("_", " "),
    )


def _proof(plan_set: PlanSet) -> Text:
    search = plan_set.search
    text = Text()
    if plan_set.plans:
        best = plan_set.plans[0]
        proof = "proven best" if search.optimal else "best found, proof not closed"
        text.append("Bounds  ", style="bold")
        text.append(
            f"{proof}: no plan of this space within the memory limit below is under "
            f"{seconds(search.bound_s)} in this model "
            f"(gap {percent(search.gap)}); no plan on this hardware is under "
            f"{seconds(best.work_depth_bound_s)} (work and depth; the best plan takes "
            f"{best.step_time_s / best.work_depth_bound_s:.1f} times that).\n"
        )
        if sum(plan.tie_with_best for plan in plan_set.plans) > 1:
            text.append(
                "Ties    plans marked 'tie' are too close to the best for the model to tell: "
                "choose by other criteria, or measure.\n"
            )
    text.append(
        "Words   mb: sequences of full length in a microbatch; seqs, mem: sequences that an engine "
        "runs at once, its share of device memory; ends a/b: layers on the first and last stage; "
        "n: nodes; k-off: samples at most k versions old; tok/s: prompt and response tokens.\n"
    )
    text.append(
        f"Search  {search.candidates:,} strategies costed, {search.pareto_candidates:,} kept, "
        f"{search.wall_s:.2f} s, {search.status}.\n"
    )
    return text


def _assumptions(assumptions: tuple[str, ...]) -> Text:
    text = Text()
    if assumptions:
        text.append("Assumed\n", style="bold")
        for line in assumptions:
            text.append(f"  - {line}\n")
    return text
