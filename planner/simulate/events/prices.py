"""What one generation replica's events cost, from the cost functions of the analytic model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import DTYPES, CallCosts, StrategyArrays
from planner.cost.context import CallContext
from planner.cost.decode import step_table
from planner.cost.engine_kernels import EngineShapes
from planner.cost.engine_memory import cache_bytes, engine_memory, shared_by
from planner.cost.lengths import length_moments
from planner.cost.pace import pace
from planner.cost.weight_formats import uniform
from planner.schema import Strategy
from planner.workload.decoding import decode_mode

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ReplicaPrices:
    """Times and memory of one replica of a generate call."""

    replicas: int
    step_s: FloatArray
    """Seconds in which each of 1.. running sequences gets one token, at each context of
    `kv_tokens`; [running, contexts]. With several turns, running sequences are those in flight,
    and the mean wait for answers is part of it (`cost.pace`)."""
    kv_tokens: FloatArray
    prefill_token_s: float
    """Filling the cache with one prompt token, its share of attention and chunks included."""
    request_s: float
    """Host time for one request."""
    max_running: int
    pool_bytes: float
    """Key-value cache of the fullest device."""
    token_bytes: float
    """Cache of one token in layers that see the whole context."""
    window_bytes: float
    """Cache of one token in windowed layers, while the sequence is shorter than the window."""
    window_tokens: float
    """Infinite without windows."""
    context_growth: float
    """Tokens that the context grows by for each generated token; above 1 with several turns."""
    prompt_sharing: int
    """Responses that share the cache of one prompt."""

    def decode_s(self, running: FloatArray, kv_tokens: FloatArray) -> FloatArray:
        """Seconds of one step of `running` sequences with `kv_tokens` cached on average.

        Arrays of one shape; linear between the tabulated contexts, and on beyond the last.
        """
        grid = self.kv_tokens
        low = np.clip(np.searchsorted(grid, kv_tokens, side="right") - 1, 0, len(grid) - 2)
        share = (kv_tokens - grid[low]) / (grid[low + 1] - grid[low])
        row = running.astype(np.int64) - 1
        before, after = self.step_s[row, low], self.step_s[row, low + 1]
        return np.asarray(before + share * (after - before))


def replica_prices(context: CallContext, strategy: Strategy, costs: CallCosts) -> ReplicaPrices:
    """Prices of a generate call whose analytic `costs` (one row) are known."""
    row = StrategyArrays.from_strategies([strategy])
    each = np.ceil(context.call.sequences / row.dp).astype(np.float64)
    memory = engine_memory(context, row, each, 0.0)
    # A flow may run several batches at once.
    most = int(each[0]) * max(1, context.staleness)
    limit = max(1, min(int(strategy.max_running_sequences), most))
    shapes = EngineShapes(row.tp, row.pp, row.ep)
    formats = uniform(DTYPES[int(row.dtype[0])])
    mode = decode_mode(context.workload)
    table = step_table(context, shapes, formats, limit * mode.rows)
    speed = pace(table)
    running = np.arange(1.0, limit + 1.0)[:, None] * np.ones(len(table.kv_tokens))
    contexts = np.ones((limit, 1)) * table.kv_tokens
    shape = np.zeros(limit, dtype=np.int64)

    sharing = max(1, int(shared_by(context, each)[0]))
    prompts = np.ceil(each[0] / sharing)
    prompt_tokens = prompts * length_moments(context.workload.prompt_length).mean
    request_s = context.engine.value("request_s")
    if context.group.device.host == "grace":
        request_s *= context.engine.value("grace_factor")
    window = context.model.window
    one = float(cache_bytes(context, row, np.ones(1))[0])
    full = one
    if window is not None:
        size = float(window.size_tokens)
        twice, once = (float(cache_bytes(context, row, np.array([x]))[0]) for x in (2 * size, size))
        full = (twice - once) / size
    return ReplicaPrices(
        replicas=int(strategy.dp),
        step_s=mode.passes_per_token
        * (speed.step(shape, running, contexts).total_s + speed.waiting_s),
        kv_tokens=table.kv_tokens,
        # What later turns prefill is charged with the prompt: the sum is the same.
        prefill_token_s=float(costs.time_parts_s["prefill"][0])
        / (float(prompt_tokens) * context.call.rounds),
        request_s=request_s,
        max_running=limit,
        pool_bytes=float(memory.pool_bytes[0]),
        token_bytes=full,
        window_bytes=one - full,
        window_tokens=float(window.size_tokens) if window is not None else np.inf,
        context_growth=context.workload.context_growth,
        prompt_sharing=sharing,
    )
