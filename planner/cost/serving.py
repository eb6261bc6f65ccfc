"""Throughput of an inference server: requests at fixed concurrency, all queued, or in one burst.

The steps are priced as in a rollout (`decode`); what differs is how requests arrive. At fixed
concurrency a finished request is replaced by a new one whose prefill delays all others, so each
request takes (conservation of device time)

    latency = B (p + r) + (o - 1) tau(B, i + o / 2)        B running, i tokens in, o tokens out

with p the time that its prefill adds to a mixed step, r the server's time for one request, and
tau the decode step: `B o / latency` tokens/s. Requests beyond the cache's slots wait outside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.arrays import StrategyArrays
from planner.cost.context import CallContext
from planner.cost.decode import StepTable, step_table
from planner.cost.engine_kernels import EngineShapes, prompt_attention_s
from planner.cost.engine_memory import cache_bytes, weights_bytes
from planner.cost.lengths import length_moments
from planner.cost.occupancy import drain_batch, length_cells
from planner.cost.weight_formats import WeightFormats
from planner.errors import InputError
from planner.schema import Strategy

_ROW = np.zeros(1, dtype=np.int64)
_USED_SHARE_OF_RESPONSE = 0.75
"""Share of a response that a running sequence holds in the cache when pages are taken as needed:
half on average, and a margin below which engines admit no more (insight from overloaded rows)."""
_DRAIN_SHARE = 0.2
"""All requests queued: the last batch runs below full size for this share of its time."""


@dataclass(frozen=True)
class Throughput:
    """Output tokens per second of all replicas together, and where a request's time goes."""

    tokens_per_s: float
    running: float
    """Sequences that one attention rank decodes at the same time."""
    step_s: float
    """One decode step at this load."""
    parts_s: dict[str, float]
    """Device time of one request by cause: prefill, request, decode_weights, ..."""


@dataclass(frozen=True)
class Server:
    """One replica (with `strategy.dp` attention-parallel ranks) ready to be asked."""

    context: CallContext
    strategy: Strategy
    table: StepTable
    slots: float
    """Requests that the cache of one attention rank holds; at least one."""
    prompt: float
    response: float

    def fixed_concurrency(self, requests: float) -> Throughput:
        """`requests` are in flight all the time."""
        return self._steady(requests, self.context.engine.value("request_s"))

    def all_queued(self, requests: float) -> Throughput:
        """`requests` wait in the engine's own queue (no server in front of it)."""
        steady = self._steady(requests, 0.0)
        each = requests / self.strategy.dp
        drained = each / (each + _DRAIN_SHARE * steady.running)
        return Throughput(
            steady.tokens_per_s * drained, steady.running, steady.step_s, steady.parts_s
        )

    def burst(self, requests: int) -> Throughput:
        """`requests` of mixed lengths arrive at once and the last answer ends the measurement."""
        each = np.array([np.ceil(requests / self.strategy.dp)])
        cells = length_cells(self.context.workload.response_length, requests)
        ranks = np.array([float(self.strategy.dp)])
        slots = np.array([min(self.slots, float(self.strategy.max_running_sequences))])
        occupancy = drain_batch(cells, each, np.minimum(slots, each), ranks)
        step = self.table.step(_ROW, occupancy.running, self.prompt + occupancy.age)
        steps = float(occupancy.steps.sum())
        mean_step_s = float((occupancy.steps * step.total_s).sum()) / steps
        most = float(occupancy.running.max())
        parts = {
            "prefill": each[0] * self.prefill_s(most),
            "request": each[0] * self.context.engine.value("request_s"),
            "decode_weights": float((occupancy.steps * step.weights_s).sum()),
            "decode_attention": float((occupancy.steps * step.attention_s).sum()),
            "tp_communication": float((occupancy.steps * step.communication_s).sum()),
            "engine_overhead": float((occupancy.steps * step.overhead_s).sum()),
        }
        return Throughput(
            tokens_per_s=requests * self.response / sum(parts.values()),
            running=most,
            step_s=mean_step_s,
            parts_s={name: value / requests for name, value in parts.items()},
        )

    def prefill_s(self, running: float) -> float:
        """What the prefill of one prompt adds to steps that decode `running` sequences.

        Matrix products of a mixed step read the weights once for both, so only the increment
        over the decode step counts; the prompt's attention comes on top.
        """
        engine = self.context.engine
        size = min(self.prompt, engine.value("max_batched_tokens"))
        rows = np.array([running, running + size])
        linear = self.table.chunk(np.zeros(2, dtype=np.int64), rows).total_s
        tp = np.array([self.strategy.tp])
        attention = prompt_attention_s(self.context, tp, np.ones(1), self.prompt)
        seconds = self.prompt / size * (linear[1] - linear[0]) + float(attention[0])
        seconds *= engine.value("prefill_factor")
        if self.strategy.ep > self.strategy.tp:
            seconds *= engine.value("attention_dp_prefill_factor")
        return float(seconds)

    def _steady(self, requests: float, request_s: float) -> Throughput:
        each = requests / self.strategy.dp
        running = max(min(each, self.slots, float(self.strategy.max_running_sequences)), 1.0)
        age = np.array([[self.prompt + self.response / 2.0]])
        step = self.table.step(_ROW, np.array([[running]]), age)
        step_s = float(step.total_s[0, 0])
        steps = max(self.response - 1.0, 0.0)
        parts = {
            "prefill": running * self.prefill_s(running),
            "request": running * request_s,
            "decode_weights": steps * float(step.weights_s[0, 0]),
            "decode_attention": steps * float(step.attention_s[0, 0]),
            "tp_communication": steps * float(step.communication_s[0, 0]),
            "engine_overhead": steps * float(step.overhead_s[0, 0]),
        }
        return Throughput(
            tokens_per_s=self.strategy.dp
            * min(each, running)
            * self.response
            / sum(parts.values()),
            running=running,
            step_s=step_s,
            parts_s=parts,
        )

    def token_gap_s(self, requests: float) -> float:
        """Time per output token that a client sees: the step, and the share of other requests'
        prefills that fall between two of its tokens (constant `prefill_hits_running`)."""
        load = self.fixed_concurrency(requests)
        others = max(load.running - 1.0, 0.0) / load.running
        hit = self.context.engine.value("prefill_hits_running") * others
        delay = load.parts_s["prefill"] + load.parts_s["request"]
        return load.step_s + hit * delay / max(self.response - 1.0, 1.0)


def server(context: CallContext, strategy: Strategy, formats: WeightFormats) -> Server:
    """A replica that serves the workload's prompt and response lengths.

    `strategy.dp` counts attention-parallel ranks; with ep > tp they share the experts. The cache
    reserves whole requests or what is in use, by the engine's `reserves_whole_request`; its pool
    is a share of all memory or of what the weights leave (`cache_fraction_of_free`). Raises
    InputError when the weights leave no room for one request.
    """
    engine, device = context.engine, context.group.device
    prompt = length_moments(context.workload.prompt_length).mean
    response = length_moments(context.workload.response_length).mean
    row = StrategyArrays.from_strategies([strategy])
    weights = float(weights_bytes(context, row, formats)[0])
    taken = weights + engine.value("workspace_bytes")
    if engine.value("cache_fraction_of_free"):
        pool = strategy.memory_fraction * (device.memory_bytes - taken)
    else:
        pool = strategy.memory_fraction * device.memory_bytes - taken
    share = 1.0 if engine.value("reserves_whole_request") else _USED_SHARE_OF_RESPONSE
    one = float(cache_bytes(context, row, np.array([prompt + share * response]))[0])
    if pool <= 0.0:
        # The workspace is an estimate, so room for less than one request is not refused.
        raise InputError(
            f"{device.id} has no room for {context.model.name} and a request: the weights take "
            f"{weights / 1e9:.1f} GB of {device.memory_bytes / 1e9:.1f} GB",
            remedy="Split the model over more devices",
        )
    slots = max(float(np.floor(pool / one)), 1.0)
    shapes = EngineShapes(
        *(np.array([degree]) for degree in (strategy.tp, strategy.pp, strategy.ep))
    )
    most = min(slots, float(strategy.max_running_sequences)) + min(
        prompt, engine.value("max_batched_tokens")
    )
    return Server(
        context=context,
        strategy=strategy,
        table=step_table(context, shapes, formats, most),
        slots=slots,
        prompt=prompt,
        response=response,
    )
