"""Checks of an installation: what `rlmplan doctor` prints."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from planner.errors import PlannerError
from planner.version import __version__

Check = dict[str, str]
"""`check`: what was looked at; `state`: ok, missing (optional) or broken; `detail`: what it is."""

_DISTRIBUTIONS = {"yaml": "PyYAML"}


def health(required: Sequence[str], optional: Mapping[str, tuple[str, str]]) -> list[Check]:
    """One row for each check, in a fixed order; never raises.

    `optional` maps a module to what it is for and what installs it.
    """
    found = [_ok("rlmplan", f"{__version__}, Python {platform.python_version()}")]
    found += [_required(name) for name in required]
    found += [_optional(name, *about) for name, about in optional.items()]
    found += [_try(name, check) for name, check in _CHECKS.items()]
    return found


def _ok(name: str, detail: str) -> Check:
    return {"check": name, "state": "ok", "detail": detail}


def _required(name: str) -> Check:
    try:
        import_module(name)
        return _ok(name, version(_DISTRIBUTIONS.get(name, name)))
    except (ImportError, OSError, PackageNotFoundError) as error:
        return {"check": name, "state": "broken", "detail": f"{error}; pip install rlmplan again"}


def _optional(name: str, purpose: str, install: str) -> Check:
    if find_spec(name) is None:
        detail = f"not installed; for {purpose}: pip install '{install}'"
        return {"check": name, "state": "missing", "detail": detail}
    try:
        return _ok(name, f"{version(name)}, for {purpose}")
    except PackageNotFoundError:
        return _ok(name, f"for {purpose}")


def _try(name: str, check: Callable[[], str]) -> Check:
    try:
        return _ok(name, check())
    except (PlannerError, ImportError, OSError, RuntimeError, ValueError) as error:
        return {"check": name, "state": "broken", "detail": str(error)}


def _data() -> str:
    from planner.catalog.frameworks import list_frameworks, load_framework
    from planner.catalog.hardware import list_clusters, list_devices, load_device
    from planner.catalog.models import list_models
    from planner.catalog.spaces import list_spaces, load_space

    for device in list_devices():
        load_device(device)
    for framework in list_frameworks():
        load_framework(framework)
    for space in list_spaces():
        load_space(space)
    counts = {
        "models": len(list_models()),
        "devices": len(list_devices()),
        "cluster types": len(list_clusters()),
        "profiles": len(list_frameworks()),
        "search spaces": len(list_spaces()),
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def _solver() -> str:
    """CP-SAT proves a knapsack of which the optimum is known."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    weights, values = (3, 4, 5, 9), (3, 4, 4, 10)
    taken = [model.new_bool_var(f"x{i}") for i in range(len(weights))]
    model.add(sum(w * x for w, x in zip(weights, taken, strict=True)) <= 11)
    model.maximize(sum(v * x for v, x in zip(values, taken, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status != cp_model.OPTIMAL or solver.objective_value != 10:
        raise RuntimeError(f"CP-SAT answered {solver.status_name(status)} for a small knapsack")
    return "CP-SAT proves a small problem"


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    words = [f"{cores} CPU cores"]
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            words.append(f"{int(line.split()[1]) / 2**20:.1f} GiB of memory free")
    words.append(f"{platform.system()} {platform.machine()}")
    return ", ".join(words)


def _lines(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="ascii") as file:
            yield from file
    except OSError:
        return


def _text() -> str:
    encoding = (sys.stdout.encoding or "").lower()
    if "utf" not in encoding:
        raise RuntimeError(
            f"standard output is {encoding or 'unknown'}: set PYTHONIOENCODING=utf-8"
        )
    return f"{encoding}{', NO_COLOR set' if os.environ.get('NO_COLOR') else ''}"


_CHECKS: dict[str, Callable[[], str]] = {
    "data files": _data,
    "solver": _solver,
    "machine": _machine,
    "terminal": _text,
}
