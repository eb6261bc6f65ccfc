"""Strategies costed a second on one core, all terms of the cost model on.

    python benchmarks/strategies.py [--nodes 16 128] [--repeat 5]

For each kind of call of a dense and a mixture-of-experts model: every strategy of the space `any`
on every mesh size, what enumerating them takes, and what the rest of the CPU time costs them.
CPU time of the process, best of `--repeat`, with the BLAS and OpenMP pools held to one thread.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

for _pool in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_pool, "1")

from planner.catalog.spaces import load_space  # noqa: E402
from planner.catalog.workloads import problem_from  # noqa: E402
from planner.cost.arrays import StrategyArrays  # noqa: E402
from planner.cost.calls import call_costs  # noqa: E402
from planner.schema import SearchSpace  # noqa: E402
from planner.search.candidates import enumerate_candidates  # noqa: E402
from planner.simulate.instance import Instance, make_instance  # noqa: E402

TARGET, GOAL = 500_000, 1_000_000
"""Strategies a second that the search is built for, and that are wanted."""
MODELS = {"dense": "meta-llama/Llama-3.1-70B", "moe": "Qwen/Qwen3-235B-A22B"}
CALLS = ("actor_train", "old_logprobs", "generate")

T = TypeVar("T")


class Measured(NamedTuple):
    """CPU seconds of one kind of call."""

    strategies: int
    enumerate_s: float
    cost_s: float


def best_cpu_s(work: Callable[[], T], repeat: int) -> tuple[float, T]:
    """Least CPU seconds of the process for `work` in `repeat` runs, and its result."""
    least = math.inf
    for _ in range(repeat):
        began = time.process_time()
        result = work()
        least = min(least, time.process_time() - began)
    return least, result


def instance_of(model: str, nodes: int, space: SearchSpace) -> Instance:
    """A GRPO step of 32,768 responses on 8-device H100 nodes."""
    problem = problem_from(
        None,
        models={"actor": model},
        algorithm="grpo",
        cluster=f"h100:{nodes}x8",
        prompts=4096,
        samples=8,
        response_mean=2000.0,
        response_max=8192,
    )
    return make_instance(
        problem.workload,
        problem.cluster,
        framework=space.framework,
        engine=space.engine,
        reference_shares_actor_layout=space.reference_shares_actor_layout,
    )


def measure(instance: Instance, name: str, space: SearchSpace, repeat: int) -> Measured:
    """Enumerate and cost every strategy of one call."""
    call, group = instance.call(name), instance.cluster.groups[0]
    context = instance.context(call, group, 0)

    def enumerated() -> StrategyArrays:
        return enumerate_candidates(
            call, context.model, instance.workload, group, space, trained=context.trained
        )

    enumerate_s, strategies = best_cpu_s(enumerated, repeat)
    cost_s, _ = best_cpu_s(lambda: call_costs(context, strategies), repeat)
    return Measured(len(strategies), enumerate_s, cost_s)


def main() -> None:
    """Print a line for each model, cluster and kind of call."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[16, 128])
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    space = load_space("any")
    print("model  devices call           strategies  enumerate s   cost s  strategies/s")
    slowest = math.inf
    for kind, model in MODELS.items():
        for nodes in args.nodes:
            instance = instance_of(model, nodes, space)
            for name in CALLS:
                found = measure(instance, name, space, args.repeat)
                rate = found.strategies / found.cost_s
                slowest = min(slowest, rate)
                print(
                    f"{kind:<6} {nodes * 8:>7} {name:<13} {found.strategies:>11,} "
                    f"{found.enumerate_s:>12.3f} {found.cost_s:>8.3f} {rate:>13,.0f}"
                )
    for word, rate in (("target", TARGET), ("goal", GOAL)):
        print(f"{word}: {rate:,} a second: {'met' if slowest >= rate else 'missed'}")


if __name__ == "__main__":
    main()
