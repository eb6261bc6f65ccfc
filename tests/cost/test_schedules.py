"""Zero-bubble and DualPipe schedules, hybrid context parallelism, hybrid sharding: their laws."""

import numpy as np
import pytest

from planner.cost.arrays import CallCosts, StrategyArrays
from planner.cost.calls import call_costs
from planner.cost.network import network_volume
from planner.cost.passes import pass_costs
from planner.schema import Strategy
from tests.cost.training_contexts import (
    DEEPSEEK_V3,
    LLAMA_8B,
    LLAMA_70B,
    QWEN3_30B,
    arrays,
    context,
    fixed,
    framework,
)

SCHEDULES = ("1f1b", "zb-h1", "zb-h2", "dualpipe")


def costs(*strategies: Strategy, spec=LLAMA_70B, **options) -> CallCosts:
    given = context(spec, sequences=512, prompt=fixed(96), response=fixed(4000), **options)
    return call_costs(given, arrays(*strategies))


def part(found: CallCosts, name: str) -> list[float]:
    return found.time_parts_s[name].tolist()


def pipelines(**fields: object) -> list[Strategy]:
    return [Strategy(**fields, pipeline_schedule=name) for name in SCHEDULES]  # type: ignore[arg-type]


def test_zero_bubble_schedules_fill_with_weight_gradients() -> None:
    """With p equal stages 1F1B waits (p - 1)(F + B), H1 two W a stage less, H2 three."""
    fields = {"tp": 8, "pp": 4, "dp": 2, "sequence_parallel": True, "zero_stage": 1}
    plain, h1, h2, _ = part(costs(*pipelines(**fields)), "pipeline_bubble")
    assert h2 < h1 < plain
    given = context(LLAMA_70B, sequences=512, prompt=fixed(96), response=fixed(4000))
    passes = pass_costs(given, arrays(Strategy(**fields)), train=True)
    layer_s = float(passes.kinds["dense"].weight_gradient_s[0])
    head_s = float(passes.head_backward_s[0]) / 2
    # The last stage, with the head, is the slowest: the three others fill 20 layers each.
    assert plain - h1 == pytest.approx(2 * 60 * layer_s, rel=1e-6)
    assert h1 - h2 == pytest.approx(60 * layer_s, rel=1e-6)
    assert 0 < head_s < layer_s * 20


def test_only_h2_and_dualpipe_cost_memory() -> None:
    fields = {"tp": 8, "pp": 8, "dp": 1, "sequence_parallel": True, "zero_stage": 1}
    found = costs(*pipelines(**fields))
    kept = found.memory_parts_bytes["activations"]
    assert kept[1] == kept[0]
    assert kept[2] == pytest.approx(kept[0] * 15 / 8)
    assert kept[3] == pytest.approx(kept[0] * 9 / 8, rel=1e-4)
    weights = found.memory_parts_bytes["weights"]
    assert weights[2] == weights[0]
    assert weights[3] == pytest.approx(2 * weights[0], rel=1e-4)


def test_dualpipe_hides_expert_exchanges_and_halves_the_pipeline() -> None:
    fields = {"pp": 8, "ep": 16, "dp": 16, "zero_stage": 1, "recompute": "full"}
    found = costs(*pipelines(**fields), spec=QWEN3_30B)
    exchange, bubble = part(found, "ep_comm"), part(found, "pipeline_bubble")
    assert exchange[0] == exchange[1] == exchange[2] > exchange[3] >= 0
    assert bubble[3] < 0.6 * bubble[0]
    assert (found.useful_flop == found.useful_flop[0]).all()
    assert (found.work_flop == found.work_flop[0]).all()


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_schedule_is_faster_than_its_bound(name: str) -> None:
    fields = {"tp": 2, "pp": 16, "ep": 32, "dp": 16, "sequence_parallel": True, "zero_stage": 1}
    found = costs(
        Strategy(**fields, pipeline_schedule=name),  # type: ignore[arg-type]
        spec=DEEPSEEK_V3,
        cluster="h100:64x8",
    )
    assert found.bound_s[0] < found.time_s[0]
    assert sum(part(found, key)[0] for key in found.time_parts_s) == pytest.approx(found.time_s[0])


def test_plain_ulysses_is_what_an_ulysses_framework_does() -> None:
    ulysses = framework("nemo-rl", cp_ulysses=1.0)
    by_framework = costs(Strategy(cp=8, dp=2), spec=LLAMA_8B, profile=ulysses)
    by_strategy = costs(Strategy(cp=8, ulysses=8, dp=2), spec=LLAMA_8B)
    assert by_strategy.time_s[0] == pytest.approx(by_framework.time_s[0])


def test_a_hybrid_exchanges_less_than_either_extreme_sends_far() -> None:
    """16 ranks on two nodes: heads inside a node, one hop of the ring across."""
    far = [Strategy(cp=16, ulysses=u, dp=1) for u in (1, 8, 16)]
    found = part(costs(*far, spec=LLAMA_70B.model_copy(update={"num_kv_heads": 8})), "cp_comm")
    assert found[1] < found[2]
    given = context(LLAMA_8B, sequences=64, prompt=fixed(24), response=fixed(1000))
    sent = network_volume(given, arrays(Strategy(cp=4), Strategy(cp=4, ulysses=4))).sent_bytes
    tokens, word = 64 * 1024, 2
    heads = (2 * 32 + 2 * 8) * 128 * word
    assert sent["context"][1] == pytest.approx(32 * tokens * 2 * (3 / 4) * heads)


def test_sharding_inside_nodes_trades_memory_for_traffic_across() -> None:
    fields = {"dp": 64, "zero_stage": 3, "micro_batch_sequences": 1}
    whole, inside = Strategy(**fields), Strategy(**fields, shard_ranks=8)
    found = costs(whole, inside, spec=LLAMA_8B)
    state = [
        sum(found.memory_parts_bytes[name][row] for name in ("weights", "gradients", "optimizer"))
        for row in (0, 1)
    ]
    assert state[1] == pytest.approx(8 * state[0], rel=1e-6)
    forward = costs(whole, inside, spec=LLAMA_8B, kind="forward", cluster="h100:8x8")
    gathers = part(forward, "dp_comm")
    assert gathers[1] <= gathers[0]
    given = context(LLAMA_8B, kind="forward", sequences=512)
    assert network_volume(given, arrays(inside)).sent_bytes["data"][0] > 0


def test_a_forward_pass_knows_no_backward_schedule() -> None:
    given = context(LLAMA_70B, kind="forward", sequences=512)
    rows = StrategyArrays.from_strategies(pipelines(tp=8, pp=4, dp=2, sequence_parallel=True))
    found = call_costs(given, rows)
    assert np.ptp(found.time_s[:3]) == 0
    assert found.time_s[3] < found.time_s[0]
