"""Blocks of a transformer layer: seconds of one microbatch on one device, by part.

A block is attention, a dense feed-forward or a mixture of experts, each with its norm and residual
addition. All functions take u distinct strategies and return arrays of shape [u].
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from planner.cost.arrays import DTYPES, FloatArray, IntArray, StrategyArrays
from planner.cost.attention import attention_core_s
from planner.cost.batching import Batch
from planner.cost.collectives import (
    expert_exchange_s,
    rank_group,
    ring_s,
    scale_out_rate,
    scale_up_rate,
    table_or_ring_s,
)
from planner.cost.context import CallContext
from planner.cost.kernel_work import DTYPE_BYTES
from planner.cost.linear import grouped_time, linear_time
from planner.cost.shapes import (
    Gemm,
    attention_gemms,
    expert_parameters,
    ffn_gemms,
    heads_per_rank,
    kv_heads_per_rank,
    qk_head_dim,
    up_matrices,
    v_head_dim,
)
from planner.schema import MoESpec

Parts = dict[str, FloatArray]

PASS_PARTS = (
    "compute",
    "experts",
    "attention",
    "elementwise",
    "tp_comm",
    "cp_comm",
    "ep_comm",
    "host",
)
"""Names of the parts of a layer pass."""

WORD_BYTES = 2.0
"""Activations are bf16."""
# Counted words per token that one norm and one residual addition read and write.
_NORM_RESIDUAL_WORDS = 5.0
# Words for each routed copy: permutation, un-permutation and their scatter (8 hidden).
_PERMUTE_WORDS = 8.0
# Below bf16, inputs of products are quantised: read 2 bytes, write 1, and the scale pass.
_CAST_BYTES = 4.0
# Two ranks hardly wait for one another: 0.06, 0.25 and 0.37 ms an exchange for 2, 4 and 8 ranks on
# vTrain's single node, whatever the size of the message.
_PAIR_WAITS_LESS = 0.7
BACKWARD_ELEMENTWISE = 2.0
"""The backward pass of an elementwise kernel reads its input and the incoming gradient."""


@dataclass(frozen=True)
class Block:
    """One block's forward and backward, seconds by part, each of shape [u]."""

    forward: Parts = field(default_factory=dict)
    backward: Parts = field(default_factory=dict)
    last_forward: FloatArray | None = None
    """Forward seconds of the block's last product, by the part that holds it."""
    elementwise_bytes: FloatArray | None = None
    """Device-memory traffic of the forward pass's elementwise kernels."""


def attention_block(context: CallContext, s: StrategyArrays, batch: Batch) -> Block:
    """Norm, projections, attention core, residual; tensor- and context-parallel exchanges."""
    model, tokens = context.model, batch.tokens
    # Latent down-projections are whole on each rank; sequence parallelism splits their tokens.
    split = np.where(s.sequence_parallel, s.tp, 1)
    linear = linear_time(context, attention_gemms(model, s.tp), tokens, s.dtype, split)
    core, core_backward = attention_core_s(context, s, batch)
    heads = heads_per_rank(model, s.tp)
    kv_heads = kv_heads_per_rank(model, s.tp)
    # Split, rotary embedding and transposes touch queries, keys and values twice.
    rotary_words = 2.0 * heads * qk_head_dim(model) + 2.0 * kv_heads * (
        qk_head_dim(model) + v_head_dim(model)
    )
    words = _norm_words(context, s) + rotary_words
    words = words + _adapter_words(context, 4.0 * model.hidden_size * np.ones(len(s)))
    cast_words = model.hidden_size / split + heads * v_head_dim(model)
    elementwise, moved = _elementwise(context, s, tokens, words, cast_words)
    tp_comm = _tensor_parallel_s(context, s, tokens)
    forward = {
        "compute": linear.forward,
        "attention": core,
        "elementwise": elementwise,
        "tp_comm": tp_comm,
    }
    backward = {
        "compute": linear.backward,
        "attention": core_backward,
        "elementwise": elementwise * BACKWARD_ELEMENTWISE,
        "tp_comm": tp_comm,
    }
    if (s.cp > 1).any():
        forward["cp_comm"], backward["cp_comm"] = _context_parallel_s(
            context, s, tokens, core, core_backward
        )
    return Block(forward, backward, elementwise_bytes=moved)


def dense_block(context: CallContext, s: StrategyArrays, batch: Batch) -> Block:
    """Norm, up (and gate) projection, activation, down projection, residual."""
    return _ffn_block(context, s, batch, context.model.ffn_size)


def moe_block(context: CallContext, s: StrategyArrays, batch: Batch) -> Block:
    """Norm, router, dispatch, grouped experts, combine, shared expert, residual.

    The routed tokens are split over tensor-parallel ranks (sequence parallelism is required for
    that in Megatron). Each device computes tokens / tp x etp x top-k copies on experts / ep
    experts of width / etp; `moe_imbalance` multiplies the copies of the fullest device.
    """
    model, moe = context.model, context.model.moe
    assert moe is not None
    tokens = batch.tokens
    own = tokens / s.tp
    copies = own * s.etp * moe.top_k * context.framework.value("moe_imbalance")
    local_experts = np.maximum(moe.num_experts / s.ep, 1.0)
    experts = grouped_time(
        context, ffn_gemms(model, moe.expert_ffn_size, s.etp), copies, local_experts, s.dtype
    )
    least_s = expert_weight_bytes(context, s, batch) / (
        context.group.device.memory_bandwidth_bytes_per_s
    )
    router = Gemm(
        n=np.full(len(s), float(moe.num_experts)), k=np.full(len(s), float(model.hidden_size))
    )
    routing = linear_time(context, [router], own, np.zeros_like(s.dtype))
    inner = (up_matrices(model) + 1) * moe.expert_ffn_size / s.etp
    stack = context.framework.value("moe_stack_factor")
    activation = inner
    if model.mlp_bias:
        # Biases and a clamp sit between the grouped products unless one kernel does it all.
        activation = inner * context.framework.value("expert_activation_factor")
    copy_words = context.framework.value("moe_permute_factor") * (
        _PERMUTE_WORDS * model.hidden_size + activation
    )
    cast_words = model.hidden_size + moe.expert_ffn_size / s.etp
    norm, norm_moved = _elementwise(context, s, tokens, _norm_words(context, s), 0.0)
    routed, routed_moved = _elementwise(context, s, copies, copy_words, cast_words)
    routed = routed * stack
    elementwise, moved = norm + routed, norm_moved + routed_moved
    forward = {
        "compute": routing.forward,
        "experts": np.maximum(experts.forward * stack, least_s),
        "elementwise": elementwise,
    }
    backward = {
        "compute": routing.backward,
        "experts": np.maximum(experts.backward * stack, least_s),
        "elementwise": elementwise * BACKWARD_ELEMENTWISE,
    }
    exchange = _expert_parallel_s(context, s, own, moe)
    if exchange is not None:
        forward["ep_comm"] = backward["ep_comm"] = exchange * stack
    block = Block(forward, backward, experts.last_forward * stack, moved)
    if not moe.shared_ffn_size:
        return block
    shared = _ffn_block(context, s, batch, moe.shared_ffn_size, norm=False)
    joined = add_blocks(block, shared)
    return Block(joined.forward, joined.backward, block.last_forward, joined.elementwise_bytes)


def expert_weight_bytes(context: CallContext, s: StrategyArrays, batch: Batch) -> FloatArray:
    """Weights of the local experts that at least one token of the microbatch visits, bytes [n].

    With c copies spread over E local experts at random, E (1 - (1 - 1/E)^c) experts are visited.
    """
    model, moe = context.model, context.model.moe
    assert moe is not None
    copies = batch.tokens / s.tp * s.etp * moe.top_k
    local = np.maximum(moe.num_experts / s.ep, 1.0)
    visited = -np.expm1(copies * np.log1p(-np.minimum(1.0 / local, 1 - 1e-12)))
    width = np.array([DTYPE_BYTES[name] for name in DTYPES])[s.dtype]
    return np.asarray(expert_parameters(model, s.ep, s.etp) * visited * width)


def add_blocks(one: Block, other: Block) -> Block:
    """Both blocks in series; the second's last product is the layer's."""
    moved = [x.elementwise_bytes for x in (one, other) if x.elementwise_bytes is not None]
    return Block(
        add_parts(one.forward, other.forward),
        add_parts(one.backward, other.backward),
        other.last_forward,
        np.asarray(sum(moved)) if moved else None,
    )


def add_parts(one: Parts, other: Parts) -> Parts:
    """Sum by name; a part may be missing in either."""
    names = [name for name in PASS_PARTS if name in one or name in other]
    return {
        name: np.asarray(sum(parts[name] for parts in (one, other) if name in parts))
        for name in names
    }


def elementwise_s(context: CallContext, nbytes: FloatArray) -> FloatArray:
    """Seconds to move `nbytes` through device memory in elementwise kernels.

    `elementwise_factor` says how far a framework's kernels are from fully fused ones.
    """
    device = context.group.device
    slowdown = context.framework.value("elementwise_factor") / device.memory_efficiency
    return nbytes * max(slowdown, 1.0) / device.memory_bandwidth_bytes_per_s


def _ffn_block(
    context: CallContext, s: StrategyArrays, batch: Batch, width: int, *, norm: bool = True
) -> Block:
    model, tokens = context.model, batch.tokens
    linear = linear_time(context, ffn_gemms(model, width, s.tp), tokens, s.dtype)
    words = (up_matrices(model) + 1) * width / s.tp
    words = words + _adapter_words(context, 3.0 * width / s.tp)
    if norm:
        words = words + _norm_words(context, s)
    cast_words = model.hidden_size / np.where(s.sequence_parallel, s.tp, 1) + width / s.tp
    elementwise, moved = _elementwise(context, s, tokens, words, cast_words)
    tp_comm = _tensor_parallel_s(context, s, tokens)
    return Block(
        {"compute": linear.forward, "elementwise": elementwise, "tp_comm": tp_comm},
        {
            "compute": linear.backward,
            "elementwise": elementwise * BACKWARD_ELEMENTWISE,
            "tp_comm": tp_comm,
        },
        linear.last_forward,
        moved,
    )


def _norm_words(context: CallContext, s: StrategyArrays) -> FloatArray:
    """Words per token of one norm and residual; split by tp under sequence parallelism."""
    split = np.where(s.sequence_parallel, s.tp, 1)
    return _NORM_RESIDUAL_WORDS * context.model.hidden_size / split


def _adapter_words(context: CallContext, words: FloatArray) -> FloatArray:
    """Words per token that low-rank adapters add to `words` of activations, before slowdown.

    Casts, dropout, scaling and sums around each adapter, `adapter_words_factor` for each word of
    projection input and output.
    """
    if not context.workload.lora_rank:
        return np.zeros_like(words)
    return words * context.framework.value("adapter_words_factor")


def _elementwise(
    context: CallContext,
    s: StrategyArrays,
    tokens: FloatArray,
    words: FloatArray,
    cast_words: FloatArray | float,
) -> tuple[FloatArray, FloatArray]:
    """(seconds, bytes) of a block's elementwise kernels; quantisation is one fused kernel."""
    device = context.group.device
    moved = tokens * words * WORD_BYTES
    cast = tokens * cast_words * np.where(s.dtype > 0, _CAST_BYTES, 0.0)
    rate = device.memory_bandwidth_bytes_per_s * device.memory_efficiency
    return elementwise_s(context, moved) + cast / rate, np.asarray(moved + cast)


def _tensor_parallel_s(context: CallContext, s: StrategyArrays, tokens: FloatArray) -> FloatArray:
    """One all-reduce of the block's output (or all-gather plus reduce-scatter), exposed part."""
    group = rank_group(context.group.device, s.tp, np.ones(len(s)))
    nbytes = tokens * context.model.hidden_size * WORD_BYTES
    share = context.framework.value("tp_exposed_share")
    doublings = np.maximum(np.log2(s.tp) - _PAIR_WAITS_LESS, 0.0)
    start = doublings * context.framework.value("tp_call_s")
    return table_or_ring_s(context, "all_reduce", group, nbytes) * share + start


def _context_parallel_s(
    context: CallContext,
    s: StrategyArrays,
    tokens: FloatArray,
    core: FloatArray,
    core_backward: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Exposed exchange of one layer, forward and backward.

    Ring: keys and values of the other ranks pass by, hidden behind the attention core as far as
    it lasts; twice the bytes backward. Ulysses: all-to-all of queries, keys, values and output,
    nothing hides it (arXiv:2309.14509, 2310.01889). A hybrid exchanges heads among neighbours, so
    that each of them has all their tokens for a part of the heads, which then go around the ring
    of such neighbourhoods (arXiv:2405.07719).
    """
    model, device = context.model, context.group.device
    ulysses = ulysses_degree(context, s)
    heads = heads_per_rank(model, s.tp)
    kv_heads = kv_heads_per_rank(model, s.tp)
    pair = qk_head_dim(model) + v_head_dim(model)
    # A key-value head is repeated where there are more ranks than heads.
    words = heads * pair + np.maximum(kv_heads, np.where(ulysses < s.cp, ulysses, 0)) * pair
    near = rank_group(device, ulysses, s.tp)
    exchange = ring_s(device, near, tokens * words * WORD_BYTES, calls=4.0)
    exchange = np.where(ulysses > 1, exchange, 0.0)

    group = rank_group(device, s.cp // ulysses, s.tp * ulysses)
    rate = np.where(group.outer > 1.0, scale_out_rate(device), scale_up_rate(device))
    latency = np.where(group.outer > 1.0, device.scale_out_latency_s, device.scale_up_latency_s)
    kv_words = np.maximum(kv_heads, ulysses) * pair
    hops = group.members - 1.0
    ring = hops * (tokens * kv_words * WORD_BYTES / rate + latency)
    return (
        exchange + np.maximum(ring - core, 0.0),
        exchange + np.maximum(2.0 * ring - core_backward, 0.0),
    )


def ulysses_degree(context: CallContext, s: StrategyArrays) -> IntArray:
    """Ranks of cp that exchange heads: all where the framework's cp is Ulysses, shape [u]."""
    return s.cp if context.framework.value("cp_ulysses") else s.ulysses


def _expert_parallel_s(
    context: CallContext, s: StrategyArrays, own_tokens: FloatArray, moe: MoESpec
) -> FloatArray | None:
    """Dispatch and combine of one layer (and the gather within a split expert)."""
    if not ((s.ep > 1) | (s.etp > 1)).any():
        return None
    device = context.group.device
    token_bytes = context.model.hidden_size * WORD_BYTES
    group = rank_group(device, s.ep, s.etp)
    share = context.framework.value("ep_exposed_share")
    exchange = 2.0 * expert_exchange_s(context, group, own_tokens, moe, token_bytes, share)
    split = rank_group(device, s.etp, np.ones(len(s)))
    gathered = own_tokens * moe.top_k * s.etp * token_bytes
    return np.asarray(exchange + 2.0 * ring_s(device, split, gathered))
