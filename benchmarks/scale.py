"""Time, memory and proven gap of whole planning processes, from 64 to 16,384 devices.

    python benchmarks/scale.py [--quick] [--runs 1]

Each line is a new Python process that imports the planner, plans a PPO step of four models (70B
actor and reference, 8B critic and reward; examples/ppo-llama3-70b-16x8-h100.yaml, the same batch
on every cluster) in the space `any`, and ends. Wall and CPU seconds and the largest resident
memory are those of the process, the fastest of `--runs`. Targets of time hold for the wall time;
where a machine does other work, too, the CPU time (nearly all of it one thread's) says what the
wall time would be on an idle one, so the table of targets shows the verdict on both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "ppo-llama3-70b-16x8-h100.yaml"
GROWTH = ("h100:8x8", "h100:16x8", "h100:128x8", "h100:1024x8", "h100:2048x8")
"""Clusters over which the growth of time is measured; the first and the last are the range."""
MIXED = (
    "h100:8x8+h20:16x8",
    "h100:8x8+a100:8x8+h20:16x8",
    "h100:1024x8+h20:1024x8",
)
CANCEL_AFTER_S = 1.0
_ROUNDING = 1 + 1e-9

CHILD = """
import json, sys, threading, time
from pathlib import Path
import planner
from planner.catalog.hardware import parse_cluster
from planner.catalog.workloads import load_problem
from planner.errors import PlanningCancelledError
file, cluster, deadline, cancel, out = sys.argv[1:]
event, at = threading.Event(), [0.0]
def fire():
    at[0] = time.monotonic()
    event.set()
if float(cancel):
    threading.Timer(float(cancel), fire).start()
began = time.monotonic()
found = {}
try:
    answer = planner.plan(
        load_problem(file).workload, parse_cluster(cluster), space="any",
        deadline_s=float(deadline) or None, cancel=event.is_set if float(cancel) else None)
    found = {"step_s": answer.plans[0].step_time_s, "bound_s": answer.search.bound_s,
             "gap": answer.search.gap, "candidates": answer.search.candidates,
             "staleness": answer.plans[0].staleness}
except PlanningCancelledError:
    pass
ended = time.monotonic()
Path(out).write_text(json.dumps(found | {
    "plan_s": ended - began, "after_cancel_s": ended - at[0] if at[0] else None}))
"""


@dataclass(frozen=True)
class Run:
    """One process: what it used and what it found."""

    wall_s: float
    cpu_s: float
    memory_bytes: float
    found: dict[str, float]

    @property
    def gap(self) -> float:
        """Proven gap of the best plan; infinite without one."""
        return self.found.get("gap", math.inf)


def run(cluster: str, *, deadline_s: float = 0.0, cancel_s: float = 0.0, runs: int = 1) -> Run:
    """Plan in a process of its own; the fastest of `runs`."""
    best: Run | None = None
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "found.json"
            began = time.monotonic()
            child = subprocess.Popen(
                [
                    *(sys.executable, "-c", CHILD, str(EXAMPLE), cluster),
                    *(str(deadline_s), str(cancel_s), str(out)),
                ]
            )
            _, status, usage = os.wait4(child.pid, 0)
            wall_s = time.monotonic() - began
            if status:
                raise RuntimeError(f"planning for {cluster} failed")
            found = json.loads(out.read_text())
        # ru_maxrss is in KiB on Linux, in bytes on macOS.
        unit = 1.0 if sys.platform == "darwin" else 1024.0
        one = Run(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit, found)
        if best is None or one.wall_s < best.wall_s:
            best = one
    assert best is not None
    return best


def times(one: Run) -> tuple[float, float]:
    """Wall and CPU seconds."""
    return one.wall_s, one.cpu_s


def devices(cluster: str) -> int:
    """Devices of NAME:NODESxDEVICES, several joined by +."""
    sizes = [part.split(":")[1].split("x") for part in cluster.split("+")]
    return sum(int(nodes) * int(each) for nodes, each in sizes)


def line(what: str, one: Run) -> str:
    """One row of the table of runs."""
    found = one.found
    return (
        f"{what:<36} {one.wall_s:>7.2f} {one.cpu_s:>7.2f} {one.memory_bytes / 1e6:>8.0f} "
        f"{found.get('candidates', 0):>10,} {found.get('step_s', math.nan):>9.3f} "
        f"{found.get('bound_s', math.nan):>9.3f} {100 * one.gap:>6.2f}"
    )


@dataclass(frozen=True)
class Target:
    """A figure that must not be exceeded, and what was measured."""

    what: str
    limit: float
    goal: float
    measured: float
    cpu: float | None = None
    """The same in CPU seconds, for a time."""

    def __str__(self) -> str:
        text = f"{self.what:<44} {self.limit:>7g} {self.goal:>7g} {self.measured:>9.3f} "
        text += f"{self._verdict(self.measured):<13}"
        return text if self.cpu is None else f"{text} {self.cpu:>8.2f} {self._verdict(self.cpu)}"

    def _verdict(self, figure: float) -> str:
        if figure <= self.goal * _ROUNDING:
            return "met, goal too"
        return "met" if figure <= self.limit * _ROUNDING else "missed"


def slope(runs: dict[str, float]) -> float:
    """Least-squares slope of log(seconds) over log(devices)."""
    points = [(math.log(devices(name)), math.log(seconds)) for name, seconds in runs.items()]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    square = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / square


def main() -> None:
    """Run every case, print a line each, and the table of targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only up to 1,024 devices")
    parser.add_argument("--runs", type=int, default=1)
    args = parser.parse_args()
    quick = args.quick
    print(f"{'case':<36}  wall s   cpu s       MB strategies    step s   bound s  gap %")
    growth: dict[str, Run] = {}
    for cluster in GROWTH[:3] if quick else GROWTH:
        growth[cluster] = run(cluster, runs=args.runs)
        print(line(f"{devices(cluster):,} devices", growth[cluster]), flush=True)
    mixed: dict[str, Run] = {}
    for cluster in MIXED[:2] if quick else MIXED:
        mixed[cluster] = run(cluster, runs=args.runs)
        print(line(cluster, mixed[cluster]), flush=True)
    late = run("h100:128x8", deadline_s=1.0)
    print(line("1,024 devices, deadline 1 s", late), flush=True)
    cancelled = run("h100:128x8", cancel_s=CANCEL_AFTER_S)
    print(line(f"1,024 devices, cancelled after {CANCEL_AFTER_S:g} s", cancelled), flush=True)

    targets = [
        Target("128 devices, whole process, s", 4, 2, *times(growth["h100:16x8"])),
        Target("1,024 devices, whole process, s", 8, 3, *times(growth["h100:128x8"])),
        Target("1,024 devices, gap, %", 0.5, 0.5, 100 * growth["h100:128x8"].gap),
        Target("128 devices, gap, %", 0.5, 0.5, 100 * growth["h100:16x8"].gap),
        Target("8 x 8 H100 + 16 x 8 H20, gap, %", 0.5, 0.5, 100 * mixed[MIXED[0]].gap),
        Target("three groups, gap, %", 0.5, 0.5, 100 * mixed[MIXED[1]].gap),
        Target("deadline 1 s: gap, %", 10, 3, 100 * late.gap),
        Target("deadline 1 s: seconds in plan()", 1.2, 1.0, late.found["plan_s"]),
        Target("cancelled: seconds to return", 0.2, 0.1, cancelled.found["after_cancel_s"] or 0.0),
    ]
    if not quick:
        large, two = growth["h100:2048x8"], mixed[MIXED[2]]
        targets += [
            Target("16,384 devices, whole process, s", 30, 10, *times(large)),
            Target("16,384 devices, gap, %", 1, 0.5, 100 * large.gap),
            Target("16,384 devices in two groups, s", 30, 10, *times(two)),
            Target("16,384 devices in two groups, gap, %", 1, 0.5, 100 * two.gap),
            Target(
                "growth 64 to 16,384 devices, log-log slope",
                0.4,
                0.25,
                slope({name: one.wall_s for name, one in growth.items()}),
                slope({name: one.cpu_s for name, one in growth.items()}),
            ),
        ]
    most = max(one.memory_bytes for one in [*growth.values(), *mixed.values()])
    targets.append(Target("peak memory, MB", 1500, 500, most / 1e6))
    print(f"\n{'target':<44} {'limit':>7} {'goal':>7} {'measured':>9} {'':<13} {'by CPU':>8}")
    for target in targets:
        print(target)


if __name__ == "__main__":
    main()
