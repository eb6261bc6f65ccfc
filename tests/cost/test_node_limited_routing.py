"""Routing to a few groups of experts: tokens cross the network to no more domains than those."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from planner.catalog.models import load_model
from planner.cost.collectives import expert_exchange_s, rank_group, scale_out_rate
from planner.schema import MoESpec
from tests.cost.training_contexts import context

TOKENS, TOKEN_BYTES = 4096.0, 2.0 * 7168


def across_s(ep: int, moe: MoESpec) -> float:
    """Time of one dispatch over nodes of eight, without what stays inside a node."""
    given = context(cluster="h800:16x8")
    device = given.group.device
    group = rank_group(device, np.array([float(ep)]), np.array([1.0]))
    both = [
        float(expert_exchange_s(given, group, np.array([tokens]), moe, TOKEN_BYTES, share)[0])
        for tokens, share in ((TOKENS, 1.0), (TOKENS, 0.0))
    ]
    return both[0] - both[1]


def routed(groups: int = 1, per_token: int = 1) -> MoESpec:
    return MoESpec(
        num_experts=256,
        top_k=8,
        expert_ffn_size=2048,
        expert_groups=groups,
        groups_per_token=per_token,
    )


def expected_s(ep: int, domains: float) -> float:
    nodes = ep / 8
    rate = scale_out_rate(context(cluster="h800:16x8").group.device)
    return TOKENS * TOKEN_BYTES * domains * (nodes - 1) / nodes / rate


def test_a_token_goes_to_four_of_eight_nodes_at_most() -> None:
    anywhere = 8 * (1 - (7 / 8) ** 8)
    assert anywhere > 5
    assert across_s(64, routed()) == pytest.approx(expected_s(64, anywhere))
    assert across_s(64, routed(8, 4)) == pytest.approx(expected_s(64, 4.0))
    assert across_s(64, routed(8, 2)) == pytest.approx(expected_s(64, 2.0))


def test_where_groups_span_several_nodes_so_do_their_tokens() -> None:
    anywhere = 16 * (1 - (15 / 16) ** 8)
    assert across_s(128, routed(8, 4)) == pytest.approx(expected_s(128, min(anywhere, 8.0)))
    assert across_s(128, routed(8, 2)) == pytest.approx(expected_s(128, 4.0))


@pytest.mark.parametrize("ep", [8, 16, 32])
def test_few_nodes_are_no_limit(ep: int) -> None:
    assert across_s(ep, routed(8, 4)) == across_s(ep, routed())


def test_models_that_route_so_say_so() -> None:
    for name in ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-R1"):
        moe = load_model(name).moe
        assert moe is not None
        assert (moe.expert_groups, moe.groups_per_token) == (8, 4)
    kimi = load_model("moonshotai/Kimi-K2-Instruct").moe
    assert kimi is not None
    assert kimi.expert_groups == 1


def test_groups_must_divide_the_experts() -> None:
    with pytest.raises(ValidationError, match="do not divide"):
        routed(7, 1)
    with pytest.raises(ValidationError, match="exceeds expert_groups"):
        routed(4, 5)
