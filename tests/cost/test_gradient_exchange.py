"""Compressed, rarer and delayed gradient exchange: hand calculations and no-ops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.cost.arrays import CallCosts
from planner.cost.calls import call_costs
from planner.cost.network import network_volume
from planner.cost.parameters import count_parameters
from planner.schema import GradientExchange, Strategy
from tests.cost.training_contexts import LLAMA_8B, arrays, context, framework

PLAIN = GradientExchange()
# Nothing hides, so that what is sent can be counted.
BARE = framework("nemo-rl", dp_overlap=0.0, straggler_per_doubling=0.0)
PARAMETERS = count_parameters(LLAMA_8B).total


def priced(strategy: Strategy, *, profile=BARE, steps: int = 1, **exchange: object) -> CallCosts:
    given = context(LLAMA_8B, profile=profile, optimizer_steps=steps, cluster="h100:2x8")
    workload = given.workload.model_copy(update={"gradient_exchange": GradientExchange(**exchange)})
    return call_costs(replace(given, workload=workload), arrays(strategy))


def exchange_s(found: CallCosts) -> float:
    return float(found.time_parts_s["dp_comm"][0])


def test_compression_divides_the_bytes_and_adds_a_pass_over_the_gradient() -> None:
    strategy = Strategy(dp=16)
    whole, tenth = exchange_s(priced(strategy)), exchange_s(priced(strategy, compression=10.0))
    device = context(cluster="h100:2x8").group.device
    rate = device.memory_bandwidth_bytes_per_s * device.memory_efficiency
    gradient = BARE.value("gradient_reduce_bytes")
    passes_s = PARAMETERS * 2 * (gradient + 2) / rate
    # Two rings over two nodes: the interfaces of a node's eight devices together.
    link = min(
        device.scale_up_bandwidth_bytes_per_s * device.scale_up_efficiency,
        device.scale_out_bandwidth_bytes_per_s * device.scale_out_efficiency * 8,
    )
    ring_s = 2 * 15 / 16 * PARAMETERS * gradient / link
    assert whole == pytest.approx(ring_s, rel=0.01)
    assert tenth == pytest.approx(ring_s / 10 + passes_s, rel=0.01)


def test_replicas_that_exchange_every_fifth_step_pay_a_fifth_and_keep_outer_state() -> None:
    strategy = Strategy(dp=16)
    every, fifth = (priced(strategy, steps=8, local_steps=h) for h in (1, 5))
    assert exchange_s(fifth) == pytest.approx(exchange_s(every) / 5)
    outer = fifth.host_bytes_per_device[0] - every.host_bytes_per_device[0]
    assert outer >= 8 * PARAMETERS * 0.99


def test_ranks_that_share_one_state_exchange_in_every_step() -> None:
    for strategy in (Strategy(dp=16, zero_stage=1), Strategy(dp=16, zero_stage=3)):
        every, fifth = (exchange_s(priced(strategy, local_steps=h)) for h in (1, 5))
        assert fifth == every


def test_sharding_groups_are_replicas_of_each_other() -> None:
    strategy = Strategy(dp=16, zero_stage=3, shard_ranks=8)
    every, fifth, rarely = (exchange_s(priced(strategy, local_steps=h)) for h in (1, 5, 10_000))
    assert every - fifth == pytest.approx((every - rarely) * 0.8, rel=1e-3)
    assert rarely > 0.5 * every


def test_delayed_gradients_hide_behind_the_whole_step() -> None:
    strategy = Strategy(dp=16, zero_stage=1)
    hiding = framework("nemo-rl", dp_overlap=1.0, dp_interference=0.0, straggler_per_doubling=0.0)
    now, later = (priced(strategy, profile=hiding, delayed=late) for late in (False, True))
    assert exchange_s(now) > 10 * exchange_s(later)
    gradients = [float(found.memory_parts_bytes["gradients"][0]) for found in (now, later)]
    assert gradients[1] == pytest.approx(2 * gradients[0])
    # A pass of ZeRO 3 needs the weights that the step before made.
    whole = Strategy(dp=16, zero_stage=3)
    assert exchange_s(priced(whole, delayed=True)) == exchange_s(priced(whole))


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_whole_gradients_in_every_step_are_the_default(stage: int) -> None:
    strategy = Strategy(dp=16, zero_stage=stage)
    given = context(LLAMA_8B, profile=BARE, cluster="h100:2x8")
    assert given.workload.gradient_exchange == PLAIN
    assert exchange_s(priced(strategy)) == exchange_s(call_costs(given, arrays(strategy)))


def test_volumes_follow() -> None:
    given = context(LLAMA_8B, cluster="h100:2x8", optimizer_steps=4)

    def sent(**exchange: object) -> float:
        changed = {"gradient_exchange": GradientExchange(**exchange)}
        workload = given.workload.model_copy(update=changed)
        volume = network_volume(replace(given, workload=workload), arrays(Strategy(dp=16)))
        return float(volume.sent_bytes["data"][0])

    assert sent(compression=8.0) == pytest.approx(sent() / 8)
    assert sent(local_steps=4) == pytest.approx(sent() / 4)
