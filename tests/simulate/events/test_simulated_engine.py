"""Continuous batching of one replica: against a replay token by token, and its laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator_problems import prices

from planner.simulate.events.engine import run_replica
from planner.simulate.events.lengths import Batch
from planner.simulate.events.prices import ReplicaPrices


def batch(responses: list[int], prompts: list[int] | int = 0) -> Batch:
    tokens = np.array(responses, dtype=np.int64)
    prompt = np.broadcast_to(np.array(prompts, dtype=np.int64), tokens.shape)
    return Batch(prompt=prompt.copy(), response=tokens)


def token_by_token(own: Batch, p: ReplicaPrices) -> tuple[list[float], int]:
    """(end of each response, preemptions): one step at a time, all state recomputed."""

    def context_of(i: int) -> float:
        return float(own.prompt[i]) + p.context_growth * done[i]

    def held(i: int) -> float:
        tokens = context_of(i)
        return p.token_bytes * tokens + p.window_bytes * min(tokens, p.window_tokens)

    count = len(own.response)
    done, ends, seen = [0] * count, [0.0] * count, [False] * count
    waiting, running = list(range(count)), []
    clock_s, preemptions, evicting = 0.0, 0, False
    while waiting or running:
        while waiting and len(running) < p.max_running and not evicting:
            first = waiting[0]
            used = sum(held(i) for i in running)
            if running and used + held(first) > 0.99 * p.pool_bytes:
                break
            running.append(waiting.pop(0))
            clock_s += p.prefill_token_s * context_of(first)
            clock_s += 0.0 if seen[first] else p.request_s
            seen[first] = True
        growth = p.context_growth * sum(
            p.token_bytes + p.window_bytes * (context_of(i) < p.window_tokens) for i in running
        )
        if len(running) > 1 and sum(held(i) for i in running) + growth > p.pool_bytes:
            waiting.insert(0, running.pop())
            preemptions, evicting = preemptions + 1, True
            continue
        context = sum(context_of(i) for i in running) / len(running)
        clock_s += float(p.decode_s(np.array([len(running)]), np.array([context]))[0])
        for i in list(running):
            done[i] += 1
            if done[i] == own.response[i]:
                running.remove(i)
                evicting = False
                ends[i] = clock_s
    return ends, preemptions


lengths = st.lists(st.integers(1, 40), min_size=1, max_size=25)


@settings(max_examples=60, deadline=None)
@given(
    responses=lengths,
    prompt=st.integers(1, 30),
    most=st.integers(1, 12),
    pool=st.sampled_from([60.0, 150.0, 400.0, 1e9]),
    window=st.sampled_from([8.0, 25.0, np.inf]),
    growth=st.sampled_from([1.0, 1.5]),
)
def test_events_give_what_a_replay_token_by_token_gives(
    responses: list[int], prompt: int, most: int, pool: float, window: float, growth: float
) -> None:
    own = batch(responses, prompt)
    p = prices(
        attention_s=1e-6,
        prefill_token_s=1e-4,
        request_s=1e-3,
        max_running=most,
        pool_tokens=pool,
        window_tokens=window,
        growth=growth,
    )
    ends, preemptions = token_by_token(own, p)
    run = run_replica(own, p)
    np.testing.assert_allclose(run.end_s, ends, rtol=1e-9)
    assert run.preemptions == preemptions
    assert run.tokens == sum(responses)


def test_a_drain_takes_as_many_steps_as_its_longest_response() -> None:
    run = run_replica(batch([5, 17, 3]), prices(step_s=0.01))
    np.testing.assert_allclose(run.end_s, [0.05, 0.17, 0.03])
    np.testing.assert_array_equal(run.segment_running, [3, 2, 1])


def test_equal_lengths_beyond_the_places_come_in_waves() -> None:
    run = run_replica(batch([10] * 7), prices(step_s=0.01, max_running=3))
    np.testing.assert_allclose(run.end_s, [0.1] * 3 + [0.2] * 3 + [0.3])


def test_a_full_cache_preempts_the_last_and_computes_it_again() -> None:
    roomy = run_replica(batch([50] * 4, 10), prices(prefill_token_s=1e-3))
    tight = run_replica(batch([50] * 4, 10), prices(prefill_token_s=1e-3, pool_tokens=130.0))
    assert roomy.preemptions == 0
    assert tight.preemptions > 0
    assert tight.last_s > roomy.last_s
    assert tight.tokens == roomy.tokens == 200


def test_one_sequence_runs_even_where_the_cache_is_too_small() -> None:
    run = run_replica(batch([50, 50], 10), prices(step_s=0.01, pool_tokens=5.0))
    np.testing.assert_allclose(run.end_s, [0.5, 1.0])


def test_what_exists_already_needs_neither_prefill_nor_steps() -> None:
    half = run_replica(
        batch([20], 10), prices(step_s=0.01, prefill_token_s=1.0), generated=np.array([15])
    )
    assert half.end_s[0] == pytest.approx(0.05)
    assert half.tokens == 5


def test_a_run_ends_with_the_responses_wanted() -> None:
    run = run_replica(batch([4, 8, 12, 16]), prices(), most_running=2, stop_after=2)
    assert np.isfinite(run.end_s).sum() == 2
    assert np.isinf(run.start_s[3])
    assert run.start_s[2] == run.end_s[0]
