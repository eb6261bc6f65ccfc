"""A launcher's configuration as a plan, to be compared with others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.errors import InputError
from planner.launchers.base import Launcher
from planner.launchers.check import check
from planner.launchers.reading import Context
from planner.schema import Plan
from planner.schema.check import CheckReport
from planner.search.compare import Compared
from planner.search.words import placement_words
from planner.simulate.copies import of_assignment
from planner.simulate.evaluate import used_devices
from planner.simulate.instance import make_instance


def priced_plan(
    name: str,
    launcher: Launcher,
    files: Mapping[str, str],
    overrides: Sequence[str],
    context: Context,
) -> Compared:
    """The configuration as it would run, with the rules that it breaks.

    Raises InputError for files that cannot be read, and for a configuration that cannot be timed:
    its degrees fit no mesh, or an engine has no room for the model and a sequence.
    """
    report = check(launcher, files, overrides, context, search=False)
    read = launcher.read(files, overrides, context)
    if report.prediction is None or read.assignment is None:
        raise InputError(
            f"cannot be priced: {'; '.join(_reasons(report)) or 'its degrees fit no mesh'}",
            where=name,
            remedy=f"rlmplan check {name} --launcher {launcher.name} says what to change",
        )
    instance = make_instance(
        read.workload,
        read.cluster,
        framework=read.assignment.framework,
        engine=read.assignment.engine,
        reference_shares_actor_layout=read.reference_shares_actor_layout,
    )
    prediction = report.prediction
    plan = Plan(
        **{field: getattr(prediction, field) for field in type(prediction).model_fields},
        rank=1,
        tie_with_best=True,
        placement=placement_words(of_assignment(instance, read.assignment), read.assignment),
        assignment=read.assignment,
        devices=used_devices(read.assignment),
        bound_s=0.0,
        launchers=(launcher.name,),
    )
    fits = prediction.fits and not report.shortages
    return Compared(
        name,
        plan.model_copy(update={"fits": fits}),
        read.workload,
        read.cluster,
        tuple(_reasons(report)),
    )


def _reasons(report: CheckReport) -> list[str]:
    memory = [f"{each.call} is short of {each.short_bytes:,.0f} bytes" for each in report.shortages]
    return [each.message for each in report.broken] + memory
