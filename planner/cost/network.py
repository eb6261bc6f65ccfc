"""Network volume of a call: bytes sent and dependent message rounds, by kind of parallelism.

The counts are those of the textbook algorithms (ring collectives, 1F1B sends): what a strategy must
move, not what a link takes for it. Sources: Megatron-LM (arXiv:1909.08053, 2104.04473, 2205.05198),
ZeRO (arXiv:1910.02054), ring attention (arXiv:2310.01889); expert parallelism sends each token to
`top_k` experts and back. Time is priced elsewhere, from measured collectives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.arrays import RECOMPUTE, FloatArray, IntArray, StrategyArrays
from planner.cost.batching import form_batch
from planner.cost.context import CallContext
from planner.cost.layers import ulysses_degree
from planner.cost.lengths import length_moments
from planner.cost.occupancy import length_cells
from planner.cost.pipeline import STAGES, form_stages
from planner.cost.rounds import round_contexts
from planner.cost.shapes import (
    heads_per_rank,
    kv_heads_per_rank,
    moe_layers,
    qk_head_dim,
    v_head_dim,
)
from planner.cost.state import StageParameters, stage_parameters
from planner.schema import ModelSpec

_ACTIVATION_BYTES = 2.0  # bf16
_FULL = RECOMPUTE.index("full")
KINDS = ("tensor", "context", "expert", "pipeline", "data")


@dataclass(frozen=True)
class NetworkVolume:
    """Volume of one call in one RL step under n strategies."""

    sent_bytes: dict[str, FloatArray]
    """Kind of parallelism (KINDS) -> bytes that all devices send together, shape [n]."""
    messages: dict[str, FloatArray]
    """Kind -> messages that one device sends or waits for one after another, shape [n]."""


def network_volume(context: CallContext, s: StrategyArrays) -> NetworkVolume:
    """Bytes sent and message rounds of the context's call under each of n strategies.

    A degree of one sends nothing. Devices of a middle stage stand for all; ends differ little.
    """
    if context.call.kind == "generate":
        rounds = [(share, _generate(each, s)) for share, each in round_contexts(context)]
        sent, messages = (
            {kind: np.asarray(sum(w * volume[i][kind] for w, volume in rounds)) for kind in KINDS}
            for i in (0, 1)
        )
    else:
        sent, messages = _passes(context, s)
    devices = s.devices.astype(np.float64)
    return NetworkVolume(
        sent_bytes={kind: sent[kind] * devices for kind in KINDS},
        messages=messages,
    )


_Volumes = tuple[dict[str, FloatArray], dict[str, FloatArray]]


def _passes(context: CallContext, s: StrategyArrays) -> _Volumes:
    """Bytes sent by one device and its messages in a train or forward call."""
    model, train = context.model, context.call.kind == "train"
    batch = form_batch(context, s)
    passes = np.asarray(batch.microbatches * float(batch.steps), dtype=np.float64)
    tokens = batch.tokens * passes
    layers = model.num_layers / s.pp
    expert_layers = moe_layers(model) / s.pp
    again = (s.recompute == _FULL) * 1.0 if train else np.zeros(len(s))
    both = 2.0 if train else 1.0
    row = model.hidden_size * _ACTIVATION_BYTES

    # One reduction behind attention, one behind the feed-forward layer (within each expert for
    # mixture-of-experts layers), in the forward pass and, mirrored, in the backward pass.
    reductions = (layers * 2.0 - expert_layers * (s.etp == 1)) * (both + again)
    tensor = reductions * _ring(s.tp, 2.0) * tokens * row
    # Keys and values go around once forward; backward they come again, with their gradients.
    # Ulysses exchanges queries, keys, values and output instead, as often in either pass.
    turns = (3.0 if train else 1.0) + again
    ulysses = ulysses_degree(context, s)
    hops = s.cp / ulysses - 1.0
    ring = turns * hops * _key_value_bytes(model, s, ulysses)
    heads = _query_bytes(model, s) + _key_value_bytes(model, s, np.where(hops > 0, ulysses, 1))
    exchange = (both + again) * _ring(ulysses, 1.0) * heads
    context_bytes = layers * tokens * (ring + exchange)
    around = turns * hops + 4.0 * (both + again) * (ulysses - 1.0)
    exchanges = 2.0 * expert_layers * (both + again)
    expert = exchanges * _expert_bytes(model, s, tokens, row)
    boundaries = np.maximum(s.pp * s.vpp - 1.0, 0.0) / s.pp * (s.pp > 1)
    slab = tokens * row / np.where(s.sequence_parallel, s.tp, 1)
    pipeline = boundaries * both * slab
    data, data_messages = _data(context, s, passes, float(batch.steps), train=train)
    return (
        {
            "tensor": tensor,
            "context": context_bytes,
            "expert": expert,
            "pipeline": pipeline,
            "data": data,
        },
        {
            "tensor": reductions * passes * 2.0 * (s.tp - 1.0),
            "context": layers * passes * around,
            "expert": exchanges * passes * (s.ep - 1.0),
            "pipeline": boundaries * both * passes,
            "data": data_messages,
        },
    )


def _data(
    context: CallContext, s: StrategyArrays, passes: FloatArray, steps: float, *, train: bool
) -> tuple[FloatArray, FloatArray]:
    """Gradients reduced and weights gathered over the ranks that hold the same parameters."""
    stages = form_stages(context, s)
    parameters = stage_parameters(context, s, stages)
    trained = parameters.adapters or parameters
    exchange = context.workload.gradient_exchange
    gradient = context.framework.value("gradient_reduce_bytes") / exchange.compression
    weight = context.framework.value("gather_bytes_per_parameter")
    sharded = s.zero_stage >= 3
    gathers = np.where(sharded, (2.0 if train else 1.0) * passes, 0.0)
    sent = gathers * weight * _over_replicas(parameters)
    rounds = gathers * context.model.num_layers / s.pp
    if train:
        # An all-reduce sends gradients twice; with a sharded optimizer new weights come back.
        back = np.select([s.zero_stage == 0, s.zero_stage < 3], [gradient, weight], 0.0)
        # Replicas of the whole state exchange once in so many steps.
        often = np.where(s.zero_stage == 0, steps / exchange.local_steps, steps)
        reductions = np.where(sharded, passes, often)
        sent = sent + (reductions * gradient + often * back) * _over_replicas(trained)
        rounds = rounds + np.where(sharded, passes * context.model.num_layers / s.pp, often)
        rounds = rounds + often * (s.zero_stage < 3)
    return sent, rounds * (parameters.dense_shards - 1.0)


def _over_replicas(parameters: StageParameters) -> FloatArray:
    """Elements that one device of the fullest stage sends in one ring pass over its replicas."""
    sent = [
        _ring(parameters.dense_shards, 1.0) * parameters.dense[stage]
        + _ring(parameters.expert_shards, 1.0) * parameters.expert[stage]
        for stage in STAGES
    ]
    return np.asarray(np.max(sent, axis=0))


def _generate(context: CallContext, s: StrategyArrays) -> _Volumes:
    """Bytes sent by one device and its messages while all responses of a step are generated."""
    model, workload = context.model, context.workload
    response = length_moments(workload.response_length).mean
    prompt = length_moments(workload.prompt_length).mean
    # Prompts travel once a group: the engine shares the prefix among samples of one prompt.
    groups = context.call.sequences / workload.samples_per_prompt
    tokens = (context.call.sequences * response + groups * prompt) / s.dp
    rounds = length_cells(workload.response_length, context.call.sequences).longest
    row = model.hidden_size * _ACTIVATION_BYTES
    layers, expert_layers = model.num_layers / s.pp, moe_layers(model) / s.pp
    pooled = s.ep > s.tp
    reductions = np.asarray(layers * 2.0 - expert_layers * pooled, dtype=np.float64)
    exchanges = 2.0 * expert_layers * pooled
    boundaries = (s.pp - 1.0) / s.pp
    none = np.zeros(len(s))
    return (
        {
            "tensor": reductions * _ring(s.tp, 2.0) * tokens * row,
            "context": none,
            "expert": exchanges * _expert_bytes(model, s, tokens, row),
            "pipeline": boundaries * tokens * row,
            "data": none,
        },
        {
            "tensor": reductions * rounds * 2.0 * (s.tp > 1),
            "context": none,
            "expert": exchanges * rounds * (s.ep > 1),
            "pipeline": boundaries * s.pp * rounds,
            "data": none,
        },
    )


def _ring(members: IntArray | FloatArray, passes: float) -> FloatArray:
    """Share of a buffer that each member of a ring sends in `passes` passes around it."""
    return np.asarray(passes * (members - 1.0) / members)


def _query_bytes(model: ModelSpec, s: StrategyArrays) -> FloatArray:
    """Query and attention output of one token on one tensor-parallel rank, bytes."""
    words = heads_per_rank(model, s.tp) * (qk_head_dim(model) + v_head_dim(model))
    return np.asarray(words * _ACTIVATION_BYTES)


def _key_value_bytes(model: ModelSpec, s: StrategyArrays, least: IntArray) -> FloatArray:
    """Keys and values of one token in one layer on one tensor-parallel rank, of at least `least`
    heads (a head is repeated where ranks outnumber heads), bytes."""
    if model.mla is not None:
        return _query_bytes(model, s)
    heads = np.maximum(kv_heads_per_rank(model, s.tp), least)
    return np.asarray(heads * 2.0 * model.head_dim * _ACTIVATION_BYTES)


def _expert_bytes(
    model: ModelSpec, s: StrategyArrays, tokens: FloatArray, row_bytes: float
) -> FloatArray:
    """Copies of tokens that one device sends to experts of others in one dispatch, bytes."""
    if model.moe is None:
        return np.zeros(len(s))
    own = tokens * s.etp / s.tp
    return np.asarray(own * model.moe.top_k * row_bytes * (s.ep - 1.0) / s.ep)
