"""`planner.sweep`: plans of many problems, on local processes or on a Ray cluster.

A sweep is the product of models, clusters, sizes and algorithms over one base problem. Every case
is one search, independent of the others, so where it runs changes nothing in its answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from planner.errors import InfeasibleError, InputError
from planner.version import __version__

SAME = "actor"
"""In the place of a model: that of the actor of the case."""

Row = dict[str, Any]
"""What is known of one case; JSON."""


@dataclass(frozen=True)
class Case:
    """One problem of a sweep; null: as the base problem has it."""

    file: str | None
    algorithm: str | None
    actor: str | None
    cluster: str | None
    prompts: int | None
    models: tuple[tuple[str, str], ...]
    """Other roles and their models; `SAME` for the actor's."""
    options: tuple[tuple[str, Any], ...]
    """Further options of `problem_from`, the same for all cases."""
    space: str
    objective: str
    deadline_s: float | None

    @property
    def key(self) -> str:
        """Equal for cases with the same answer by the same release."""
        return json.dumps([__version__, asdict(self)], sort_keys=True)


def cases(
    file: Path | None,
    *,
    algorithms: Sequence[str] = (),
    actors: Sequence[str] = (),
    clusters: Sequence[str] = (),
    prompts: Sequence[int] = (),
    models: Sequence[tuple[str, str]] = (),
    space: str = "any",
    objective: str = "step_time",
    deadline_s: float | None = None,
    **options: Any,
) -> list[Case]:
    """The product, in the order given; what is empty stays as in the file."""
    given = tuple((name, value) for name, value in sorted(options.items()) if value is not None)
    found = [
        Case(
            None if file is None else str(file),
            *each,
            models=tuple(models),
            options=given,
            space=space,
            objective=objective,
            deadline_s=deadline_s,
        )
        for each in product(
            algorithms or (None,), actors or (None,), clusters or (None,), prompts or (None,)
        )
    ]
    return list(dict.fromkeys(found))


def run_case(case: Case) -> Row:
    """Plan one case; an input that makes no sense, or does not fit, is a row with its reason."""
    from planner.api import plan
    from planner.catalog.workloads import problem_from

    names = ("algorithm", "actor", "cluster", "prompts")
    row: Row = {name: getattr(case, name) for name in names}
    models = dict(case.models)
    if case.actor is not None:
        models["actor"] = case.actor
        models = {role: case.actor if name == SAME else name for role, name in models.items()}
    try:
        problem = problem_from(
            None if case.file is None else Path(case.file),
            models=models,
            algorithm=case.algorithm,
            cluster=case.cluster,
            prompts=case.prompts,
            **dict(case.options),
        )
        found = plan(
            problem.workload,
            problem.cluster,
            space=case.space,
            objective=case.objective,
            top=1,
            deadline_s=case.deadline_s,
        )
    except (InputError, InfeasibleError) as error:
        kind = "does not fit" if isinstance(error, InfeasibleError) else "bad input"
        return {"key": case.key, **row, "status": kind, "message": str(error)}
    best = found.plans[0]
    workload = problem.workload
    return {
        "key": case.key,
        "algorithm": workload.algorithm,
        "actor": workload.models["actor"].name,
        "cluster": case.cluster or problem.cluster.name,
        "prompts": workload.prompts_per_step,
        "status": "planned",
        "step_time_s": best.step_time_s,
        "bound_s": best.bound_s,
        "devices": best.devices,
        "tokens_per_s_per_device": best.tokens_per_s_per_device,
        "cost_per_step_usd": best.cost_per_step_usd,
        "placement": best.placement,
        "launchers": list(best.launchers),
        "assignment": best.assignment.model_dump(mode="json"),
    }


def sweep(
    many: Sequence[Case],
    *,
    path: Path | None = None,
    processes: int | None = None,
    address: str | None = None,
    progress: Callable[[int, Row], None] = lambda done, row: None,
) -> list[Row]:
    """The rows of all cases, in their order.

    Parameters: `path` is a JSON-lines file: cases that it holds are not planned again, and every
    new row is in it before the next one is waited for (a new file is renamed into its place);
    `processes` are those on this machine (default: one for each core); `address` is that of a Ray
    cluster ("auto", "ray://HOST:PORT", "local"), which then does the work; `progress` is called
    with the number of rows so far and each new one.

    Raises InputError for a file that is none of a sweep, and for an address without Ray.
    """
    wanted = {case.key: case for case in many}
    kept = [] if path is None else _read(path)
    rows = {row["key"]: row for row in kept}
    missing = [case for key, case in wanted.items() if key not in rows]
    done = len(wanted) - len(missing)
    if missing:
        run = _on_ray(missing, address) if address else _on_processes(missing, processes)
        for row in run:
            rows[row["key"]] = row
            done += 1
            if path is not None:
                _write(path, rows.values())
            progress(done, row)
    return [rows[key] for key in wanted]


def _on_processes(many: Sequence[Case], processes: int | None) -> Iterator[Row]:
    # A fresh interpreter for each: the solver's threads do not survive a fork.
    count = max(1, min(processes or os.cpu_count() or 1, len(many)))
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        left = {pool.submit(run_case, case) for case in many}
        try:
            while left:
                ready, left = wait(left, return_when=FIRST_COMPLETED)
                for each in ready:
                    yield each.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _on_ray(many: Sequence[Case], address: str) -> Iterator[Row]:
    try:
        import ray
    except ImportError:
        raise InputError(
            "needs Ray", where="--ray", remedy="pip install 'rlmplan[ray]', or leave --ray out"
        ) from None
    ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
    try:
        remote = ray.remote(run_case)
        left = [remote.remote(case) for case in many]
        while left:
            ready, left = ray.wait(left, num_returns=1)
            yield from ray.get(ready)
    finally:
        ray.shutdown()


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("key"), str):
            raise InputError(
                "is no row of a sweep",
                where=f"{path}: line {number}",
                remedy="Give another file, or a new one",
            )
        rows.append(row)
    return rows


def _write(path: Path, rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    text = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
