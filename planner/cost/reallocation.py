"""One model in two layouts: which weights a device must receive, and how long that takes.

Ranks are numbered tensor-parallel fastest, then context, data and pipeline, as Megatron does. A
device holds the layers of its stage, of each the slice of its tensor-parallel rank (of routed
experts the slice of its expert rank), and of that its shard under ZeRO-3. What it must receive is
the set difference of what it needs and what it has (parameter reallocation: ReaL,
arXiv:2406.14088; HybridFlow, arXiv:2409.19256 section 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import OFFLOAD, FloatArray, IntArray, StrategyArrays
from planner.cost.batching import is_scalar_head
from planner.cost.collectives import scale_out_rate, scale_up_rate
from planner.cost.context import CallContext
from planner.cost.distinct import distinct
from planner.cost.parameters import Head, count_parameters, moe_layer_mask
from planner.cost.pipeline import split_layers
from planner.cost.transfer import weight_tensors
from planner.schema import ModelSpec

_BF16_BYTES = 2.0
# Pairs of layouts compared at once: keeps the [pairs, devices] tables in cache.
_BLOCK = 512

LAYOUT_FIELDS = (
    *("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero_stage"),
    *("shard_ranks", "first_stage_layers", "last_stage_layers"),
)
"""Fields of a strategy that say which weights lie where (in pipelines of consecutive stages)."""


def shard_keys(s: StrategyArrays) -> list[npt.NDArray[np.int64]]:
    """Columns [n] on which the weights of a device depend, its number of devices given.

    Ranks along cp and dp hold the same weights, or shards of them in one order.
    """
    columns = [s.tp, s.pp, s.vpp, s.ep * s.etp, s.first_stage_layers, s.last_stage_layers]
    return [s.devices, *columns, _shards(s)]


def _shards(s: StrategyArrays) -> IntArray:
    """Ranks that a tensor-parallel rank's weights are sharded over, shape [n]."""
    ranks = s.cp * s.dp
    group = np.where(s.shard_ranks > 0, np.minimum(s.shard_ranks, ranks), ranks)
    return np.asarray(np.where(s.zero_stage >= 3, group, 1))


def received_bytes(
    context: CallContext, source: StrategyArrays, destination: StrategyArrays
) -> FloatArray:
    """bf16 bytes that the device which lacks most must receive, for k pairs of layouts, shape [k].

    Both layouts of a pair are on the same devices, rank for rank; they must be equally large.
    Weights that every tensor-parallel rank holds whole (norms) count as split.
    """
    if not np.array_equal(source.devices, destination.devices):
        raise ValueError("the layouts of a pair need the same number of devices")
    first, inverse = distinct(*shard_keys(source), *shard_keys(destination))
    received = np.zeros(len(first))
    for count, block in _blocks(source.devices[first]):
        received[block] = _lacking(
            context, source.take(first[block]), destination.take(first[block]), count
        )
    return np.asarray(received[inverse])


def _blocks(devices: IntArray) -> Iterator[tuple[int, IntArray]]:
    """(number of devices, some of the rows that have it)."""
    for count in np.unique(devices):
        rows = np.flatnonzero(devices == count)
        for start in range(0, len(rows), _BLOCK):
            yield int(count), rows[start : start + _BLOCK]


def shard_bytes(context: CallContext, s: StrategyArrays) -> FloatArray:
    """bf16 bytes of the weights on the fullest device, shape [n]."""
    first, inverse = distinct(*shard_keys(s))
    result = np.zeros(len(first))
    for count, block in _blocks(s.devices[first]):
        result[block] = _needed(context, s.take(first[block]), count).max(axis=1)
    return np.asarray(result[inverse])


def reallocation_s(
    context: CallContext, destination: StrategyArrays, source: StrategyArrays | None = None
) -> FloatArray:
    """Seconds until the destination has its weights, shape [n]; `context` is its group's.

    `source` is the layout on the same devices, or None when the weights come from other devices:
    then everything travels, over the slower of network and host link, whether or not the sender
    keeps its weights in host memory. On the same devices the set difference travels, over the
    scale-up links if one domain holds them all and else over the network, and an offloaded source
    is loaded first. Each tensor is a message. Nothing to receive takes no time.
    """
    device = context.group.device
    network = np.where(
        destination.devices <= device.scale_up_domain_devices,
        scale_up_rate(device),
        scale_out_rate(device),
    )
    host = device.host_link_bandwidth_bytes_per_s
    messages = weight_tensors(context.model) / destination.pp
    start_s = messages * device.scale_out_latency_s
    if source is None:
        rate = min(scale_out_rate(device), host)
        return np.asarray(shard_bytes(context, destination) / rate + start_s)
    received = received_bytes(context, source, destination)
    seconds = np.where(received > 0.0, received / network + start_s, 0.0)
    offloaded = source.offload == OFFLOAD.index("all")
    if offloaded.any():
        seconds = seconds + np.where(offloaded, shard_bytes(context, source) / host, 0.0)
    return np.asarray(seconds)


@dataclass(frozen=True)
class _Held:
    """What n devices hold under k layouts: stages, and slices of the unit interval of a tensor."""

    stage: IntArray
    """Shape [k, n]."""
    dense: tuple[FloatArray, FloatArray]
    """Beginning and end of the slice of everything but routed experts; shapes [k, n]."""
    expert: tuple[FloatArray, FloatArray]


def _held(s: StrategyArrays, devices: int) -> _Held:
    rank = np.arange(devices)[None, :]

    def column(values: npt.ArrayLike) -> IntArray:
        return np.asarray(values)[:, None]

    in_stage = column(devices // s.pp)
    shards = column(_shards(s))
    tensor = rank % column(s.tp)
    replica = rank // column(s.tp) % column(s.cp * s.dp)
    slots = column(s.ep * s.etp)
    within = rank % in_stage
    expert_shards = np.minimum(shards, np.maximum(in_stage // slots, 1))
    return _Held(
        stage=rank // in_stage,
        dense=_slice(tensor, column(s.tp), replica % shards, shards),
        expert=_slice(
            within % slots,
            slots,
            within // slots % expert_shards,
            expert_shards,
        ),
    )


def _slice(
    index: IntArray, parts: IntArray, shard: IntArray, shards: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Part `index` of `parts`, and of it shard number `shard` if there are several."""
    width = 1.0 / (parts * shards)
    begin = index / parts + np.where(shards > 1, shard, 0) * width
    return begin, begin + width


def _common(a: tuple[FloatArray, FloatArray], b: tuple[FloatArray, FloatArray]) -> FloatArray:
    shared = np.minimum(a[1], b[1]) - np.maximum(a[0], b[0])
    return np.asarray(np.maximum(shared, 0.0))


def _lacking(
    context: CallContext, source: StrategyArrays, destination: StrategyArrays, devices: int
) -> FloatArray:
    has, needs = _held(source, devices), _held(destination, devices)
    dense, expert = _common_weights(context, source, destination, has.stage, needs.stage)
    there = dense * _common(has.dense, needs.dense) + expert * _common(has.expert, needs.expert)
    lacking = _needed(context, destination, devices) - _BF16_BYTES * there
    # Equal shards may differ by the rounding of the sums.
    most: FloatArray = lacking.max(axis=1)
    return np.where(most < 1.0, 0.0, most)


def _needed(context: CallContext, s: StrategyArrays, devices: int) -> FloatArray:
    """bf16 bytes that each device holds, shape [k, devices]."""
    held = _held(s, devices)
    dense, expert = _common_weights(context, s, s, held.stage, held.stage)
    (dense_begin, dense_end), (expert_begin, expert_end) = held.dense, held.expert
    lengths = dense_end - dense_begin, expert_end - expert_begin
    needed: FloatArray = dense * lengths[0] + expert * lengths[1]
    return np.asarray(_BF16_BYTES * needed)


def _common_weights(
    context: CallContext,
    a: StrategyArrays,
    b: StrategyArrays,
    stage_a: IntArray,
    stage_b: IntArray,
) -> tuple[FloatArray, FloatArray]:
    """Parameters (without routed experts, routed experts) of the layers in both stages, [k, n]."""
    names = ("pp", "vpp", "first_stage_layers", "last_stage_layers")
    first_a, map_a = distinct(*(getattr(a, name) for name in names))
    first_b, map_b = distinct(*(getattr(b, name) for name in names))
    stages_a, stages_b = (
        [
            stage_of_items(context.model.num_layers, *(int(getattr(s, n)[i]) for n in names))
            for i in first
        ]
        for s, first in ((a, first_a), (b, first_b))
    )
    shape = (len(first_a), len(first_b), int(a.pp.max()), int(b.pp.max()))
    dense, expert = np.zeros(shape), np.zeros(shape)
    # A tied head on another stage than the embedding is a copy that must be received.
    head_kind: Head = "scalar" if is_scalar_head(context.call) else "lm"
    items = [_item_weights(context.model, head_kind, split) for split in (False, True)]
    for i, of_a in enumerate(stages_a):
        for j, of_b in enumerate(stages_b):
            weights, experts = items[int(b.pp[first_b[j]]) > 1]
            np.add.at(dense[i, j], (of_a, of_b), weights)
            np.add.at(expert[i, j], (of_a, of_b), experts)
    index = map_a[:, None], map_b[:, None], stage_a, stage_b
    return dense[index], expert[index]


@lru_cache(maxsize=256)
def _item_weights(
    model: ModelSpec, head_kind: Head, split_ends: bool
) -> tuple[FloatArray, FloatArray]:
    """Parameters of embedding, layers and head (with the final norm): others, routed experts."""
    counts = count_parameters(model, head_kind)
    moe = moe_layer_mask(model)
    others = [layer.total - layer.expert for layer in (counts.dense_layer, counts.moe_layer)]
    tied = counts.head == 0 and split_ends
    head = (counts.embedding if tied else counts.head) + counts.final_norm
    layers, experts = np.where(moe, others[1], others[0]), np.where(moe, counts.moe_layer.expert, 0)
    return (
        np.concatenate([[counts.embedding], layers, [head]]).astype(np.float64),
        np.concatenate([[0], experts, [0]]).astype(np.float64),
    )


@lru_cache(maxsize=4096)
def stage_of_items(num_layers: int, pp: int, vpp: int, first: int, last: int) -> IntArray:
    """Pipeline stage of the embedding, each layer, and the head, shape [layers + 2].

    `first` and `last` are layers on the first and last stage (0: even). Layers go to chunks in
    model order, chunk c to stage c modulo pp.
    """
    columns = {"pp": pp, "first_stage_layers": first, "last_stage_layers": last}
    split = split_layers(num_layers, StrategyArrays.from_columns(dict(columns), 1))
    counts = [int(split["first"][0])]
    if pp > 1:
        counts += [0] * (pp - 2) + [int(split["last"][0])]
        left = num_layers - sum(counts)
        for i in range(pp - 2):
            counts[1 + i] = left // (pp - 2) + (i < left % (pp - 2))
    chunks = [
        (stage, len(part))
        for v in range(vpp)
        for stage in range(pp)
        for part in [np.array_split(np.arange(counts[stage]), vpp)[v]]
    ]
    stages = np.repeat([stage for stage, _ in chunks], [size for _, size in chunks])
    return np.concatenate([[0], stages, [pp - 1]]).astype(np.int64)
