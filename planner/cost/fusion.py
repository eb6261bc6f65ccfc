"""What fused forms of calls add to the costs of the calls that do the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from planner.cost.arrays import OFFLOAD, CallCosts, StrategyArrays
from planner.cost.context import CallContext
from planner.cost.lengths import length_moments
from planner.cost.pipeline import STAGES, form_stages
from planner.cost.state import frozen_weights, stage_parameters

Adjustment = Callable[[CallContext, StrategyArrays, CallCosts], CallCosts]
"""Costs of a call under n strategies -> its costs in a fused form; pure, arrays of shape [n]."""

# fp32 logits read, log-probabilities written, and read again for the sampled tokens' values.
_LOGPROB_BYTES_PER_LOGIT = 12.0


def returns_logprobs(context: CallContext, s: StrategyArrays, costs: CallCosts) -> CallCosts:
    """Generation that returns the log-probability of every token that it samples.

    The engine normalises the logits over the whole vocabulary, in fp32 and on one device of the
    replica after they were gathered (vLLM's sampler): traffic of 12 bytes a logit at the memory's
    streaming rate. The log-probabilities themselves are a few bytes a token.
    """
    device = context.group.device
    response = length_moments(context.workload.response_length)
    tokens = np.ceil(context.call.sequences * context.call.rounds / s.dp) * response.mean
    nbytes = tokens * context.model.vocab_size * _LOGPROB_BYTES_PER_LOGIT
    rate = device.memory_bandwidth_bytes_per_s * device.memory_efficiency
    added = nbytes / rate
    parts = costs.time_parts_s
    overhead = parts["engine_overhead"] + added
    return replace(
        costs,
        time_s=costs.time_s + added,
        time_parts_s=parts | {"engine_overhead": overhead},
        traffic_bytes=costs.traffic_bytes + nbytes * s.dp,
    )


def holds_twin(context: CallContext, s: StrategyArrays, costs: CallCosts) -> CallCosts:
    """A trainer whose unit also holds the frozen weights of a model of the same shape.

    They are bf16 in the trainer's layout. Under offload "all" they lie in host memory, and the
    forward call that uses them loads them first; else they stay on the device.
    """
    stages = form_stages(context, s)
    parameters = stage_parameters(context, s, stages)
    weights = np.max([frozen_weights(s, parameters, stage).weights for stage in STAGES], axis=0)
    offloaded = s.offload == OFFLOAD.index("all")
    uses = context.call.kind == "forward"
    here = weights if uses else np.where(offloaded, 0.0, weights)
    link = context.group.device.host_link_bandwidth_bytes_per_s
    loading = np.where(offloaded & uses, weights / link, 0.0)
    parts = costs.time_parts_s
    return replace(
        costs,
        time_s=costs.time_s + loading,
        time_parts_s=parts | {"offload": parts.get("offload", 0.0) + loading},
        memory_parts_bytes=costs.memory_parts_bytes | {"twin_weights": here},
        peak_bytes=costs.peak_bytes + here,
        resident_bytes=costs.resident_bytes + np.where(offloaded, 0.0, weights),
        host_bytes_per_device=costs.host_bytes_per_device + np.where(offloaded, weights, 0.0),
    )
