"""Samples of a machine whose times follow formulas, so that every figure can be recomputed."""

from __future__ import annotations

from collections.abc import Callable

from planner.cost.kernel_work import collective_factor
from planner.measure.bench.journal import Sample
from planner.measure.bench.points import Grids, Point, points
from planner.measure.bench.profile import Facts, layer_elementwise_bytes

FLOP_PER_S = 5e10
BYTES_PER_S = 2e10
LINK_BYTES_PER_S = 2e9
LATENCY_S = 5e-6
ROUND_S = 4e-5
ELEMENTWISE = 4.0
LOSS_BYTES = 36.0
WORD = 4

GRID = Grids(
    gemm_rows=(1, 64, 1024),
    gemm_sizes=(128, 1024),
    head_dims=(64,),
    prefill_tokens=(64, 1024),
    prefill_rows=(2, 16),
    decode_context=(64, 4096),
    decode_rows=(2, 32),
    groups=(1, 4),
    elementwise=((512, 256, 1024),),
    loss=(512, 4096),
    stream_bytes=(2**28,),
    message_elements=(2**8, 2**16, 2**24),
)


def seconds(point: Point) -> float:
    """The time that the machine takes."""
    shape, kernel = point.shape, point.kernel.removeprefix("across_")
    if kernel == "gemm":
        m, n, k = shape
        moved = WORD * (k * (m + n) + m * n)
        return LATENCY_S + max(2.0 * m * n * k / FLOP_PER_S, moved / BYTES_PER_S)
    if kernel == "prefill":
        head_dim, tokens, rows, _ = shape
        return LATENCY_S + 2.0 * rows * head_dim * tokens**2 / FLOP_PER_S
    if kernel == "decode":
        head_dim, context, rows, _ = shape
        return LATENCY_S + 2.0 * rows * context * head_dim * WORD / BYTES_PER_S
    if kernel.startswith("layer_elementwise"):
        passes = 3.0 if kernel.endswith("backward") else 1.0
        return passes * ELEMENTWISE * layer_elementwise_bytes(*shape) / BYTES_PER_S
    if kernel == "loss":
        return LOSS_BYTES * shape[0] * shape[1] / BYTES_PER_S
    if kernel in ("small_kernel", "launch"):
        return LATENCY_S
    if kernel == "send_recv":
        return ROUND_S + shape[1] * WORD / LINK_BYTES_PER_S
    if point.is_collective:
        factor = float(collective_factor(kernel, shape[0]))
        return ROUND_S + factor * shape[1] * WORD / (0.5 * LINK_BYTES_PER_S)
    return shape[0] / BYTES_PER_S


def samples(
    ranks: int = 2, slower: Callable[[Point, int], float] = lambda point, rank: 1.0
) -> dict[str, Sample]:
    """Everything on GRID; `slower` multiplies the time of a point on a rank."""
    found = {}
    for point in points("cpu", GRID, node_ranks=ranks):
        times = tuple(seconds(point) * slower(point, rank) for rank in range(ranks))
        found[point.key] = Sample(point, times, spread=0.02, batches=9)
    return found


def facts(**changes: object) -> Facts:
    known = {
        "id": "box",
        "name": "Test CPU",
        "kind": "cpu",
        "dtype_bytes": WORD,
        "memory_bytes": 32 * 2**30,
        "host_memory_bytes": 128 * 2**30,
        "node_ranks": 2,
        "source": "a test",
    }
    return Facts(**{**known, **changes})  # type: ignore[arg-type]
