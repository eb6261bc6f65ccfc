"""How long CPU verifiers and environments hold up a step."""

from __future__ import annotations

import math

from planner.schema import Workload
from planner.workload.lengths import survival, top_length


def environment_s(workload: Workload, generation_s: float = math.inf) -> float:
    """Seconds from the end of generation until the last response has its score.

    Scoring streams behind generation: a response goes to the pool of workers as soon as it is
    complete. What remains to be done at the end are the responses that end last together, those
    at the cap, in waves of `workers`. A pool that cannot keep up has more left:
    its whole work minus `generation_s` (infinite: the pool keeps up).
    """
    environment = workload.environment
    responses = workload.sequences_per_step
    last_together = max(1.0, responses * _share_of_longest(workload))
    waves = math.ceil(last_together / environment.workers)
    backlog_s = pool_s(workload) - generation_s
    return max(environment.latency_s * waves, backlog_s)


def pool_s(workload: Workload) -> float:
    """Seconds that the pool of workers needs for all responses of a step."""
    environment = workload.environment
    return environment.latency_s * workload.sequences_per_step / environment.workers


def _share_of_longest(workload: Workload) -> float:
    """Share of responses that are exactly as long as the longest can be."""
    longest = top_length(workload.response_length)
    return float(survival(workload.response_length, math.nextafter(longest, 0.0)))
