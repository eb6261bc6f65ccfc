"""Time and proven gap of the placement search on synthetic PPO steps of five models.

    python benchmarks/placement.py [--nodes 4 16 128 1024 2048] [--seeds 5] [--deadline 10]
                                   [--staleness 0] [--case free|colocated|pools] [--gap 0.005]

The cost tables are roofline-like with a few per cent of noise: PPO, five units with seven calls,
weak scaling (64 sequences a device), 8-device nodes of 80 GB, tensor x pipeline layouts, offload
variants, meshes of 2^i, 3 * 2^i nodes and what those leave of the cluster. They exercise the
search; they are no prediction of any real system.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np

from planner.search.pareto import pareto_mask
from planner.search.placement import solve_placement
from planner.search.problem import PlacementProblem, Unit, WeightSync

DEVICES_PER_NODE = 8
MEMORY_BYTES = 74e9
HOST_MEMORY_BYTES = 2e12
PEAK_FLOP_PER_S = 400e12
MEMORY_BYTES_PER_S = 2.4e12
LINK_BYTES_PER_S = 40e9
HOST_BYTES_PER_S = 20e9
SEQUENCES_PER_DEVICE = 64
SEQUENCE_TOKENS = 1536
RESPONSE_TOKENS = 1024
NOISE = 0.04
# Data-parallel ranks wait for the longest share of sequences: what each doubling of ranks costs.
IMBALANCE = 0.035

# Billions of parameters of (actor and reference, critic and reward) for each cluster size, nodes.
MODELS_B = {4: (7, 7), 16: (13, 7), 128: (34, 13), 1024: (70, 34), 2048: (70, 34)}
EDGES = (
    ("generate", "rewards"),
    ("generate", "reference_logprobs"),
    ("generate", "old_logprobs"),
    ("generate", "values"),
    ("rewards", "actor_train"),
    ("reference_logprobs", "actor_train"),
    ("old_logprobs", "actor_train"),
    ("values", "actor_train"),
    ("rewards", "critic_train"),
    ("reference_logprobs", "critic_train"),
    ("values", "critic_train"),
)
UNITS = {
    "engine": ("generate",),
    "reward": ("rewards",),
    "reference": ("reference_logprobs",),
    "actor": ("old_logprobs", "actor_train"),
    "critic": ("values", "critic_train"),
}


def mesh_nodes(nodes: int) -> list[int]:
    """Sizes 2^i and 3 * 2^i, and what each leaves of the cluster."""
    base = {k * 2**i for i in range(nodes.bit_length()) for k in (1, 3)}
    sizes = {n for n in base if n <= nodes} | {nodes - n for n in base if n < nodes}
    return sorted(sizes)


def synthetic_unit(
    name: str, parameters: float, nodes: int, group: int, rng: np.random.Generator, speed: float
) -> Unit:
    """Pareto candidates of one unit on a group of `nodes`; `speed` scales the device."""
    sequences = SEQUENCES_PER_DEVICE * nodes * DEVICES_PER_NODE
    tokens = float(sequences * SEQUENCE_TOKENS)
    rows: list[tuple[float, ...]] = []
    meshes = [s for s in (1, 2, 4) if nodes <= 4] + [8 * n for n in mesh_nodes(nodes)]
    for devices in meshes:
        for tp in (1, 2, 4, 8):
            for pp in (1, 2, 4, 8):
                if tp * pp > devices or devices % (tp * pp):
                    continue
                rows.extend(_rows(name, parameters, tokens, sequences, devices, tp, pp, rng, speed))
    table = np.array(rows)
    calls = UNITS[name]
    c = len(calls)
    columns = {
        "devices": table[:, 0].astype(np.int64),
        "time_s": table[:, 1 : 1 + c],
        "resident_bytes": table[:, 1 + c],
        "peak_bytes": table[:, 2 + c : 2 + 2 * c],
        "host_bytes": table[:, 2 + 2 * c],
    }
    keep = pareto_mask(**columns) & (columns["peak_bytes"].max(axis=1) <= MEMORY_BYTES)
    return Unit(
        name=name,
        calls=calls,
        group=np.full(int(keep.sum()), group, dtype=np.int64),
        devices=columns["devices"][keep],
        time_s=columns["time_s"][keep],
        resident_bytes=columns["resident_bytes"][keep],
        peak_bytes=columns["peak_bytes"][keep],
        host_bytes_per_device=columns["host_bytes"][keep],
    )


def _rows(
    name: str,
    parameters: float,
    tokens: float,
    sequences: int,
    devices: int,
    tp: int,
    pp: int,
    rng: np.random.Generator,
    speed: float,
) -> list[tuple[float, ...]]:
    def noise() -> float:
        return float(rng.uniform(1 - NOISE, 1 + NOISE))

    shard, dp = tp * pp, devices // (tp * pp)
    weights = 2 * parameters / shard
    microbatches = max(1.0, sequences / dp)
    efficiency = 0.55 * speed / (1 + 0.04 * math.log2(tp)) * microbatches / (microbatches + pp - 1)
    efficiency /= 1 + IMBALANCE * math.log2(dp)
    forward = 2 * parameters * tokens / (devices * PEAK_FLOP_PER_S * efficiency)
    if name == "engine":
        running = min(256.0, sequences / dp)
        waves = math.ceil(sequences / dp / running)
        step = weights / (MEMORY_BYTES_PER_S * 0.7) + 60e-6 * 30 * pp * (1 + 0.2 * math.log2(tp))
        step += 2 * parameters * running / (shard * PEAK_FLOP_PER_S * 0.5)
        duration = waves * RESPONSE_TOKENS * step * noise() / speed
        if weights > 0.6 * MEMORY_BYTES:
            return []
        return [(devices, duration, 1.5e9, 0.85 * MEMORY_BYTES, weights)]
    activations = 40.0 * parameters / 80 / tp * 8
    if name in ("reward", "reference"):
        duration = forward * noise()
        move = weights / HOST_BYTES_PER_S
        return [
            (devices, duration, weights, weights + activations, 0.0),
            (devices, duration + move, 0.0, weights + activations, weights),
        ]
    reduce_s = 2 * weights / LINK_BYTES_PER_S * (dp > 1) + 0.1 * math.log2(max(dp, 2))
    train = 3 * forward * noise() + reduce_s
    infer = forward * noise()
    optimizer = 12 * parameters / devices
    state = 2 * weights + optimizer
    peak = state + activations
    out = []
    for offload, kept in (("none", state), ("optimizer", 2 * weights), ("all", 0.0)):
        moved = state - kept
        train_s = train + 2 * (moved if offload == "optimizer" else optimizer * (moved > 0)) / (
            HOST_BYTES_PER_S
        )
        infer_s = infer + (weights / HOST_BYTES_PER_S if offload == "all" else 0.0)
        train_s += weights / HOST_BYTES_PER_S if offload == "all" else 0.0
        infer_peak = peak - (optimizer if offload != "none" else 0.0)
        out.append((devices, infer_s, train_s, kept, infer_peak, peak, moved))
    return out


def synthetic_problem(
    nodes: int, seed: int = 0, *, staleness: int = 0, case: str = "free"
) -> PlacementProblem:
    """A PPO step; `case` is "free", "colocated" (all share) or "pools" (engine apart)."""
    rng = np.random.default_rng([seed, nodes])
    big, small = MODELS_B.get(nodes, (7 if nodes < 16 else 34, 7))
    size = {"engine": big, "reference": big, "actor": big, "critic": small, "reward": small}
    units = tuple(synthetic_unit(name, size[name] * 1e9, nodes, 0, rng, 1.0) for name in UNITS)
    names = tuple(UNITS)
    share: tuple[tuple[str, str], ...] = ()
    apart: tuple[tuple[str, str], ...] = ()
    if case == "colocated":
        share = tuple((names[0], other) for other in names[1:])
    elif case == "pools":
        share = tuple((names[1], other) for other in names[2:])
        apart = ((names[0], names[1]),)
    return PlacementProblem(
        units=units,
        edges=EDGES,
        host_calls_s={},
        syncs=(WeightSync("actor", "engine", "actor_train", "generate", 1.2, 2.0),),
        group_devices=(nodes * DEVICES_PER_NODE,),
        group_devices_per_node=(DEVICES_PER_NODE,),
        group_memory_bytes=(MEMORY_BYTES,),
        group_host_memory_bytes=(HOST_MEMORY_BYTES,),
        fixed_s=0.5,
        staleness=staleness,
        must_share=share,
        must_be_disjoint=apart,
    )


def main() -> None:
    """Solve and print one line a problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 16, 128, 1024, 2048])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--deadline", type=float, default=10.0)
    parser.add_argument("--staleness", type=int, default=0)
    parser.add_argument("--case", choices=("free", "colocated", "pools"), default="free")
    parser.add_argument("--top", type=int, default=5)
    parser.add_argument("--gap", type=float, default=0.005)
    args = parser.parse_args()
    print(" nodes seed options    step_s  gap_%  wall_s   cpu_s  status    method")
    for nodes in args.nodes:
        for seed in range(args.seeds):
            problem = synthetic_problem(nodes, seed, staleness=args.staleness, case=args.case)
            began, cpu = time.perf_counter(), time.process_time()
            result = solve_placement(problem, top=args.top, deadline_s=args.deadline, gap=args.gap)
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
            best = result.solutions[0].step_time_s if result.solutions else math.inf
            count = sum(len(unit.devices) for unit in problem.units)
            print(
                f"{nodes:>6} {seed:>4} {count:>7} {best:>9.3f} {100 * result.gap:>6.2f}"
                f" {wall:>7.2f} {cpu:>7.2f}  {result.status:<9} {result.method}"
            )


if __name__ == "__main__":
    main()
