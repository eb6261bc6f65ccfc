"""`html_report`: one file with tables and figures that opens without a network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from planner.report import figures, problem_figures
from planner.report.html import tables
from planner.report.text import cluster_words, limits_in_words, workload_line
from planner.report.units import dollars, percent, rate, seconds, short
from planner.schema import Cluster, Limits, NodeGroup, ParetoFront, Plan, PlanSet
from planner.schema.analysis import Analysis
from planner.simulate.timeline import planned_spans
from planner.version import __version__

if TYPE_CHECKING:
    import plotly.graph_objects as go

Files = Mapping[str, str]
"""File name -> content."""


@dataclass(frozen=True)
class ReportData:
    """What a report shows."""

    plan_set: PlanSet
    analysis: Analysis
    """Of the first plan."""
    front: ParetoFront | None = None
    launcher_files: Mapping[int, Mapping[str, Files]] = field(default_factory=dict)
    """Rank -> launcher -> its files."""


_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="rlmplan $version">
<link rel="icon" href="data:,">
<title>$title</title><style>$css</style></head><body>
<header><div><h1>$title</h1><p>$subtitle</p></div>
<button id="theme" title="Switch between dark and light">Dark / light</button></header>
$body
<footer><p>rlmplan $version. Predictions of a model: the 80 % range says how far off it may be.</p>
</footer>
<script type="application/json" id="plans">$plans</script>
<script type="application/json" id="figures">$figures</script>
<script>$plotly</script>
<script>$script</script>
</body></html>
""")


def html_report(data: ReportData) -> str:
    """The whole page; InputError when plotly is not installed."""
    figures.graph_objects()
    from plotly.offline import get_plotlyjs

    drawn: dict[str, go.Figure] = {}
    plan_set = data.plan_set
    workload = plan_set.workload
    subtitle = (
        f"{workload_line(workload)}. On {cluster_words(plan_set.cluster)}, search space "
        f"{plan_set.space}{_ranked_by(plan_set)}."
    )
    body = [
        _cards(plan_set),
        "<h2>Ranked plans</h2>",
        tables.ranking(plan_set),
        _proof(plan_set),
        _plan(plan_set.plans[0], data, drawn),
        "<h2>Other plans</h2>" if len(plan_set.plans) > 1 else "",
        *(_plan(plan, data, drawn) for plan in plan_set.plans[1:]),
        _front(data.front, drawn),
        _lengths(data, drawn),
        _bounds(data.analysis, drawn),
        _assumptions(plan_set),
    ]
    return _PAGE.substitute(
        version=escape(__version__),
        title=escape(workload.name),
        subtitle=escape(subtitle),
        css=_asset("page.css"),
        body="\n".join(body),
        plans=_json(plan_set.model_dump_json()),
        figures=_json(
            json.dumps({name: json.loads(each.to_json()) for name, each in drawn.items()})
        ),
        plotly=get_plotlyjs(),
        script=_asset("page.js"),
    )


def _asset(name: str) -> str:
    return files("planner.report.html").joinpath(name).read_text(encoding="utf-8")


def _json(text: str) -> str:
    """JSON that cannot end its script element."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _figure(name: str, figure: go.Figure, drawn: dict[str, go.Figure], label: str) -> str:
    drawn[name] = figure
    height = figure.layout.height
    return (
        f'<div class="figure" id="{name}" role="img" aria-label="{escape(label)}" '
        f'style="height:{height}px"></div>'
    )


def _ranked_by(plan_set: PlanSet) -> str:
    words = ""
    if plan_set.objective != "step_time":
        words += f"; ranked by {plan_set.objective.replace('_', ' ')}"
    if plan_set.limits != Limits():
        words += f"; {limits_in_words(plan_set.limits)}"
    return words


def _cards(plan_set: PlanSet) -> str:
    best = plan_set.plans[0]
    low, high = best.step_time_interval_s
    workload = plan_set.workload
    tokens = workload.sequences_per_step * workload.mean_sequence_tokens
    gap = plan_set.search.gap
    cards = (
        (seconds(best.step_time_s), f"a step (80 %: {short(low)} to {short(high)} s)"),
        (f"{tokens / best.step_time_s:,.0f}", "prompt and response tokens a second"),
        (f"{best.devices:,}", f"devices: {best.placement}"),
        (dollars(best.cost_per_step_usd), "US dollars a step"),
        (percent(gap), "from the proven bound" if plan_set.search.optimal else "proof not closed"),
    )
    return (
        '<div class="cards">'
        + "".join(
            f'<div class="card"><b>{escape(value)}</b><span>{escape(words)}</span></div>'
            for value, words in cards
        )
        + "</div>"
    )


def _proof(plan_set: PlanSet) -> str:
    search, best = plan_set.search, plan_set.plans[0]
    return (
        f'<p class="soft">No plan of this space is under {seconds(search.bound_s)} in this model '
        f"(gap {percent(search.gap)}); no plan on this hardware under "
        f"{seconds(best.work_depth_bound_s)} (work and depth). {search.candidates:,} strategies "
        f"costed in {search.wall_s:.2f} s. Ties are closer than the model can tell.</p>"
    )


def _plan(plan: Plan, data: ReportData, drawn: dict[str, go.Figure]) -> str:
    plan_set = data.plan_set
    spans = planned_spans(plan, plan_set.workload, plan_set.cluster)
    several = len(plan_set.cluster.groups) > 1
    overlap = (
        " Every second step is hatched; the step overhead is not drawn." if plan.staleness else ""
    )
    title = escape(f"Plan {plan.rank}: {plan.placement}")
    parts = [
        tables.calls(plan, several),
        "<h3>Timeline</h3><p class='soft'>Which devices run what, under mean lengths."
        f"{overlap}</p>",
        _figure(f"timeline-{plan.rank}", figures.timeline(plan, spans), drawn, "timeline"),
        '<div class="columns"><div><h3>From calls to the step</h3>',
        _figure(f"waterfall-{plan.rank}", figures.waterfall(plan), drawn, "waterfall"),
        "</div><div><h3>Memory of the fullest device</h3>",
        _figure(f"memory-{plan.rank}", figures.memory(plan), drawn, "memory by call"),
        "</div></div><h3>Where the time of each call goes</h3>",
        _figure(f"parts-{plan.rank}", figures.time_parts(plan), drawn, "time by call"),
        _files(plan, data.launcher_files.get(plan.rank, {})),
    ]
    body = "".join(parts)
    if plan is plan_set.plans[0]:
        return f"<h2>{title}</h2>{body}"
    return f"<details><summary>{title}, {seconds(plan.step_time_s)}</summary>{body}</details>"


def _files(plan: Plan, launchers: Mapping[str, Files]) -> str:
    if not launchers:
        return ""
    parts = ["<h3>Launcher files</h3>"]
    for launcher, content in launchers.items():
        inside = []
        for number, (name, text) in enumerate(content.items()):
            given = f"file-{plan.rank}-{launcher}-{number}"
            inside.append(
                f'<div class="file"><code>{escape(name)}</code>'
                f'<button data-copy="{escape(given)}">Copy</button></div>'
                f'<pre id="{escape(given)}">{escape(text)}</pre>'
            )
        parts.append(f"<details><summary>{escape(launcher)}</summary>{''.join(inside)}</details>")
    return "".join(parts)


def _front(front: ParetoFront | None, drawn: dict[str, go.Figure]) -> str:
    if front is None:
        return ""
    return (
        "<h2>Devices against time and money</h2>"
        "<p class='soft'>The fastest plan for each number of devices. Knee: least step time x "
        "cost.</p>"
        + _figure("front", problem_figures.front(front), drawn, "Pareto front")
        + tables.front(front)
    )


def _lengths(data: ReportData, drawn: dict[str, go.Figure]) -> str:
    best = data.plan_set.plans[0]
    tail_s = sum(call.time_parts_s.get("tail", 0.0) for call in best.calls.values())
    return (
        "<h2>Response lengths and the tail</h2>"
        f"<p class='soft'>The best plan waits {seconds(tail_s)} of {seconds(best.step_time_s)} for "
        "the longest responses.</p>"
        + _figure("lengths", problem_figures.lengths(data.plan_set.workload), drawn, "lengths")
    )


def _bounds(analysis: Analysis, drawn: dict[str, go.Figure]) -> str:
    return (
        "<h2>Work-depth bounds</h2>"
        "<p class='soft'>No step of the best plan's kind is shorter than any of these "
        "(docs/analysis.md).</p>"
        + _figure("bounds", problem_figures.bounds(analysis), drawn, "bounds")
        + _list(analysis.findings)
    )


def _assumptions(plan_set: PlanSet) -> str:
    sources = [
        f"{group.device.id}: {rate(group.device.peak_flop_per_s.get('bf16', 0.0), 'FLOP/s')} bf16, "
        f"{rate(group.device.memory_bandwidth_bytes_per_s, 'B/s')} memory, "
        f"{rate(group.device.scale_up_bandwidth_bytes_per_s, 'B/s')} scale-up, "
        f"{rate(group.device.scale_out_bandwidth_bytes_per_s, 'B/s')} scale-out; kernels of "
        f"{group.device.kernel_table}. Sources: {'; '.join(group.device.sources)}"
        for group in _distinct(plan_set.cluster)
    ]
    hashes = [f"{name}: {value}" for name, value in plan_set.input_hashes.items()]
    return (
        f"<h2>Assumptions</h2>{_list(plan_set.assumptions)}<h3>Devices and their sources</h3>"
        f"{_list(sources)}<details><summary>SHA-256 of the inputs</summary>{_list(hashes)}"
        "</details>"
    )


def _distinct(cluster: Cluster) -> list[NodeGroup]:
    return list({group.device.id: group for group in cluster.groups}.values())


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
