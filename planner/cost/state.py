"""Parameters and training state that one device of each pipeline stage holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.cost.adapters import adapter_parameters
from planner.cost.arrays import BoolArray, FloatArray, StrategyArrays
from planner.cost.batching import is_scalar_head
from planner.cost.context import CallContext
from planner.cost.parameters import count_parameters
from planner.cost.pipeline import KINDS, STAGES, Stages
from planner.cost.shapes import kv_heads_per_rank, vocabulary_per_rank

_FROZEN_WEIGHT_BYTES = 2.0  # bf16
_RESIDUAL_BYTES = 2.0  # bf16, of a compressed gradient
_OUTER_STATE_BYTES = 8.0  # fp32 weights of the last exchange and the outer optimizer's momentum
FROZEN_BASE = "frozen_base_bytes_per_parameter"


@dataclass(frozen=True)
class StageParameters:
    """Elements on one device of each stage ("first", "middle", "last"); arrays of shape [n]."""

    dense: dict[str, FloatArray]
    """Everything but routed experts: replicated over data- and context-parallel ranks."""
    expert: dict[str, FloatArray]
    """Routed experts: replicated over the ranks that hold the same experts."""
    ends: dict[str, FloatArray]
    """Embedding and head, a part of `dense`."""
    dense_shards: FloatArray
    """Ranks that hold the same dense weights: data x context parallel."""
    expert_shards: FloatArray
    """Ranks that hold the same experts: devices of a stage / (etp x ep), at least 1."""
    adapters: StageParameters | None = None
    """Trainable elements where the rest is frozen (LoRA); None when everything is trained."""


def stage_parameters(context: CallContext, s: StrategyArrays, stages: Stages) -> StageParameters:
    """Parameters by stage. A tied head on another stage than the embedding is a second copy.

    Key-value projections are repeated when there are more tensor-parallel ranks than heads.
    """
    model = context.model
    scalar = is_scalar_head(context.call)
    counts = count_parameters(model, "scalar" if scalar else "lm")
    repeated = np.zeros(len(s))
    if model.mla is None:
        one_head = 2.0 * model.hidden_size * model.head_dim
        own = kv_heads_per_rank(model, s.tp) - model.num_kv_heads / s.tp
        repeated = own * one_head
    layer = {
        "dense": counts.dense_layer.tensor_parallel / s.tp + counts.dense_layer.replicated,
        "moe": counts.moe_layer.tensor_parallel / s.tp + counts.moe_layer.replicated,
    }
    experts = counts.routed_experts / (s.ep * s.etp)
    vocabulary = vocabulary_per_rank(model, s.tp) * model.hidden_size
    dense: dict[str, FloatArray] = {}
    expert: dict[str, FloatArray] = {}
    ends: dict[str, FloatArray] = {}
    for stage in STAGES:
        embedding, head = stages.has_embedding[stage], stages.has_head[stage]
        if scalar:
            output = head * counts.head
        elif model.tie_embeddings:
            output = head * (1.0 - embedding) * vocabulary
        else:
            output = head * vocabulary
        ends[stage] = embedding * vocabulary + output
        held = stages.layers[stage]
        layers = np.asarray(sum(held[kind] * (layer[kind] + repeated) for kind in KINDS))
        dense[stage] = layers + ends[stage] + head * counts.final_norm
        expert[stage] = held["moe"] * experts
    whole = StageParameters(
        dense=dense,
        expert=expert,
        ends=ends,
        dense_shards=(s.dp * s.cp).astype(np.float64),
        expert_shards=np.maximum(s.dp * s.cp * s.tp / (s.ep * s.etp), 1.0),
    )
    if not context.workload.lora_rank:
        return whole
    trained = adapter_parameters(model, context.workload.lora_rank, s, stages)
    return replace(whole, adapters=replace(whole, dense=trained[0], expert=trained[1]))


@dataclass(frozen=True)
class StateBytes:
    """Training state on one device of one stage, bytes; arrays of shape [n]."""

    weights: FloatArray
    gradients: FloatArray
    optimizer: FloatArray
    host_optimizer: FloatArray
    """Optimizer state that lives in host memory (`optimizer_on_cpu`)."""
    optimizer_parameters: FloatArray
    """Elements that this device's optimizer updates."""


def training_state(
    context: CallContext, s: StrategyArrays, parameters: StageParameters, stage: str
) -> StateBytes:
    """Weights, gradients, and master weights with moments after ZeRO sharding.

    ZeRO (arXiv:1910.02054): stage 1 shards the optimizer, 2 gradients too, 3 weights too, over
    the ranks that hold the same parameters. Bytes per parameter are the framework's
    `weight_bytes_per_parameter`, `gradient_bytes_...` and `optimizer_bytes_...`; with a bf16
    Megatron distributed optimizer this is 6 + 12 / d. With adapters the frozen base has
    `frozen_base_bytes_per_parameter` (bf16 unless the framework says else) and nothing beside.
    Where ZeRO shards inside groups (`shard_limit`), d is no larger than those.

    A compressed gradient keeps what it left out beside it, a delayed one is there twice, and
    replicas that exchange once in several steps keep the outer optimizer's state on the host.
    """
    framework = context.framework
    most = shard_limit(context, s)
    frozen: FloatArray | float = 0.0
    if parameters.adapters is not None:
        frozen = _held(parameters, stage, s.zero_stage >= 3, most)
        frozen = frozen * framework.value(FROZEN_BASE)
        parameters = parameters.adapters
    updated = _held(parameters, stage, s.zero_stage >= 1, most)
    optimizer = updated * framework.value("optimizer_bytes_per_parameter")
    weights = _held(parameters, stage, s.zero_stage >= 3, most)
    gradients = _held(parameters, stage, s.zero_stage >= 2, most)
    exchange = context.workload.gradient_exchange
    gradient_bytes = framework.value("gradient_bytes_per_parameter") * (1.0 + exchange.delayed)
    gradient_bytes += _RESIDUAL_BYTES * (exchange.compression > 1.0)
    outer = _OUTER_STATE_BYTES * updated * (exchange.local_steps > 1)
    return StateBytes(
        weights=frozen + weights * framework.value("weight_bytes_per_parameter"),
        gradients=gradients * gradient_bytes,
        optimizer=np.where(s.optimizer_on_cpu, 0.0, optimizer),
        host_optimizer=np.where(s.optimizer_on_cpu, optimizer, 0.0) + outer,
        optimizer_parameters=updated,
    )


def shard_limit(context: CallContext, s: StrategyArrays) -> FloatArray:
    """Ranks among which ZeRO shards at most: the framework's `zero_shard_ranks` or the strategy's
    `shard_ranks`, inf where neither says, shape [n]."""
    limit = context.framework.value("zero_shard_ranks") or np.inf
    return np.minimum(np.where(s.shard_ranks > 0, s.shard_ranks, np.inf), limit)


def frozen_weights(s: StrategyArrays, parameters: StageParameters, stage: str) -> StateBytes:
    """A model that is not trained: bf16 weights, sharded only by ZeRO-3."""
    none = np.zeros(len(s))
    limit = np.where(s.shard_ranks > 0, s.shard_ranks, np.inf)
    weights = _held(parameters, stage, s.zero_stage >= 3, limit) * _FROZEN_WEIGHT_BYTES
    return StateBytes(weights, none, none, none, none)


def _held(
    parameters: StageParameters, stage: str, sharded: BoolArray, most: FloatArray
) -> FloatArray:
    """Elements on one device when dense weights and experts are sharded over their replicas.

    Shards go to at most `most` ranks; groups of that many hold the same.
    """
    shards = np.minimum(parameters.dense_shards, most)
    dense = parameters.dense[stage] / np.where(sharded, shards, 1.0)
    if not parameters.expert[stage].any():
        return np.asarray(dense)
    shards = np.minimum(parameters.expert_shards, most)
    return np.asarray(dense + parameters.expert[stage] / np.where(sharded, shards, 1.0))
