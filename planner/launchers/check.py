"""`check`: what a launcher's configuration would do, and what would be better, before it starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from planner.catalog.spaces import load_space
from planner.errors import InfeasibleError, InputError
from planner.launchers.base import Launcher
from planner.launchers.check_memory import Pricer
from planner.launchers.reading import Context, ReadConfig
from planner.launchers.settings import Broken
from planner.launchers.variants import Checker, Variant
from planner.schema import Assignment, Plan, Prediction, SearchSpace
from planner.schema.check import (
    BrokenSetting,
    CallChange,
    CheckReport,
    CheckVerdict,
    IgnoredSetting,
    MemoryShortage,
    OneChange,
    SettingChange,
)
from planner.search import api
from planner.search.words import differences
from planner.simulate.instance import Instance, make_instance

_REMEDIES = 3
_SHOWN_CHARACTERS = 200


def check(
    launcher: Launcher,
    files: Mapping[str, str],
    overrides: Sequence[str],
    context: Context,
    *,
    search: bool = True,
    max_staleness: int | None = None,
    deadline_s: float = 20.0,
) -> CheckReport:
    """Read a configuration, hold it against the launcher's rules and the device memory, price it.

    Parameters: `files`, `overrides` and `context` are those of `Launcher.read`; `search` also looks
    for the best plan on the same devices, for at most `deadline_s`, with samples at most as stale
    as now or as `max_staleness`.

    Raises InputError for files that cannot be read as a configuration of the launcher.
    """
    read = launcher.read(files, overrides, context)
    checker = Checker(read)
    pricer = Pricer(_instance(read), read)
    prediction: Prediction | None = None
    shortages: list[MemoryShortage] = []
    broken = list(read.broken)
    remedies: list[OneChange] = []
    if read.assignment is not None:
        broken += _broken_rules(launcher, checker, read.assignment)
        prediction, shortages = pricer.price(read.assignment)
        remedies = _remedies(launcher, checker, pricer, read.assignment, prediction, shortages)
    runs = not broken and not shortages and prediction is not None
    best, note = (None, "")
    if search:
        best, note = _best(read, launcher, max_staleness, deadline_s)
    speedup = None
    if best is not None and prediction is not None and not shortages:
        speedup = prediction.step_time_s / best.step_time_s
        if runs and speedup <= 1.0:
            note = f"the configuration is as fast as the best plan. {note}".strip()
    verdict: CheckVerdict = "will not run"
    if runs and prediction is not None:
        tight = any(call.memory_verdict == "tight" for call in prediction.calls.values())
        verdict = "tight" if tight else "fits"
    return CheckReport(
        launcher=launcher.name,
        version=launcher.version,
        space=read.space,
        verdict=verdict,
        workload=read.workload,
        cluster=read.cluster,
        broken=tuple(_shown(each) for each in broken),
        shortages=tuple(shortages),
        prediction=prediction,
        strategies=dict(read.assignment.strategies) if read.assignment else {},
        remedies=tuple(remedies),
        best=best,
        best_note=note,
        speedup=speedup,
        setting_changes=_setting_changes(launcher, read, best),
        call_changes=_call_changes(read.assignment, prediction, best),
        ignored=tuple(
            IgnoredSetting(
                key=each.key,
                value=_text(each.value)[:_SHOWN_CHARACTERS],
                where=each.where,
                reason=each.reason,
                unknown=each.unknown,
            )
            for each in read.not_understood
        ),
        notes=(*_idle(read, context), *read.notes, *read.cluster.assumptions),
    )


def not_carried(
    launcher: Launcher, read: ReadConfig, report: CheckReport, files: Mapping[str, str]
) -> dict[str, str]:
    """Settings of a configuration that neither `files`, written for the report's best plan, nor its
    setting changes name -> their values."""
    cluster = report.cluster
    models = report.workload.models
    named = set(launcher.read(files, (), Context(cluster, models)).written)
    named |= {change.key for change in report.setting_changes}
    return {key: _text(value) for key, value in read.written.items() if key not in named}


def _idle(read: ReadConfig, context: Context) -> list[str]:
    """That the configuration uses fewer devices than it was given, if so."""
    used, given = read.cluster.devices, context.cluster.groups[0].devices
    if used >= given:
        return []
    return [
        f"it uses {used} of the {given} devices given: the others stay idle, and the best plan "
        "is one for the devices that it uses"
    ]


def _instance(read: ReadConfig, assignment: Assignment | None = None) -> Instance:
    space = load_space(read.space)
    assignment = assignment or read.assignment
    return make_instance(
        read.workload,
        read.cluster,
        framework=assignment.framework if assignment else space.framework,
        engine=assignment.engine if assignment else space.engine,
        reference_shares_actor_layout=read.reference_shares_actor_layout,
    )


def _broken_rules(launcher: Launcher, checker: Checker, assignment: Assignment) -> list[Broken]:
    """Rules of the space that the assignment breaks, each once, with the nearest legal values."""
    found: dict[tuple[str, str], Broken] = {}
    everywhere = checker.all_broken(assignment)
    variants = list(checker.variants(assignment)) if everywhere else []
    for call, rule in everywhere:
        key = (rule.id, rule.message)
        if key in found:
            continue
        keys = checker.read.keys[call]
        found[key] = Broken(
            rule.id,
            rule.message,
            tuple(keys[name] for name in sorted(rule.names) if name in keys),
            _nearest(launcher, checker, assignment, variants, call, rule.id, len(everywhere)),
            "",
            call,
        )
    return list(found.values())


def _nearest(
    launcher: Launcher,
    checker: Checker,
    assignment: Assignment,
    variants: list[Variant],
    call: str,
    rule: str,
    broken: int,
) -> tuple[str, ...]:
    """Single changes after which the call keeps the rule and no new rule is broken."""
    good = []
    for variant in variants:
        if any(each.id == rule for each in checker.broken(variant.assignment, call)):
            continue
        if len(checker.all_broken(variant.assignment)) < broken:
            good.append((_distance(variant), variant))
    good.sort(key=lambda pair: pair[0])
    found = [_settings_of(launcher, checker.read, assignment, each) for _, each in good]
    return tuple(dict.fromkeys(" ".join(each) for each in found if each))[:_REMEDIES]


def _distance(variant: Variant) -> float:
    old, new = variant.old, variant.new
    if isinstance(old, int | float) and isinstance(new, int | float) and old > 0 and new > 0:
        return abs(math.log(new / old))
    return 1.0


def _settings_of(
    launcher: Launcher, read: ReadConfig, assignment: Assignment, variant: Variant
) -> tuple[str, ...]:
    """The launcher's settings that change with a variant."""
    before = launcher.settings(assignment, read.workload, read.cluster)
    after = launcher.settings(variant.assignment, read.workload, read.cluster)
    return tuple(
        f"{key}={_text(value)}" for key, value in after.items() if before.get(key) != value
    )


def _remedies(
    launcher: Launcher,
    checker: Checker,
    pricer: Pricer,
    assignment: Assignment,
    prediction: Prediction | None,
    shortages: list[MemoryShortage],
) -> list[OneChange]:
    """Legal single changes that make the configuration fit, or make it faster; fastest first."""
    if checker.all_broken(assignment):
        return []
    now_s = math.inf if shortages or prediction is None else prediction.step_time_s
    found: list[tuple[float, OneChange]] = []
    for variant in checker.variants(assignment):
        if checker.all_broken(variant.assignment):
            continue
        try:
            priced, short = pricer.price(variant.assignment)
        except InputError:
            continue
        if priced is None or short or priced.step_time_s >= 0.98 * now_s:
            continue
        settings = _settings_of(launcher, checker.read, assignment, variant)
        if not settings:
            continue
        tight = any(call.memory_verdict == "tight" for call in priced.calls.values())
        change = OneChange(
            settings=settings,
            meaning=variant.meaning,
            step_time_s=priced.step_time_s,
            verdict="tight" if tight else "fits",
        )
        found.append((priced.step_time_s, change))
    found.sort(key=lambda pair: (pair[1].verdict == "tight", pair[0]))
    return [change for _, change in found[:_REMEDIES]]


def _best(
    read: ReadConfig, launcher: Launcher, max_staleness: int | None, deadline_s: float
) -> tuple[Plan | None, str]:
    """The best plan on the same devices in the configuration's own space.

    Where another space of the launcher (another training backend) has a faster one, or the only
    one, the note says so.
    """
    allowed = read.workload.max_staleness if max_staleness is None else max_staleness
    workload = read.workload.model_copy(update={"max_staleness": allowed})
    spaces = sorted(launcher.capabilities.spaces, key=lambda space: space != read.space)
    found: dict[str, Plan] = {}
    why = ""
    for space in spaces:
        try:
            plans = api.plan(
                workload,
                read.cluster,
                space=_own_space(read, space),
                top=3,
                deadline_s=deadline_s / len(spaces),
            )
        except (InfeasibleError, InputError) as error:
            why = why or str(error)
            continue
        for plan in plans.plans:
            if not launcher.supports(plan, workload, read.cluster):
                found[space] = plan
                break
    own = found.get(read.space)
    others = [plan for space, plan in found.items() if space != read.space]
    other = min(others, key=lambda plan: plan.step_time_s, default=None)
    if other is not None and (own is None or other.step_time_s < 0.95 * own.step_time_s):
        note = (
            f"in the space {other.assignment.space} the best plan takes {other.step_time_s:.1f} s: "
            f"rlmplan plan --space {other.assignment.space}"
        )
        return own, note if own is not None else f"{why} But {note}"
    return own, "" if own is not None else why or "no plan of its space can be written for it"


def _own_space(read: ReadConfig, name: str) -> SearchSpace:
    """The space, with the profile of the training code that the configuration chose."""
    space = load_space(name)
    if name != read.space or read.assignment is None:
        return space
    return space.model_copy(update={"framework": read.assignment.framework})


def _setting_changes(
    launcher: Launcher, read: ReadConfig, best: Plan | None
) -> tuple[SettingChange, ...]:
    if best is None:
        return ()
    want = launcher.settings(best.assignment, read.workload, read.cluster)
    mine: dict[str, Any] = {}
    if read.assignment is not None:
        mine = launcher.settings(read.assignment, read.workload, read.cluster)
    changes = []
    for key, value in want.items():
        if key in mine and mine[key] == value:
            continue
        have = read.settings.get(key)
        if not _same(have, value):
            changes.append(SettingChange(key=key, have=_text(have), want=_text(value)))
    for key, value in mine.items():
        if key not in want and not _same(value, None):
            changes.append(SettingChange(key=key, have=_text(value), want=""))
    return tuple(changes)


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return _text(one) == _text(other)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(getattr(value, "text", value))


def _call_changes(
    assignment: Assignment | None, prediction: Prediction | None, best: Plan | None
) -> tuple[CallChange, ...]:
    if best is None or assignment is None:
        return ()
    changes = []
    for name, call in best.calls.items():
        old, new = assignment.strategies.get(name), call.strategy
        if old is None or new is None:
            continue
        words = differences(old, new, (assignment.meshes[name], best.assignment.meshes[name]))
        if words:
            have = prediction.calls[name].time_s if prediction else None
            changes.append(
                CallChange(call=name, change=", ".join(words), have_s=have, want_s=call.time_s)
            )
    return tuple(changes)


def _shown(broken: Broken) -> BrokenSetting:
    return BrokenSetting(
        rule=broken.rule,
        call=broken.call,
        message=broken.message,
        keys=broken.keys,
        nearest=broken.nearest,
        source=broken.source,
    )
