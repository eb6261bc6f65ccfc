"""Device memory of a generation engine: weights, key-value pool, and how many sequences fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.arrays import DTYPES, FloatArray, StrategyArrays
from planner.cost.context import CallContext
from planner.cost.engine_kernels import kv_bytes_per_layer
from planner.cost.kernel_work import DTYPE_BYTES
from planner.cost.lengths import length_moments
from planner.cost.parameters import LayerParameters, count_parameters, window_layer_mask
from planner.cost.weight_formats import WeightFormats

_VOCABULARY_BYTES = DTYPE_BYTES["bf16"]
"""Embedding and head stay in bf16 when the layers are quantized."""


@dataclass(frozen=True)
class EngineMemory:
    """Bytes on the fullest device of u engines; arrays of shape [u]."""

    weights_bytes: FloatArray
    workspace_bytes: FloatArray
    """Captured graphs, activations of the largest prompt chunk, sampling buffers."""
    pool_bytes: FloatArray
    """What the reservation leaves for the key-value cache; negative when nothing is left."""
    longest_sequence_bytes: FloatArray
    """Cache of one sequence of maximum length."""
    slots: FloatArray
    """Sequences that the pool holds at their mean length while running, and that the strategy's
    limit allows; 0 when the pool does not hold one sequence of maximum length."""


def engine_memory(
    context: CallContext, u: StrategyArrays, sequences: FloatArray, mean_age: float
) -> EngineMemory:
    """Memory of u engines that have `sequences` [u] responses to do.

    Engines reserve cache as sequences grow, so a running sequence takes its prompt (shared by the
    samples of one prompt when the engine caches prefixes) and `mean_age` generated tokens.
    """
    workload, engine = context.workload, context.engine
    reserved = u.memory_fraction * context.group.device.memory_bytes
    weights = weights_bytes(context, u)
    workspace = np.full(len(u), engine.value("workspace_bytes"))
    pool = reserved - weights - workspace
    if context.beside_trainer:
        # The engine takes turns with a trainer on the same devices, whose context and
        # communicators count against its share.
        pool = pool - engine.value("trainer_residue_bytes")

    prompt = length_moments(workload.prompt_length).mean
    sharing = shared_by(context, sequences)
    mean_bytes = cache_bytes(context, u, prompt / sharing + mean_age)
    longest_bytes = cache_bytes(context, u, np.full(len(u), float(workload.max_sequence_tokens)))
    slots = np.minimum(np.floor(pool / mean_bytes), u.max_running_sequences)
    return EngineMemory(
        weights_bytes=weights,
        workspace_bytes=workspace,
        pool_bytes=pool,
        longest_sequence_bytes=longest_bytes,
        slots=np.where(pool >= longest_bytes, np.maximum(slots, 1.0), 0.0),
    )


def shared_by(context: CallContext, sequences: FloatArray) -> FloatArray:
    """Responses of one replica that share the cache of one prompt, shape [u]."""
    if not context.engine.value("prefix_caching"):
        return np.ones_like(sequences)
    return np.minimum(float(context.workload.samples_per_prompt), sequences)


def weights_bytes(
    context: CallContext, u: StrategyArrays, formats: WeightFormats | None = None
) -> FloatArray:
    """Weights on the fullest device, shape [u]: even stages, the embedding or the head at an end.

    Experts are spread over max(tp, ep) ranks, everything else over tp. Layers are stored in the
    strategies' dtype, or in `formats`.
    """
    model = context.model
    counts = count_parameters(model)
    expert_ranks = np.maximum(u.tp, u.ep)
    own = np.array([DTYPE_BYTES[name] for name in DTYPES])[u.dtype]
    attention = own if formats is None else formats.attention.bytes_per_weight
    dense = own if formats is None else formats.dense.bytes_per_weight
    experts = own if formats is None else formats.experts.bytes_per_weight
    sharded = counts.attention - counts.attention_replicated

    def layer(held: LayerParameters) -> FloatArray:
        heads = sharded / u.tp + counts.attention_replicated
        rest = (held.tensor_parallel - sharded) / u.tp
        rest = rest + held.replicated - counts.attention_replicated
        return np.asarray(heads * attention + rest * dense + held.expert / expert_ranks * experts)

    layers = counts.num_dense_layers * layer(counts.dense_layer)
    if counts.num_moe_layers:
        layers = layers + counts.num_moe_layers * layer(counts.moe_layer)
    # Input embedding and head are separate rows of the vocabulary unless tied.
    both = (counts.embedding + counts.head) / u.tp
    one = counts.embedding / u.tp
    vocabulary = np.where(u.pp > 1, one, both) * _VOCABULARY_BYTES
    return np.asarray(layers * stage_share(context, u) + vocabulary)


def cache_bytes(context: CallContext, u: StrategyArrays, kv_tokens: FloatArray) -> FloatArray:
    """Cache of one sequence of `kv_tokens` [u] tokens on the fullest device, shape [u]."""
    model = context.model
    windowed = int(window_layer_mask(model).sum())
    tokens = (model.num_layers - windowed) * kv_tokens
    if model.window is not None:
        tokens = tokens + windowed * np.minimum(kv_tokens, model.window.size_tokens)
    one = kv_bytes_per_layer(model, u.tp, context.workload.kv_cache_dtype)
    return np.asarray(tokens * one * stage_share(context, u))


def stage_share(context: CallContext, u: StrategyArrays) -> FloatArray:
    """Share of the layers on the fullest pipeline stage, shape [u]."""
    return np.ceil(context.model.num_layers / u.pp) / context.model.num_layers
