"""Plans for the published RL steps: time to proof, and the best plan against the published one.

Run it: `python benchmarks/plans.py`. Both times come from the same cost model, so the ratio says
what the search is worth in the model, not what a user would measure.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import planner
from planner.measure.rl_cases import RLCase, read_rl_case
from planner.simulate.evaluate import evaluate

CASES = Path(__file__).parents[1] / "tests" / "cases" / "rl.json"


def published() -> list[RLCase]:
    """Every complete published step, the newest release of each configuration."""
    raw = json.loads(CASES.read_text())
    steps = [case for case in raw if case["complete"] and case["algorithm"] == "GRPO"]
    newest = {case["id"].split("-", 2)[-1]: case for case in steps}
    return [read_rl_case(case) for case in newest.values()]


def main() -> None:
    """Print a line a case and the worst time."""
    print(f"{'case':<56} {'CPU s':>6} {'gap %':>6} {'published':>9} {'best':>8} {'ratio':>6}")
    slowest = 0.0
    for case in published():
        started = time.process_time()
        answer = planner.plan(case.workload, case.cluster, space=case.space)
        spent = time.process_time() - started
        slowest = max(slowest, spent)
        theirs = evaluate(case.assignment, case.workload, case.cluster).step_time_s
        best = answer.plans[0].step_time_s
        print(
            f"{case.id:<56} {spent:6.2f} {100 * answer.search.gap:6.2f} {theirs:9.1f} {best:8.1f} "
            f"{best / theirs:6.2f}"
        )
    print(f"slowest: {slowest:.2f} s of CPU")


if __name__ == "__main__":
    main()
