"""The placement search: equals brute force, its bound holds, and it repeats itself."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.search.placement import PlacementResult, solve_placement
from planner.search.problem import PlacementProblem, Unit, WeightSync
from planner.simulate.schedule import DeviceRange, schedule_on_meshes

GB = 1e9
TIGHT_GAP = 1e-3


def random_unit(
    rng: np.random.Generator, name: str, calls: tuple[str, ...], sizes: list[tuple[int, int]]
) -> Unit:
    rows = []
    for _ in range(int(rng.integers(2, 5))):
        group, devices = sizes[int(rng.integers(len(sizes)))]
        times = rng.integers(0, 30, size=len(calls)) * (1 + 2 / devices)
        resident = float(rng.choice([0, 10, 25, 40])) * GB
        peak = resident + rng.integers(0, 50, size=len(calls)) * GB
        rows.append((group, devices, times, resident, peak, float(rng.integers(0, 30)) * GB))
    return Unit(
        name=name,
        calls=calls,
        group=np.array([row[0] for row in rows]),
        devices=np.array([row[1] for row in rows]),
        time_s=np.array([row[2] for row in rows]),
        resident_bytes=np.array([row[3] for row in rows]),
        peak_bytes=np.array([row[4] for row in rows]),
        host_bytes_per_device=np.array([row[5] for row in rows]),
    )


def random_problem(seed: int) -> PlacementProblem:
    """Two to three units on one or two small groups, with a sync, a host call, and rules."""
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 3))
    per_node = [int(rng.choice([2, 4])) for _ in range(groups)]
    devices = [int(rng.integers(1, 3)) * n for n in per_node]
    sizes = []
    for group in range(groups):
        size = 1
        while size < per_node[group]:
            sizes.append((group, size))
            size *= 2
        sizes += [(group, n) for n in range(per_node[group], devices[group] + 1, per_node[group])]
    layouts = [("engine", ("generate",)), ("actor", ("logprobs", "train"))]
    if rng.random() < 0.6:
        layouts.append(("reward", ("rewards",)))
    units = tuple(random_unit(rng, name, calls, sizes) for name, calls in layouts)
    edges = [("generate", "logprobs"), ("logprobs", "train")]
    if len(units) == 3:
        edges.append(("generate", "rewards"))
        if rng.random() < 0.7:
            edges.append(("rewards", "train"))
    host: dict[str, float] = {}
    if rng.random() < 0.3:
        host = {"verify": float(rng.integers(0, 40))}
        edges += [("generate", "verify"), ("verify", "train")]
    syncs = ()
    if rng.random() < 0.6:
        shared, disjoint = (float(x) for x in rng.integers(0, 10, size=2))
        syncs = (WeightSync("actor", "engine", "train", "generate", shared, disjoint),)
    names = [unit.name for unit in units]
    share, apart = (), ()
    rule = rng.random()
    if rule < 0.2:
        share = ((names[0], names[1]),)
    elif rule < 0.4:
        apart = ((names[0], names[-1]),)
    if rng.random() < 0.15:
        share = tuple((names[0], other) for other in names[1:])
    return PlacementProblem(
        units=units,
        edges=tuple(edges),
        host_calls_s=host,
        syncs=syncs,
        group_devices=tuple(devices),
        group_devices_per_node=tuple(per_node),
        group_memory_bytes=tuple(float(rng.choice([60, 80, 120])) * GB for _ in range(groups)),
        group_host_memory_bytes=tuple(float(rng.choice([60, 1000])) * GB for _ in range(groups)),
        fixed_s=float(rng.choice([0.0, 3.0])),
        staleness=int(rng.choice([0, 0, 1])),
        must_share=share,
        must_be_disjoint=apart,
    )


def places(problem: PlacementProblem, group: int, size: int) -> list[int]:
    per_node, total = problem.group_devices_per_node[group], problem.group_devices[group]
    step = size if size < per_node else per_node
    return [
        start
        for start in range(0, total - size + 1, step)
        if size >= per_node or start // per_node == (start + size - 1) // per_node
    ]


def step_time_s(
    problem: PlacementProblem, rows: dict[str, int], first: dict[str, int]
) -> float | None:
    """True step time of an assignment by its definition, or None if it breaks a rule."""
    mesh = {
        u.name: DeviceRange(int(u.group[rows[u.name]]), first[u.name], int(u.devices[rows[u.name]]))
        for u in problem.units
    }
    if any(mesh[a] != mesh[b] for a, b in problem.must_share):
        return None
    if any(mesh[a].overlaps(mesh[b]) for a, b in problem.must_be_disjoint):
        return None
    for group, total in enumerate(problem.group_devices):
        for device in range(total):
            here = [
                u for u in problem.units if mesh[u.name].overlaps(DeviceRange(group, device, 1))
            ]
            held = sum(float(u.resident_bytes[rows[u.name]]) for u in here)
            for u in here:
                row = rows[u.name]
                others = held - float(u.resident_bytes[row])
                most = max(float(u.peak_bytes[row].max()), float(u.resident_bytes[row]))
                if most + others > problem.group_memory_bytes[group] + 1:
                    return None
        per_node = problem.group_devices_per_node[group]
        for node in range(total // per_node):
            held = 0.0
            for u in problem.units:
                m = mesh[u.name]
                if m.overlaps(DeviceRange(group, node * per_node, per_node)):
                    held += float(u.host_bytes_per_device[rows[u.name]]) * min(m.count, per_node)
            if held > problem.group_host_memory_bytes[group] + 1:
                return None
    durations, meshes = dict(problem.host_calls_s), {}
    for u in problem.units:
        for column, call in enumerate(u.calls):
            durations[call] = float(u.time_s[rows[u.name], column])
            meshes[call] = [mesh[u.name]]
    edges = list(problem.edges)
    for k, sync in enumerate(problem.syncs):
        a, b = mesh[sync.trainer], mesh[sync.engine]
        durations[f"sync{k}"] = sync.shared_s if a.overlaps(b) else sync.disjoint_s
        meshes[f"sync{k}"] = [a, b]
        edges.append((sync.after_call, f"sync{k}"))
    schedule = schedule_on_meshes(durations, edges, meshes, staleness=problem.staleness)
    return schedule.step_time_s + problem.fixed_s


def brute_force(problem: PlacementProblem) -> float:
    """Best step time over every option and every aligned place of every unit; inf if none."""
    best = math.inf
    names = [u.name for u in problem.units]
    for picked in itertools.product(*(range(len(u.devices)) for u in problem.units)):
        rows = dict(zip(names, picked, strict=True))
        starts = [
            places(problem, int(u.group[row]), int(u.devices[row]))
            for u, row in zip(problem.units, picked, strict=True)
        ]
        for chosen in itertools.product(*starts):
            first = dict(zip(names, chosen, strict=True))
            value = step_time_s(problem, rows, first)
            if value is not None:
                best = min(best, value)
    return best


def check(problem: PlacementProblem, result: PlacementResult) -> None:
    """Every solution is what it claims to be, and the bound holds."""
    values = [solution.step_time_s for solution in result.solutions]
    assert values == sorted(values)
    for solution in result.solutions:
        true = step_time_s(problem, solution.options, solution.first_device)
        assert true is not None
        assert solution.step_time_s == pytest.approx(true, rel=1e-6)
        assert result.bound_s <= true * (1 + 1e-9)
        for u in problem.units:
            row = solution.options[u.name]
            assert solution.first_device[u.name] in places(
                problem, int(u.group[row]), int(u.devices[row])
            )


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=120, deadline=None)
def test_search_equals_brute_force(seed: int) -> None:
    problem = random_problem(seed)
    expected = brute_force(problem)
    result = solve_placement(problem, gap=TIGHT_GAP)
    check(problem, result)
    if expected == math.inf:
        assert result.status == "infeasible"
        assert result.solutions == ()
    else:
        assert result.status == "optimal"
        assert result.bound_s <= expected * (1 + 1e-9)
        assert result.solutions[0].step_time_s <= expected * (1 + TIGHT_GAP) + 1e-9
