"""The machine under test as torch sees it: device, dtype, ranks, and the clock of its kernels."""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.measure.bench.points import Kind
from planner.measure.bench.timing import Clock, HostClock

_COLD_BYTES: dict[Kind, int] = {"cpu": 2**26, "cuda": 2**28}


def import_torch() -> Any:
    """The torch module; InputError saying what to install when there is none."""
    try:
        import torch
    except ImportError:
        raise InputError(
            "measuring needs PyTorch, which is not installed",
            where="measure",
            remedy="Install it: pip install 'rlmplan[measure]' (or a torch of your own).",
        ) from None
    return torch


@dataclass(frozen=True)
class Machine:
    """One rank of the machine that is measured."""

    torch: Any
    kind: Kind
    device: Any
    dtype: Any
    """bf16 on a GPU, fp32 on a CPU, where it stands for the planner's 2-byte words."""
    rank: int = 0
    world: int = 1
    node_ranks: int = 1
    threads: int = 1
    """CPU threads of this rank; one is timed by its processor time, several by the wall clock."""
    objects: Any = None
    """The process group over which ranks exchange figures; None with a single rank."""

    @property
    def nodes(self) -> int:
        """Nodes of the job."""
        return self.world // self.node_ranks

    @property
    def clock(self) -> Clock:
        """The clock that times kernels here."""
        if self.kind == "cuda":
            return CudaClock(self.torch)
        return HostClock(time.process_time if self.threads == 1 else time.perf_counter)

    @property
    def cold_bytes(self) -> int:
        """Operands rotate through this many bytes, more than the caches hold: a model's weights do
        not stay in a cache between two uses."""
        return _COLD_BYTES[self.kind]

    def gathered(self, value: Any) -> list[Any]:
        """The value of every rank, on every rank."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        self.torch.distributed.all_gather_object(values, value, group=self.objects)
        return values

    def from_first(self, value: Any) -> Any:
        """The first rank's value, on every rank."""
        if self.world == 1:
            return value
        box = [value]
        self.torch.distributed.broadcast_object_list(box, src=0, group=self.objects)
        return box[0]

    def description(self) -> dict[str, Any]:
        """What identifies the machine and its settings, for journals and sources."""
        return {
            "device": device_name(self),
            "kind": self.kind,
            "dtype": str(self.dtype).removeprefix("torch."),
            "threads": self.threads if self.kind == "cpu" else 0,
            "clock": "processor" if self.kind == "cpu" and self.threads == 1 else "wall",
            "ranks": self.world,
            "ranks_per_node": self.node_ranks,
            "torch": str(self.torch.__version__),
        }


class CudaClock:
    """Times kernels by events, captured as a CUDA graph where possible: without launch times."""

    shortest_batch_s = 2e-3

    def __init__(self, torch: Any):
        self._torch = torch

    def seconds(self, run: Callable[[], None], runs: int) -> float:
        """Seconds of `runs` runs between two events."""
        cuda = self._torch.cuda
        replay = self._graph(run, runs) if runs > 1 else None
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda.synchronize()
        begin.record()
        if replay is not None:
            replay()
        else:
            for _ in range(runs):
                run()
        end.record()
        cuda.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    def _graph(self, run: Callable[[], None], runs: int) -> Callable[[], None] | None:
        """The runs as one graph; None for what cannot be captured (collectives, autograd)."""
        cuda = self._torch.cuda
        if not getattr(run, "can_capture", False):
            return None
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for _ in range(runs):
                run()
        replay: Callable[[], None] = graph.replay
        replay()
        return replay


def open_machine(kind: Kind | None = None, threads: int | None = None) -> Machine:
    """This process's rank. Under torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE) it joins
    the others: NCCL on GPUs, gloo on CPUs. InputError without torch or the asked device.
    """
    torch = import_torch()
    # Names that newer releases prefer are missing in the oldest that is supported.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
    rank, world, local, node_ranks = (
        _whole(name, default)
        for name, default in (
            ("RANK", 0),
            ("WORLD_SIZE", 1),
            ("LOCAL_RANK", 0),
            ("LOCAL_WORLD_SIZE", 1),
        )
    )
    chosen: Kind = kind or ("cuda" if torch.cuda.is_available() else "cpu")
    if chosen == "cuda":
        if not torch.cuda.is_available():
            raise InputError(
                "torch finds no GPU", where="--device cuda", remedy="Give --device cpu."
            )
        if local >= torch.cuda.device_count():
            raise InputError(
                f"{node_ranks} processes share {torch.cuda.device_count()} GPUs",
                where="torchrun --nproc-per-node",
                remedy="Start one process for each GPU.",
            )
        torch.cuda.set_device(local)
    else:
        torch.set_num_threads(threads or 1)
    objects = None
    if world > 1:
        backend = "nccl" if chosen == "cuda" else "gloo"
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group(backend)
        objects = torch.distributed.new_group(backend="gloo")
    return Machine(
        torch=torch,
        kind=chosen,
        device=torch.device("cuda", local) if chosen == "cuda" else torch.device("cpu"),
        dtype=torch.bfloat16 if chosen == "cuda" else torch.float32,
        rank=rank,
        world=world,
        node_ranks=min(node_ranks, world),
        threads=threads or 1,
        objects=objects,
    )


def close_machine(machine: Machine) -> None:
    """Leave the process groups that `open_machine` joined."""
    if machine.world > 1 and machine.torch.distributed.is_initialized():
        machine.torch.distributed.destroy_process_group()


def device_name(machine: Machine) -> str:
    """The marketing name of the GPU or the processor."""
    if machine.kind == "cuda":
        return str(machine.torch.cuda.get_device_name(machine.device))
    return cpu_name()


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, as Linux gives it."""
    try:
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "cpu"


def memory_bytes(machine: Machine) -> int:
    """Memory of one device: the GPU's, or the host's shared by the processes of a node."""
    if machine.kind == "cuda":
        return int(machine.torch.cuda.get_device_properties(machine.device).total_memory)
    return host_memory_bytes() // machine.node_ranks


def host_memory_bytes() -> int:
    """Memory of this node."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _whole(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise InputError(
            f"{text!r} is no whole number", where=f"environment variable {name}", remedy=None
        )
    return value
