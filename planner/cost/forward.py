"""Cost of a forward call: log-probabilities, values or rewards over given sequences."""

from __future__ import annotations

import numpy as np

from planner.cost.arrays import OFFLOAD, CallCosts, FloatArray, StrategyArrays
from planner.cost.batching import is_scalar_head, response_share
from planner.cost.bounds import bound_s, can_run
from planner.cost.context import CallContext
from planner.cost.data_parallel import gather_exposed_s, replica_groups
from planner.cost.flops import forward_flop
from planner.cost.layers import Parts
from planner.cost.lengths import sequence_moments
from planner.cost.memory import Memory, call_memory
from planner.cost.passes import pass_costs
from planner.cost.pipeline import STAGES, form_stages
from planner.cost.schedule import pipeline_schedule
from planner.cost.state import stage_parameters
from planner.cost.train import add_stragglers


def forward_cost(context: CallContext, s: StrategyArrays) -> CallCosts:
    """Cost of one forward pass over the call's sequences under each of n strategies (arrays [n]).

    Microbatches stream through the pipeline. Log-probabilities run the vocabulary head on every
    token, values and rewards a scalar head. ZeRO-3 gathers the weights for every microbatch. A
    frozen model that was offloaded is loaded first; a trained one pays for its offload in its
    train call. `time_s` is inf where the device cannot run the strategy's dtype.
    """
    passes = pass_costs(context, s, train=False)
    batch = passes.batch.take(passes.inverse)
    stages = form_stages(context, s)
    schedule = pipeline_schedule(context, s, passes, stages, both_ways=False)
    parameters = stage_parameters(context, s, stages)
    layers = {stage: np.asarray(sum(stages.layers[stage].values())) for stage in STAGES}

    parts: Parts = dict(schedule.parts)
    parts["imbalance"] = (
        schedule.total_s * batch.imbalance * context.framework.value("dp_imbalance_share")
    )
    parts["dp_comm"] = gather_exposed_s(
        context,
        s,
        replica_groups(context, s, parameters),
        parameters,
        schedule.stage_s,
        layers,
        schedule.microbatches,
    )
    add_stragglers(context, s, parts)
    memory = call_memory(context, s, batch, stages, parameters)
    parts["offload"] = _load_s(context, s, memory)
    parts["compute"] = np.where(can_run(context, s), parts["compute"], np.inf)
    time_s = np.asarray(sum(parts.values()))

    moments = sequence_moments(context.workload)
    copies = context.call.sequences * context.workload.training_views
    useful = copies * forward_flop(
        context.model,
        moments,
        moments.mean * response_share(context),
        scalar_head=is_scalar_head(context.call),
    )
    useful_flop = np.full(len(s), useful)
    depth = np.floor(schedule.rounds).astype(np.int64)
    return CallCosts(
        time_s=time_s,
        time_parts_s=parts,
        work_flop=schedule.flop,
        useful_flop=useful_flop,
        traffic_bytes=schedule.traffic_bytes,
        depth=depth,
        bound_s=bound_s(context, s, useful_flop, schedule.traffic_bytes, depth.astype(np.float64)),
        memory_parts_bytes=memory.parts,
        peak_bytes=memory.peak,
        resident_bytes=memory.resident,
        host_bytes_per_device=memory.host,
    )


def _load_s(context: CallContext, s: StrategyArrays, memory: Memory) -> FloatArray:
    """Loading a frozen model's weights from host memory; they never change, so one way."""
    if context.trained:
        return np.zeros(len(s))
    loaded = np.where(s.offload == OFFLOAD.index("all"), memory.state, 0.0)
    return np.asarray(loaded / context.group.device.host_link_bandwidth_bytes_per_s)
