"""Small random placement problems, their value by definition, and brute force over them."""

from __future__ import annotations

import itertools
import math

import numpy as np

from planner.search.problem import PlacementProblem, Unit, WeightSync
from planner.simulate.schedule import DeviceRange, schedule_on_meshes

GB = 1e9


def random_unit(
    rng: np.random.Generator,
    name: str,
    calls: tuple[str, ...],
    sizes: list[tuple[int, int]],
    options: int | None = None,
) -> Unit:
    """A unit with two to four options, or as many as asked for."""
    rows = []
    for _ in range(options or int(rng.integers(2, 5))):
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


def random_ppo(seed: int) -> PlacementProblem:
    """Five units with seven calls and two options each on two to three nodes of two devices."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 4))
    sizes = [(0, 2 * n) for n in range(1, nodes + 1)]
    layouts = [
        ("engine", ("generate",)),
        ("reward", ("rewards",)),
        ("reference", ("reference_logprobs",)),
        ("actor", ("old_logprobs", "actor_train")),
        ("critic", ("values", "critic_train")),
    ]
    units = tuple(random_unit(rng, name, calls, sizes, 2) for name, calls in layouts)
    scores = ("rewards", "reference_logprobs", "old_logprobs", "values")
    edges = [("generate", score) for score in scores]
    edges += [(score, "actor_train") for score in scores]
    edges += [(score, "critic_train") for score in ("rewards", "reference_logprobs", "values")]
    return PlacementProblem(
        units=units,
        edges=tuple(edges),
        host_calls_s={},
        syncs=(WeightSync("actor", "engine", "actor_train", "generate", 2.0, 3.0),),
        group_devices=(2 * nodes,),
        group_devices_per_node=(2,),
        group_memory_bytes=(120 * GB,),
        group_host_memory_bytes=(1000 * GB,),
        staleness=int(rng.integers(0, 2)),
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
    if not _allowed(problem, rows, mesh):
        return None
    durations, meshes, edges = _calls(problem, rows, mesh)
    schedule = schedule_on_meshes(durations, edges, meshes, staleness=problem.staleness)
    return schedule.step_time_s + problem.fixed_s


def _allowed(problem: PlacementProblem, rows: dict[str, int], mesh: dict[str, DeviceRange]) -> bool:
    """Rules on sharing, memory of every device, host memory of every node."""
    if any(mesh[a] != mesh[b] for a, b in problem.must_share):
        return False
    if any(mesh[a].overlaps(mesh[b]) for a, b in problem.must_be_disjoint):
        return False
    for group, total in enumerate(problem.group_devices):
        for device in sorted({m.first for m in mesh.values() if m.group == group}):
            # The holders of a device are most where a mesh begins.
            here = [
                u for u in problem.units if mesh[u.name].overlaps(DeviceRange(group, device, 1))
            ]
            held = sum(float(u.resident_bytes[rows[u.name]]) for u in here)
            for u in here:
                row = rows[u.name]
                resident = float(u.resident_bytes[row])
                most = max(float(u.peak_bytes[row].max()), resident)
                if held - resident + most > problem.group_memory_bytes[group] + 1:
                    return False
        per_node = problem.group_devices_per_node[group]
        for node in range(total // per_node):
            whole = DeviceRange(group, node * per_node, per_node)
            on_host = sum(
                float(u.host_bytes_per_device[rows[u.name]]) * min(mesh[u.name].count, per_node)
                for u in problem.units
                if mesh[u.name].overlaps(whole)
            )
            if on_host > problem.group_host_memory_bytes[group] + 1:
                return False
    return True


def _calls(
    problem: PlacementProblem, rows: dict[str, int], mesh: dict[str, DeviceRange]
) -> tuple[dict[str, float], dict[str, list[DeviceRange]], list[tuple[str, str]]]:
    """Durations, meshes and precedences of all calls and syncs."""
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
    return durations, meshes, edges


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
        overlaps_met = set()
        for chosen in itertools.product(*starts):
            mesh = {
                u.name: DeviceRange(int(u.group[row]), start, int(u.devices[row]))
                for u, row, start in zip(problem.units, picked, chosen, strict=True)
            }
            # The step time depends on the places only through which meshes overlap.
            overlaps = tuple(mesh[a].overlaps(mesh[b]) for a, b in itertools.combinations(names, 2))
            if overlaps in overlaps_met or not _allowed(problem, rows, mesh):
                continue
            overlaps_met.add(overlaps)
            first = dict(zip(names, chosen, strict=True))
            value = step_time_s(problem, rows, first)
            if value is not None:
                best = min(best, value)
    return best


def unit(
    name: str,
    calls: tuple[str, ...],
    rows: list[tuple[int, tuple[float, ...], float, float]],
    group: int = 0,
) -> Unit:
    """A unit from rows of (devices, times of the calls, resident GB, peak GB)."""
    return Unit(
        name=name,
        calls=calls,
        group=np.full(len(rows), group),
        devices=np.array([row[0] for row in rows]),
        time_s=np.array([row[1] for row in rows], dtype=float),
        resident_bytes=np.array([row[2] for row in rows]) * GB,
        peak_bytes=np.array([[row[3]] * len(calls) for row in rows]) * GB,
        host_bytes_per_device=np.zeros(len(rows)),
    )


def problem(
    units: tuple[Unit, ...], edges: tuple[tuple[str, str], ...], **changes: object
) -> PlacementProblem:
    """A problem on two nodes of four 80 GB devices, unless `changes` say otherwise."""
    fields: dict[str, object] = {
        "units": units,
        "edges": edges,
        "host_calls_s": {},
        "syncs": (),
        "group_devices": (8,),
        "group_devices_per_node": (4,),
        "group_memory_bytes": (80 * GB,),
        "group_host_memory_bytes": (1000 * GB,),
    }
    return PlacementProblem(**{**fields, **changes})  # type: ignore[arg-type]
