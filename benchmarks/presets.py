"""Every preset planned on its own cluster: time of the search, step time, gap to the bound.

    python benchmarks/presets.py [NAME ...]

Goal: under 10 s each, 30 s from 1,000 devices on. CPU seconds are shown beside wall-clock seconds,
as a busy machine stretches the latter.
"""

from __future__ import annotations

import sys
import time

from planner import plan
from planner.catalog.presets import list_presets, load_preset
from planner.catalog.workloads import problem_from
from planner.errors import PlannerError

MANY_DEVICES = 1000


def main(names: list[str]) -> None:
    print(f"{'preset':<24}{'devices':>8}{'wall':>8}{'CPU':>8}{'step':>10}{'gap':>8}  best plan")
    slow = []
    for name in names or list_presets():
        if load_preset(name).problem is None:
            print(f"{name:<24}{'no published configuration':>26}")
            continue
        problem = problem_from(preset=name)
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            found = plan(problem.workload, problem.cluster, space=problem.space)
        except PlannerError as error:
            print(f"{name:<24}{problem.cluster.devices:>8}  {error}")
            continue
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if wall > (30.0 if problem.cluster.devices >= MANY_DEVICES else 10.0):
            slow.append(name)
        best = found.plans[0]
        print(
            f"{name:<24}{problem.cluster.devices:>8}{wall:>7.1f}s{cpu:>7.1f}s"
            f"{best.step_time_s:>9.1f}s{100 * found.search.gap:>7.2f}%  {best.placement}",
            flush=True,
        )
    print(f"\nover their limit: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1:])
