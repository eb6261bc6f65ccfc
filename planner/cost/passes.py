"""One microbatch through one layer of each kind, and through the ends of the pipeline.

Everything that does not depend on how layers are spread over stages is costed here once for each
distinct combination of degrees and batch, and gathered by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import DTYPES, RECOMPUTE, FloatArray, IntArray, StrategyArrays
from planner.cost.attention import FLASH_BACKWARD_WORK
from planner.cost.batching import Batch, form_batch, is_scalar_head
from planner.cost.bounds import BACKWARD_ROUNDS, HEAD_ROUNDS, layer_rounds
from planner.cost.collectives import rank_group, table_or_ring_s
from planner.cost.context import CallContext
from planner.cost.distinct import distinct
from planner.cost.flops import attention_flop, last_product_share, layer_kind_parameters
from planner.cost.kernel_work import DTYPE_BYTES
from planner.cost.layers import (
    BACKWARD_ELEMENTWISE,
    WORD_BYTES,
    Block,
    Parts,
    add_blocks,
    add_parts,
    attention_block,
    dense_block,
    elementwise_s,
    expert_weight_bytes,
    moe_block,
)
from planner.cost.lengths import LengthMoments
from planner.cost.linear import linear_time
from planner.cost.shapes import (
    Gemm,
    attention_parameters,
    dense_ffn_parameters,
    heads_per_rank,
    moe_layers,
    moe_shared_parameters,
    vocabulary_per_rank,
)

_PRODUCTS = ("compute", "experts")
_FULL = RECOMPUTE.index("full")
_SELECTIVE = RECOMPUTE.index("selective")
# Each byte that the loss keeps for a logit is written once and read twice on the way from the
# product to its gradient (bf16 logits, fp32 copy, softmax).
_LOGIT_MOVES = 3.0
# Megatron's fused masked softmax kernels take score matrices by this many.
_SOFTMAX_MATRICES = 4.0
# Per token of the input embedding: row read and written; backward scatter-add in fp32.
_EMBEDDING_BYTES_FORWARD = 4.0
_EMBEDDING_BYTES_BACKWARD = 10.0


@dataclass(frozen=True)
class KindCost:
    """One layer kind, one microbatch, one device; arrays of shape [u]."""

    parts: Parts
    """Seconds by part: forward, and for training recomputation and backward."""
    total_s: FloatArray
    backward_s: FloatArray
    """Share of `total_s` in the backward pass with recomputation."""
    weight_gradient_s: FloatArray
    """Products for weight gradients: half of the backward pass's, which nothing waits for."""
    rounds: FloatArray
    traffic_bytes: FloatArray
    flop: FloatArray
    """Work of the microbatch on all devices of one stage and one data-parallel rank."""


@dataclass(frozen=True)
class PassCosts:
    """Costs of u distinct strategies; `inverse` maps each of n strategies to one of them."""

    s: StrategyArrays
    inverse: IntArray
    batch: Batch
    kinds: dict[str, KindCost]
    embedding_s: FloatArray
    head_s: FloatArray
    head_backward_s: FloatArray
    head_rounds: float
    head_traffic_bytes: FloatArray
    head_flop: FloatArray
    microbatch_host_s: float
    """Host time of one microbatch beside its layers."""


def pass_costs(context: CallContext, s: StrategyArrays, *, train: bool) -> PassCosts:
    """Layer, head and embedding costs of one microbatch."""
    columns: list[npt.ArrayLike] = [s.tp, s.cp, s.ulysses, s.ep, s.etp, s.dp]
    columns += [s.micro_batch_sequences, s.packing, s.sequence_parallel, s.dtype]
    if train:
        columns.append(s.recompute)
    first, inverse = distinct(*columns)
    keys = s.take(first)
    batch = form_batch(context, keys)
    attention = attention_block(context, keys, batch)
    kinds: dict[str, KindCost] = {}
    model = context.model
    if moe_layers(model) < model.num_layers:
        block = add_blocks(attention, dense_block(context, keys, batch))
        kinds["dense"] = _kind_cost(context, keys, batch, "dense", block, attention, train)
    if moe_layers(model):
        block = add_blocks(attention, moe_block(context, keys, batch))
        kinds["moe"] = _kind_cost(context, keys, batch, "moe", block, attention, train)
    head = _head(context, keys, batch, train)
    return PassCosts(
        s=keys,
        inverse=inverse,
        batch=batch,
        kinds=kinds,
        embedding_s=_embedding_s(context, batch, train),
        head_s=head.total_s,
        head_backward_s=head.backward_s,
        head_rounds=HEAD_ROUNDS * (1.0 + BACKWARD_ROUNDS * train),
        head_traffic_bytes=head.traffic_bytes,
        head_flop=head.flop,
        microbatch_host_s=context.framework.value("microbatch_fixed_s") * host_factor(context),
    )


def host_factor(context: CallContext) -> float:
    """How much slower launch-bound phases run on the group's host processor."""
    if context.group.device.host != "grace":
        return 1.0
    return context.framework.value("grace_host_factor")


def _kind_cost(
    context: CallContext,
    s: StrategyArrays,
    batch: Batch,
    kind: str,
    block: Block,
    attention: Block,
    train: bool,
) -> KindCost:
    rounds = layer_rounds(kind, s)
    floor = _launch_floor_s(context, s, batch, kind)
    latency = context.group.device.kernel_latency_s
    forward = _with_floor(block.forward, np.maximum(floor, rounds * latency))
    weights = _weight_bytes(context, s, batch, kind)
    assert block.elementwise_bytes is not None
    linear, core = _layer_flop(context, s, batch, kind)
    passes = 1.0
    traffic = weights + block.elementwise_bytes
    flop = linear + core
    parts = forward
    backward_s = weight_gradient_s = np.zeros(len(s))
    if train:
        full, selective = s.recompute == _FULL, s.recompute == _SELECTIVE
        again = _recompute(context, block, attention, full, selective)
        # Layer by layer the backward pass recomputes and goes back: one phase for the host.
        launches = np.maximum(floor, rounds * latency) * (BACKWARD_ROUNDS + full)
        behind = _with_floor(add_parts(block.backward, again), launches)
        backward_s = _total(behind, len(s))
        products = {name: block.backward[name] for name in _PRODUCTS if name in block.backward}
        weight_gradient_s = _total(products, len(s)) / 2.0
        parts = add_parts(forward, behind)
        passes = 1.0 + BACKWARD_ROUNDS + full
        moved = block.elementwise_bytes
        # A lower estimate: recomputation is charged no weights, as it may stop before some.
        traffic = traffic + weights + moved * (BACKWARD_ELEMENTWISE + full)
        redone = linear
        if _stops_early(context):
            redone = linear * (1.0 - last_product_share(context.model, kind))
        flop = 3.0 * linear + full * redone
        flop = flop + core * (1.0 + FLASH_BACKWARD_WORK + (full | selective))
    return KindCost(
        parts=parts,
        total_s=_total(parts, len(s)),
        backward_s=backward_s,
        weight_gradient_s=weight_gradient_s,
        rounds=rounds * passes,
        traffic_bytes=traffic,
        flop=flop,
    )


def _recompute(
    context: CallContext,
    block: Block,
    attention: Block,
    full: FloatArray,
    selective: FloatArray,
) -> Parts:
    """The forward pass that the backward pass repeats.

    Full: everything, but PyTorch's checkpointing stops when the last product's input is there
    (`recompute_skips_last_product`). Selective: the attention core (arXiv:2205.05198).
    """
    parts = dict(block.forward)
    if _stops_early(context) and block.last_forward is not None:
        name = "experts" if "experts" in parts else "compute"
        parts[name] = parts[name] - block.last_forward
    again = {name: seconds * full for name, seconds in parts.items()}
    again["attention"] = again["attention"] + attention.forward["attention"] * selective
    return again


def _stops_early(context: CallContext) -> bool:
    return context.framework.value("recompute_skips_last_product") > 0.0


def _launch_floor_s(context: CallContext, s: StrategyArrays, batch: Batch, kind: str) -> FloatArray:
    """Host time to launch one layer's forward pass, shape [u]."""
    framework = context.framework
    if kind == "dense":
        floor = np.full(len(s), framework.value("layer_pass_dense_s"))
    else:
        assert context.model.moe is not None
        local = np.maximum(context.model.moe.num_experts / s.ep, 1.0)
        floor = framework.value("layer_pass_moe_s") + local * framework.value(
            "layer_pass_per_local_expert_s"
        )
        floor = floor * framework.value("moe_stack_factor")
    floor = floor + framework.value("layer_pass_tp_s") * (s.tp > 1)
    # Fused softmax kernels need a multiple of four score matrices; others take many launches.
    matrices = batch.attention_sequences * heads_per_rank(context.model, s.tp)
    uneven = np.mod(matrices, _SOFTMAX_MATRICES) > 0
    floor = floor * (1.0 + framework.value("unfused_softmax_launches") * uneven)
    return np.asarray(floor * host_factor(context))


def _with_floor(parts: Parts, floor: FloatArray) -> Parts:
    """Add "host": what the launch floor exceeds device time by.

    Launching and running overlap, so a phase takes the longer of the two; published step times
    fit a plain maximum better than any smooth one.
    """
    busy = _total(parts, len(floor))
    return {**parts, "host": np.maximum(floor - busy, 0.0)}


def _weight_bytes(context: CallContext, s: StrategyArrays, batch: Batch, kind: str) -> FloatArray:
    """Bytes of one layer's weights on one device as products read them."""
    model = context.model
    parameters = attention_parameters(model, s.tp)
    if kind == "dense":
        parameters = parameters + dense_ffn_parameters(model, s.tp)
    else:
        parameters = parameters + moe_shared_parameters(model, s.tp)
    read = np.asarray(parameters * np.array([DTYPE_BYTES[name] for name in DTYPES])[s.dtype])
    return read + expert_weight_bytes(context, s, batch) if kind == "moe" else read


def _layer_flop(
    context: CallContext, s: StrategyArrays, batch: Batch, kind: str
) -> tuple[FloatArray, FloatArray]:
    """Forward work of one layer for the whole microbatch: (matrices, attention core)."""
    model = context.model
    linear = 2.0 * layer_kind_parameters(model, kind) * batch.tokens * s.cp
    first, inverse = distinct(batch.attention_tokens)
    core = np.array(
        [
            attention_flop(model, LengthMoments(mean=x, mean_square=x * x)) / model.num_layers
            for x in batch.attention_tokens[first]
        ]
    )
    return linear, core[inverse] * batch.attention_sequences


def _head(context: CallContext, s: StrategyArrays, batch: Batch, train: bool) -> KindCost:
    """Output head, log-probabilities and loss; a scalar head is a product with one column."""
    model, device = context.model, context.group.device
    tokens = batch.tokens
    scalar = is_scalar_head(context.call)
    columns = np.ones(len(s)) if scalar else vocabulary_per_rank(model, s.tp)
    gemm = Gemm(n=columns, k=np.full(len(s), float(model.hidden_size)))
    linear = linear_time(context, [gemm], tokens, np.zeros_like(s.dtype))
    logits = tokens * columns
    kept = "logits_train_bytes" if train else "logits_forward_bytes"
    moved = logits * (0.0 if scalar else context.framework.value(kept)) * _LOGIT_MOVES
    rate = device.memory_bandwidth_bytes_per_s * device.memory_efficiency
    seconds = linear.forward + moved / rate
    if not scalar:
        # Maximum and sum over vocabulary shards, fp32 for each token.
        group = rank_group(device, s.tp, np.ones(len(s)))
        seconds = seconds + 2.0 * table_or_ring_s(context, "all_reduce", group, 4.0 * tokens)
    heads = 1.0 + context.extra_heads
    backward = linear.backward * train * heads
    total = seconds * heads + backward
    rounds = HEAD_ROUNDS * (1.0 + BACKWARD_ROUNDS * train)
    flop = 2.0 * model.hidden_size * (1 if scalar else model.vocab_size) * tokens * s.cp
    return KindCost(
        parts={},
        total_s=np.maximum(total, rounds * device.kernel_latency_s),
        backward_s=backward,
        weight_gradient_s=backward / 2.0,
        rounds=np.full(len(s), rounds),
        traffic_bytes=moved + gemm.parameters * WORD_BYTES * (1.0 + train),
        flop=flop * (3.0 if train else 1.0) * heads,
    )


def _embedding_s(context: CallContext, batch: Batch, train: bool) -> FloatArray:
    words = batch.tokens * context.model.hidden_size
    per_word = _EMBEDDING_BYTES_FORWARD + train * _EMBEDDING_BYTES_BACKWARD
    return elementwise_s(context, words * per_word)


def _total(parts: Parts, n: int) -> FloatArray:
    return np.asarray(sum(parts.values(), np.zeros(n)))
