"""From nodes as their managers describe them to a cluster file."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from planner.errors import InputError
from planner.measure.detect import sources
from planner.measure.detect.names import device_of, memory_note
from planner.measure.detect.sources import Node

SOURCES = ("auto", "machine", "slurm", "kubernetes", "ray")


@dataclass(frozen=True)
class Detected:
    """A cluster file's content, and what a user should know of it."""

    source: str
    content: dict[str, Any]
    notes: tuple[str, ...]


def detect(source: str = "auto", *, partition: str | None = None) -> Detected:
    """The cluster that a source describes; "auto": Slurm inside of a job, Ray where RAY_ADDRESS is
    set, else this machine. Raises InputError when it has no accelerator with a profile."""
    if source not in SOURCES:
        raise InputError(
            f"there is no source {source!r}",
            where="--source",
            remedy=f"Known: {', '.join(SOURCES)}.",
        )
    if source == "auto":
        source = _automatic()
    read: dict[str, Callable[[], list[Node]]] = {
        "machine": sources.machine,
        "slurm": partial(sources.slurm, partition),
        "kubernetes": sources.kubernetes,
        "ray": sources.ray,
    }
    return _cluster(source, read[source]())


def _automatic() -> str:
    if os.environ.get("SLURM_JOB_ID") and shutil.which("sinfo"):
        return "slurm"
    if os.environ.get("RAY_ADDRESS") and shutil.which("ray"):
        return "ray"
    return "machine"


def _cluster(source: str, nodes: list[Node]) -> Detected:
    notes: list[str] = []
    known: Counter[tuple[str, int, int | None]] = Counter()
    for node in nodes:
        device = device_of(node.device_name, node.memory_gib)
        if device is None:
            notes.append(
                f"{node.devices} x {node.device_name!r} left out: no device profile goes by that "
                "name (rlmplan hardware list; docs/adding-a-device.md)"
            )
            continue
        if node.memory_gib is not None:
            note = memory_note(device, node.memory_gib)
            notes += [note] if note else []
        elif device not in node.device_name.lower():
            notes.append(f"{node.device_name!r} is taken for {device}")
        # Managers report slightly different memory of equal nodes.
        host = node.host_memory_gib
        known[device, node.devices, None if host is None else _rounded(host)] += 1
    if not known:
        raise InputError(
            "no accelerator with a device profile was found",
            where=source,
            remedy="; ".join(dict.fromkeys(notes)) or "Describe the cluster by hand.",
        )
    groups = []
    for (device, devices, host_gib), count in sorted(known.items(), key=str):
        group: dict[str, Any] = {"device": device, "nodes": count, "devices_per_node": devices}
        if host_gib is not None:
            group["host_memory_gib"] = host_gib
        groups.append(group)
    content = {"name": source if source != "machine" else "this-machine", "groups": groups}
    return Detected(source, content, tuple(dict.fromkeys(notes)))


def _rounded(gib: float) -> int:
    """Down to five binary digits, so that equal nodes form one group."""
    step = max(1, 1 << max(0, int(gib).bit_length() - 5))
    return max(1, int(gib // step) * step)
