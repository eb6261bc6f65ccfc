"""Ranked plans as text that fits 100 columns."""

from __future__ import annotations

from collections.abc import Callable

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.report.units import GIB, count, dollars, percent, seconds, short
from planner.schema import CallPrediction, Cluster, Limits, Mesh, Plan, PlanSet, Strategy, Workload

WIDTH = 100
_SIZES_SHOWN = 20
"""Numbers of devices listed before the list is cut."""


def render_plan_set(plan_set: PlanSet, *, details: int = 3) -> RenderableType:
    """The whole answer: ranking, the calls of the first `details` plans, bounds, assumptions."""
    parts: list[RenderableType] = [_title(plan_set), _ranking(plan_set)]
    several = len(plan_set.cluster.groups) > 1
    for plan in plan_set.plans[:details]:
        parts += [plan_table(plan, name_groups=several), _runs_on(plan)]
    if len(plan_set.plans) > details:
        hidden = len(plan_set.plans) - details
        parts.append(Text(f"{hidden} more in --json and --output (or --details).\n"))
    parts += [_proof(plan_set), assumptions_text(plan_set.assumptions)]
    return Group(*parts)


def to_text(renderable: RenderableType, *, width: int = WIDTH) -> str:
    """Plain text of a renderable, no colours, at most `width` columns, no two empty lines.

    Text that must not be broken (`no_wrap`, `overflow="ignore"`) may be wider: it is never cut.
    """
    console = Console(
        width=width, color_system=None, force_terminal=False, highlight=False, markup=False
    )
    with console.capture() as capture:
        console.print(renderable, crop=False)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    while kept and not kept[-1]:
        kept.pop()
    return "\n".join(kept) + "\n"


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
    groups = cluster_words(plan_set.cluster)
    title = Text()
    title.append(f"{workload.name}", style="bold")
    title.append(f"  on {groups}  (space {plan_set.space})\n")
    title.append(workload_line(workload))
    if plan_set.objective != "step_time" or plan_set.limits != Limits():
        title.append(f"\nranked by {_objective_words(plan_set)}")
    return title


def _objective_words(plan_set: PlanSet) -> str:
    words = plan_set.objective.replace("_", " ")
    if plan_set.tokens is not None:
        words += f" ({count(plan_set.tokens)} tokens)"
    within = limits_in_words(plan_set.limits)
    return f"{words}, with {within}" if within else words


def cluster_words(cluster: Cluster) -> str:
    """For example "4 x 8 h100-80-sxm + 2 x 8 a100-80-sxm"."""
    return " + ".join(
        f"{group.nodes} x {group.devices_per_node} {group.device.id}" for group in cluster.groups
    )


def workload_line(workload: Workload) -> str:
    """Algorithm, models, batch and lengths in a sentence."""
    models: dict[str, list[str]] = {}
    for role, model in workload.models.items():
        models.setdefault(model.name, []).append(role)
    who = ", ".join(f"{'+'.join(roles)} {name}" for name, roles in models.items())
    return (
        f"{workload.algorithm.upper()}: {who}; {workload.prompts_per_step} prompts x "
        f"{workload.samples_per_prompt} samples, responses mean "
        f"{workload.response_length.mean_tokens:g} max {workload.response_length.max_tokens} tokens"
    )


# Objectives that the ranking has no column for: heading, and how a value reads.
_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "tokens_per_s": ("tok/s", lambda value: f"{value:,.0f}"),
    "gpu_hours_to_tokens": ("device-hours", lambda value: f"{value:,.4g}"),
    "cost_to_tokens": ("cost in all", dollars),
}


def _ranking(plan_set: PlanSet) -> Table:
    table = new_table()
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("placement", ratio=1)
    own = _COLUMNS.get(plan_set.objective)
    headings = ["step time (80 % range)", "tok/s/device", "cost/step", "vs best"]
    if own is not None:
        headings.insert(1, own[0])
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for plan in plan_set.plans:
        low, high = plan.step_time_interval_s
        cells = [
            f"{seconds(plan.step_time_s)} ({short(low)} to {short(high)})",
            f"{plan.tokens_per_s_per_device:,.0f}",
            dollars(plan.cost_per_step_usd),
            _distance(plan, plan_set),
        ]
        if own is not None:
            cells.insert(1, own[1](plan.objective_value or 0.0))
        table.add_row(str(plan.rank), f"{plan.placement}\n{layouts(plan)}", *cells)
    return table


def _distance(plan: Plan, plan_set: PlanSet) -> str:
    """How much worse than the best by the objective, and whether that is a tie."""
    best = plan_set.plans[0]
    if plan.rank == 1:
        return "best"
    worse = plan.step_time_s / best.step_time_s
    if plan.objective_value and best.objective_value:
        worse = plan.objective_value / best.objective_value
        worse = 1 / worse if plan_set.objective.startswith("tokens_per_s") else worse
    sign = "+" if worse >= 1 else "-"
    return f"{sign}{percent(abs(worse - 1))}{' tie' if plan.tie_with_best else ''}"


def layouts(plan: Plan) -> str:
    """The layouts of the calls that take the time, since placements may read the same."""
    calls = [
        (call.kind if call.kind == "generate" else call.role, call)
        for call in plan.calls.values()
        if call.kind in ("generate", "train")
    ]
    return "; ".join(
        f"{name} {degrees(call.strategy, call.kind)}" for name, call in calls if call.strategy
    )


def new_table() -> Table:
    """An empty table in the style of all reports."""
    return Table(box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False, padding=(0, 1, 0, 0))


def plan_table(plan: Plan, *, name_groups: bool) -> Group:
    """One plan call by call."""
    title = Text()
    title.append(f"#{plan.rank}  {plan.placement}", style="bold")
    table = new_table()
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


def _runs_on(plan: Plan) -> Text:
    """Launchers that can run the plan, and the first thing that each of the others lacks."""
    text = Text()
    if plan.launchers or plan.lacking:
        text.append(f"runs on   {', '.join(plan.launchers) or 'no launcher as it is'}\n")
    for name, reasons in plan.lacking.items():
        text.append(f"  not {name}: {reasons[0]}\n", style="dim")
    return text


def mesh_words(mesh: Mesh, *, name_group: bool) -> str:
    """Devices and nodes: "16 (n0-1)"; "4 (n3.4)" for devices 4 to 7 of node 3."""
    nodes = f"{mesh.group + ' ' if name_group else ''}n{mesh.first_node}"
    if mesh.nodes > 1:
        nodes += f"-{mesh.first_node + mesh.nodes - 1}"
    elif mesh.first_device > 0:
        nodes += f".{mesh.first_device}"
    return f"{mesh.devices} ({nodes})"


def _call_cells(call: CallPrediction, name_groups: bool) -> tuple[str, ...]:
    if call.mesh is None or call.strategy is None:
        needed = f"{call.workers_needed:,.0f} workers keep up" if call.workers_needed else ""
        return ("CPU", "", needed, seconds(call.time_s), "", "")
    mesh = call.mesh
    memory = f"{call.memory_bytes['total'] / GIB:.0f}/{call.memory_bytes['capacity'] / GIB:.0f}"
    if call.memory_verdict != "fits":
        memory += " tight" if call.memory_verdict == "tight" else " OVER"
    return (
        mesh_words(mesh, name_group=name_groups),
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
        text.append("Bounds  ", style="bold")
        text.append(
            f"{'proven best' if search.optimal else 'best found, proof not closed'}: "
            f"{_claim(plan_set)}; no plan on this hardware is under "
            f"{seconds(best.work_depth_bound_s)} (work and depth; the best plan takes "
            f"{best.step_time_s / best.work_depth_bound_s:.1f} times that).\n"
        )
        if len(plan_set.plans) < search.plans_asked:
            text.append(
                f"Plans   {len(plan_set.plans)} of the {search.plans_asked} asked for: all others "
                "found differ from these in a knob only, or are far worse.\n"
            )
        if sum(plan.tie_with_best for plan in plan_set.plans) > 1:
            text.append(
                "Ties    plans marked 'tie' are too close to the best for the model to tell: "
                "choose by other criteria, or measure.\n"
            )
    text.append(
        "Words   mb: sequences of full length in a microbatch; seqs, mem: sequences that an engine "
        "runs at once, its share of device memory; GiB/device: used while the call runs, what "
        "sleeping models leave there included, of the device's memory; tight: over 92 % of it; "
        "ends a/b: layers on the first and last stage; n: nodes; k-off: samples at most k versions "
        "old; tie: nearer to the best than the model can tell, simpler first; tok/s: prompt "
        "and response tokens.\n"
    )
    text.append(
        f"Search  {search.candidates:,} strategies costed, {search.pareto_candidates:,} kept, "
        f"{search.wall_s:.2f} s, {search.status}.\n"
    )
    return text


# Objective -> the bound in words; a rate has a largest value.
_BOUNDS: dict[str, Callable[[float], str]] = {
    "tokens_per_s": lambda value: f"exceeds {value:,.0f} tokens a second",
    "tokens_per_s_per_device": lambda value: f"exceeds {value:,.0f} tokens/s on a device",
    "gpu_hours_to_tokens": lambda value: f"needs under {value:,.4g} device-hours",
    "cost_per_step": lambda value: f"costs under {dollars(value)} a step",
    "cost_to_tokens": lambda value: f"costs under {dollars(value)} in all",
}


def _claim(plan_set: PlanSet) -> str:
    """What is proven of all plans."""
    search = plan_set.search
    which = "no plan of this space within the memory limit below"
    if plan_set.limits != Limits():
        which = f"no plan of this space with {limits_in_words(plan_set.limits)}, within the memory"
        which += " limit below,"
    words = _BOUNDS.get(plan_set.objective)
    if words is None or search.objective_bound is None:
        claim = f"{which} is under {seconds(search.bound_s)} in this model"
        gap = search.gap if search.objective_gap is None else search.objective_gap
    else:
        claim = f"{which} {words(search.objective_bound)} in this model"
        gap = search.objective_gap or 0.0
    claim += f" (gap {percent(gap)})"
    if len(search.sizes) > 1:
        claim += f", of those on {_sizes(search.sizes)} devices"
    return claim


def _sizes(sizes: tuple[tuple[int, ...], ...]) -> str:
    """The numbers of devices that a bound speaks of; long lists are cut."""
    totals = sorted({sum(size) for size in sizes})
    shown = [f"{total:,}" for total in totals]
    if len(shown) > _SIZES_SHOWN:
        shown = [*shown[: _SIZES_SHOWN - 2], "...", shown[-1]]
    return ", ".join(shown[:-1]) + f" or {shown[-1]}" if len(shown) > 1 else shown[0]


def limits_in_words(limits: Limits) -> str:
    """For example "at most 64 devices and steps of at most 30.0 s"."""
    words = []
    if limits.devices is not None:
        words.append(f"at most {limits.devices:,} devices")
    if limits.step_time_s is not None:
        words.append(f"steps of at most {seconds(limits.step_time_s)}")
    if limits.cost_per_step_usd is not None:
        words.append(f"at most {dollars(limits.cost_per_step_usd)} a step")
    if limits.cost_usd is not None:
        words.append(f"at most {dollars(limits.cost_usd)} in all")
    return " and ".join(words)


def assumptions_text(assumptions: tuple[str, ...]) -> Text:
    """What was assumed, a line each."""
    text = Text()
    if assumptions:
        text.append("Assumed\n", style="bold")
        for line in assumptions:
            text.append(f"  - {line}\n")
    return text
