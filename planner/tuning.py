"""`planner.tune`: what `plan` found, tuned on the user's own system or in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.launchers import get_launcher, with_launchers
from planner.launchers.logs import log_formats, read_log
from planner.launchers.trial_files import write_trial
from planner.schema import PlanSet, SearchSpace
from planner.search.tuning.loop import Budget, Task, TuneResult
from planner.search.tuning.loop import tune as run
from planner.search.tuning.simulated import Tuned, tune_plans, with_tuned


def tune(
    plan_set: PlanSet,
    command: str,
    folder: Path,
    *,
    launcher: str | None = None,
    space: SearchSpace | None = None,
    trials: int | None = None,
    device_hours: float | None = None,
    cost_usd: float | None = None,
    storage: str | None = None,
    study: str = "rlmplan",
    log_format: str = "auto",
    timeout_s: float = 1800.0,
    sampler: str = "model",
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> TuneResult:
    """Tune the plans of a search by running them with the user's own command.

    Each trial writes a plan's files into a folder of its own below `folder`, runs `command` by the
    shell with {config}, {script}, {dir} and {trial} filled in, and reads step time, stage times
    and peak memory from what it printed. The figures correct the cost model, and the next trial is
    the best plan by the corrected model.

    Parameters: `launcher` writes the files (by default {config} is the plan as JSON); `space` is
    that of the plans where it is not a shipped one; `trials`,
    `device_hours` and `cost_usd` are the budget, at least one of them; `storage` an Optuna
    storage, a file or an URL (default: study.db in `folder`), in which finished trials survive and
    which several tuners may share; `log_format` one of `launchers.logs.log_formats`, or "auto";
    `timeout_s` of one trial; `sampler` "model", "tpe", "gp" or "random".

    Runs nothing but `command`. Raises InputError for options that make no sense and for a study of
    another problem.
    """
    if log_format not in ("auto", *log_formats()):
        raise InputError(
            f"unknown log format {log_format!r}",
            where="--log-format",
            remedy=f"Known: auto, {', '.join(log_formats())}",
        )
    workload, cluster = plan_set.workload, plan_set.cluster
    writer = None if launcher is None else get_launcher(launcher)
    task = Task(
        command=command,
        folder=folder,
        write=lambda plan, place: write_trial(launcher, plan_set, plan, place),
        read=lambda text: read_log(text, log_format, optimizer_steps=workload.optimizer_steps),
        refuse=lambda plan: [] if writer is None else writer.supports(plan, workload, cluster),
        timeout_s=timeout_s,
    )
    return run(
        plan_set,
        task,
        Budget(trials, device_hours, cost_usd),
        storage=storage or str(folder / "study.db"),
        name=study,
        space=space,
        sampler=sampler,
        seed=seed,
        progress=progress,
    )


def tune_in_simulator(plan_set: PlanSet, trials: int, **how: Any) -> tuple[PlanSet, Tuned]:
    """The plans with the best one tuned by `trials` trials in the simulator, and what was tried.

    The tuned plan comes first where its simulated step is shorter than that of every exact plan
    tried; the parameters are those of `planner.search.tuning.simulated.tune_plans`.
    """
    tuned = tune_plans(plan_set, trials, **how)
    workload, cluster = plan_set.workload, plan_set.cluster
    found = with_launchers(tuned.plan, workload, cluster)
    return with_tuned(plan_set, tuned, found), tuned
