"""Searches over knobs as text that fits 100 columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.report.units import seconds
from planner.search.tuning.loop import TuneResult
from planner.search.tuning.simulated import Tuned

_GIB = 1024.0**3


def render_tuned(found: Tuned) -> RenderableType:
    """What tuning in the simulator gained, and by what."""
    states = [trial.state for trial in found.trials]
    counts = ", ".join(f"{states.count(each)} {each}" for each in dict.fromkeys(states))
    words = (
        f"Tuned in the simulator: {seconds(found.step_s)} a step, {seconds(found.start_s)} untuned "
        f"({-100 * found.gain:+.1f} %); {len(states)} trials ({counts})."
    )
    changes = [f"  {knob}: {old} -> {new}" for knob, (old, new) in found.changes.items()]
    changes = changes or ["  no knob was changed"]
    if found.number > 1:
        changes.insert(0, f"  from plan {found.number} of the exact search")
    return Text("\n".join([words, *changes]))


def render_tune(found: TuneResult) -> RenderableType:
    """Trials with prediction and measurement, corrections of the model, and the best plan."""
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    columns = ("trial", "as shipped", "predicted", "measured", "peak memory", "outcome")
    for index, column in enumerate(columns):
        last = index == len(columns) - 1
        table.add_column(column, justify="left" if last else "right", no_wrap=not last)
    for trial in found.trials:
        memory = trial.peak_memory_bytes
        table.add_row(
            str(trial.number),
            seconds(trial.analytic_step_s),
            "-" if trial.predicted_step_s is None else seconds(trial.predicted_step_s),
            "-" if trial.step_s is None else seconds(trial.step_s),
            "-" if memory is None else f"{memory / _GIB:.1f} GiB",
            trial.placement
            if trial.status == "ok"
            else ": ".join(filter(None, [trial.status, trial.message[:60]])),
        )
    parts: list[RenderableType] = [table, Text()]
    if found.factors:
        factors = ", ".join(f"{kind} {value:.2f}" for kind, value in found.factors.items())
        parts.append(Text(f"measured over predicted on this system: {factors}"))
    cost = "" if found.cost_usd is None else f", ${found.cost_usd:,.2f}"
    parts.append(Text(f"ended: {found.ended}; spent {found.device_hours:.3g} device-hours{cost}"))
    if found.plan is None or found.step_s is None or found.estimate_s is None:
        parts.append(Text("no trial gave a figure: see log.txt in the folders of the trials"))
        return Group(*parts)
    parts.append(
        Text(
            f"best: {found.plan.placement}, measured {seconds(found.step_s)} a step "
            f"({seconds(found.estimate_s)} by all trials together)"
        )
    )
    parts += [Text(f"  {knob}: {value}") for knob, value in found.settings.items()]
    return Group(*parts)


def tune_as_data(found: TuneResult) -> dict[str, Any]:
    """The result for JSON."""
    plan = None if found.plan is None else found.plan.model_dump(mode="json")
    return {
        "best": {
            "plan": plan,
            "settings": dict(found.settings),
            "step_s": found.step_s,
            "estimate_s": found.estimate_s,
        },
        "trials": [_plain(asdict(trial)) for trial in found.trials],
        "measured_over_predicted": found.factors,
        "device_hours": found.device_hours,
        "cost_usd": found.cost_usd,
        "discarded": found.discarded,
        "ended": found.ended,
    }


def _plain(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: dict(each) if isinstance(each, Mapping) else each for name, each in content.items()
    }
