"""Measures this machine, predicts training and decoding of small models on it, and runs them.

    python benchmarks/closed_loop [--device cpu|cuda] [--clock processor|wall] [--runs 5]
                                  [--journal FILE] [--table FILE]

Two processes, each on its own core or GPU. The kernels of `rlmplan measure` come first; then each
configuration runs, with two reference kernels right before and after each step: predictions are
scaled by what these take then over what they take in the profile, so that a change of the machine's
load cancels. No constant is fitted to the steps.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_GLIBC = {
    # Freed memory stays with the process, as with the caching allocators of training programs.
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
    "MALLOC_TRIM_THRESHOLD_": str(2**33),
    "MALLOC_TOP_PAD_": str(2**26),
    "OMP_NUM_THREADS": "1",
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--clock", choices=("processor", "wall"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--only", help="configurations whose group or strategy contains this")
    return parser.parse_args()


def main() -> None:
    """Start two ranks, or be one of them."""
    arguments = _arguments()
    if "RANK" not in os.environ:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", "2", str(Path(__file__).parent), *sys.argv[1:]]
        sys.exit(subprocess.run(command, env={**os.environ, **_GLIBC}).returncode)
    _rank(arguments)


def _rank(arguments: argparse.Namespace) -> None:
    from beside import Beside
    from clock import StepClock
    from exchange import Links
    from grid import GRIDS

    from planner.measure.bench.journal import Journal
    from planner.measure.bench.machine import close_machine, device_name, open_machine
    from planner.measure.bench.points import points
    from planner.measure.bench.run import run_points

    machine = open_machine(arguments.device, 1)
    if machine.kind == "cpu" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {machine.rank % (os.cpu_count() or 1)})
    kind = arguments.clock or ("processor" if machine.kind == "cpu" else "wall")
    links = Links(machine.rank, StepClock(machine, kind))
    try:
        began = time.time()
        path = arguments.journal if machine.rank == 0 else None
        journal = Journal(path, machine.description())
        listed = list(points(machine.kind, GRIDS[machine.kind], node_ranks=2))
        skipped = run_points(machine, listed, journal, budget_s=0.06)
        samples = machine.from_first(journal.samples)
        beside = Beside(machine, {one.point: one.seconds for one in samples.values()})
        _say(machine, f"profile: {len(journal.samples)} points in {time.time() - began:.0f} s")
        if skipped:
            raise SystemExit(f"not measured: {skipped}")
        rows = _loop(machine, links, journal, beside, arguments)
        if machine.rank == 0:
            from results import table, verdict

            text = f"{device_name(machine)}, {kind} time\n\n{table(rows)}\n\n{verdict(rows)}\n"
            print(text)
            if arguments.table:
                arguments.table.write_text(text, encoding="utf-8")
    finally:
        close_machine(machine)


def _loop(
    machine: Any, links: Any, journal: Any, beside: Any, arguments: argparse.Namespace
) -> list[Any]:
    """Run every configuration; rows on the first rank."""
    from configurations import Decoding, Training, all_configurations
    from predict import Predictor
    from programs import median_of, program, time_step
    from results import Row

    from planner.measure.bench.machine import device_name, host_memory_bytes, memory_bytes
    from planner.measure.bench.profile import Facts

    facts = Facts(
        id="here",
        name=device_name(machine),
        kind=machine.kind,
        dtype_bytes=machine.dtype.itemsize,
        memory_bytes=memory_bytes(machine),
        host_memory_bytes=host_memory_bytes(),
        node_ranks=2,
        source="closed loop",
    )
    predictor = Predictor(journal.samples, facts)
    barrier = machine.torch.distributed.barrier
    rows: list[Any] = []
    for one in all_configurations():
        if arguments.only and arguments.only not in f"{one.group} {one.label}":
            continue
        kind = {Training: "training", Decoding: "decode"}.get(type(one), "weight sync")
        shown_kind = f"{kind}, tp2" if kind == "decode" and one.ranks > 1 else kind
        barrier()
        if machine.rank < one.ranks:
            run, steps = program(machine, links, one)
            time_step(machine, links, one, run)
            drifts = [beside.drift(kind)]
            runs = []
            for _ in range(arguments.runs if kind == "training" else 2 * arguments.runs):
                runs.append(time_step(machine, links, one, run) / steps)
                drifts.append(beside.drift(kind))
        barrier()
        if machine.rank == 0:
            parts = predictor.parts_s(one)
            predicted = beside.scaled(parts, drifts)
            row = Row(shown_kind, one.group, one.label, predicted, *median_of(runs))
            rows.append(row)
            shown = " ".join(f"{k} {1e3 * v:.1f}" for k, v in parts.items() if v > 1e-4)
            factor = predicted / sum(parts.values())
            _say(
                machine,
                f"{row.group:18} {row.label:26} {1e3 * row.predicted_s:8.2f} "
                f"{1e3 * row.measured_s:8.2f} ms {row.ratio:5.2f} (load {factor:.2f}) {shown}",
            )
    return rows


def _say(machine: Any, text: str) -> None:
    if machine.rank == 0:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
