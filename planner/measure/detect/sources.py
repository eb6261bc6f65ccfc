"""Reads nvidia-smi, rocm-smi, Slurm, Kubernetes and Ray; each answer is a list of nodes.

Output formats: nvidia-smi `--query-gpu=name,memory.total --format=csv,noheader,nounits` (MiB);
rocm-smi `--showproductname --showmeminfo vram --json`; `sinfo --Node --noheader -o "%N|%G|%m|%T"`
(memory in MB); `kubectl get nodes -o json` with the labels of the GPU feature discovery; the Ray
dashboard's `ray list nodes --format json`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.errors import InputError

_TIMEOUT_S = 30.0
_DOWN = ("down", "drain", "fail", "maint", "unknown")


@dataclass(frozen=True)
class Node:
    """A node and its accelerators, as one source names them."""

    device_name: str
    devices: int
    memory_gib: float | None = None
    """Memory of one device."""
    host_memory_gib: float | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)


def run(command: Sequence[str]) -> str:
    """Standard output of a command; InputError when it is missing, fails or hangs."""
    where = command[0]
    if shutil.which(command[0]) is None:
        raise InputError("is not installed on this machine", where=where, remedy=_OTHER)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"did not answer in {_TIMEOUT_S:g} s", where=where) from None
    except OSError as error:
        raise InputError(f"cannot be run: {error.strerror}", where=where) from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise InputError(f"failed: {said[-1] if said else done.returncode}", where=where)
    return done.stdout


_OTHER = "Choose another --source, or describe the cluster by hand (NAME:NODESxDEVICES)."


def machine() -> list[Node]:
    """The devices of this machine, by its driver's tool."""
    readers: dict[str, Callable[[], list[Node]]] = {"nvidia-smi": _nvidia, "rocm-smi": _rocm}
    for tool, read in readers.items():
        if shutil.which(tool) is not None:
            return read()
    raise InputError(
        "neither nvidia-smi nor rocm-smi is installed: no accelerator is seen here",
        where="this machine",
        remedy=_OTHER,
    )


def _nvidia() -> list[Node]:
    text = run(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"])
    found: dict[tuple[str, float | None], int] = {}
    for line in filter(str.strip, text.splitlines()):
        name, _, memory = line.rpartition(",")
        gib = float(memory) / 1024.0 if memory.strip().isdigit() else None
        key = (name.strip() or line.strip(), gib)
        found[key] = found.get(key, 0) + 1
    return [Node(name, count, gib, _host_memory_gib()) for (name, gib), count in found.items()]


def _rocm() -> list[Node]:
    text = run(["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json"])
    found: dict[tuple[str, float | None], int] = {}
    for name, card in _json(text, "rocm-smi").items():
        if not name.startswith("card") or not isinstance(card, dict):
            continue
        label = str(card.get("Card Series") or card.get("Card series") or card.get("Card model"))
        total = str(card.get("VRAM Total Memory (B)", ""))
        key = (label, int(total) / 2**30 if total.isdigit() else None)
        found[key] = found.get(key, 0) + 1
    return [Node(name, count, gib, _host_memory_gib()) for (name, gib), count in found.items()]


def _host_memory_gib() -> float | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            match = re.search(r"MemTotal:\s+(\d+) kB", file.read())
    except OSError:
        return None
    return int(match[1]) / 2**20 if match else None


def slurm(partition: str | None = None) -> list[Node]:
    """Nodes with accelerators that Slurm knows and that are up; of one partition, or all."""
    command = ["sinfo", "--Node", "--noheader", "-o", "%N|%G|%m|%T"]
    if partition is not None:
        command.append(f"--partition={partition}")
    nodes: dict[str, Node] = {}
    for line in filter(str.strip, run(command).splitlines()):
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 4:
            raise InputError(f"an answer that is not understood: {line!r}", where="sinfo")
        name, gres, memory, state = parts
        if any(word in state.lower() for word in _DOWN):
            continue
        match = re.search(r"gpu:(?:([^:,()]+):)?(\d+)", gres)
        if match is None:
            continue
        host = int(memory) / 1024.0 if memory.isdigit() else None
        # A node stands in one line for each of its partitions.
        nodes[name] = Node(match[1] or "gpu", int(match[2]), None, host)
    return list(nodes.values())


def kubernetes() -> list[Node]:
    """Nodes of the current context that can be scheduled and have accelerators."""
    nodes = []
    for item in _json(run(["kubectl", "get", "nodes", "-o", "json"]), "kubectl").get("items", []):
        labels = item.get("metadata", {}).get("labels", {})
        status = item.get("status", {})
        room = status.get("allocatable") or status.get("capacity") or {}
        count = int(room.get("nvidia.com/gpu", 0) or room.get("amd.com/gpu", 0) or 0)
        if not count or item.get("spec", {}).get("unschedulable"):
            continue
        name = labels.get("nvidia.com/gpu.product") or labels.get("amd.com/gpu.product-name")
        memory = str(labels.get("nvidia.com/gpu.memory", ""))
        nodes.append(
            Node(
                name or "gpu",
                count,
                int(memory) / 1024.0 if memory.isdigit() else None,
                _quantity_gib(str(room.get("memory", ""))),
            )
        )
    return nodes


def _quantity_gib(text: str) -> float | None:
    """A Kubernetes quantity in GiB."""
    match = re.fullmatch(r"(\d+)(Ki|Mi|Gi|Ti)?", text)
    if match is None:
        return None
    power = {None: 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}[match[2]]
    return float(int(match[1])) * 2.0 ** (power - 30)


def ray() -> list[Node]:
    """Alive nodes of the Ray cluster that `ray` reaches (RAY_ADDRESS)."""
    text = run(["ray", "list", "nodes", "--format", "json", "--detail", "--limit", "10000"])
    nodes = []
    for item in _json(text, "ray", list):
        if str(item.get("state", "ALIVE")).upper() != "ALIVE":
            continue
        total = item.get("resources_total") or {}
        count = int(total.get("GPU", 0))
        if not count:
            continue
        kinds = [key for key in total if key.startswith("accelerator_type:")]
        name = kinds[0].partition(":")[2] if kinds else "gpu"
        memory = total.get("memory")
        host = float(memory) / 2**30 if isinstance(memory, int | float) else None
        nodes.append(Node(name, count, None, host))
    return nodes


def _json(text: str, where: str, kind: type = dict) -> Any:
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, kind):
        raise InputError("its answer is not the JSON that was expected", where=where)
    return content
