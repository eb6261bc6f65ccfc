"""Tail batching: short rounds that end when the batch is full, and a long one for what they left.

RollPacker (arXiv:2509.21009): a short round starts more prompts than a batch has, and more samples
of each than it needs; the first prompts with enough responses make the batch, the other prompts
wait. When a batch of them waits, a long round gives each its samples to the end. All samples are
of the newest weights.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.schema import LengthDistribution, Workload
from planner.workload.lengths import quantile, survival

FloatArray = npt.NDArray[np.float64]

_CELLS = 256
"""Cells of the lengths of a short round."""
_BISECTIONS = 60


class Round(NamedTuple):
    """One kind of round."""

    share: float
    """Of all steps."""
    workload: Workload
    """With the lengths that are generated in it, and without tail batching."""
    sequences: int
    """Responses that are started."""


def rounds_of(workload: Workload) -> tuple[Round, Round]:
    """The short and the long round of a workload with tail batching.

    A short round leaves prompts - 1 of a batch waiting, so one in prompts / (prompts - 1) rounds
    is long. Lengths are independent: the deferred prompts are taken to be as long as any.
    """
    spec = workload.tail_batching
    assert spec is not None
    alone = workload.model_copy(update={"tail_batching": None})
    samples = launched_samples(workload)
    lengths = race_lengths(
        workload.response_length, workload.samples_per_prompt, samples, spec.prompts
    )
    short = alone.model_copy(update={"response_length": lengths, "samples_per_prompt": samples})
    return (
        Round(1.0 / spec.prompts, short, launched_prompts(workload) * samples),
        Round(1.0 - 1.0 / spec.prompts, alone, workload.sequences_per_step),
    )


def launched_prompts(workload: Workload) -> int:
    """Prompts that a short round starts."""
    assert workload.tail_batching is not None
    return math.ceil(workload.prompts_per_step * workload.tail_batching.prompts * (1 - 1e-12))


def launched_samples(workload: Workload) -> int:
    """Samples of each prompt that a short round starts."""
    assert workload.tail_batching is not None
    return math.ceil(workload.samples_per_prompt * workload.tail_batching.samples * (1 - 1e-12))


@lru_cache(maxsize=64)
def race_lengths(
    distribution: LengthDistribution, samples: int, launched: int, prompts: float
) -> LengthDistribution:
    """What each of the `launched` samples of a prompt generates in a short round.

    A prompt is done when `samples` of them have ended, of which k have by token x with probability
    Binomial(launched, F(x)); the others are then aborted. The round ends when 1 / prompts of all
    prompts are done: P(k >= samples) = 1 / prompts. A sample runs at x if its prompt is not done
    and it has not ended: E[(launched - k) 1{k < samples}] / launched until the end, 0 after.
    """
    end = round_tokens(distribution, samples, launched, prompts)
    edge = end * np.arange(_CELLS + 1) / _CELLS
    running = _running(distribution, samples, launched, edge)
    ended = np.append(-np.diff(running), running[-1])
    middle = np.append((edge[:-1] + edge[1:]) / 2.0, end)
    tokens = np.maximum(np.rint(middle), 1).astype(int)
    mass: dict[int, float] = {}
    for length, weight in zip(tokens.tolist(), ended.tolist(), strict=True):
        if weight > 0.0:
            mass[length] = mass.get(length, 0.0) + weight
    mean = sum(length * weight for length, weight in mass.items()) / sum(mass.values())
    return LengthDistribution(
        kind="histogram",
        mean_tokens=max(1.0, mean),
        max_tokens=distribution.max_tokens,
        histogram=tuple(sorted(mass.items())),
    )


def round_tokens(
    distribution: LengthDistribution, samples: int, launched: int, prompts: float
) -> float:
    """Tokens after which a short round ends: 1 / prompts of its prompts have their samples."""
    low, high = 0.0, float(quantile(distribution, 1.0))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        done = 1.0 - float(_open(distribution, samples, launched, np.array([middle]))[0].sum())
        low, high = (middle, high) if done < 1.0 / prompts else (low, middle)
    return high


def _open(
    distribution: LengthDistribution, samples: int, launched: int, tokens: FloatArray
) -> FloatArray:
    """P(k samples of a prompt have ended) for k < samples, [tokens, samples]."""
    alive = survival(distribution, tokens)[:, None]
    k = np.arange(samples)
    log_ways = np.array(
        [
            math.lgamma(launched + 1) - math.lgamma(i + 1) - math.lgamma(launched - i + 1)
            for i in range(samples)
        ]
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ended = np.where(k > 0, k * np.log1p(-alive), 0.0)
        left = (launched - k) * np.log(alive)
    found: FloatArray = np.exp(log_ways + ended + left)
    return np.nan_to_num(found)


def _running(
    distribution: LengthDistribution, samples: int, launched: int, tokens: FloatArray
) -> FloatArray:
    """Share of the launched samples that run at each token."""
    k = np.arange(samples)
    share = _open(distribution, samples, launched, tokens) * (launched - k) / launched
    return np.minimum.accumulate(np.asarray(share.sum(axis=1)))
