"""A pipeline schedule over microbatches: time by part, depth, traffic and work of one pass set.

time = microbatches x slowest stage + (all stages - slowest) / vpp + latency of the boundaries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.arrays import DUALPIPE, FloatArray, StrategyArrays
from planner.cost.collectives import rank_group, scale_out_rate, scale_up_rate
from planner.cost.context import CallContext
from planner.cost.layers import WORD_BYTES, Parts
from planner.cost.passes import PassCosts
from planner.cost.pipeline import STAGES, OtherStages, Stages, fill_and_drain_s
from planner.cost.shapes import moe_layers

_EXCHANGE = "ep_comm"
_COMPUTING = ("compute", "experts", "attention")


@dataclass(frozen=True)
class Schedule:
    """All microbatches of one optimizer step (or of a forward call); arrays of shape [n]."""

    parts: Parts
    """Seconds by part, pipeline bubble included."""
    total_s: FloatArray
    microbatches: FloatArray
    stage_s: dict[str, FloatArray]
    """Seconds of one microbatch on each stage."""
    rounds: FloatArray
    """Dependent kernels on the critical path."""
    traffic_bytes: FloatArray
    """Device-memory traffic of all devices."""
    flop: FloatArray
    """Work of all devices."""


def pipeline_schedule(
    context: CallContext, s: StrategyArrays, passes: PassCosts, stages: Stages, *, both_ways: bool
) -> Schedule:
    """Compose layer costs into a schedule; `both_ways` when gradients travel back.

    Boundary exchanges hide in the steady state (published multi-node runs fit better without
    them) and are counted once in the fill and once in the drain.
    """
    at = passes.inverse
    model = context.model
    hidden = _hidden_exchange_s(s, passes)
    totals = {kind: cost.total_s[at] - hidden[kind] for kind, cost in passes.kinds.items()}
    head_s, embedding_s = passes.head_s[at], passes.embedding_s[at]
    microbatches = passes.batch.microbatches[at].astype(np.float64)

    stage_s = {
        stage: sum(
            (stages.layers[stage][kind] * totals[kind] for kind in totals),
            stages.has_embedding[stage] * embedding_s + stages.has_head[stage] * head_s,
        )
        for stage in STAGES
    }
    count = {"moe": moe_layers(model), "dense": model.num_layers - moe_layers(model)}
    if context.framework.value("balanced_stages"):
        # The last stage gives layers away until its head weighs no more than the mean stage.
        stages = _with_balanced_end(stages, s, count)
        stage_s = {**stage_s, "last": np.zeros(len(s))}
        layers_s = sum((count[kind] * totals[kind] for kind in totals), head_s + embedding_s)
        stage_s["last"] = np.asarray(layers_s / s.pp)
    times = np.stack([stage_s[stage] for stage in STAGES])
    slowest = times.argmax(axis=0)
    slowest_s = times.max(axis=0) + passes.microbatch_host_s

    def of_slowest(values: dict[str, FloatArray]) -> FloatArray:
        return np.asarray(np.choose(slowest, [values[stage] for stage in STAGES]))

    held = {
        kind: of_slowest({stage: stages.layers[stage][kind] for stage in STAGES}) for kind in totals
    }
    with_head, with_embedding = of_slowest(stages.has_head), of_slowest(stages.has_embedding)
    parts: Parts = {}
    for kind, cost in passes.kinds.items():
        for name, seconds in cost.parts.items():
            exposed = seconds[at] - hidden[kind] if name == _EXCHANGE else seconds[at]
            term = microbatches * held[kind] * exposed
            parts[name] = parts[name] + term if name in parts else term
    parts["host"] = parts["host"] + microbatches * passes.microbatch_host_s
    parts["head"] = microbatches * with_head * head_s
    parts["elementwise"] = parts["elementwise"] + microbatches * with_embedding * embedding_s

    everything_s = (
        sum((count[kind] * totals[kind] for kind in totals), head_s + embedding_s)
        + s.pp * passes.microbatch_host_s
    )
    others = np.maximum(everything_s - slowest_s, 0.0)
    bubble = others / s.vpp
    if s.pipeline_schedule.any():
        backward, weight_gradient = (
            _of_others(passes, count, held, with_head, name)
            for name in ("backward_s", "weight_gradient_s")
        )
        bubble = fill_and_drain_s(OtherStages(others, backward, weight_gradient), s)
    boundary = _boundary_s(context, s, passes) * (2.0 if both_ways else 1.0)
    parts["pipeline_bubble"] = np.where(s.pp > 1, bubble + boundary, 0.0)
    total_s = np.asarray(sum(parts.values()))

    rounds = {kind: passes.kinds[kind].rounds[at] for kind in totals}
    slow_rounds = sum(
        (held[kind] * rounds[kind] for kind in totals), with_head * passes.head_rounds
    )
    all_rounds = sum((count[kind] * rounds[kind] for kind in totals), passes.head_rounds)
    waiting = np.maximum(all_rounds - slow_rounds, 0.0) / s.vpp

    ranks = s.tp * s.cp * s.dp * microbatches
    traffic = sum(
        (count[kind] * passes.kinds[kind].traffic_bytes[at] for kind in totals),
        passes.head_traffic_bytes[at],
    )
    flop = sum((count[kind] * passes.kinds[kind].flop[at] for kind in totals), passes.head_flop[at])
    return Schedule(
        parts=parts,
        total_s=total_s,
        microbatches=microbatches,
        stage_s=stage_s,
        rounds=microbatches * slow_rounds + waiting,
        traffic_bytes=np.asarray(traffic * ranks),
        flop=np.asarray(flop * s.dp * microbatches),
    )


def _hidden_exchange_s(s: StrategyArrays, passes: PassCosts) -> dict[str, FloatArray]:
    """Expert exchanges of one layer that DualPipe hides behind another microbatch's computation,
    by layer kind, shape [n]; nothing in other schedules (arXiv:2412.19437, section 3.2.1)."""
    dual = s.pipeline_schedule == DUALPIPE
    if not dual.any():
        return {kind: np.zeros(len(s)) for kind in passes.kinds}
    hidden = {}
    for kind, cost in passes.kinds.items():
        exchange = cost.parts.get(_EXCHANGE, np.zeros(len(passes.s)))
        computing = sum(cost.parts[name] for name in _COMPUTING if name in cost.parts)
        hidden[kind] = np.where(dual, np.minimum(exchange, computing)[passes.inverse], 0.0)
    return hidden


def _of_others(
    passes: PassCosts,
    count: dict[str, int],
    held: dict[str, FloatArray],
    with_head: FloatArray,
    name: str,
) -> FloatArray:
    """A time of layers and head, of all stages but the slowest, shape [n]."""
    at = passes.inverse
    head_s = passes.head_backward_s[at] / (2.0 if name == "weight_gradient_s" else 1.0)
    layers_s = sum(
        (count[kind] - held[kind]) * getattr(cost, name)[at] for kind, cost in passes.kinds.items()
    )
    return np.asarray(np.maximum(layers_s + (1.0 - with_head) * head_s, 0.0))


def _with_balanced_end(stages: Stages, s: StrategyArrays, count: dict[str, int]) -> Stages:
    """The last stage as a mean one: its share of the layers, the head and the embedding."""
    share = 1.0 / s.pp
    layers = {**stages.layers, "last": {kind: n * share for kind, n in count.items()}}
    return Stages(
        layers=layers,
        has_embedding={**stages.has_embedding, "last": share},
        has_head={**stages.has_head, "last": share},
    )


def _boundary_s(context: CallContext, s: StrategyArrays, passes: PassCosts) -> FloatArray:
    """Sending one microbatch's activations across every boundary once, shape [n].

    Stages lie tp x cp x dp devices apart; sequence parallelism splits what a rank sends.
    """
    device = context.group.device
    pair = rank_group(device, np.full(len(s), 2.0), s.tp * s.cp * s.dp)
    rate = np.where(pair.outer > 1.0, scale_out_rate(device), scale_up_rate(device))
    latency = np.where(pair.outer > 1.0, device.scale_out_latency_s, device.scale_up_latency_s)
    tokens = passes.batch.tokens[passes.inverse]
    split = np.where(s.sequence_parallel, s.tp, 1)
    nbytes = tokens * context.model.hidden_size * WORD_BYTES / split
    return np.asarray((s.pp - 1.0) * (nbytes / rate + latency))
