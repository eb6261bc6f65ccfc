"""A toy job scheduler that asks the planner how many nodes each RL job should get.

Run it: `python examples/scheduler.py`. It plans two jobs for several node counts in parallel
threads, then splits eight nodes so that the slower job is as fast as it can be.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import planner
from planner.schema import PlanSet

NODES = 8
FOLDER = Path(__file__).parent
JOBS = ("grpo-qwen3-30b-a3b-4x8-h100.yaml", "grpo-qwen2.5-7b-1x8-h100.yaml")


def plan_on(job: str, nodes: int) -> PlanSet | None:
    """The best plans of a job on some H100 nodes; None when it does not fit there."""
    problem = planner.load_problem(FOLDER / job)
    cluster = planner.parse_cluster(f"h100:{nodes}x8")
    try:
        return planner.plan(problem.workload, cluster, space=problem.space, top=1, deadline_s=20)
    except planner.InfeasibleError as error:
        print(f"{job} on {nodes} nodes: {error}")
        return None


def main() -> None:
    """Plan, choose the split, print it."""
    sizes = (1, 2, 4, 6, 7)
    with ThreadPoolExecutor(max_workers=2) as pool:
        futures = {(job, n): pool.submit(plan_on, job, n) for job in JOBS for n in sizes}
        answers = {key: future.result() for key, future in futures.items()}
    step_time_s = {
        key: answer.plans[0].step_time_s for key, answer in answers.items() if answer is not None
    }
    splits = [
        (max(step_time_s[JOBS[0], a], step_time_s[JOBS[1], b]), a, b)
        for a in sizes
        for b in sizes
        if a + b <= NODES and (JOBS[0], a) in step_time_s and (JOBS[1], b) in step_time_s
    ]
    slower_s, a, b = min(splits)
    print(f"{JOBS[0]}: {a} nodes, {step_time_s[JOBS[0], a]:.1f} s a step")
    print(f"{JOBS[1]}: {b} nodes, {step_time_s[JOBS[1], b]:.1f} s a step")
    print(f"slower of the two: {slower_s:.1f} s")


if __name__ == "__main__":
    main()
