"""One measurement from beginning to end: points, journal, files, comparison."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from planner.catalog.hardware import device_file as shipped_device
from planner.catalog.hardware import read_device_file
from planner.catalog.hardware_files import GIB, DeviceFile
from planner.catalog.kernels import kernel_arrays
from planner.cost.kernel_tables import load_kernels
from planner.errors import InputError
from planner.measure.bench.compare import Comparison, compare, recognised, warnings
from planner.measure.bench.journal import Journal, Sample
from planner.measure.bench.machine import Machine, device_name, host_memory_bytes, memory_bytes
from planner.measure.bench.points import Point, grids, points
from planner.measure.bench.profile import Facts, Figure, device_file, figures, trainer_constants
from planner.measure.bench.run import run_points
from planner.measure.bench.table import carried_over, npz_bytes, table_arrays

_BASE_TABLE = "h100-80-sxm"
_QUICK_S, _FULL_S = 0.12, 0.5


@dataclass(frozen=True)
class Result:
    """What a measurement found; files are content, not yet written."""

    files: dict[str, str | bytes]
    """Name -> content: the device profile, its kernel table, a cluster, the report."""
    found: dict[str, Figure]
    comparisons: list[Comparison]
    compared_with: str | None
    warnings: list[str]
    skipped: dict[str, str]
    """Points that could not be measured, with the reason."""


def run_measurement(
    machine: Machine,
    *,
    name: str | None,
    journal_path: Path | None,
    quick: bool = False,
    against: str | None = None,
    progress: Callable[[int, int, Point], None] | None = None,
) -> Result | None:
    """Measure what the journal lacks; None on all ranks but the first.

    `against` is a device id or the path of a device file to compare with (default: the shipped
    profile with the machine's name). Raises InputError for a journal of another machine.
    """
    reference = against or recognised(device_name(machine))
    known = reference_device(reference) if reference else None
    settings = {**machine.description(), "quick": quick}
    path = journal_path if machine.rank == 0 else None
    journal, failure = Journal(None, settings), None
    try:
        journal = Journal(path, settings)
    except InputError as error:
        failure = error.message, error.where, error.remedy
    # The other ranks must not wait for points that the first will never measure.
    failure = machine.from_first(failure)
    if failure is not None:
        raise InputError(failure[0], where=failure[1], remedy=failure[2])
    listed = points(
        machine.kind,
        grids(machine.kind, quick=quick),
        node_ranks=machine.node_ranks,
        nodes=machine.nodes,
    )
    budget = _QUICK_S if quick else _FULL_S
    skipped = run_points(machine, listed, journal, budget_s=budget, progress=progress)
    if machine.rank != 0:
        return None
    identity = name or f"{_plain(device_name(machine))}-measured"
    today = datetime.date.today().isoformat()
    words = ", ".join(f"{key} {value}" for key, value in settings.items())
    facts = Facts(
        id=identity,
        name=device_name(machine),
        kind=machine.kind,
        dtype_bytes=machine.dtype.itemsize,
        memory_bytes=memory_bytes(machine),
        host_memory_bytes=host_memory_bytes(),
        node_ranks=machine.node_ranks,
        source=f"rlmplan measure, {today}: {words}",
    )
    return assemble(journal.samples, facts, known, reference, skipped, nodes=machine.nodes)


def assemble(
    samples: Mapping[str, Sample],
    facts: Facts,
    known: DeviceFile | None,
    reference: str | None,
    skipped: dict[str, str],
    nodes: int = 1,
) -> Result:
    """Files, comparison and warnings from the samples of a journal."""
    found = figures(samples, facts)
    listed = list(samples.values())
    is_same_device = known is not None and facts.kind == "cuda"
    device = device_file(found, facts, known if is_same_device else None, f"{facts.id}.npz")
    profile = device.profile()
    base_name = known.kernel_table if known is not None else _BASE_TABLE
    base = kernel_arrays(base_name)
    arrays = table_arrays(listed, profile, base)
    comparisons: list[Comparison] = []
    if known is not None:
        shipped = known.profile()
        comparisons = compare(listed, found, load_kernels(shipped), shipped)
    notes = warnings(listed)
    report = {
        "device": facts.id,
        "machine": facts.name,
        "source": facts.source,
        "figures": {
            one.name: {"value": _short(one.value), "unit": one.unit, "spread": _short(one.spread)}
            for one in found.values()
        },
        "trainer_constants": {
            key: _short(value) for key, value in trainer_constants(found).items()
        },
        "points": {
            kernel: sum(one.point.kernel == kernel for one in listed)
            for kernel in dict.fromkeys(one.point.kernel for one in listed)
        },
        "ratios_carried_over": {
            "from": known.id if known is not None else _BASE_TABLE,
            "grids": carried_over(listed, base),
        },
        "compared_with": reference,
        "comparison": [one.text for one in comparisons],
        "warnings": [*(one.text for one in comparisons if one.is_slow), *notes],
        "not_measured": skipped,
    }
    cluster = {
        "name": f"{facts.id}-cluster",
        "groups": [
            {
                "nodes": nodes,
                "devices_per_node": facts.node_ranks,
                "device": f"{facts.id}.yaml",
                "host_memory_gib": round(facts.host_memory_bytes / GIB, 1),
            }
        ],
    }
    content = device.model_dump(mode="json", exclude_none=True)
    files: dict[str, str | bytes] = {
        f"{facts.id}.npz": npz_bytes(arrays),
        f"{facts.id}.yaml": _yaml({key: _rounded(value) for key, value in content.items()}),
        f"{facts.id}.report.yaml": _yaml(report),
        f"{facts.id}.cluster.yaml": _yaml(cluster),
    }
    slow = [one.text for one in comparisons if one.is_slow]
    return Result(files, found, comparisons, reference, [*slow, *notes], skipped)


def reference_device(reference: str) -> DeviceFile:
    """The device to compare with: a shipped id, or a device file."""
    if reference.lower().endswith((".yaml", ".yml")):
        return read_device_file(Path(reference))
    return shipped_device(reference)


def _plain(name: str) -> str:
    """A name as an id: lower case letters, digits and dashes."""
    words = "".join(c if c.isalnum() else " " for c in name.lower()).split()
    return "-".join(words)[:80] or "device"


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return _short(value)
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return value


def _yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=100, allow_unicode=True)
