"""Device and host memory of train and forward calls, and the verdict.

Bytes on one device of the fullest stage. The per-device reserve (context, NCCL, fragmentation) is
taken off the capacity in `usable_bytes`, not added here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.activations import (
    TokenBytes,
    live_layer_bytes,
    stage_layer_bytes,
    token_bytes,
    waiting_microbatches,
)
from planner.cost.arrays import DUALPIPE, OFFLOAD, RECOMPUTE, FloatArray, StrategyArrays
from planner.cost.batching import Batch, is_scalar_head
from planner.cost.context import CallContext
from planner.cost.pipeline import STAGES, Stages
from planner.cost.shapes import vocabulary_per_rank
from planner.cost.state import (
    FROZEN_BASE,
    StageParameters,
    StateBytes,
    frozen_weights,
    shard_limit,
    training_state,
)
from planner.schema import DeviceProfile, FrameworkProfile
from planner.schema.plan import MemoryVerdict

_BF16_BYTES = 2.0
_FP32_BYTES = 4.0
FITS_SHARE = 0.92
"""Predicted peaks miss measured ones by about 8 %: above this share of the usable bytes a plan is
called tight."""
# Host memory of an offloaded optimizer over its own bytes: pinned staging and copies (public
# reports: 0.8 to 1.0 TB for 0.37 TB of state).
_HOST_OPTIMIZER_COPIES = 2.4
# ZeRO-3 gathers embedding and head whole, and training leaves their gradients whole until they are
# reduced: about twice the bf16 weights in measured FSDP2 peaks.
_WHOLE_END_GRADIENTS = 2.0
# Layer inputs on the device when checkpoints move to host memory: one in use, one on its way (the
# peaks of prime-rl fall by all but two layers' inputs).
_CHECKPOINTS_IN_TRANSIT = 2.0
# Send and receive buffers of activations between stages and ranks.
_ACTIVATION_BUFFERS = 2.0


@dataclass(frozen=True)
class Memory:
    """Bytes for each device; arrays of shape [n]."""

    parts: dict[str, FloatArray]
    """While the call runs: weights, gradients, optimizer, activations, live_layer, logits,
    gathered, buffers."""
    peak: FloatArray
    resident: FloatArray
    host: FloatArray
    state: FloatArray
    """All that offloading everything moves."""
    optimizer: FloatArray
    """What offloading the optimizer moves."""


def usable_bytes(device: DeviceProfile, framework: FrameworkProfile) -> float:
    """Bytes that tensors may take on one device.

    Capacity less context, libraries and communicators, divided by what the allocator loses to
    fragmentation.
    """
    reserve = framework.value("device_reserve_bytes") + framework.value("nccl_bytes")
    return max(device.memory_bytes - reserve, 0.0) / framework.value("fragmentation_factor")


def verdict(need_bytes: float, usable: float) -> MemoryVerdict:
    """fits up to 92 % of the usable bytes, tight up to all of them, else does not fit."""
    if need_bytes <= FITS_SHARE * usable:
        return "fits"
    return "tight" if need_bytes <= usable else "does not fit"


def call_memory(
    context: CallContext,
    s: StrategyArrays,
    batch: Batch,
    stages: Stages,
    parameters: StageParameters,
) -> Memory:
    """Memory of a train or forward call; `batch` is gathered to the n strategies."""
    tokens = token_bytes(context, s, batch.attention_tokens)
    best: dict[str, FloatArray] = {}
    peak = np.full(len(s), -1.0)
    states: list[StateBytes] = []
    for stage in STAGES:
        state = _state(context, s, parameters, stage)
        states.append(state)
        parts = _stage_parts(context, s, batch, stages, parameters, tokens, state, stage)
        total = np.asarray(sum(parts.values()))
        fuller = total > peak
        peak = np.where(fuller, total, peak)
        best = {
            name: np.where(fuller, value, best[name]) if best else value
            for name, value in parts.items()
        }

    weights, gradients, optimizer = (
        np.max([getattr(state, name) for state in states], axis=0)
        for name in ("weights", "gradients", "optimizer")
    )
    updated = np.max([state.host_optimizer for state in states], axis=0)
    everything = weights + gradients + optimizer
    offloads = [s.offload == OFFLOAD.index(name) for name in ("optimizer", "all")]
    on_host = [
        optimizer * _HOST_OPTIMIZER_COPIES,
        weights + gradients + optimizer * _HOST_OPTIMIZER_COPIES,
    ]
    return Memory(
        parts=best,
        peak=np.asarray(sum(best.values())),
        resident=np.select(offloads, [weights + gradients, 0.0 * weights], everything),
        host=np.select(offloads, on_host, 0.0) + updated * _HOST_OPTIMIZER_COPIES,
        state=everything,
        optimizer=optimizer,
    )


def stage_memory(
    context: CallContext,
    s: StrategyArrays,
    batch: Batch,
    stages: Stages,
    parameters: StageParameters,
    stage: str,
) -> dict[str, FloatArray]:
    """Itemised peak of one stage ("first", "middle", "last"), bytes, arrays [n].

    The items of `Memory.parts`; for sources that report one rank and not the fullest.
    """
    tokens = token_bytes(context, s, batch.attention_tokens)
    state = _state(context, s, parameters, stage)
    return _stage_parts(context, s, batch, stages, parameters, tokens, state, stage)


def _state(
    context: CallContext, s: StrategyArrays, parameters: StageParameters, stage: str
) -> StateBytes:
    if context.trained or context.call.kind == "train":
        return training_state(context, s, parameters, stage)
    return frozen_weights(s, parameters, stage)


def _stage_parts(
    context: CallContext,
    s: StrategyArrays,
    batch: Batch,
    stages: Stages,
    parameters: StageParameters,
    tokens: TokenBytes,
    state: StateBytes,
    stage: str,
) -> dict[str, FloatArray]:
    parts = _state_parts(context, s, state)
    activations = (_train_activations if context.call.kind == "train" else _forward_activations)(
        context, s, batch, stages, tokens, stage
    )
    return parts | activations | {"gathered": _gathered(context, s, parameters, stages, stage)}


def _state_parts(
    context: CallContext, s: StrategyArrays, state: StateBytes
) -> dict[str, FloatArray]:
    """State on the device while the call runs: a forward call leaves what was offloaded away."""
    training = context.call.kind == "train"
    keep_optimizer = training | (s.offload == OFFLOAD.index("none"))
    keep_gradients = training | (s.offload != OFFLOAD.index("all"))
    # DualPipe feeds a pipeline from both ends: each device holds two stages' weights.
    copies = np.where(s.pipeline_schedule == DUALPIPE, 2.0, 1.0) if training else 1.0
    return {
        "weights": state.weights * copies,
        "gradients": state.gradients * keep_gradients * copies,
        "optimizer": state.optimizer * keep_optimizer,
    }


def _train_activations(
    context: CallContext,
    s: StrategyArrays,
    batch: Batch,
    stages: Stages,
    tokens: TokenBytes,
    stage: str,
) -> dict[str, FloatArray]:
    """Kept activations of the waiting microbatches; and the larger of one recomputed layer and
    the logits, which are never there at the same time."""
    full = s.recompute == RECOMPUTE.index("full")
    count = np.asarray(sum(stages.layers[stage].values()))
    waiting = waiting_microbatches(s, batch.microbatches.astype(np.float64), stage)
    on_host = context.framework.value("activations_on_host") > 0.0
    checkpoints = np.minimum(count, _CHECKPOINTS_IN_TRANSIT) if on_host else count
    stored = np.where(
        full, checkpoints * tokens.checkpoint, stage_layer_bytes(tokens, stages, stage)
    )
    factor = context.framework.value("live_layer_factor")
    live = live_layer_bytes(context, tokens, stages, stage, factor) * full * batch.peak_tokens
    logits = _logits(context, s, batch, stages, stage, "logits_train_bytes")
    return {
        "activations": stored * batch.peak_tokens * waiting,
        "live_layer": np.where(live > logits, live, 0.0),
        "logits": np.where(live > logits, 0.0, logits),
        "buffers": _buffers(context, s, batch),
    }


def _forward_activations(
    context: CallContext,
    s: StrategyArrays,
    batch: Batch,
    stages: Stages,
    tokens: TokenBytes,
    stage: str,
) -> dict[str, FloatArray]:
    """One layer at work, or the logits."""
    live = live_layer_bytes(context, tokens, stages, stage) * batch.peak_tokens
    logits = _logits(context, s, batch, stages, stage, "logits_forward_bytes")
    return {
        "activations": tokens.checkpoint * batch.peak_tokens,
        "live_layer": np.where(live > logits, live, 0.0),
        "logits": np.where(live > logits, 0.0, logits),
        "buffers": _buffers(context, s, batch),
    }


def _logits(
    context: CallContext,
    s: StrategyArrays,
    batch: Batch,
    stages: Stages,
    stage: str,
    constant: str,
) -> FloatArray:
    """Logits with their copies and gradients; chunked when the framework chunks its loss."""
    if is_scalar_head(context.call):
        return np.zeros(len(s))
    chunk = context.framework.value("logits_chunk_tokens")
    rows = np.minimum(batch.peak_tokens, chunk) if chunk else batch.peak_tokens
    columns = vocabulary_per_rank(context.model, s.tp)
    per_logit = context.framework.value(constant)
    return np.asarray(stages.has_head[stage] * rows * columns * per_logit)


def _gathered(
    context: CallContext,
    s: StrategyArrays,
    parameters: StageParameters,
    stages: Stages,
    stage: str,
) -> FloatArray:
    """ZeRO-3's whole copies: a few layers, embedding and head, and the gradients of these.

    Shards of more than two bytes are copied to bf16 even on a single rank. Where the framework
    keeps a pipeline stage whole over a step (`whole_stage_bytes`), all its weights and the
    gradients accumulated on them count, and a few layers' fp32 gradients staged for reduction.
    """
    count = np.maximum(np.asarray(sum(stages.layers[stage].values())), 1.0)
    ends = parameters.ends[stage]
    copies = np.minimum(context.framework.value("gathered_layers"), count)
    # Ranks that already hold a bf16 share keep it among the weights.
    frozen = parameters.adapters is not None
    held_bytes = (
        context.framework.value(FROZEN_BASE)
        if frozen
        else context.framework.value("weight_bytes_per_parameter")
    )
    own = held_bytes <= _BF16_BYTES
    limit = shard_limit(context, s)
    dense_missing = 1.0 - own / np.minimum(parameters.dense_shards, limit)
    expert_missing = 1.0 - own / np.minimum(parameters.expert_shards, limit)
    layers = (parameters.dense[stage] - ends) * dense_missing
    layers = (layers + parameters.expert[stage] * expert_missing) / count * copies
    trained = context.call.kind == "train" and not frozen
    gradients = _WHOLE_END_GRADIENTS if trained else 0.0
    whole = (layers + ends * dense_missing * (1.0 + gradients)) * _BF16_BYTES
    per_parameter = context.framework.value("whole_stage_bytes")
    if per_parameter and context.call.kind == "train":
        held = parameters.dense[stage] + parameters.expert[stage]
        staged = held / count * copies * _FP32_BYTES
        whole = np.where(s.pp > 1, held * per_parameter + staged, whole)
    return np.where(s.zero_stage >= 3, whole, 0.0)


def _buffers(context: CallContext, s: StrategyArrays, batch: Batch) -> FloatArray:
    split = np.where(s.sequence_parallel, s.tp, 1)
    hidden = context.model.hidden_size / split
    floor = context.framework.value("allocator_floor_bytes")
    return np.asarray(_ACTIVATION_BUFFERS * batch.peak_tokens * hidden * _BF16_BYTES + floor)
