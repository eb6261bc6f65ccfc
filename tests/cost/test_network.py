"""Network volume: textbook counts, worked out by hand for small cases."""

import numpy as np
import pytest
from hypothesis import given, settings

from planner.cost.network import KINDS, network_volume
from planner.schema import Strategy
from tests.cost.training_contexts import (
    LLAMA_8B,
    QWEN3_30B,
    arrays,
    context,
    fixed,
    training_strategies,
)

LAYERS, HIDDEN, WORD = 32, 4096, 2.0
TOKENS = 64 * 1024
"""Of the whole batch: 64 sequences of 24 + 1,000 tokens."""


def volume(strategy: Strategy, *, spec=LLAMA_8B, kind="train", **options):
    given = context(
        spec, kind=kind, sequences=64, prompt=fixed(24), response=fixed(1000), **options
    )
    found = network_volume(given, arrays(strategy))
    sent = {name: float(value[0]) for name, value in found.sent_bytes.items()}
    return sent, {name: float(value[0]) for name, value in found.messages.items()}


def test_one_device_sends_nothing() -> None:
    for kind in ("train", "forward", "generate"):
        output = "tokens" if kind == "generate" else None
        sent, messages = volume(Strategy(), kind=kind, output=output)
        assert set(sent) == set(messages) == set(KINDS)
        assert not any(sent.values())
        assert not any(messages.values())


@pytest.mark.parametrize(("recompute", "passes"), [("none", 2), ("selective", 2), ("full", 3)])
def test_tensor_parallel_training_reduces_twice_a_layer_and_pass(
    recompute: str, passes: int
) -> None:
    sent, _ = volume(Strategy(tp=4, recompute=recompute))
    one_device = LAYERS * 2 * passes * 2 * (3 / 4) * TOKENS * HIDDEN * WORD
    assert sent["tensor"] == pytest.approx(4 * one_device)


def test_a_pipeline_sends_each_token_over_each_boundary_both_ways() -> None:
    sent, messages = volume(Strategy(pp=4, micro_batch_sequences=1, packing=False))
    assert sent["pipeline"] == pytest.approx(2 * 3 * TOKENS * HIDDEN * WORD)
    forward, _ = volume(Strategy(pp=4, micro_batch_sequences=1, packing=False), kind="forward")
    assert forward["pipeline"] == pytest.approx(3 * TOKENS * HIDDEN * WORD)
    assert messages["pipeline"] == pytest.approx(2 * 64 * 3 / 4)


def test_ring_attention_passes_keys_and_values_around() -> None:
    sent, _ = volume(Strategy(cp=4), kind="forward")
    key_value = 2 * 8 * 128 * WORD
    assert sent["context"] == pytest.approx(LAYERS * 3 * TOKENS * key_value)
    both, _ = volume(Strategy(cp=4))
    assert both["context"] == pytest.approx(3 * sent["context"])


def test_experts_receive_every_copy_and_send_it_back() -> None:
    sent, _ = volume(Strategy(dp=8, ep=8), spec=QWEN3_30B, kind="forward")
    copies = TOKENS * 8 * 2048 * WORD * (7 / 8)
    assert sent["expert"] == pytest.approx(48 * 2 * copies)


def test_zero_stages_send_what_their_paper_counts() -> None:
    """Plain data parallelism and stages 1 and 2 send twice the parameters, stage 3 three times."""
    every = Strategy(dp=8, micro_batch_sequences=8, packing=False)
    amounts = []
    for stage in (0, 1, 3):
        given = context(LLAMA_8B, sequences=64, prompt=fixed(24), response=fixed(1000))
        strategies = arrays(every.model_copy(update={"zero_stage": stage}))
        framework = given.framework
        gradient = framework.value("gradient_reduce_bytes")
        weight = framework.value("gather_bytes_per_parameter")
        sent = float(network_volume(given, strategies).sent_bytes["data"][0])
        per_parameter = {0: 2 * gradient, 1: gradient + weight, 3: gradient + 2 * weight}[stage]
        amounts.append(sent / (8 * 7 / 8 * per_parameter))
    # All three divide to the same number of parameters: those of the model.
    assert np.ptp(amounts) < 1e-6 * amounts[0]
    assert amounts[0] == pytest.approx(8.03e9, rel=0.005)


def test_decoding_reduces_twice_a_layer_for_every_token() -> None:
    sent, messages = volume(Strategy(tp=4), kind="generate", output="tokens")
    tokens = 64 * (1000 + 24)
    assert sent["tensor"] == pytest.approx(4 * LAYERS * 2 * 2 * (3 / 4) * tokens * HIDDEN * WORD)
    assert messages["tensor"] == pytest.approx(1000 * LAYERS * 2 * 2, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(training_strategies(experts=True))
def test_volumes_are_finite_and_only_real_degrees_send(strategy: Strategy) -> None:
    sent, messages = volume(strategy, spec=QWEN3_30B)
    for kind, degree in (
        ("tensor", strategy.tp),
        ("context", strategy.cp),
        ("expert", strategy.ep),
        ("pipeline", strategy.pp),
    ):
        assert np.isfinite(sent[kind])
        assert np.isfinite(messages[kind])
        assert (sent[kind] > 0) == (messages[kind] > 0) == (degree > 1)
