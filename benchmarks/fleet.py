"""Optimizers of `rlmplan fleet` at equal budgets, and the exact search's gap.

    python benchmarks/fleet.py [--instances 20] [--jobs 10] [--evaluations 1000] [--seeds 1]
                               [--deadline 20] [--no-exact]

Seeded random fleets: jobs of one to three phases on one or two node groups, run times by Amdahl's
law, shared weights for some, slots for two thirds of the instances. They exercise the search; they
are no prediction of any real cluster. Tables: mean value relative to plain random search (lower is
better), wins against the genetic algorithm, and for the exact search value and gap by the deadline.
"""

from __future__ import annotations

import argparse
from statistics import mean

import numpy as np

from planner.fleet import memetic
from planner.fleet.bounds import lower_bounds
from planner.fleet.check import violations
from planner.fleet.exact import cp_sat
from planner.fleet.optimizer import Objective, Optimizer, Search
from planner.fleet.problem import FleetProblem, JobTerms, Option, Task
from planner.search.placement.clock import Clock

OPTIMIZERS: dict[str, Optimizer] = {
    "memetic": memetic.memetic,
    "memetic, uniform operators": memetic.memetic_uniform,
    "ga": memetic.ga,
    "anneal": memetic.anneal,
    "random": memetic.random_search,
}
OBJECTIVES: tuple[Objective, ...] = ("makespan", "tardiness")
GROUP_SPEEDS = (1.0, 1.8)
HOUR_S = 3600.0


def fleet_instance(seed: int, jobs: int) -> FleetProblem:
    """A random fleet; even seeds have one group of 16 nodes, odd ones 16 and 8 faster nodes."""
    rng = np.random.default_rng(seed)
    groups = (16, 8) if seed % 2 else (16,)
    slots = 24 if seed % 3 else None
    tasks: list[Task] = []
    edges: list[tuple[int, int]] = []
    terms: list[JobTerms] = []
    for job in range(jobs):
        shared = rng.random() < 0.4
        weights = int(rng.integers(3)) if shared else 3 + job
        release_s = float(rng.choice([0, 0, 0, rng.integers(1, 12)])) * HOUR_S
        first, fastest_s = len(tasks), 0.0
        for phase in range(int(rng.integers(1, 4))):
            work_s = float(rng.lognormal(np.log(20.0), 0.7)) * HOUR_S
            serial = float(rng.uniform(0.02, 0.15))
            reload_s = float(rng.uniform(0.005, 0.025)) * work_s
            least, per_node = int(rng.choice([1, 1, 2, 4])), int(rng.choice([0, 0, 1, 2]))
            options = []
            for group, nodes in enumerate(groups):
                size = least
                while size <= nodes:
                    run_s = work_s / GROUP_SPEEDS[group] * (serial + (1 - serial) / size)
                    need = 0 if slots is None else min(per_node * size, slots)
                    options.append(Option(group, size, run_s, reload_s, need))
                    size *= 2
            fastest_s += min(option.run_s for option in options)
            tasks.append(Task(job, weights, release_s, tuple(options)))
            if phase:
                edges.append((first if rng.random() < 0.3 else len(tasks) - 2, len(tasks) - 1))
        due_s = release_s + fastest_s * float(rng.uniform(1.2, 4.0))
        has_due = rng.random() < 0.8
        terms.append(JobTerms(float(rng.choice([1, 2, 5])), due_s if has_due else None))
    problem = FleetProblem(groups, slots, tuple(terms), tuple(tasks), tuple(edges))
    problem.check()
    return problem


def solve(
    problem: FleetProblem,
    optimizer: Optimizer,
    objective: Objective,
    *,
    budget: int | None,
    deadline_s: float | None,
    seed: int,
) -> Search:
    """One run; its best schedule is checked."""
    search = Search(
        problem,
        objective,
        budget=budget,
        clock=Clock(deadline_s, None),
        seed=seed,
        bounds=lower_bounds(problem),
        gap=0.005,
    )
    optimizer(search)
    wrong = violations(problem, search.best)
    if wrong:
        raise RuntimeError(f"infeasible schedule: {wrong[0]}")
    return search


def compare(arguments: argparse.Namespace) -> None:
    """All optimizers on all instances with the same number of evaluations."""
    problems = [fleet_instance(seed, arguments.jobs) for seed in range(arguments.instances)]
    for objective in OBJECTIVES:
        axis = OBJECTIVES.index(objective)
        values: dict[str, list[float]] = {}
        for name, optimizer in OPTIMIZERS.items():
            values[name] = [
                solve(
                    problem,
                    optimizer,
                    objective,
                    budget=arguments.evaluations,
                    deadline_s=None,
                    seed=seed,
                ).best.key[axis]
                for problem in problems
                for seed in range(arguments.seeds)
            ]
        print(f"\n{objective}: {arguments.evaluations:,} evaluations, {len(problems)} instances")
        print(f"{'optimizer':<28}{'mean, h':>10}{'/ random':>10}{'better than ga':>16}{'worse':>7}")
        for name, found in values.items():
            pairs = list(zip(found, values["ga"], strict=True))
            print(
                f"{name:<28}{mean(found) / HOUR_S:>10.2f}"
                f"{mean(found) / mean(values['random']):>10.3f}"
                f"{sum(a < b for a, b in pairs):>16}{sum(a > b for a, b in pairs):>7}"
            )


def exact(arguments: argparse.Namespace) -> None:
    """CP-SAT with a deadline on fleets of several sizes."""
    print(f"\ncp-sat, {arguments.deadline:g} s")
    print(f"{'jobs':>5}{'phases':>8}  {'objective':<10}{'value, h':>10}{'gap':>8}{'seconds':>9}")
    for jobs in (3, 5, 8, 12):
        for seed in range(2):
            problem = fleet_instance(seed, jobs)
            for axis, objective in enumerate(OBJECTIVES):
                search = solve(
                    problem, cp_sat, objective, budget=None, deadline_s=arguments.deadline, seed=0
                )
                value = search.best.key[axis]
                bound = min(search.bounds[axis], value)
                gap = 1 - bound / value if value > 0 else 0.0
                print(
                    f"{jobs:>5}{len(problem.tasks):>8}  {objective:<10}{value / HOUR_S:>10.2f}"
                    f"{100 * gap:>6.1f} %{search.clock.wall_s:>9.1f}"
                )


def main() -> None:
    """Parse the command line, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=20.0)
    parser.add_argument("--no-exact", action="store_true")
    arguments = parser.parse_args()
    compare(arguments)
    if not arguments.no_exact:
        exact(arguments)


if __name__ == "__main__":
    main()
