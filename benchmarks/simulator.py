"""Discrete-event simulation against the analytic cost, over random plans.

    python benchmarks/simulator.py            # 100 plans
    python benchmarks/simulator.py 20 7       # 20 plans, seed 7

For every plan: simulated over analytic step and generation time, less one, and the seconds that
simulating one step took. Marked plans are those where the two models differ by intent: the cache
overflows (preemption), or few long steps leave the mean uncertain. Ends with the quantiles.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import planner
from planner.catalog.workloads import Problem, problem_from
from planner.errors import PlannerError
from planner.schema import EnvironmentSpec, Plan
from planner.simulate.events.replay import simulate

MODELS = (
    ("Qwen/Qwen2.5-1.5B", ("h100:1x8", "a100:2x8", "l40s:1x8")),
    ("Qwen/Qwen2.5-7B", ("h100:1x8", "h100:4x8", "a100:2x8", "b200:1x8")),
    ("Qwen/Qwen2.5-32B", ("h100:4x8", "h200:2x8")),
    ("Qwen/Qwen3-30B-A3B", ("h100:4x8", "b200:2x8")),
    ("meta-llama/Llama-3.1-70B", ("h100:8x8",)),
    ("google/gemma-3-12b-it", ("h100:2x8",)),
    ("openai/gpt-oss-20b", ("h100:2x8",)),
)
STEPS = 24


def random_plans(count: int, seed: int) -> Iterator[tuple[str, Problem, Plan]]:
    """Plans of random problems: model, cluster, batch, lengths, staleness, verifier."""
    rng = np.random.default_rng(seed)
    found = 0
    while found < count:
        model, clusters = MODELS[rng.integers(len(MODELS))]
        most = int(2 ** rng.integers(9, 14))
        options: dict[str, Any] = {
            "algorithm": str(rng.choice(["grpo", "grpo", "ppo"])),
            "cluster": str(rng.choice(clusters)),
            "prompts": int(2 ** rng.integers(4, 9)),
            "samples": int(2 ** rng.integers(2, 5)),
            "response_mean": float(most * rng.uniform(0.15, 0.6)),
            "response_max": most,
        }
        models = {"actor": model}
        if options["algorithm"] == "ppo":
            models["critic"] = model
        stale = int(rng.integers(0, 4))
        latency_s, workers = float(rng.choice([0.0, 0.1, 2.0])), int(rng.choice([64, 512]))
        try:
            problem = problem_from(None, models=models, **options)
            workload = problem.workload.model_copy(
                update={
                    "max_staleness": stale,
                    "environment": EnvironmentSpec(latency_s=latency_s, workers=workers),
                }
            )
            answer = planner.plan(workload, problem.cluster, top=4, deadline_s=3.0)
        except PlannerError:
            continue  # nothing fits, or the model cannot be used so
        plan = answer.plans[int(rng.integers(len(answer.plans)))]
        title = (
            f"{model.split('/')[-1]} {options['cluster']} {options['prompts']}x"
            f"{options['samples']} {options['response_mean']:.0f}/{most} {options['algorithm']}"
        )
        found += 1
        yield title, Problem(**{**problem.__dict__, "workload": workload}), plan


def main(count: int, seed: int) -> None:
    """Print a line for each plan, and the quantiles."""
    steps, generations, walls = [], [], []
    for title, problem, plan in random_plans(count, seed):
        began = time.perf_counter()
        found = simulate(plan, problem.workload, problem.cluster, steps=STEPS, seed=seed)
        wall_s = (time.perf_counter() - began) / STEPS
        generate = found.calls["generate"]
        generation = generate.time_s.mean / generate.analytic_s - 1.0
        assert found.generation is not None
        steps.append(found.difference)
        generations.append(generation)
        walls.append(wall_s)
        print(
            f"{title:62}{plan.staleness}-off {found.generation.mode:6}"
            f"{100 * found.difference:+7.1f} %{100 * generation:+7.1f} %"
            f"{found.generation.preemptions_per_step:9.0f}{wall_s:7.2f} s",
            flush=True,
        )
    for name, values in (("step", steps), ("generation", generations)):
        size = 100 * np.abs(values)
        print(
            f"{name}: |difference| median {np.median(size):.1f} %, 90th percentile "
            f"{np.quantile(size, 0.9):.1f} %, largest {size.max():.1f} %, mean signed "
            f"{100 * np.mean(values):+.1f} %, within 5 %: {np.mean(size <= 5.0):.0%}"
        )
    print(f"one simulated step: median {np.median(walls):.2f} s, largest {max(walls):.2f} s")


if __name__ == "__main__":
    arguments = [int(word) for word in sys.argv[1:]]
    main(*(arguments + [100, 0][len(arguments) :]))
