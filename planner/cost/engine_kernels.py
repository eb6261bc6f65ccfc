"""Kernels of one decode step on the devices of an engine replica, all layers of one kind together.

Functions take engine shapes [k] and a grid of batch sizes [b] and return seconds [k, b] (attention:
[k, b, c] with a grid of context lengths). No kernel is priced below its roofline, nor below the
device's smallest kernel time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import FloatArray, IntArray
from planner.cost.collectives import link_rate, rank_group
from planner.cost.context import CallContext
from planner.cost.flops import causal_pairs, windowed_pairs
from planner.cost.kernel_work import DTYPE_BYTES, gemm_work
from planner.cost.linear import gemm_bound_s
from planner.cost.parameters import kv_elements_per_layer, window_layer_mask
from planner.cost.shapes import (
    Gemm,
    attention_gemms,
    ffn_gemms,
    heads_per_rank,
    kv_heads_per_rank,
    moe_layers,
    qk_head_dim,
    up_matrices,
    v_head_dim,
)
from planner.cost.weight_formats import WeightFormat, WeightFormats
from planner.schema import DType, ModelSpec

ACTIVATION_BYTES = 2.0
"""Activations, and so messages, are bf16 whatever the weights are."""
EXPERT_KERNELS = 2
"""Grouped products of an expert layer."""

# Two norms a layer, each fused with the residual: both read, both written.
_NORM_WORDS = 8.0
_BF16 = WeightFormat("bf16", "bf16")
# Latent attention tables are measured with DeepSeek's head sizes (arXiv:2412.19437).
_TABLE_MLA_HEAD = 192 + 128


@dataclass(frozen=True)
class EngineShapes:
    """Distinct ways to spread one engine replica over devices; arrays of shape [k]."""

    tp: IntArray
    pp: IntArray
    ep: IntArray
    """Ranks that share the experts: up to tp inside the replica, beyond that over ep / tp
    replicas that decode in step (attention data parallelism)."""

    @property
    def pooled(self) -> FloatArray:
        """Replicas whose tokens meet in one expert layer, at least one."""
        return np.maximum(self.ep / self.tp, 1.0)

    @property
    def expert_ranks(self) -> IntArray:
        """Devices of a stage that hold one copy of the experts together."""
        return np.maximum(self.tp, self.ep)


def layers_s(
    context: CallContext, shapes: EngineShapes, batch: FloatArray, formats: WeightFormats
) -> FloatArray:
    """Matrix products of all layers, experts included; [k, b]."""
    model = context.model
    tp = shapes.tp[:, None]
    experts = moe_layers(model)
    attention = _projections_s(context, tp, batch, formats.attention)
    attention = attention + _passes_s(context, shapes, batch, formats)
    dense = _series_s(context, ffn_gemms(model, model.ffn_size, tp), batch, formats.dense)
    seconds = model.num_layers * attention + (model.num_layers - experts) * dense
    if model.moe is None:
        return seconds
    one = np.ones_like(tp, dtype=np.float64)
    router = Gemm(n=model.moe.num_experts * one, k=model.hidden_size * one)
    sparse = _series_s(context, [router], batch, _BF16)
    sparse = sparse + _experts_s(context, shapes, batch, formats.experts)
    if model.moe.shared_ffn_size:
        shared = ffn_gemms(model, model.moe.shared_ffn_size, tp)
        sparse = sparse + _series_s(context, shared, batch, formats.dense)
    return seconds + experts * sparse


def _passes_s(
    context: CallContext, shapes: EngineShapes, batch: FloatArray, formats: WeightFormats
) -> FloatArray:
    """Bytes that one layer's small kernels move, beyond their latency; [k, b].

    Norms with the residual, rotary embedding with the cache write, activation, and quantising the
    products' inputs. Nothing for a few decoding rows, a tenth of an fp8 prefill.
    """
    model, device = context.model, context.group.device
    tp = shapes.tp[:, None].astype(np.float64)
    query = model.num_heads * v_head_dim(model) / tp
    key_value = 2.0 * kv_heads_per_rank(model, shapes.tp[:, None]) * model.head_dim
    if model.mla is not None:
        key_value = float(kv_elements_per_layer(model)) * np.ones_like(tp)
    dense_share = 1.0 - moe_layers(model) / model.num_layers
    width = dense_share * model.ffn_size / tp
    if model.moe is not None:
        width = width + (1.0 - dense_share) * model.moe.shared_ffn_size / tp
    words = _NORM_WORDS * model.hidden_size + 2.0 * (query + key_value)
    words = words + (up_matrices(model) + 1) * width
    nbytes = ACTIVATION_BYTES * words
    if formats.attention.computed != "bf16":
        cast = ACTIVATION_BYTES + DTYPE_BYTES[formats.attention.computed]
        nbytes = nbytes + cast * (model.hidden_size + query)
    if formats.dense.computed != "bf16":
        cast = ACTIVATION_BYTES + DTYPE_BYTES[formats.dense.computed]
        nbytes = nbytes + cast * (model.hidden_size + width)
    rate = device.memory_bandwidth_bytes_per_s * device.memory_efficiency
    return np.asarray(batch * nbytes / rate)


def _projections_s(
    context: CallContext, tp: IntArray, batch: FloatArray, weights: WeightFormat
) -> FloatArray:
    """Products around the attention core of one layer; [k, b].

    Latent attention absorbs the key-value up-projection into two batched products while decoding
    and multiplies it out in a prefill: the same work, so the faster form counts.
    """
    model = context.model
    gemms = attention_gemms(model, tp)
    if model.mla is None:
        return _series_s(context, gemms, batch, weights)
    up_projection = gemms.pop(-2)
    expanded = _series_s(context, [up_projection], batch, weights)
    absorbed = context.kernels.mla_absorb_s(batch, heads_per_rank(model, tp))
    return _series_s(context, gemms, batch, weights) + np.where(
        absorbed < expanded,
        np.maximum(absorbed, context.group.device.kernel_latency_s),
        expanded,
    )


def head_s(context: CallContext, shapes: EngineShapes, batch: FloatArray) -> FloatArray:
    """Product with the vocabulary for `batch` [b] rows; [k, b]."""
    tp = shapes.tp[:, None].astype(np.float64)
    hidden = context.model.hidden_size * np.ones_like(tp)
    head = Gemm(n=context.model.vocab_size / tp, k=hidden)
    return _series_s(context, [head], batch, _BF16)


def _series_s(
    context: CallContext, gemms: list[Gemm], batch: FloatArray, weights: WeightFormat
) -> FloatArray:
    """Products with `batch` [b] rows one after another; sizes [k, 1], result [k, b]."""
    device = context.group.device
    seconds = np.zeros(np.broadcast_shapes(gemms[0].n.shape, batch.shape))
    for gemm in gemms:
        table = context.kernels.gemm_s(batch, gemm.n, gemm.k, weights.computed)
        bound = gemm_bound_s(device, batch, gemm.n, gemm.k, weights.computed)
        if weights.stored != weights.computed:
            saved = DTYPE_BYTES[weights.computed] - weights.bytes_per_weight
            moved = gemm_work(batch, gemm.n, gemm.k, weights.computed)
            nbytes = moved.nbytes - saved * gemm.n * gemm.k
            less = np.maximum(
                moved.flop / device.peak_flop_per_s[weights.computed],
                nbytes / device.memory_bandwidth_bytes_per_s,
            )
            table = _with_bound(context, table, bound, less)
            bound = less
        seconds = seconds + np.maximum(np.maximum(table, bound), device.kernel_latency_s)
    return seconds


def _with_bound(
    context: CallContext, table: FloatArray, bound: FloatArray, other: FloatArray
) -> FloatArray:
    """Time of a weight-only kernel: `other`'s roofline instead of `bound` at the same efficiency,
    times what unpacking the weights costs (constant `weight_only_factor`)."""
    latency = context.group.device.kernel_latency_s
    factor = context.engine.value("weight_only_factor")
    return factor * table * (other + latency) / (bound + latency)


def _experts_s(
    context: CallContext, shapes: EngineShapes, batch: FloatArray, weights: WeightFormat
) -> FloatArray:
    """Routed experts of one layer, all pooled replicas' tokens together; [k, b]."""
    model, device = context.model, context.group.device
    moe = model.moe
    assert moe is not None
    pool = shapes.pooled[:, None] * batch
    moe_tp = np.maximum(shapes.tp // shapes.ep, 1)[:, None]
    table = context.kernels.moe_s(
        pool,
        model.hidden_size,
        moe.expert_ffn_size,
        moe.top_k,
        moe.num_experts,
        moe_tp,
        shapes.ep[:, None],
        weights.computed,
    )
    one = (up_matrices(model) + 1) * model.hidden_size * moe.expert_ffn_size
    ranks = shapes.expert_ranks[:, None]
    read = touched_experts(model, pool) * one / ranks / device.memory_bandwidth_bytes_per_s
    work = 2.0 * pool * moe.top_k * one / ranks / device.peak_flop_per_s[weights.computed]
    bound = np.maximum(read * weights.bytes_per_weight, work)
    if weights.stored != weights.computed:
        wide = np.maximum(read * DTYPE_BYTES[weights.computed], work)
        table = _with_bound(context, table, wide, bound)
    floor = EXPERT_KERNELS * device.kernel_latency_s
    return np.asarray(np.maximum(np.maximum(table, bound), floor))


def touched_experts(model: ModelSpec, tokens: FloatArray) -> FloatArray:
    """Expected experts of a layer that `tokens` tokens visit, E (1 - (1 - k / E)^tokens).

    Uniform independent routing (work_depth.md section 3). 0 for a dense model.
    """
    if model.moe is None:
        return np.zeros_like(tokens)
    share = model.moe.top_k / model.moe.num_experts
    return np.asarray(model.moe.num_experts * (1.0 - (1.0 - share) ** tokens))


def collectives_s(context: CallContext, shapes: EngineShapes, batch: FloatArray) -> FloatArray:
    """Two all-reduces a layer; experts over several replicas exchange tokens instead of one."""
    model = context.model
    row_bytes = model.hidden_size * ACTIVATION_BYTES
    reduce = _all_reduce_s(context, shapes.tp[:, None], batch * row_bytes)
    experts = moe_layers(model)
    if experts == 0:
        return 2.0 * model.num_layers * reduce
    pool = shapes.pooled[:, None]
    exchange = _all_reduce_s(context, shapes.expert_ranks[:, None], pool * batch * row_bytes)
    after = np.where(pool > 1.0, exchange, reduce)
    dense = (2 * model.num_layers - experts) * reduce
    return np.asarray(dense + experts * after)


def _all_reduce_s(
    context: CallContext, members: npt.ArrayLike, nbytes: npt.ArrayLike
) -> FloatArray:
    """All-reduce of the better of the captured kernel and NCCL inside a domain, plus the rounds
    across domains (constants of the engine profile, no measured table exists); broadcasts."""
    device, engine = context.group.device, context.engine
    count, size = np.broadcast_arrays(np.asarray(members), np.asarray(nbytes, dtype=np.float64))
    group = rank_group(device, count, 1)
    inside = group.inner
    fast = np.minimum(
        context.kernels.all_reduce_decode_s(inside, size),
        context.kernels.collective_s("all_reduce", inside, size),
    )
    seconds = np.where(inside > 1.0, np.maximum(fast, device.kernel_latency_s), 0.0)
    rounds = engine.value("cross_domain_round_s") * np.log2(np.maximum(group.outer, 1.0))
    moving = 2.0 * (group.outer - 1.0) / group.outer * size / link_rate(device, group)
    across = engine.value("cross_domain_all_reduce_s") + rounds + moving
    return np.asarray(seconds + np.where(group.outer > 1.0, across, 0.0))


def attention_s(
    context: CallContext, shapes: EngineShapes, batch: FloatArray, kv_tokens: FloatArray
) -> FloatArray:
    """Decode attention of all layers; [k, b, c]."""
    model = context.model
    windowed = int(window_layer_mask(model).sum())
    tp, inverse = np.unique(shapes.tp, return_inverse=True)
    seconds = np.zeros((len(tp), len(batch), len(kv_tokens)))
    if windowed < model.num_layers:
        core = _attention_core_s(context, tp[:, None, None], batch[:, None], kv_tokens, None)
        seconds += (model.num_layers - windowed) * core
    if windowed and model.window is not None:
        size = model.window.size_tokens
        core = _attention_core_s(context, tp[:, None, None], batch[:, None], kv_tokens, size)
        seconds += windowed * core
    return seconds[inverse]


def _attention_core_s(
    context: CallContext,
    tp: IntArray,
    batch: FloatArray,
    kv_tokens: FloatArray,
    window: int | None,
) -> FloatArray:
    """One layer; the table, at least the bytes of the cache and the work; broadcasts."""
    model, device = context.model, context.group.device
    kv_dtype: DType = context.workload.kv_cache_dtype
    heads = heads_per_rank(model, tp)
    if model.mla is not None:
        table = context.kernels.mla_decode_s(batch, kv_tokens, heads, kv_dtype)
    else:
        table = context.kernels.decode_attention_s(
            batch,
            kv_tokens,
            heads,
            kv_heads_per_rank(model, tp),
            model.head_dim,
            kv_dtype,
            window,
        )
    visible = kv_tokens if window is None else np.minimum(kv_tokens, window)
    read = batch * visible * kv_bytes_per_layer(model, tp, kv_dtype)
    work = 2.0 * batch * visible * heads * (qk_head_dim(model) + v_head_dim(model))
    bound = np.maximum(
        read / device.memory_bandwidth_bytes_per_s, work / device.peak_flop_per_s["bf16"]
    )
    return np.maximum(np.maximum(table, bound), device.kernel_latency_s)


def kv_bytes_per_layer(model: ModelSpec, tp: npt.ArrayLike, dtype: DType) -> FloatArray:
    """Cache bytes that one token adds in one layer on one device, the shape of `tp`.

    Key-value heads are repeated when there are fewer than ranks; a latent cache is whole on every
    rank.
    """
    elements = float(kv_elements_per_layer(model)) * np.ones_like(np.asarray(tp, dtype=np.float64))
    if model.mla is None:
        elements = elements * kv_heads_per_rank(model, tp) / model.num_kv_heads
    return elements * DTYPE_BYTES[dtype]


def prompt_attention_s(
    context: CallContext, tp: IntArray, prompts: FloatArray, tokens: float
) -> FloatArray:
    """Attention of all layers over `prompts` [u] prompts of `tokens` tokens each, shape [u]."""
    model = context.model
    windowed = int(window_layer_mask(model).sum())
    seconds = (model.num_layers - windowed) * _prompt_core_s(context, tp, prompts, tokens, None)
    if windowed and model.window is not None:
        size = model.window.size_tokens
        seconds = seconds + windowed * _prompt_core_s(context, tp, prompts, tokens, size)
    return np.asarray(seconds)


def _prompt_core_s(
    context: CallContext, tp: IntArray, prompts: FloatArray, tokens: float, window: int | None
) -> FloatArray:
    """One layer's causal attention over the prompts: the table, at least the work at peak."""
    model = context.model
    heads = heads_per_rank(model, tp)
    head_size = qk_head_dim(model) + v_head_dim(model)
    if model.mla is not None:
        table = context.kernels.mla_prefill_s(prompts, tokens, heads) * head_size / _TABLE_MLA_HEAD
    else:
        table = context.kernels.prefill_attention_s(
            prompts, tokens, heads, kv_heads_per_rank(model, tp), model.head_dim, window
        )
    pairs = causal_pairs(tokens**2, tokens)
    if window is not None:
        pairs = windowed_pairs(tokens**2, tokens, window)
    work = 2.0 * heads * head_size * pairs * prompts
    return np.maximum(table, work / context.group.device.peak_flop_per_s["bf16"])
