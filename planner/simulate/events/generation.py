"""A generate call, step by step: its replicas, when responses end, and how stale they are."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from planner.schema import Workload
from planner.simulate.events.engine import Replica, run_replica
from planner.simulate.events.lengths import Batch, sample_batch
from planner.simulate.events.prices import ReplicaPrices
from planner.workload.turns import answer_pool_s, waiting_tail_s

FloatArray = npt.NDArray[np.float64]

_TAIL_SHARE = 0.5
"""A replica that runs fewer than this share of its most is in its tail."""
_MARGIN = 1.2
"""A flow is followed this much beyond the responses wanted; more when a replica is slow."""


@dataclass(frozen=True)
class Generation:
    """One step's responses."""

    batch: Batch
    """In the order in which they ended."""
    end_s: FloatArray
    """When each response ended, after the start of the call, ascending; [sequences]."""
    time_s: float
    busy_share: float
    """Mean over the replicas of the share of the call in which they had work."""
    tail_share: float
    """Mean over the replicas of the share of the call after they fell below half full."""
    imbalance: float
    """Time of the slowest replica over the mean, less one."""
    preemptions: float
    """In a flow, the mean of its batches."""
    tokens: float
    """Generated; in a batch, exactly those sampled."""
    versions_behind: FloatArray
    """Batches that ended between the start and the end of each response; [sequences]."""
    flowing: bool


def drain(
    workload: Workload,
    sequences: int,
    prices: ReplicaPrices,
    rng: np.random.Generator,
    *,
    rounds: int = 1,
) -> Generation:
    """The responses of a step in `rounds` of `sequences`, each to its last response.

    The environment between turns sets the pace where its workers take longer.
    """
    some = [_drain_once(workload, sequences, prices, rng) for _ in range(rounds)]
    starts = np.cumsum([0.0, *(one.time_s for one in some)])
    time_s = max(float(starts[-1]), answer_pool_s(workload, float(sequences * rounds)))
    return Generation(
        batch=Batch(
            np.concatenate([one.batch.prompt for one in some]),
            np.concatenate([one.batch.response for one in some]),
        ),
        end_s=np.concatenate([one.end_s + at for one, at in zip(some, starts[:-1], strict=True)]),
        time_s=time_s,
        busy_share=float(np.mean([one.busy_share for one in some])),
        tail_share=float(np.mean([one.tail_share for one in some])),
        imbalance=float(np.mean([one.imbalance for one in some])),
        preemptions=sum(one.preemptions for one in some),
        tokens=sum(one.tokens for one in some),
        versions_behind=np.zeros(sequences * rounds),
        flowing=False,
    )


def race(
    workload: Workload, prompts: int, launched: int, prices: ReplicaPrices, rng: np.random.Generator
) -> Generation:
    """A short round of tail batching (`workload.tail_batching`): `launched` samples of `prompts`.

    A prompt is done with the first `samples_per_prompt` of its samples, the round with the first
    `prompts_per_step` prompts; what runs then is dropped. Tokens decide who is first, as if all
    ran from the start.
    """
    wanted, samples = workload.prompts_per_step, workload.samples_per_prompt
    started = workload.model_copy(update={"samples_per_prompt": launched})
    batch = sample_batch(started, prompts * launched, rng)
    length = batch.response.reshape(prompts, launched)
    rank = np.argsort(np.argsort(length, axis=1, kind="stable"), axis=1, kind="stable")
    done = np.sort(length, axis=1)[:, samples - 1]
    first = np.argsort(done, kind="stable")[:wanted]
    kept = np.zeros((prompts, launched), dtype=bool)
    kept[first] = rank[first] < samples
    run = np.minimum(np.minimum(length, done[:, None]), done[first].max())
    return _drain_batch(workload, Batch(batch.prompt, run.ravel()), prices, kept.ravel())


def _drain_once(
    workload: Workload, sequences: int, prices: ReplicaPrices, rng: np.random.Generator
) -> Generation:
    """All responses of a step at once."""
    batch = sample_batch(workload, sequences, rng)
    return _drain_batch(workload, batch, prices, np.ones(sequences, dtype=bool))


def _drain_batch(
    workload: Workload, batch: Batch, prices: ReplicaPrices, kept: npt.NDArray[np.bool_]
) -> Generation:
    """All responses at once, until the longest of the last replica ends; those `kept` are the
    step's.

    Neighbours, and so the samples of one prompt, go to the same replica; replicas differ by one
    sequence at most.
    """
    sequences = len(batch.response)
    replica_of = np.arange(sequences) * prices.replicas // sequences
    bounds = np.searchsorted(replica_of, np.arange(prices.replicas + 1))
    replicas: list[Replica] = []
    end = np.empty(sequences)
    for first, last in pairwise(bounds):
        if last > first:
            own = Batch(batch.prompt[first:last], batch.response[first:last])
            replicas.append(run_replica(own, prices))
            end[first:last] = replicas[-1].end_s
    order = np.argsort(end, kind="stable")
    order = order[kept[order]]
    times = np.array([one.last_s for one in replicas] + [0.0] * (prices.replicas - len(replicas)))
    tail_s = waiting_tail_s(workload, float(sequences))
    longest = float(times.max()) + tail_s
    return Generation(
        batch=Batch(batch.prompt[order], batch.response[order]),
        end_s=end[order],
        time_s=longest,
        busy_share=float(times.mean()) / longest,
        tail_share=float(np.mean([longest - _half_empty_s(one) for one in replicas])) / longest,
        imbalance=float(times.max() / times.mean()) - 1.0,
        preemptions=sum(one.preemptions for one in replicas),
        tokens=sum(one.tokens for one in replicas),
        versions_behind=np.zeros(len(order)),
        flowing=False,
    )


def flow(
    workload: Workload,
    sequences: int,
    prices: ReplicaPrices,
    rng: np.random.Generator,
    *,
    in_flight: float,
    steps: int,
) -> list[Generation]:
    """`steps` batches of an engine that never drains: whoever ends is replaced by a new response.

    Every replica runs `in_flight` responses (fewer where its cache is full). It is looked at from
    the middle of a flow on: the first responses are drawn by their length (a long one is more
    likely to be met) and have a random part of it behind them. A batch is complete when as many
    responses as it has, of all replicas, have ended.
    """
    per_replica = steps * sequences / prices.replicas
    # A fraction of a response is one more in some of the replicas.
    places = np.arange(prices.replicas + 1) * in_flight
    populations = np.clip(np.diff(np.rint(places)), 1, prices.max_running).astype(int)
    wanted = steps * sequences
    margin = _MARGIN
    while True:
        goal = int(per_replica * margin) + 1
        runs = [
            _one_flow(workload, prices, rng, population=population, goal=goal)
            for population in populations.tolist()
        ]
        # Beyond the end of the replica that is done first, the others are alone.
        horizon_s = min(run.last_s for run, _ in runs)
        ended = sum(int((run.end_s <= horizon_s).sum()) for run, _ in runs)
        if ended >= wanted:
            pool_s = answer_pool_s(workload, float(sequences))
            return _batches(runs, sequences, steps, pool_s)
        margin *= 1.5


def _one_flow(
    workload: Workload,
    prices: ReplicaPrices,
    rng: np.random.Generator,
    *,
    population: int,
    goal: int,
) -> tuple[Replica, Batch]:
    met = sample_batch(workload, 4 * population + 64, rng)
    chosen = rng.choice(
        len(met.response), size=population, p=met.response / met.response.sum(), replace=True
    )
    fresh = sample_batch(workload, goal, rng)
    batch = Batch(
        prompt=np.concatenate([met.prompt[chosen], fresh.prompt]),
        response=np.concatenate([met.response[chosen], fresh.response]),
    )
    generated = np.zeros(len(batch.response), dtype=np.int64)
    generated[:population] = np.floor(rng.random(population) * batch.response[:population])
    run = run_replica(batch, prices, most_running=population, generated=generated, stop_after=goal)
    return run, batch


def _batches(
    runs: list[tuple[Replica, Batch]], sequences: int, steps: int, pool_s: float
) -> list[Generation]:
    end = np.concatenate([run.end_s for run, _ in runs])
    start = np.concatenate([run.start_s for run, _ in runs])
    prompt = np.concatenate([batch.prompt for _, batch in runs])
    response = np.concatenate([batch.response for _, batch in runs])
    order = np.argsort(end, kind="stable")[: steps * sequences]
    ends = end[order]
    marks = np.concatenate([[0.0], ends[sequences - 1 :: sequences]])
    born = np.searchsorted(marks, start[order], side="right")
    died = np.searchsorted(marks, ends, side="left")
    found = []
    for step in range(steps):
        rows = slice(step * sequences, (step + 1) * sequences)
        begin, finish = marks[step], marks[step + 1]
        chosen = order[rows]
        own = Batch(prompt[chosen], response[chosen])
        found.append(
            Generation(
                batch=own,
                end_s=ends[rows] - begin,
                time_s=max(float(finish - begin), pool_s),
                busy_share=1.0,
                tail_share=0.0,
                imbalance=0.0,
                preemptions=sum(run.preemptions for run, _ in runs) / steps,
                tokens=float(own.response.sum()),
                versions_behind=np.maximum(died[rows] - born[rows], 0).astype(np.float64),
                flowing=True,
            )
        )
    return found


def _half_empty_s(replica: Replica) -> float:
    """When a replica last ran half as many sequences as at most."""
    most = replica.segment_running.max()
    full = np.flatnonzero(replica.segment_running >= _TAIL_SHARE * most)
    return float(replica.segment_end_s[full[-1]])
