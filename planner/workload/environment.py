"""How long CPU verifiers and environments hold up a step."""

from __future__ import annotations

import math

from planner.schema import Call, Workload
from planner.workload.lengths import survival, top_length
from planner.workload.sampling import generated_sequences, round_prompts
from planner.workload.turns import answers, largest_lognormal, needed_workers


def environment_s(workload: Workload, generation_s: float = math.inf) -> float:
    """Seconds from the end of generation until the last response has its score.

    Scoring streams behind generation: a response goes to the pool of workers as soon as it is
    complete. What remains to be done at the end are the responses that end last together, those
    at the cap, in waves of `workers`. A pool that cannot keep up has more left:
    its whole work minus `generation_s` (infinite: the pool keeps up).
    """
    environment = workload.environment
    last_together = max(1.0, _last_round(workload) * _share_of_longest(workload))
    waves = math.ceil(last_together / environment.workers)
    # Of those that are scored at once, the slowest counts; waves follow one another at the mean.
    slowest_s = largest_lognormal(
        environment.latency_s,
        environment.latency_sigma,
        min(last_together, float(environment.workers)),
    )
    backlog_s = pool_s(workload) - generation_s
    return max(environment.latency_s * (waves - 1) + slowest_s, backlog_s)


def pool_s(workload: Workload) -> float:
    """Seconds that the pool of workers needs for all responses of a step."""
    environment = workload.environment
    return environment.latency_s * generated_sequences(workload) / environment.workers


def workers_needed(workload: Workload, call: Call, generation_s: float) -> float | None:
    """Workers that keep pace when generation takes `generation_s`; None without an environment.

    Little's law: requests in work at the same time are their rate x their latency. For a generate
    call these are the answers between turns, for an environment call the scores.
    """
    if call.kind == "environment":
        return needed_workers(workload.environment, call.sequences, generation_s)
    asked = answers(workload) * call.sequences * call.rounds
    if call.kind != "generate" or asked * workload.turns.environment.latency_s <= 0.0:
        return None
    return needed_workers(workload.turns.environment, asked, generation_s)


def _last_round(workload: Workload) -> float:
    """Responses of the last round of generation: those of earlier rounds are scored by then."""
    return float(round_prompts(workload) * workload.samples_per_prompt)


def _share_of_longest(workload: Workload) -> float:
    """Share of responses that are exactly as long as the longest can be."""
    longest = top_length(workload.response_length)
    return float(survival(workload.response_length, math.nextafter(longest, 0.0)))
