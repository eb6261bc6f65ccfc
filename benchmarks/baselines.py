"""The proven best plan against the searches and rules of thumb in use, on the same cost tables.

    python benchmarks/baselines.py [--seconds 2] [--instances 20] [--seed 0]

Instances are real workloads (PPO and GRPO, dense and mixture-of-experts models, 8 to 256 H100) in
synchronous and one-step-off classes of the space `any`. Each search gets `--seconds` of wall time
on each instance; a column says by how many per cent its best step is longer than ours, fixed
seconds included. Values below the proven bound would be an error of the bound: the run then fails.
Rules of thumb are synchronous; "-": no plan of that kind fits, or the class has none.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from baseline_search.rules import RULES, Tables
from baseline_search.walks import SEARCHES, Walk

from planner.catalog.spaces import load_space
from planner.catalog.workloads import problem_from
from planner.cost.arrays import StrategyArrays
from planner.cost.calls import call_costs
from planner.cost.memory import FITS_SHARE
from planner.cost.parameters import count_parameters
from planner.search.api import instance_of
from planner.search.options import UnitOptions, unit_options
from planner.search.placement import solve_placement
from planner.search.placement.instance import compile_instance
from planner.search.problem import PlacementProblem, Unit
from planner.search.problems import placement_problem, scopes
from planner.search.rows import concatenate
from planner.simulate.instance import Instance

SMALL, LARGE = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B"
PPO = {"actor": LARGE, "critic": SMALL, "reward": SMALL, "reference": LARGE}
PPO_SMALL = dict.fromkeys(PPO, SMALL)
CASES: tuple[tuple[str, dict[str, str], tuple[int, ...]], ...] = (
    ("ppo", PPO, (8, 16, 32)),
    ("ppo", PPO_SMALL, (1, 2, 4)),
    ("grpo", {"actor": "Qwen/Qwen2.5-7B"}, (1, 2)),
    ("grpo", {"actor": "Qwen/Qwen2.5-32B"}, (4, 8)),
    ("grpo", {"actor": "Qwen/Qwen3-30B-A3B"}, (4, 8)),
)
"""Algorithm, models, numbers of nodes with eight H100."""
STALENESS = (0, 1)


@dataclass(frozen=True)
class Case:
    """One placement problem and the tables behind it."""

    name: str
    problem: PlacementProblem
    tables: Tables


def cases() -> Iterator[Case]:
    """All instances, priced one after another."""
    space = load_space("any")
    for algorithm, models, clusters in CASES:
        for nodes in clusters:
            described = problem_from(
                None,
                models=models,
                algorithm=algorithm,
                cluster=f"h100:{nodes}x8",
                prompts=1024,
                samples=1 if algorithm == "ppo" else 8,
                response_mean=1000.0,
                response_max=4096,
                kl_weight=0.05,
            )
            instance = instance_of(described.workload, described.cluster, space)
            for scope in scopes(instance, space, FITS_SHARE):
                if scope.staleness in STALENESS and not scope.is_variant:
                    options = {u.name: unit_options(instance, scope, u) for u in instance.units}
                    actor = models["actor"].split("/")[1]
                    name = f"{algorithm} {actor} {8 * nodes} stale {scope.staleness}"
                    problem = placement_problem(instance, scope, options)
                    yield Case(name, problem, tables_of(instance, problem, options))


def tables_of(
    instance: Instance, problem: PlacementProblem, options: dict[str, UnitOptions]
) -> Tables:
    """The problem's options, and the fastest strategy of every layout besides, for the rules.

    The added ones are dominated, so the problem's best plan stays what it is.
    """
    units: list[Unit] = []
    strategies: list[StrategyArrays] = []
    for unit in instance.units:
        known = options[unit.name]
        lead = unit.calls[0]
        times, peaks, resident, host = [], [], [], []
        more = known.variants
        for name in unit.calls:
            n = len(more.devices)
            columns = np.zeros((4, n))
            for index, group in enumerate(instance.cluster.groups):
                here = np.flatnonzero(more.group == index)
                costs = call_costs(
                    instance.context(instance.call(name), group, problem.staleness),
                    more.strategies[name].take(here),
                )
                columns[:, here] = (
                    costs.time_s,
                    costs.peak_bytes,
                    costs.resident_bytes,
                    costs.host_bytes_per_device,
                )
            times.append(columns[0])
            peaks.append(columns[1])
            resident.append(columns[2])
            host.append(columns[3])
        one = known.unit
        units.append(
            Unit(
                name=one.name,
                calls=one.calls,
                group=np.concatenate([one.group, more.group]),
                devices=np.concatenate([one.devices, more.devices]),
                time_s=np.concatenate([one.time_s, np.stack(times, axis=1)]),
                resident_bytes=np.concatenate([one.resident_bytes, np.max(resident, axis=0)]),
                peak_bytes=np.concatenate([one.peak_bytes, np.stack(peaks, axis=1)]),
                host_bytes_per_device=np.concatenate(
                    [one.host_bytes_per_device, np.max(host, axis=0)]
                ),
            )
        )
        strategies.append(concatenate([known.strategies[lead], more.strategies[lead]]))
    compiled = compile_instance(replace(problem, units=tuple(units)))
    calls = [instance.call(unit.calls[0]) for unit in instance.units]
    return Tables(
        instance=compiled,
        strategies=tuple(
            s.take(rows.origin) for s, rows in zip(strategies, compiled.options, strict=True)
        ),
        engines=tuple(call.kind == "generate" for call in calls),
        parameters=tuple(float(count_parameters(instance.model(call)).total) for call in calls),
    )


def main() -> None:
    """Print a line for each instance and the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    columns = [*SEARCHES, *RULES]
    print(f"{'instance':<34} {'ours s':>8} {'bound s':>8} {'time s':>6}  "
          + " ".join(f"{name:>10}" for name in columns))  # fmt: skip
    excess: dict[str, list[float]] = {name: [] for name in columns}
    broken = []
    for number, case in enumerate(cases()):
        if number == args.instances:
            break
        began = time.monotonic()
        ours = solve_placement(case.problem, top=1)
        spent_s = time.monotonic() - began
        best_s, fixed_s = ours.solutions[0].step_time_s, case.problem.fixed_s
        # The searches see the problem's own options; the rules all layouts.
        instance = compile_instance(case.problem)
        values = {}
        for name, search in SEARCHES.items():
            walk = Walk(instance, args.seconds, args.seed)
            search(walk)
            values[name] = walk.best_s + fixed_s
        for name, rule in RULES.items():
            values[name] = rule(case.tables) + fixed_s if case.problem.staleness == 0 else math.inf
        for name, value in values.items():
            if value < ours.bound_s * (1 - 1e-9):
                broken.append(f"{name} on {case.name}: {value:.4f} s")
            if math.isfinite(value):
                excess[name].append(100 * (value / best_s - 1))
        shown = [
            f"{100 * (values[name] / best_s - 1):>10.2f}"
            if math.isfinite(values[name])
            else f"{'-':>10}"
            for name in columns
        ]
        print(f"{case.name:<34} {best_s:>8.2f} {ours.bound_s:>8.2f} {spent_s:>6.2f}  "
              + " ".join(shown), flush=True)  # fmt: skip
    for word, figure in (("mean excess, %", np.mean), ("largest, %", np.max)):
        print(f"{word:<59}  " + " ".join(f"{figure(excess[name] or [math.nan]):>10.2f}"
                                         for name in columns))  # fmt: skip
    if broken:
        raise SystemExit("below the proven bound: " + "; ".join(broken))


if __name__ == "__main__":
    main()
