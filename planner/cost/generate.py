"""Cost of the generate call: prefill, then decode steps while the running batch rises and falls.

With every sample drawn from one policy version (staleness 0) a batch must drain to its longest
response: the time is the sum over moments of steps x step time (`occupancy`). With staleness k the
engine is a flow at a constant batch size, so the time of a step is work over throughput; as many
responses run as slots allow and as can end within 1 + k steps. An engine that may flow can also
drain, so the faster of both counts. With partial rollouts a step ends when the batch is full and
the longest responses go on in later ones, whatever the staleness.

Trajectories that wait for their environment keep their cache (`pace`). Rounds of dynamic sampling
follow one another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.cost.arrays import DTYPES, CallCosts, FloatArray, IntArray, StrategyArrays
from planner.cost.bounds import bound_s
from planner.cost.context import CallContext
from planner.cost.decode import StepTable, depth_per_token, step_table
from planner.cost.distinct import distinct
from planner.cost.engine_kernels import (
    EngineShapes,
    kv_bytes_per_layer,
    prompt_attention_s,
    touched_experts,
)
from planner.cost.engine_memory import EngineMemory, engine_memory, shared_by
from planner.cost.flops import attention_flop, forward_flop, head_flop_per_token
from planner.cost.flops import layer_matrix_parameters as matrix_parameters
from planner.cost.kernel_work import DTYPE_BYTES
from planner.cost.lengths import LengthMoments, length_moments, sequence_moments
from planner.cost.occupancy import (
    LengthCells,
    Occupancy,
    carried_age,
    carry_over,
    drain_batches,
    length_cells,
)
from planner.cost.pace import Pace, pace
from planner.cost.parameters import count_parameters, window_layer_mask
from planner.cost.weight_formats import uniform
from planner.workload.decoding import decode_mode
from planner.workload.partial import period_tokens
from planner.workload.turns import (
    answer_pool_s,
    later_prefill,
    waiting_tail_s,
)

PARTS = (
    "prefill",
    "decode_weights",
    "decode_attention",
    "tp_communication",
    "engine_overhead",
    "tail",
    "environment",
    "environment_pool",
)
_TAIL_SHARE = 0.5
"""Below this share of the full batch a decode step counts as tail."""
_BLOCK = 4096
"""Engines whose moments are held in memory at once, some megabytes an array."""


@dataclass(frozen=True)
class _Engines:
    """u distinct engines of one call; arrays of shape [u]."""

    strategies: StrategyArrays
    shapes: EngineShapes
    shape: IntArray
    """Row of `shapes` that each engine has."""
    sequences: FloatArray
    """Responses of the replica with the most of them."""
    slots: FloatArray

    def take(self, rows: IntArray) -> _Engines:
        return _Engines(
            self.strategies.take(rows),
            self.shapes,
            self.shape[rows],
            self.sequences[rows],
            self.slots[rows],
        )


def generate_cost(context: CallContext, s: StrategyArrays) -> CallCosts:
    """Costs of generating every response of one RL step under n strategies, arrays [n].

    `time_s` is inf where the engine has no room for one sequence of maximum length beside its
    weights (`peak_bytes` then says what it would need) or the device lacks the dtype. The memory
    is a reservation of `memory_fraction`; it is given back, but for a residue, while asleep.
    """
    first, inverse = distinct(
        s.tp, s.pp, s.ep, s.dp, s.max_running_sequences, s.memory_fraction, s.dtype
    )
    return _distinct_costs(context, s.take(first)).take(inverse)


def _distinct_costs(context: CallContext, u: StrategyArrays) -> CallCosts:
    cells = length_cells(context.workload.response_length, context.call.sequences)
    sequences = np.ceil(context.call.sequences / u.dp)
    age = cells.stationary_age * context.workload.context_growth
    memory = engine_memory(context, u, sequences, age)
    able = np.array([name in context.group.device.peak_flop_per_s for name in DTYPES])
    runs = (memory.slots >= 1.0) & able[u.dtype]

    rows, shape = distinct(u.tp, u.pp, u.ep)
    shapes = EngineShapes(u.tp[rows], u.pp[rows], u.ep[rows])
    engines = _Engines(u, shapes, shape, sequences, np.maximum(memory.slots, 1.0))
    parts = {name: np.zeros(len(u)) for name in PARTS}
    mode = decode_mode(context.workload)
    traffic = np.zeros(len(u))
    for code in np.unique(u.dtype[runs]):
        chosen = np.flatnonzero(runs & (u.dtype == code))
        most = np.minimum(engines.sequences, engines.slots)[chosen].max()
        chunk = context.engine.value("max_batched_tokens")
        most_rows = max(chunk, float(most) * mode.rows)
        table = step_table(context, shapes, uniform(DTYPES[code]), most_rows)
        speed = pace(table)
        # Memory and the limit on running sequences count only as far as they leave slots.
        useful = _useful_slots(context, engines)
        # In this order engines of a block share their moments.
        first, inverse = distinct(u.dp[chosen], useful[chosen], shape[chosen])
        alike = chosen[first]
        some = {name: np.zeros(len(alike)) for name in PARTS}
        moved = np.zeros(len(alike))
        for start in range(0, len(alike), _BLOCK):
            block = slice(start, start + _BLOCK)
            times, moved[block] = _times(context, cells, speed, engines.take(alike[block]))
            for name, seconds in times.items():
                some[name][block] = seconds
        traffic[chosen] = moved[inverse]
        for name in PARTS:
            parts[name][chosen] = some[name][inverse]
    parts["decode_weights"][~runs] = np.inf
    _add_pool(context, parts)
    rounds = context.call.rounds
    parts = {name: seconds * rounds for name, seconds in parts.items()}
    traffic *= rounds

    work = np.full(len(u), useful_flop(context))
    periods, share = 1.0 + context.staleness, context.workload.partial_rollout
    if share is not None:
        lengths = context.workload.response_length
        periods = cells.longest / period_tokens(lengths, cells.longest, share)
    passes = cells.longest * mode.passes_per_token * rounds
    depth = np.ceil(depth_per_token(context.model, u.tp) * passes / periods)
    memory_parts = _memory_parts(context, u, memory)
    return CallCosts(
        time_s=np.sum(list(parts.values()), axis=0),
        time_parts_s=parts,
        work_flop=work,
        useful_flop=work,
        traffic_bytes=traffic,
        depth=depth.astype(np.int64),
        bound_s=bound_s(context, u, work, traffic, depth),
        memory_parts_bytes=memory_parts,
        peak_bytes=np.sum(list(memory_parts.values()), axis=0),
        resident_bytes=np.full(len(u), context.engine.value("sleep_residue_bytes")),
        host_bytes_per_device=memory.weights_bytes
        * context.engine.value("sleep_keeps_weights_on_host"),
    )


def useful_flop(context: CallContext) -> float:
    """FLOP of one step's generation: each prompt once (or once a sample without prefix caching),
    then every response token through the layers and the head, as often as the decode mode asks,
    and what the turns after the first prefill."""
    model, workload = context.model, context.workload
    mode, later = decode_mode(workload), later_prefill(workload)
    prompt = length_moments(workload.prompt_length)
    response = length_moments(workload.response_length)
    prompts = context.call.sequences / float(
        shared_by(context, np.array([float(context.call.sequences)]))[0]
    )
    one_prompt = forward_flop(model, prompt, 1.0, scalar_head=False)
    attention = attention_flop(model, sequence_moments(workload)) - attention_flop(model, prompt)
    per_token = 2.0 * matrix_parameters(model) + head_flop_per_token(model, scalar_head=False)
    one_response = (per_token * response.mean + attention) * mode.work_per_token
    # The answers' own attention is part of the trajectory's; that of lost tokens comes again.
    one_response += 2.0 * matrix_parameters(model) * later.tokens
    if later.repeated_pairs:
        length = math.sqrt(2.0 * later.repeated_pairs)
        one_response += attention_flop(model, LengthMoments(length, length**2))
    total = prompts * one_prompt + context.call.sequences * one_response
    return total * context.call.rounds


def _times(
    context: CallContext, cells: LengthCells, speed: Pace, engines: _Engines
) -> tuple[dict[str, FloatArray], FloatArray]:
    """(seconds by part, bytes moved) of engines that run the table's dtype, arrays [u]."""
    prompt = length_moments(context.workload.prompt_length)
    prefill = _prefill_s(context, speed.table, engines, prompt)
    prefill = prefill + _later_prefill_s(context, speed.table, engines)

    full_replicas = context.call.sequences / engines.sequences
    each = np.arange(len(full_replicas))
    share = context.workload.partial_rollout
    if share is None:
        batch, row = drain_batches(cells, engines.sequences, engines.slots, full_replicas)
    else:
        lengths = context.workload.response_length
        batch, row = carry_over(lengths, cells, share, engines.sequences, engines.slots), each
        prefill = prefill + _resumed_prefill_s(context, cells, speed.table, engines, share)
    parts = _decode_parts(speed, engines, batch, row, prompt.mean)
    traffic = _traffic_bytes(context, engines, batch, row, prompt.mean)
    if share is None:
        parts["environment"] += waiting_tail_s(context.workload, float(context.call.sequences))
    if context.staleness > 0 and share is None:
        flowing = _flow(context, cells, engines)
        flow_parts = _decode_parts(speed, engines, flowing, each, prompt.mean)
        better = np.sum(list(flow_parts.values()), axis=0) < np.sum(list(parts.values()), axis=0)
        parts = {name: np.where(better, flow_parts[name], parts[name]) for name in parts}
        flow_traffic = _traffic_bytes(context, engines, flowing, each, prompt.mean)
        traffic = np.where(better, flow_traffic, traffic)

    requests = context.engine.value("request_s") * context.call.sequences / engines.strategies.dp
    if context.group.device.host == "grace":
        requests = requests * context.engine.value("grace_factor")
    parts["engine_overhead"] = parts["engine_overhead"] + requests
    return {"prefill": prefill, **parts}, traffic


def _useful_slots(context: CallContext, engines: _Engines) -> FloatArray:
    """Slots that a replica's batches in flight can fill, shape [u]; more change nothing."""
    batches = 1.0 + (context.workload.partial_rollout or 0.0)
    return np.minimum(engines.slots, engines.sequences * max(batches, context.staleness))


def _flow(context: CallContext, cells: LengthCells, engines: _Engines) -> Occupancy:
    """A steady flow: one moment, with as many responses running as slots and staleness allow.

    At most `staleness` batches are in flight. A response is trained on at most `staleness` steps
    late, so the longest must not take more than 1 + staleness periods; by Little's law that holds
    the running responses below (1 + staleness) x batch x mean / longest.
    """
    batch = context.call.sequences / engines.strategies.dp
    oldest = (1.0 + context.staleness) * cells.mean / cells.longest
    running = np.minimum(min(float(context.staleness), oldest) * batch, engines.slots)
    steps = batch * cells.mean / running
    age = np.full_like(steps, cells.stationary_age)
    return Occupancy(steps[:, None], np.maximum(running, 1.0)[:, None], age[:, None])


def _decode_parts(
    speed: Pace, engines: _Engines, occupancy: Occupancy, row: IntArray, prompt_tokens: float
) -> dict[str, FloatArray]:
    """Seconds of all decode steps by part, those far below the full batch as tail.

    `row` [u] says which occupancy each engine has.
    """
    growth = speed.table.context.workload.context_growth
    passes = occupancy.steps * speed.mode.passes_per_token
    # The batch only shrinks, so the first moment is the fullest.
    tail = occupancy.running < _TAIL_SHARE * occupancy.running[:, :1]
    kv_tokens = prompt_tokens + growth * occupancy.age
    step = speed.sums(engines.shape, row, occupancy.running, kv_tokens, passes, tail)
    return {
        "decode_weights": step.weights_s[0],
        "decode_attention": step.attention_s[0],
        "tp_communication": step.communication_s[0],
        "engine_overhead": step.overhead_s[0],
        "tail": step.total_s[1],
        "environment": (passes.sum(axis=1) * speed.waiting_s)[row],
    }


def _add_pool(context: CallContext, parts: dict[str, FloatArray]) -> None:
    """The environment's workers set the pace where they take longer than everything else."""
    pool_s = answer_pool_s(context.workload, float(context.call.sequences))
    if pool_s > 0.0:
        busy_s = np.sum(list(parts.values()), axis=0)
        parts["environment_pool"] = np.maximum(pool_s - busy_s, 0.0)


def _prefill_s(
    context: CallContext,
    table: StepTable,
    engines: _Engines,
    prompt: LengthMoments,
) -> FloatArray:
    """Seconds to fill the cache with all prompts of one replica, chunk by chunk, shape [u]."""
    s = engines.strategies
    chunk = context.engine.value("max_batched_tokens")
    prompts = np.ceil(engines.sequences / shared_by(context, engines.sequences))
    tokens = prompts * prompt.mean
    size = np.minimum(tokens, chunk)
    chunks = tokens / size
    one = table.chunk(engines.shape, size)
    # Attention grows with the square of the length, so it is priced at E[l^2] / E[l].
    length = prompt.mean_square / prompt.mean
    attention = prompt_attention_s(context, s.tp, size / length, length)
    # Chunks follow one another through the stages, each of which holds 1 / pp of the layers.
    passes = (chunks + s.pp - 1.0) / s.pp
    return _as_measured(context, s, passes * (one.total_s + attention))


def _resumed_prefill_s(
    context: CallContext,
    cells: LengthCells,
    table: StepTable,
    engines: _Engines,
    share: float,
) -> FloatArray:
    """Seconds that one replica prefills again what it carries over, shape [u].

    New weights make the old cache worthless: prompt and tokens so far enter in full chunks.
    """
    s, workload = engines.strategies, context.workload
    age = carried_age(workload.response_length, cells, share) * workload.context_growth
    length = length_moments(workload.prompt_length).mean + age
    responses = share * engines.sequences
    chunk = np.full(len(s), context.engine.value("max_batched_tokens"))
    chunks = responses * length / chunk
    attention = prompt_attention_s(context, s.tp, responses, length)
    one = table.chunk(engines.shape, chunk)
    return _as_measured(context, s, (chunks * one.total_s + attention) / s.pp)


def _later_prefill_s(
    context: CallContext, table: StepTable, engines: _Engines
) -> FloatArray | float:
    """Seconds that one replica prefills in the turns after the first, shape [u].

    New and lost tokens enter in full chunks among the decode steps, so only their own work counts
    and the weights are read for whole chunks.
    """
    later = later_prefill(context.workload)
    if later.tokens <= 0.0:
        return 0.0
    s = engines.strategies
    chunk = np.full(len(s), context.engine.value("max_batched_tokens"))
    chunks = engines.sequences * later.tokens / chunk
    one = table.chunk(engines.shape, chunk)
    # As many prompts of the last turn's length as have the same query-key pairs.
    pairs = engines.sequences * (later.new_pairs + later.repeated_pairs)
    prompts = pairs / (later.longest_tokens**2 / 2.0)
    attention = prompt_attention_s(context, s.tp, prompts, later.longest_tokens)
    return _as_measured(context, s, (chunks * one.total_s + attention) / s.pp)


def _as_measured(context: CallContext, s: StrategyArrays, seconds: FloatArray) -> FloatArray:
    """Prefill in an engine takes longer than its kernels by fitted factors, shape [u]."""
    seconds = seconds * context.engine.value("prefill_factor")
    factor = context.engine.value("attention_dp_prefill_factor")
    return np.asarray(np.where(s.ep > s.tp, factor * seconds, seconds))


def _traffic_bytes(
    context: CallContext, engines: _Engines, batch: Occupancy, row: IntArray, prompt_tokens: float
) -> FloatArray:
    """Weights and cache that all replicas read while decoding, bytes, shape [u]; a lower estimate.

    Experts count as far as uniformly routed tokens touch them. `row` [u]: each engine's batch.
    """
    model, s = context.model, engines.strategies
    counts = count_parameters(model)
    element = np.array([DTYPE_BYTES[name] for name in DTYPES])[s.dtype]
    rest = counts.layers - counts.num_moe_layers * counts.routed_experts
    head = (counts.head or counts.embedding) * DTYPE_BYTES["bf16"]
    mode = decode_mode(context.workload)
    passes = batch.steps * mode.passes_per_token
    weights = (rest * element + head) * passes.sum(axis=1)[row]
    if counts.num_moe_layers:
        pooled = engines.shapes.pooled[engines.shape]
        first, like = distinct(row, pooled, s.pp)
        at = row[first]
        tokens = (pooled / s.pp)[first][:, None] * mode.rows * batch.running[at]
        touched = np.einsum("vg,vg->v", passes[at], touched_experts(model, tokens))[like]
        weights += touched * counts.num_moe_layers * counts.expert * element / pooled

    windowed = int(window_layer_mask(model).sum())
    kv_tokens = prompt_tokens + context.workload.context_growth * batch.age
    visible = (model.num_layers - windowed) * kv_tokens
    if model.window is not None:
        visible = visible + windowed * np.minimum(kv_tokens, model.window.size_tokens)
    cache = kv_bytes_per_layer(model, s.tp, context.workload.kv_cache_dtype) * s.tp
    read = np.einsum("dg,dg,dg->d", passes, batch.running, visible)[row]
    return np.asarray((weights + read * cache) * s.dp)


def _memory_parts(
    context: CallContext, u: StrategyArrays, memory: EngineMemory
) -> dict[str, FloatArray]:
    """The reservation by item; where it is too small, what one longest sequence would need."""
    pool = np.maximum(memory.pool_bytes, memory.longest_sequence_bytes)
    return {
        "engine_weights": memory.weights_bytes,
        "kv_cache": pool,
        "engine_workspace": memory.workspace_bytes,
    }
