"""Gradient reduction, parameter gathering, the optimizer step and offloading: once-a-step costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.arrays import OFFLOAD, FloatArray, StrategyArrays
from planner.cost.collectives import RankGroup, rank_group, ring_s
from planner.cost.context import CallContext
from planner.cost.pipeline import STAGES
from planner.cost.state import StageParameters, shard_limit, training_state

# Bytes per parameter that one Adam update moves: gradient 4, master 4 + 4, moments 8 + 8, and the
# bf16 copy 2, plus the pass that clips the gradient 4 (counted; published steps fit 30 to 42).
_OPTIMIZER_BYTES = 34.0
# Parameters per second that the processors of one node update with a vectorised Adam
# (ZeRO-Offload, arXiv:2101.06840, reports about 0.5 s for 1e9 parameters). Assumed for all hosts.
_CPU_PARAMETERS_PER_S = 2e9
# To the host and back: gradients in fp32, weights in bf16.
_CPU_TRANSFER_BYTES = 4.0 + 2.0
_FIRST_SHARDING_WEIGHTS = 3
# Compressing a gradient reads it and the residual, writes the residual, and writes the gradient
# again when it has come back; residuals are bf16.
_RESIDUAL_BYTES = 2.0


@dataclass(frozen=True)
class Groups:
    """Groups over which dense weights and experts are replicated or sharded."""

    dense: RankGroup
    expert: RankGroup
    dense_shard: RankGroup
    """Ranks among which ZeRO shards: all of `dense`, or fewer (hybrid sharding)."""


def replica_groups(context: CallContext, s: StrategyArrays, parameters: StageParameters) -> Groups:
    """Data x context ranks at a stride of tp; expert replicas at a stride of etp x ep."""
    device = context.group.device
    dense = rank_group(device, parameters.dense_shards, s.tp)
    most = shard_limit(context, s)
    return Groups(
        dense=dense,
        expert=rank_group(device, parameters.expert_shards, s.etp * s.ep),
        dense_shard=rank_group(device, np.minimum(dense.members, most), s.tp)
        if np.isfinite(most).any()
        else dense,
    )


def gather_s(
    context: CallContext,
    groups: Groups,
    parameters: StageParameters,
    stage: str,
    layers: FloatArray,
) -> FloatArray:
    """All-gather of a stage's weights, layer by layer (ZeRO-3), shape [n]."""
    nbytes = context.framework.value("gather_bytes_per_parameter")
    return _both(context, groups, parameters, stage, nbytes, layers)


def gradient_sync_s(
    context: CallContext,
    s: StrategyArrays,
    groups: Groups,
    parameters: StageParameters,
    window_s: dict[str, FloatArray],
    layers: dict[str, FloatArray],
    microbatches: FloatArray,
) -> FloatArray:
    """Exposed data-parallel communication of one optimizer step, worst stage, shape [n].

    Without ZeRO-3: one reduction of gradients and one gather (or the second half of an
    all-reduce) hide behind one microbatch's passes (`window_s` by stage). With it, every
    microbatch gathers the weights for both passes and reduces its gradients, hiding behind its own
    computation. `dp_overlap` is the share of the window that can hide anything; what is hidden
    still slows computation by `dp_interference` of its time; the last layer cannot hide.

    `Workload.gradient_exchange`: compressed gradients are fewer bytes and a pass to compress them;
    replicas of the whole state exchange once in `local_steps`; delayed gradients have the passes
    of all microbatches to hide behind.
    """
    framework, exchange = context.framework, context.workload.gradient_exchange
    sharded = s.zero_stage >= _FIRST_SHARDING_WEIGHTS
    gradient_bytes = framework.value("gradient_reduce_bytes") / exchange.compression
    delayed = exchange.delayed & ~sharded
    among_replicas = 1.0 / exchange.local_steps
    worst = np.zeros(len(s))
    for stage in STAGES:
        depth = np.maximum(layers[stage], 1.0)
        calls = np.where(sharded, depth, 1.0)
        gather = gather_s(context, groups, parameters, stage, calls)
        reduce = _both(context, groups, parameters, stage, gradient_bytes, calls)
        # Between sharding groups every rank all-reduces the gradients of its shard.
        across = _across_shards_s(context, groups, parameters, stage, gradient_bytes)
        # The second half of an all-reduce of gradients moves them, not bf16 weights.
        back = np.where(s.zero_stage == 0, reduce, gather)
        if context.workload.lora_rank:
            # Gradients and new weights are those of the adapters alone, a per cent or so.
            reduce, back, across = (np.zeros_like(x) for x in (reduce, back, across))
        across = across * among_replicas
        once = np.where(s.zero_stage == 0, among_replicas * (reduce + back), reduce + across + back)
        total = np.where(sharded, 2.0 * gather + reduce + across, once)
        window = np.where(delayed, window_s[stage] * microbatches, window_s[stage])
        exposed = _exposed(context, total, window, np.where(delayed, np.inf, depth))
        exposed = exposed + _compression_s(context, s, parameters, stage)
        worst = np.maximum(worst, exposed * np.where(sharded, microbatches, 1.0))
    ranks = np.where(s.zero_stage >= 1, groups.dense_shard.members - 1.0, 0.0)
    return worst + framework.value("dp_latency_per_rank_s") * ranks


def gather_exposed_s(
    context: CallContext,
    s: StrategyArrays,
    groups: Groups,
    parameters: StageParameters,
    window_s: dict[str, FloatArray],
    layers: dict[str, FloatArray],
    microbatches: FloatArray,
) -> FloatArray:
    """Exposed gathering of ZeRO-3 weights in a forward call, worst stage, shape [n]."""
    worst = np.zeros(len(s))
    for stage in STAGES:
        depth = np.maximum(layers[stage], 1.0)
        gather = gather_s(context, groups, parameters, stage, depth)
        exposed = _exposed(context, gather, window_s[stage], depth)
        worst = np.maximum(worst, exposed * microbatches)
    return np.where(s.zero_stage >= _FIRST_SHARDING_WEIGHTS, worst, 0.0)


def optimizer_s(context: CallContext, s: StrategyArrays, parameters: StageParameters) -> FloatArray:
    """One optimizer step on the stage with most parameters, shape [n].

    By device-memory bytes, or, when the optimizer lives on the host, by the host link and the
    host's update rate; at least one kernel, plus `optimizer_step_fixed_s`.
    """
    device = context.group.device
    most = np.zeros(len(s))
    for stage in STAGES:
        state = training_state(context, s, parameters, stage)
        most = np.maximum(most, state.optimizer_parameters)
    rate = device.memory_bandwidth_bytes_per_s * device.memory_efficiency
    on_device = np.maximum(most * _OPTIMIZER_BYTES / rate, device.kernel_latency_s)
    per_node = np.minimum(s.devices, context.group.devices_per_node)
    link = device.host_link_bandwidth_bytes_per_s
    on_host = most * (_CPU_TRANSFER_BYTES / link + per_node / _CPU_PARAMETERS_PER_S)
    seconds = np.where(s.optimizer_on_cpu, on_host, on_device)
    return seconds + context.framework.value("optimizer_step_fixed_s")


def optimizer_traffic_bytes(
    context: CallContext, s: StrategyArrays, parameters: StageParameters
) -> FloatArray:
    """Device-memory bytes of one optimizer step on one device of the first stage, shape [n]."""
    state = training_state(context, s, parameters, "first")
    return np.where(s.optimizer_on_cpu, 0.0, state.optimizer_parameters * _OPTIMIZER_BYTES)


def offload_s(
    context: CallContext, s: StrategyArrays, state_bytes: FloatArray, optimizer_bytes: FloatArray
) -> FloatArray:
    """Moving a trained model's state to host memory and back once a step, shape [n].

    `offload_within_refit` is the share of it that the framework's measured weight
    synchronisation contains already.
    """
    moved = np.select(
        [s.offload == OFFLOAD.index("optimizer"), s.offload == OFFLOAD.index("all")],
        [optimizer_bytes, state_bytes],
        0.0,
    )
    counted = 1.0 - context.framework.value("offload_within_refit")
    return 2.0 * moved * counted / context.group.device.host_link_bandwidth_bytes_per_s


def _exposed(
    context: CallContext, seconds: FloatArray, window_s: FloatArray, layers: FloatArray
) -> FloatArray:
    """What does not hide in the window, and what hiding costs the computation there."""
    room = context.framework.value("dp_overlap") * window_s
    hidden = np.minimum(seconds * (1.0 - 1.0 / layers), room)
    return np.asarray(seconds - hidden * (1.0 - context.framework.value("dp_interference")))


def _compression_s(
    context: CallContext, s: StrategyArrays, parameters: StageParameters, stage: str
) -> FloatArray:
    """Compressing and restoring the gradients of a stage once, by memory traffic, shape [n]."""
    exchange = context.workload.gradient_exchange
    trained = parameters.adapters or parameters
    if exchange.compression == 1.0:
        return np.zeros(len(s))
    nbytes = 2.0 * (context.framework.value("gradient_reduce_bytes") + _RESIDUAL_BYTES)
    device = context.group.device
    rate = device.memory_bandwidth_bytes_per_s * device.memory_efficiency
    seconds = (trained.dense[stage] + trained.expert[stage]) * nbytes / rate
    alone = parameters.dense_shards == 1.0
    often = np.where(s.zero_stage == 0, 1.0 / exchange.local_steps, 1.0)
    return np.where(alone, 0.0, seconds * often)


def _across_shards_s(
    context: CallContext,
    groups: Groups,
    parameters: StageParameters,
    stage: str,
    bytes_per_parameter: float,
) -> FloatArray:
    """All-reduce of one shard's gradients over the ranks that hold the same shard, shape [n]."""
    if groups.dense_shard is groups.dense:
        return np.zeros_like(groups.dense.members)
    shard = groups.dense_shard.members
    several = groups.dense.members / shard
    device = context.group.device
    # Sharding groups fill a domain first, so equal shards lie a sharding group apart.
    group = rank_group(device, several, groups.dense_shard.inner)
    nbytes = parameters.dense[stage] * bytes_per_parameter / shard
    # Every device of a domain does this at the same time, each over its own interface.
    return np.where(several > 1.0, 2.0 * ring_s(device, group, nbytes), 0.0)


def _both(
    context: CallContext,
    groups: Groups,
    parameters: StageParameters,
    stage: str,
    bytes_per_parameter: float,
    calls: FloatArray,
) -> FloatArray:
    """A ring over dense weights, then one over experts."""
    device = context.group.device
    nbytes = parameters.dense[stage] * bytes_per_parameter
    dense = ring_s(device, groups.dense_shard, nbytes, calls)
    if not parameters.expert[stage].any():
        return dense
    expert = ring_s(device, groups.expert, parameters.expert[stage] * bytes_per_parameter, calls)
    return dense + expert
