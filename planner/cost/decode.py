"""One step of a generation engine: the time to give every running sequence its next token.

    tau(B, c) = matrix products of B rows + experts that B tokens touch + head
              + attention of B queries over c cached tokens + collectives + engine overhead

The matrix and collective terms depend on B only and are tabulated once for each engine shape; the
attention term is tabulated over B and c; both are then interpolated, so thousands of strategies
with dozens of moments each cost a few array operations. A sum over moments needs no time of any of
them: moments weigh the table's points, and their sum is one product with the table. No kernel is
priced below its roofline, nor below the device's smallest kernel time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.arrays import BoolArray, FloatArray, IntArray
from planner.cost.collectives import latency_s, link_rate, rank_group
from planner.cost.context import CallContext
from planner.cost.distinct import distinct
from planner.cost.engine_kernels import (
    ACTIVATION_BYTES,
    EXPERT_KERNELS,
    EngineShapes,
    attention_s,
    collectives_s,
    head_s,
    layers_s,
)
from planner.cost.shapes import attention_gemms, moe_layers
from planner.cost.weight_formats import WeightFormats
from planner.schema import ModelSpec

SMALL_KERNELS = 4
"""Norm, rotary embedding with cache write, norm, activation: kernels of a layer besides the
matrix products and attention (work_depth.md section 2: about 8 dependent kernels in all)."""
SMALL_KERNELS_MOE = 3
"""Top-k, permutation and combination of an expert layer."""
_POINTS_PER_OCTAVE = 4
_CONTEXT_POINTS = 24


@dataclass(frozen=True)
class StepParts:
    """Seconds of one step, by cause; arrays of one shape."""

    weights_s: FloatArray
    """Matrix products, experts and head: reading the weights, or computing when many run."""
    attention_s: FloatArray
    """Reading the key-value cache."""
    communication_s: FloatArray
    overhead_s: FloatArray
    """Scheduler, launches, sampling, small kernels."""

    @property
    def total_s(self) -> FloatArray:
        """The whole step."""
        return self.weights_s + self.attention_s + self.communication_s + self.overhead_s


@dataclass(frozen=True)
class StepTable:
    """Step times of k engine shapes, tabulated over batch [b] and context [c]."""

    context: CallContext
    shapes: EngineShapes
    batch: FloatArray
    """Grid of tokens in one microbatch; [b]."""
    kv_tokens: FloatArray
    """Grid of context lengths; [c]."""
    layers_s: FloatArray
    """Matrix products and experts of all layers; [k, b]."""
    weights_s: FloatArray
    """The same and the head of all stages' microbatches; [k, b]."""
    communication_s: FloatArray
    """Collectives of all layers and the microbatches' way through the stages; [k, b]."""
    attention_s: FloatArray
    """All layers; [k, b, c]."""

    def step(
        self, shape: IntArray, running: FloatArray, kv_tokens: FloatArray, rows: float = 1.0
    ) -> StepParts:
        """Parts of a step of `running` [u, g] sequences with `kv_tokens` [u, g] cached each.

        `shape` [u] indexes the engine shapes; `rows` tokens of each sequence enter the step (more
        than one in a block or a verified draft), which read its cache once. With pp stages, pp
        microbatches are in flight and each sequence gets one pass in the time that all of them
        take to pass one stage.
        """
        pp = self.shapes.pp[shape].astype(np.float64)[:, None]
        micro = np.maximum(running / pp, 1.0)
        low, part = position(self.batch, micro)
        wide, low_wide, part_wide = micro, low, part
        if rows != 1.0:
            wide = micro * rows
            low_wide, part_wide = position(self.batch, wide)
        at, rest_wide = shape[:, None] * len(self.batch) + low_wide, 1.0 - part_wide
        weights = along(self.weights_s, at, part_wide, rest_wide)
        communication = along(self.communication_s, at, part_wide, rest_wide)
        attention = self._attention(shape, low, part, kv_tokens)
        overhead = overhead_s(self.context, pp, running)
        roof_s = _host_roof_s(self.context)
        if roof_s:
            gpu = weights + attention + communication
            overhead = np.maximum(overhead, roof_s * running - gpu)
        return StepParts(weights, attention, communication, overhead)

    def sums(
        self,
        shape: IntArray,
        row: IntArray,
        running: FloatArray,
        kv_tokens: FloatArray,
        passes: FloatArray,
        tail: BoolArray,
        rows: float = 1.0,
    ) -> StepParts:
        """Parts of all steps of u engines: of those before the tail and of those in it, [2, u].

        Engine i goes through the moments `row[i]` of [d, g]: `passes` steps as `step` has them
        with `running` sequences of `kv_tokens`, which count as tail or not. Engines that differ
        in their experts' ranks only share all but a product with the table.
        """
        first, like = distinct(row, self.shapes.tp[shape], self.shapes.pp[shape])
        at, place = row[first], shape[first]
        running, passes, tail = running[at], passes[at], tail[at]
        pp = self.shapes.pp[place].astype(np.float64)[:, None]
        micro = np.maximum(running / pp, 1.0)
        low, part = position(self.batch, micro)
        attention = self._attention(place, low, part, kv_tokens[at])
        overhead = overhead_s(self.context, pp, running)
        if rows != 1.0:
            micro = micro * rows
            low, part = position(self.batch, micro)
        late = passes * tail
        shares = np.stack([passes - late, late])
        points = _points(low, part, passes, tail, len(self.batch))[:, like]
        summed = np.einsum("svg,vg->sv", shares, overhead)[:, like]
        roof_s = _host_roof_s(self.context)
        if roof_s:
            wait = roof_s * running - attention - overhead
            summed += self._host_waits(shape, like, (low, part), wait, shares)
        return StepParts(
            weights_s=np.einsum("sub,ub->su", points, self.weights_s[shape]),
            attention_s=np.einsum("svg,vg->sv", shares, attention)[:, like],
            communication_s=np.einsum("sub,ub->su", points, self.communication_s[shape]),
            overhead_s=summed,
        )

    def _host_waits(
        self,
        shape: IntArray,
        like: IntArray,
        places: tuple[IntArray, FloatArray],
        wait: FloatArray,
        shares: FloatArray,
    ) -> FloatArray:
        """Sum of what a step lacks to the host's time: `wait` [v, g] less products and collectives.

        Engine i of u has the moments `like[i]` of v at `places` of the batch grid; [2, u].
        """
        device_s = self.weights_s + self.communication_s
        low, part = places
        # Few steps are that short: none that beats the host at the fastest shape's time.
        least = along(device_s.min(axis=0), low, part, 1.0 - part)
        short = np.any((wait > least) | (part > 1.0), axis=1, keepdims=True)[like, 0]
        found = np.zeros((2, len(shape)))
        if short.any():
            own = like[short]
            at = shape[short, None] * len(self.batch) + low[own]
            lacking = wait[own] - along(device_s, at, part[own], 1.0 - part[own])
            np.maximum(lacking, 0.0, out=lacking)
            found[:, short] = np.einsum("sug,ug->su", shares[:, own], lacking)
        return found

    def _attention(
        self, shape: IntArray, low: IntArray, part: FloatArray, kv_tokens: FloatArray
    ) -> FloatArray:
        """Attention of all layers at places of the batch grid; [u, g]."""
        rest, columns = 1.0 - part, len(self.kv_tokens)
        low_kv, part_kv = position(self.kv_tokens, kv_tokens)
        at = (shape[:, None] * len(self.batch) + low) * columns
        at += low_kv
        attention = along(self.attention_s, at, part, rest, columns)
        attention *= 1.0 - part_kv
        at += 1
        longer = along(self.attention_s, at, part, rest, columns)
        longer *= part_kv
        attention += longer
        return attention

    def chunk(self, shape: IntArray, tokens: FloatArray) -> StepParts:
        """Parts of all layers for `tokens` [u] prompt tokens in one go, attention left out."""
        low, part = position(self.batch, tokens)
        at, rest = shape * len(self.batch) + low, 1.0 - part
        pp = self.shapes.pp[shape].astype(np.float64)
        communication = along(self.communication_s, at, part, rest)
        return StepParts(
            weights_s=along(self.layers_s, at, part, rest),
            attention_s=np.zeros_like(communication),
            communication_s=communication,
            overhead_s=overhead_s(self.context, pp, np.zeros_like(tokens)),
        )


def _stage_transfers_s(context: CallContext, shapes: EngineShapes, micro: FloatArray) -> FloatArray:
    """Hand-over of one microbatch [b] to the next stage, pp times; [k, b]."""
    device = context.group.device
    link = rank_group(device, np.minimum(shapes.pp, 2), shapes.tp)
    nbytes = micro * context.model.hidden_size * ACTIVATION_BYTES
    once = latency_s(device, link)[:, None] + nbytes / link_rate(device, link)[:, None]
    return np.where(shapes.pp > 1, shapes.pp, 0)[:, None] * once


def step_table(
    context: CallContext, shapes: EngineShapes, formats: WeightFormats, most_tokens: float
) -> StepTable:
    """Tabulate the step times of all shapes up to `most_tokens` tokens in one microbatch."""
    batch = _batch_grid(most_tokens)
    longest = float(context.workload.max_sequence_tokens)
    kv_tokens = np.unique(np.geomspace(1.0, max(longest, 2.0), _CONTEXT_POINTS))
    layers = layers_s(context, shapes, batch, formats)
    # Linear in the tokens, so nothing is lost on the grid.
    transfers = _stage_transfers_s(context, shapes, batch)
    return StepTable(
        context=context,
        shapes=shapes,
        batch=batch,
        kv_tokens=kv_tokens,
        layers_s=layers,
        weights_s=layers + shapes.pp[:, None] * head_s(context, shapes, batch),
        communication_s=collectives_s(context, shapes, batch) + transfers,
        attention_s=attention_s(context, shapes, batch, kv_tokens),
    )


def depth_per_token(model: ModelSpec, tp: IntArray) -> IntArray:
    """Dependent kernels and collectives between two tokens of one sequence, the shape of `tp`."""
    experts = moe_layers(model)
    kernels = model.num_layers * (len(attention_gemms(model, 1)) + 1 + SMALL_KERNELS)
    kernels += (model.num_layers - experts) * 2 + experts * _moe_kernels(model)
    return np.where(tp > 1, 2 * model.num_layers, 0) + kernels + 1


def _moe_kernels(model: ModelSpec) -> int:
    shared = 2 if model.moe is not None and model.moe.shared_ffn_size else 0
    return 1 + EXPERT_KERNELS + SMALL_KERNELS_MOE + shared


def overhead_s(context: CallContext, pp: FloatArray, running: FloatArray) -> FloatArray:
    """What the engine adds to a step of `running` sequences, at least its small kernels."""
    engine, model, device = context.engine, context.model, context.group.device
    host = engine.value("step_s") * pp + engine.value("layer_s") * model.num_layers
    host = host + engine.value("moe_layer_s") * moe_layers(model)
    host = host + engine.value("sequence_step_s") * running
    if device.host == "grace":
        host = host * engine.value("grace_factor")
    kernels = SMALL_KERNELS * model.num_layers + SMALL_KERNELS_MOE * moe_layers(model)
    return np.maximum(host, kernels * device.kernel_latency_s)


def _host_roof_s(context: CallContext) -> float:
    """Host time of each running sequence that no device speed removes."""
    roof = context.engine.value("host_roof_sequence_s")
    if context.group.device.host == "grace":
        roof *= context.engine.value("grace_roof_factor")
    return roof


def _batch_grid(most: float) -> FloatArray:
    """Whole numbers up to eight, then equal ratios, up to at least `most`."""
    octaves = np.log2(max(most, 16.0) / 8.0)
    count = int(np.ceil(octaves * _POINTS_PER_OCTAVE)) + 1
    beyond = 8.0 * 2.0 ** (np.arange(1, count + 1) / _POINTS_PER_OCTAVE)
    return np.concatenate([np.arange(1.0, 9.0), beyond])


def position(grid: FloatArray, value: FloatArray) -> tuple[IntArray, FloatArray]:
    """Cell of each value and its relative place in it; beyond the ends the line goes on."""
    low = np.searchsorted(grid, value, side="right")
    low -= 1
    np.clip(low, 0, len(grid) - 2, out=low)
    part = value - grid.take(low)
    part /= np.diff(grid).take(low)
    return low, part


def along(
    table: FloatArray, at: IntArray, part: FloatArray, rest: FloatArray, stride: int = 1
) -> FloatArray:
    """`rest` (1 - `part`) of the elements `at` (flat indices) and `part` of `at + stride`."""
    flat = table.ravel()
    result = flat.take(at)
    result *= rest
    # A view that starts `stride` later saves the sum of indices.
    result += part * flat[stride:].take(at)
    return result


def _points(
    low: IntArray, part: FloatArray, passes: FloatArray, tail: BoolArray, points: int
) -> FloatArray:
    """How often v engines' moments [v, g] count at each of the grid's points, before and in the
    tail; [2, v, points]. The sum with a table's row is that of its interpolated values."""
    engines = len(low)
    at = (tail * engines + np.arange(engines)[:, None]) * points + low
    upper = passes * part
    size = 2 * engines * points
    counted = np.bincount(at.ravel(), (passes - upper).ravel(), size)
    counted += np.bincount(at.ravel() + 1, upper.ravel(), size)
    return np.asarray(counted, dtype=np.float64).reshape(2, engines, points)
