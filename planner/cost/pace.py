"""Passes of an engine when sequences take several tokens a pass, or wait for an environment.

A trajectory that waits keeps its cache but is not decoded. With e the wait for each pass, Little's
law says that of R in flight B decode, where

    B (tau(B) + e) = R tau(B).

B depends on the engine's shape, R and the context alone, so it is tabulated like the step times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.cost.arrays import BoolArray, FloatArray, IntArray
from planner.cost.decode import StepParts, StepTable, along, position
from planner.workload.decoding import DecodeMode, decode_mode
from planner.workload.turns import waiting_s_per_token

_ROUNDS = 12
"""Halvings and secants of the bracket round B. With the grid, decode and wait together are less
than 1 % off for dense models and 3 % for expert layers (against plain iteration, H100)."""


@dataclass(frozen=True)
class Pace:
    """Step times of an engine under one workload."""

    table: StepTable
    mode: DecodeMode
    waiting_s: float
    """Seconds that a sequence waits for its environment, for each pass."""
    decoding: FloatArray | None
    """Sequences that decode when `table.batch` are in flight with `table.kv_tokens` cached each;
    [k, b, c]. None when nothing waits."""

    def step(self, shape: IntArray, in_flight: FloatArray, kv_tokens: FloatArray) -> StepParts:
        """Parts of one pass with `in_flight` [u, g] sequences, of which some may wait."""
        running = self._decoding_of(shape, in_flight, kv_tokens)
        return _pass(self.table, self.mode, shape, running, kv_tokens)

    def sums(
        self,
        shape: IntArray,
        row: IntArray,
        in_flight: FloatArray,
        kv_tokens: FloatArray,
        passes: FloatArray,
        tail: BoolArray,
    ) -> StepParts:
        """Parts of all `passes`, as `StepTable.sums` has them; [2, u]."""
        running = in_flight
        if self.decoding is not None:
            in_flight, kv_tokens = in_flight[row], kv_tokens[row]
            passes, tail, row = passes[row], tail[row], np.arange(len(row))
            running = self._decoding_of(shape, in_flight, kv_tokens)
        moments = (shape, row, running, kv_tokens, passes, tail)
        found = self.table.sums(*moments, self.mode.rows)
        if not self.mode.draft_share:
            return found
        draft_s = self.mode.draft_share * self.table.sums(*moments).total_s
        return replace(found, weights_s=found.weights_s + draft_s)

    def _decoding_of(
        self, shape: IntArray, in_flight: FloatArray, kv_tokens: FloatArray
    ) -> FloatArray:
        """Sequences that decode while the others of `in_flight` wait; [u, g]."""
        if self.decoding is None:
            return in_flight
        low, part = position(self.table.batch, in_flight)
        low_kv, part_kv = position(self.table.kv_tokens, kv_tokens)
        columns = len(self.table.kv_tokens)
        at = (shape[:, None] * len(self.table.batch) + low) * columns + low_kv
        running = (1.0 - part_kv) * along(self.decoding, at, part, 1.0 - part, columns)
        running += part_kv * along(self.decoding, at + 1, part, 1.0 - part, columns)
        return np.clip(running, 1.0, in_flight)


def pace(table: StepTable) -> Pace:
    """The pace of the engines of `table` under its workload's decode mode and turns."""
    workload = table.context.workload
    mode = decode_mode(workload)
    waiting_s = waiting_s_per_token(workload) / mode.passes_per_token
    decoding = _decoding(table, mode, waiting_s) if waiting_s > 0.0 else None
    return Pace(table, mode, waiting_s, decoding)


def _decoding(table: StepTable, mode: DecodeMode, waiting_s: float) -> FloatArray:
    """The fixed points over the table's grid, [k, b, c], by regula falsi with halvings."""
    shapes, batches, contexts = len(table.shapes.tp), len(table.batch), len(table.kv_tokens)
    row = np.arange(shapes)
    in_flight = np.tile(np.repeat(table.batch, contexts), (shapes, 1))
    kv_tokens = np.tile(np.tile(table.kv_tokens, batches), (shapes, 1))

    def excess(running: FloatArray) -> FloatArray:
        tau = _pass(table, mode, row, running, kv_tokens).total_s
        return np.asarray(running * (tau + waiting_s) - in_flight * tau)

    low, high = np.ones_like(in_flight), in_flight
    below, above = excess(low), excess(high)
    for count in range(_ROUNDS):
        span = np.where(above > below, above - below, 1.0)
        share = np.clip(-below / span, 0.0, 1.0) if count % 2 else 0.5
        middle = low + share * (high - low)
        value = excess(middle)
        over = value > 0.0
        high, above = np.where(over, middle, high), np.where(over, value, above)
        low, below = np.where(over, low, middle), np.where(over, below, value)
    return ((low + high) / 2.0).reshape(shapes, batches, contexts)


def _pass(
    table: StepTable, mode: DecodeMode, shape: IntArray, running: FloatArray, kv_tokens: FloatArray
) -> StepParts:
    """Parts of one pass that decodes `running` sequences; drafting counts as reading weights."""
    step = table.step(shape, running, kv_tokens, mode.rows)
    if not mode.draft_share:
        return step
    draft_s = mode.draft_share * table.step(shape, running, kv_tokens).total_s
    return replace(step, weights_s=step.weights_s + draft_s)
