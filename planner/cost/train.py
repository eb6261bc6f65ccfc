"""Cost of a train call: forward, backward, recomputation, synchronisation, optimizer.

time = epochs x optimizer steps x (pipeline schedule + imbalance + exposed gradient exchange
+ optimizer) + offload, and stragglers on top. Terms and sources: docs/cost-model.md.
"""

from __future__ import annotations

import numpy as np

from planner.cost.arrays import CallCosts, FloatArray, StrategyArrays
from planner.cost.batching import is_scalar_head, response_share
from planner.cost.bounds import bound_s, can_run
from planner.cost.context import CallContext
from planner.cost.data_parallel import (
    gradient_sync_s,
    offload_s,
    optimizer_s,
    optimizer_traffic_bytes,
    replica_groups,
)
from planner.cost.flops import train_flop
from planner.cost.layers import WORD_BYTES, Parts
from planner.cost.lengths import sequence_moments
from planner.cost.memory import call_memory
from planner.cost.passes import pass_costs
from planner.cost.pipeline import STAGES, form_stages
from planner.cost.schedule import Schedule, pipeline_schedule
from planner.cost.state import stage_parameters

_OPTIMIZER_ROUNDS = 1.0


def train_cost(context: CallContext, s: StrategyArrays) -> CallCosts:
    """Cost of training on the call's sequences under each of n strategies (arrays [n]).

    Microbatches run one after another; a step ends with gradient synchronisation and the
    optimizer. `time_s` is inf where the device cannot run the strategy's dtype.
    """
    passes = pass_costs(context, s, train=True)
    batch = passes.batch.take(passes.inverse)
    stages = form_stages(context, s)
    schedule = pipeline_schedule(context, s, passes, stages, both_ways=True)
    parameters = stage_parameters(context, s, stages)
    groups = replica_groups(context, s, parameters)
    layers = {stage: np.asarray(sum(stages.layers[stage].values())) for stage in STAGES}

    parts: Parts = dict(schedule.parts)
    parts["imbalance"] = (
        schedule.total_s * batch.imbalance * context.framework.value("dp_imbalance_share")
    )
    parts["dp_comm"] = gradient_sync_s(
        context, s, groups, parameters, schedule.stage_s, layers, schedule.microbatches
    )
    parts["optimizer"] = optimizer_s(context, s, parameters)
    parts["activation_copies"] = _activation_copies_s(context, s, batch.tokens, layers, schedule)
    parts = {name: seconds * batch.steps for name, seconds in parts.items()}
    memory = call_memory(context, s, batch, stages, parameters)
    add_stragglers(context, s, parts)
    parts["offload"] = offload_s(context, s, memory.state, memory.optimizer)
    parts["compute"] = np.where(can_run(context, s), parts["compute"], np.inf)
    time_s = np.asarray(sum(parts.values()))

    useful = context.call.sequences * context.call.epochs * useful_train_flop(context)
    useful_flop = np.full(len(s), useful)
    ranks = (s.devices / s.pp).astype(np.float64)
    traffic = schedule.traffic_bytes + optimizer_traffic_bytes(context, s, parameters) * ranks
    depth = np.floor((schedule.rounds + _OPTIMIZER_ROUNDS) * batch.steps).astype(np.int64)
    traffic = traffic * batch.steps
    return CallCosts(
        time_s=time_s,
        time_parts_s=parts,
        work_flop=schedule.flop * batch.steps,
        useful_flop=useful_flop,
        traffic_bytes=traffic,
        depth=depth,
        bound_s=bound_s(context, s, useful_flop, traffic, depth.astype(np.float64)),
        memory_parts_bytes=memory.parts,
        peak_bytes=memory.peak,
        resident_bytes=memory.resident,
        host_bytes_per_device=memory.host,
    )


def _activation_copies_s(
    context: CallContext,
    s: StrategyArrays,
    tokens: FloatArray,
    layers: dict[str, FloatArray],
    schedule: Schedule,
) -> FloatArray:
    """Checkpointed layer inputs that go to host memory and come back, one optimizer step, [n]."""
    share = context.framework.value("activations_on_host")
    if not share:
        return np.zeros(len(s))
    most = np.max([layers[stage] for stage in STAGES], axis=0)
    split = np.where(s.sequence_parallel, s.tp, 1)
    nbytes = 2.0 * tokens * context.model.hidden_size * WORD_BYTES / split * most
    link = context.group.device.host_link_bandwidth_bytes_per_s
    return np.asarray(share * schedule.microbatches * nbytes / link)


def useful_train_flop(context: CallContext) -> float:
    """Forward and backward work of one sequence; logits for its response alone."""
    moments = sequence_moments(context.workload)
    return context.workload.training_views * train_flop(
        context.model,
        moments,
        moments.mean * response_share(context),
        scalar_head=is_scalar_head(context.call),
    )


def add_stragglers(context: CallContext, s: StrategyArrays, parts: Parts) -> None:
    """Add "straggler": the slowest node's lag, a share for every doubling of nodes."""
    nodes = np.ceil(s.devices / context.group.devices_per_node)
    share = context.framework.value("straggler_per_doubling") * np.log2(np.maximum(nodes, 1.0))
    parts["straggler"] = np.asarray(sum(parts.values())) * share
