"""How many sequences an engine replica decodes at each moment of a batch.

A replica has `slots` places and a batch of `sequences` responses, all there at the start. A place
that falls free goes to a waiting response; once none waits, the batch drains until the longest
response has ended. Each place is a renewal process, so in the limit of many places (Feller, vol. 2,
chapter XI), with S(x) = P(length > x) and M(t) the responses that a place has started by time t:

    1 = integral of S(t - s) dM(s)                    while responses wait,
    M(t*) = sequences / slots                         when the last one starts,
    D(x) = integral up to t* of S(t* + x - s) dM(s)   share of places busy x steps later.

With a place for every response D is S itself, and the time of the batch is the sum over token
indices of the step time at the responses still alive. Equal lengths give whole waves. Time counts
in decode steps, one token each. Tokens are conserved: every response generates its length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from planner.cost.arrays import FloatArray, IntArray
from planner.cost.distinct import distinct
from planner.schema import LengthDistribution
from planner.workload.lengths import expected_maximum, limited_moment, quantile
from planner.workload.partial import period_tokens

CELLS = 64
"""Cells that the range of lengths is cut into; twice as many change times by less than 0.5 %."""
_BEYOND = 0.02
"""Expected responses of the batch that are longer than the last cell."""
_RENEWAL_CELLS = 3 * CELLS
"""Cells of the renewal function; beyond three longest responses it repeats itself every mean
length, up to an error below one in a thousand for sigma >= 0.3."""


@dataclass(frozen=True)
class LengthCells:
    """A response-length distribution as seen by a batch, on k cells of equal width."""

    width: float
    """Tokens in one cell."""
    mean: float
    variation: float
    """Standard deviation of the length over its mean."""
    longest: float
    """Expected longest response of the whole batch, tokens."""
    stationary_age: float
    """Tokens that a running response has generated on average in a steady flow, E[L^2] / 2 E[L]."""
    started: FloatArray
    """M at the end of each cell, responses started by one place, shape [renewal cells]."""
    busy: FloatArray
    """busy[t, j + 1]: share of places busy in cell t by responses started in cells 0..j; column 0
    is zero. Shape [renewal cells + k, renewal cells + 1]."""
    age_mass: FloatArray
    """The same, times the tokens that these responses have generated."""


@dataclass(frozen=True)
class Occupancy:
    """What u replicas do to finish one batch, in g moments; arrays of shape [u, g].

    The first moment is the whole time with every place busy, the others are the drain's cells.
    """

    steps: FloatArray
    """Decode steps."""
    running: FloatArray
    """Responses decoded together in these steps, at least the longest one."""
    age: FloatArray
    """Tokens that they have generated on average."""


@lru_cache(maxsize=64)
def length_cells(distribution: LengthDistribution, samples: int) -> LengthCells:
    """Cells of a batch of `samples` responses, with the renewal function of one place."""
    longest = float(expected_maximum(distribution, samples))
    top = max(longest, float(quantile(distribution, 1.0 - _BEYOND / samples)))
    edge = top * np.arange(CELLS + 1) / CELLS
    width = top / CELLS
    # E[min(L, x)] is the integral of the survival function, so its differences are exact means.
    survival = np.diff(limited_moment(distribution, edge, 1)) / width
    mean = float(limited_moment(distribution, distribution.max_tokens, 1))
    square = float(limited_moment(distribution, distribution.max_tokens, 2))

    starts = _renewal(survival)
    # offset[t, i]: cells between the start in cell i and cell t; survival is 0 outside 0..k-1.
    offset = np.arange(_RENEWAL_CELLS + CELLS)[:, None] - np.arange(_RENEWAL_CELLS)
    alive = np.where((offset >= 0) & (offset < CELLS), survival[np.clip(offset, 0, CELLS - 1)], 0.0)
    mass = alive * starts
    # Callers share the cached arrays, which must not be written to.
    return LengthCells(
        width=width,
        mean=mean,
        variation=math.sqrt(max(square / mean**2 - 1.0, 0.0)),
        longest=longest,
        stationary_age=square / (2.0 * mean),
        started=np.cumsum(starts),
        busy=_cumulative(mass),
        age_mass=_cumulative(mass * (offset + 0.5) * width),
    )


def drain_batch(
    cells: LengthCells, sequences: FloatArray, slots: FloatArray, replicas: FloatArray
) -> Occupancy:
    """Occupancy of the replica with the most work; arguments of shape [u].

    `sequences` are those of one replica, `slots` how many it decodes at the same time,
    `replicas` how many replicas have as many. Lengths are dealt at random, so the fullest
    replica has more tokens than the average by the largest of so many normal deviations.
    """
    alike, row = drain_batches(cells, sequences, slots, replicas)
    return Occupancy(alike.steps[row], alike.running[row], alike.age[row])


def drain_batches(
    cells: LengthCells, sequences: FloatArray, slots: FloatArray, replicas: FloatArray
) -> tuple[Occupancy, IntArray]:
    """The distinct ones of `drain_batch`, [d, g], and which of them each replica has, [u]."""
    slots = np.minimum(sequences, slots)
    first, row = distinct(sequences, slots, replicas)
    return _drain(cells, sequences[first], slots[first], replicas[first]), row


def carry_over(
    distribution: LengthDistribution,
    cells: LengthCells,
    share: float,
    sequences: FloatArray,
    slots: FloatArray,
) -> Occupancy:
    """Occupancy of a step that ends when `sequences` [u] responses have, and carries others over.

    `share` x `sequences` responses still run at its end and go on in the next one: a steady state
    of steps of D tokens (`workload.partial`). At a moment x of the step the sum over k of
    P(L > k D + x) run for each that starts. Fewer places than responses stretch the step at full
    places, so that tokens are conserved.
    """
    width, alive, age = _carried(distribution, cells.longest, share)
    alive = alive * cells.mean / (alive.sum() * width)
    wanted = sequences[:, None] * alive
    running = np.minimum(wanted, slots[:, None])
    stretch = (wanted - running).sum(axis=1) * width / slots
    return Occupancy(
        steps=_columns(stretch, np.full(wanted.shape, width)),
        running=np.maximum(_columns(running[:, 0], running), 1.0),
        age=_columns(np.full(len(stretch), age[0]), np.broadcast_to(age, wanted.shape)),
    )


@lru_cache(maxsize=64)
def _carried(
    distribution: LengthDistribution, longest: float, share: float
) -> tuple[float, FloatArray, FloatArray]:
    """Tokens of one of the step's cells, and per response that starts in the step: how many run
    in each cell, and their mean age in tokens, both of shape [cells]."""
    period = period_tokens(distribution, longest, share)
    before = period * np.arange(math.ceil(longest / period))[:, None]
    edge = np.minimum(before + period * np.arange(CELLS + 1) / CELLS, longest)
    # Tokens generated in each cell, exact as in `length_cells`.
    mass = np.diff(limited_moment(distribution, edge, 1), axis=1)
    total = mass.sum(axis=0)
    age = (mass * (edge[:, :-1] + edge[:, 1:]) / 2.0).sum(axis=0) / total
    return period / CELLS, total * CELLS / period, age


def carried_age(distribution: LengthDistribution, cells: LengthCells, share: float) -> float:
    """Tokens that the responses carried over have generated on average."""
    return float(_carried(distribution, cells.longest, share)[2][-1])


def _drain(
    cells: LengthCells, sequences: FloatArray, slots: FloatArray, replicas: FloatArray
) -> Occupancy:
    waves = sequences / slots
    # Far out the renewal function grows by one in every mean length, so whole ones are taken off.
    repeats = np.ceil(np.maximum(waves - cells.started[-1], 0.0))
    phase = waves - repeats
    cell = np.searchsorted(cells.started, phase * (1.0 - 1e-12))
    before = np.where(cell > 0, cells.started[cell - 1], 0.0)
    part = ((phase - before) / (cells.started[cell] - before))[:, None]

    moment = cell[:, None] + np.arange(CELLS)
    busy = _between(cells.busy, moment, cell, part)
    age = _between(cells.age_mass, moment, cell, part) / np.maximum(busy, np.finfo(float).tiny)
    excess = 1.0 + _largest_deviation(replicas) * cells.variation / np.sqrt(sequences)

    start = np.arange(CELLS) * cells.width
    full_steps = (cell * cells.width + repeats * cells.mean) * excess
    # The last response starts after at most this many others in its place.
    full_steps = np.minimum(full_steps, np.ceil(waves - 1.0) * cells.longest)
    left = 1.0 - (1.0 - np.clip(busy, 0.0, 1.0)) ** (slots * replicas)[:, None]
    last = np.maximum(left.sum(axis=1) * cells.width, cells.longest - full_steps)
    last = np.where(waves > 1.0, last, cells.longest)
    full_age = np.where(repeats > 0, cells.stationary_age, _mean_age(cells)[cell])
    running = np.clip(slots[:, None] * busy * excess[:, None], 1.0, slots[:, None])
    return Occupancy(
        steps=_columns(full_steps, np.clip(last[:, None] - start, 0.0, cells.width)),
        running=_columns(slots, running),
        age=_columns(full_age, np.where(busy > 0.0, age, start + cells.width / 2.0)),
    )


def _columns(first: FloatArray, others: FloatArray) -> FloatArray:
    return np.concatenate([first[:, None], others], axis=1)


def _renewal(survival: FloatArray) -> FloatArray:
    """Starts of one place in each cell such that it is busy in every cell; [renewal cells]."""
    starts = np.zeros(_RENEWAL_CELLS)
    for cell in range(_RENEWAL_CELLS):
        reach = min(cell, CELLS - 1)
        running = starts[cell - reach : cell] @ survival[reach:0:-1]
        starts[cell] = max(1.0 - running, 0.0) / survival[0]
    return starts


def _cumulative(mass: FloatArray) -> FloatArray:
    """Running sums over the starts, with a column of zeros for 'none yet'."""
    return np.concatenate([np.zeros((len(mass), 1)), np.cumsum(mass, axis=1)], axis=1)


def _between(
    table: FloatArray, moment: np.ndarray, cell: np.ndarray, part: FloatArray
) -> FloatArray:
    """Rows `moment` of a cumulative table, with all starts before `cell` and a part of its own."""
    column = cell[:, None]
    return np.asarray((1.0 - part) * table[moment, column] + part * table[moment, column + 1])


def _mean_age(cells: LengthCells) -> FloatArray:
    """Mean age of running responses from the start to each cell, shape [renewal cells]."""
    index = np.arange(_RENEWAL_CELLS)
    so_far = np.cumsum(cells.age_mass[index, index + 1])
    return np.concatenate([[0.0], so_far / (index + 1)])[:_RENEWAL_CELLS]


def _largest_deviation(replicas: FloatArray) -> FloatArray:
    """Expected largest of n standard normals (Blom 1958); 0 for n = 1."""
    normal = NormalDist()
    few, inverse = np.unique(replicas, return_inverse=True)
    position = (few - 0.375) / (few + 0.25)
    quantiles = [normal.inv_cdf(p) if p > 0.5 else 0.0 for p in position]
    return np.array(quantiles, dtype=np.float64)[inverse]
