"""Time to plan again after losing a node, and what the answer is worth.

Run it: `python benchmarks/replan.py [--nodes 16 128]`. Times are of the whole call of
`planner.replan` in a process that is warm (tables and solver loaded), as in a scheduler; the first
plan is not part of them. `full` is the step time of the best plan of a full search on the cluster
that is left, where `--full` asks for it.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import planner

EXAMPLES = Path(__file__).parents[1] / "examples"
PROBLEMS = ("ppo-llama3-70b-16x8-h100.yaml", "grpo-qwen3-30b-a3b-4x8-h100.yaml")
MODES = (("fastest", 0.0), ("within 5 %", 0.05), ("keep", math.inf))


def main() -> None:
    """Print a line for each problem, size, lost node and mode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[16, 128])
    parser.add_argument("--full", action="store_true")
    args = parser.parse_args()
    print(
        f"{'problem':<32} nodes lost {'mode':<10} wall_s cpu_s {'old_s':>7} {'new_s':>7} ", end=""
    )
    print(f"{'gap_%':>5} {'moved_GiB':>9} {'full_s':>7}")
    for name in PROBLEMS:
        problem = planner.load_problem(EXAMPLES / name)
        for nodes in args.nodes:
            cluster = planner.parse_cluster(f"h100:{nodes}x8")
            old = planner.plan(problem.workload, cluster, space=problem.space, top=1)
            planner.replan(old, without={"h100": [0]})
            full_s = math.nan
            if args.full:
                left = planner.parse_cluster(f"h100:{nodes - 1}x8")
                answer = planner.plan(problem.workload, left, space=problem.space, top=1)
                full_s = answer.plans[0].step_time_s
            for lost in (0, nodes // 2, nodes - 1):
                for mode, within in MODES:
                    began, cpu = time.perf_counter(), time.process_time()
                    found = planner.replan(old, without={"h100": [lost]}, within=within)
                    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
                    search = found.plans.search
                    print(
                        f"{name.removesuffix('.yaml'):<32} {nodes:>5} {lost:>4} {mode:<10} "
                        f"{wall:>6.2f} {cpu:>5.2f} {found.old_step_time_s:>7.2f} "
                        f"{found.plans.plans[0].step_time_s:>7.2f} {100 * search.gap:>5.2f} "
                        f"{found.moved_bytes / 2**30:>9,.0f} {full_s:>7.2f}"
                    )


if __name__ == "__main__":
    main()
