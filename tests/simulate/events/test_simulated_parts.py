"""Sampled lengths, the pool of workers, flows, training calls, and calls on meshes."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulator_problems import prices, problem, solved

from planner.cost.arrays import StrategyArrays
from planner.cost.calls import call_costs
from planner.cost.lengths import length_moments
from planner.schema import EnvironmentSpec, LengthDistribution
from planner.simulate.events.batches import BatchCall
from planner.simulate.events.generation import drain, flow
from planner.simulate.events.lengths import sample_batch, sample_lengths
from planner.simulate.events.loop import Calls, run_calls
from planner.simulate.events.pool import Pool
from planner.simulate.instance import make_instance
from planner.simulate.schedule import DeviceRange, best_schedule


@pytest.mark.parametrize(
    "distribution",
    [
        LengthDistribution(mean_tokens=900, max_tokens=4096),
        LengthDistribution(mean_tokens=4096, max_tokens=4096),
        LengthDistribution(kind="fixed", mean_tokens=10.25, max_tokens=20),
        LengthDistribution(
            kind="histogram", mean_tokens=65, max_tokens=100, histogram=((30, 1.0), (100, 1.0))
        ),
    ],
)
def test_sampled_lengths_have_the_moments_of_the_distribution(
    distribution: LengthDistribution,
) -> None:
    drawn = sample_lengths(distribution, 40_000, np.random.default_rng(0))
    moments = length_moments(distribution)
    assert drawn.min() >= 1
    assert drawn.max() <= distribution.max_tokens
    assert drawn.mean() == pytest.approx(moments.mean, rel=0.02)
    assert (drawn.astype(float) ** 2).mean() == pytest.approx(moments.mean_square, rel=0.03)


def test_samples_of_a_prompt_share_its_length() -> None:
    workload = problem().workload
    batch = sample_batch(workload, 512, np.random.default_rng(0))
    groups = batch.prompt.reshape(-1, workload.samples_per_prompt)
    assert np.all(groups == groups[:, :1])
    assert len(np.unique(groups)) > 10


def test_sampled_latencies_have_the_mean() -> None:
    environment = EnvironmentSpec(workers=100_000, latency_s=3.0, latency_sigma=0.8)
    done = Pool(environment, np.random.default_rng(0)).score(np.zeros(50_000))
    assert done.mean() == pytest.approx(3.0, rel=0.02)
    assert done.max() > 20.0


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=60),
    st.integers(1, 9),
    st.floats(0.1, 20),
    st.integers(1, 3),
)
def test_a_pool_serves_first_come_first_served(
    times: list[float], workers: int, latency_s: float, batches: int
) -> None:
    pool = Pool(EnvironmentSpec(workers=workers, latency_s=latency_s), np.random.default_rng(0))
    free = [0.0] * workers
    for turn in range(batches):
        arrivals = np.sort(np.array(times)) + 100.0 * turn
        expected = []
        for arrival in arrivals:
            end = max(float(arrival), heapq.heappop(free)) + latency_s
            heapq.heappush(free, end)
            expected.append(end)
        np.testing.assert_allclose(pool.score(arrivals), expected)


def test_a_drained_batch_generates_the_sampled_tokens_and_waits_for_the_slowest() -> None:
    workload = problem(prompts=64, samples=8).workload
    p = prices(step_s=0.01, replicas=4, max_running=128)
    found = drain(workload, 512, p, np.random.default_rng(0))
    assert found.tokens == found.batch.response.sum()
    assert found.time_s == found.end_s.max() == pytest.approx(0.01 * found.batch.response.max())
    assert np.all(np.diff(found.end_s) >= 0)
    assert 0 < found.busy_share <= 1
    assert found.imbalance == pytest.approx(1 / found.busy_share - 1)


def test_more_replicas_than_sequences_leave_some_idle() -> None:
    workload = problem().workload
    found = drain(workload, 3, prices(replicas=8), np.random.default_rng(0))
    assert found.busy_share <= 3 / 8


def test_a_flow_has_the_throughput_of_its_population() -> None:
    """Little's law: 50 running, 10 ms a token, so 5,000 tokens/s whatever the lengths are."""
    workload = problem(mean=400.0).workload
    rng = np.random.default_rng(0)
    found = flow(workload, 256, prices(step_s=0.01, replicas=2), rng, in_flight=25.0, steps=30)
    tokens = sum(one.tokens for one in found)
    assert tokens / sum(one.time_s for one in found) == pytest.approx(5000, rel=0.03)
    first, last = found[:15], found[15:]
    rates = [sum(x.tokens for x in some) / sum(x.time_s for x in some) for some in (first, last)]
    assert rates[0] == pytest.approx(rates[1], rel=0.06)  # stationary from the start


def test_versions_behind_grow_with_what_is_in_flight() -> None:
    workload = problem(mean=400.0).workload
    p = prices(step_s=0.01)
    few, many = (
        flow(workload, 128, p, np.random.default_rng(0), in_flight=n, steps=12)[-1].versions_behind
        for n in (32.0, 384.0)
    )
    assert few.mean() < 1 < many.mean()


def test_training_time_follows_the_sampled_tokens() -> None:
    answer = solved()
    plan = answer.plans[0]
    instance = make_instance(
        answer.workload,
        answer.cluster,
        framework=plan.assignment.framework,
        engine=plan.assignment.engine,
        reference_shares_actor_layout=False,
    )
    strategy = plan.assignment.strategies["actor_train"]
    context = instance.context(instance.call("actor_train"), answer.cluster.groups[0], 0)
    costs = call_costs(context, StrategyArrays.from_strategies([strategy]))
    call = BatchCall(context, strategy, costs)
    rng = np.random.default_rng(0)
    batches = [
        sample_batch(answer.workload, 512, np.random.default_rng(seed)) for seed in range(40)
    ]
    tokens = [(batch.prompt + batch.response).astype(float) for batch in batches]
    times = [call.time_s(one, rng) for one in tokens]
    assert np.mean(times) == pytest.approx(float(costs.time_s[0]), rel=0.03)
    if strategy.packing:
        assert np.corrcoef(times, [one.sum() for one in tokens])[0, 1] > 0.8
        assert call.time_s(2 * tokens[0], rng) > 1.3 * times[0]


RANGES = {"a": [DeviceRange(0, 0, 4)], "b": [DeviceRange(0, 4, 4)], "c": [DeviceRange(0, 0, 8)]}


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_fixed_durations_repeat_the_analytic_schedule(staleness: int) -> None:
    durations = {"a": 3.0, "b": 2.0, "c": 1.0}
    edges = [("a", "b"), ("b", "c")]
    schedule = best_schedule(
        durations, edges, [("a", "c"), ("b", "c")], staleness=staleness, host_calls=[]
    )
    assert schedule is not None
    calls = Calls(list(durations), edges, RANGES, schedule, staleness)
    events = list(run_calls(calls, 40, lambda _, name, start_s: start_s + durations[name]))
    ends = [max(e.end_s for e in events if e.iteration == i) for i in range(40)]
    # The last iterations have none after them, with which they would share devices.
    assert (ends[34] - ends[14]) / 20 == pytest.approx(schedule.step_time_s)


@given(st.integers(0, 3), st.integers(0, 10_000))
def test_no_device_runs_two_calls_at_once(staleness: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mean = {name: float(rng.uniform(0.5, 5)) for name in "abc"}
    edges = [("a", "b"), ("b", "c")]
    schedule = best_schedule(
        mean, edges, [("a", "c"), ("b", "c")], staleness=staleness, host_calls=[]
    )
    assert schedule is not None
    calls = Calls(list(mean), edges, RANGES, schedule, staleness)
    events = list(
        run_calls(calls, 12, lambda _, name, start: start + mean[name] * float(rng.uniform(0.5, 2)))
    )
    for one in events:
        for other in events:
            shared = any(x.overlaps(y) for x in RANGES[one.call] for y in RANGES[other.call])
            if one is not other and shared:
                assert one.end_s <= other.start_s or other.end_s <= one.start_s
        if one.call != "a":
            reads = {"b": "a", "c": "b"}[one.call]
            written = next(e for e in events if (e.iteration, e.call) == (one.iteration, reads))
            assert one.start_s >= written.end_s
        old = [e.end_s for e in events if e.iteration == one.iteration - 1 - staleness]
        assert one.start_s >= max(old, default=0.0)
