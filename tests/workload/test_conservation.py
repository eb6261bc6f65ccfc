"""Every token that an algorithm says it generates or trains on is paid for, and no other."""

from __future__ import annotations

import pytest
from algorithm_workloads import SETTINGS, SMALL, workload_for
from hypothesis import given, settings
from hypothesis import strategies as st
from priced import price

from planner.cost.parameters import count_parameters
from planner.schema import Strategy, Workload
from planner.workload.algorithms import build_graph
from planner.workload.calls import workload_of
from planner.workload.decoding import decode_mode
from planner.workload.graph import calls_in_order
from planner.workload.turns import later_prefill

LAYOUTS = {
    "env_llm": (1, 1, Strategy(tp=1, dp=8, max_running_sequences=64)),
    "generate": (0, 1, Strategy(tp=1, dp=8, max_running_sequences=64, memory_fraction=0.4)),
    "": (0, 1, Strategy(dp=8)),
}
COUNTS = count_parameters(SMALL)
LAYERS = COUNTS.active_without_embeddings
HEAD = SMALL.vocab_size * SMALL.hidden_size
ATTENTION = 0.25
"""Most that attention adds to the work of these short sequences, relative."""


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_work_is_two_flop_a_parameter_and_token(name: str) -> None:
    """Forward 2 N, training 6 N a token, the head on response tokens; attention on top."""
    workload = workload_for(name)
    found = price(workload, "h100:2x8", LAYOUTS).calls
    for call in calls_in_order(build_graph(workload)):
        if call.kind == "environment":
            continue
        seen = workload_of(call, workload)
        passes = {"forward": 1, "train": 3}.get(call.kind, 1)
        responses = call.sequences * call.epochs * call.rounds
        response = responses * seen.response_length.mean_tokens
        if call.kind == "generate":
            mode = decode_mode(seen).work_per_token
            prompts = call.sequences * call.rounds / min(seen.samples_per_prompt, call.sequences)
            tokens = response * mode + prompts * seen.prompt_length.mean_tokens
            tokens += responses * later_prefill(seen).tokens
            headed = response * mode
        else:
            tokens = responses * seen.mean_sequence_tokens * seen.training_views
            # Priced on all tokens by trainers; the useful work counts those of responses.
            headed = tokens
        scalar = call.role in ("critic", "reward") or call.output in ("values", "rewards")
        expected = 2.0 * passes * (LAYERS * tokens + (0.0 if scalar else HEAD * headed))
        assert expected * 0.99 <= found[call.name].work_flop <= expected * (1 + ATTENTION)


def step_s(workload: Workload, **changes: object) -> float:
    changed = Workload.model_validate({**workload.model_dump(), **changes})
    return price(changed, "h100:2x8", LAYOUTS).step_time_s


@given(st.floats(0.1, 1.0), st.floats(0.1, 1.0))
@settings(max_examples=6, deadline=None)
def test_a_step_grows_as_fewer_groups_are_kept(a: float, b: float) -> None:
    low, high = sorted((a, b))
    workload = workload_for("dapo", oversampling=1.0, max_rounds=50)
    assert step_s(workload, acceptance=low) >= step_s(workload, acceptance=high) * (1 - 1e-9)


@given(st.floats(0.1, 1.0), st.floats(0.1, 1.0))
@settings(max_examples=6, deadline=None)
def test_a_step_shrinks_as_less_is_trained_on(a: float, b: float) -> None:
    low, high = sorted((a, b))
    workload = workload_for("grpo")
    # Microbatches are whole, so a little more may fit into as many.
    assert step_s(workload, kept_fraction=low) <= step_s(workload, kept_fraction=high) * (1 + 1e-9)


@given(st.floats(2.0, 12.0), st.floats(2.0, 12.0))
@settings(max_examples=6, deadline=None)
def test_a_step_grows_with_turns(a: float, b: float) -> None:
    low, high = sorted((a, b))
    workload = workload_for("agentic")
    environment = {"latency_s": 0.3, "workers": 100_000}

    def of(turns: float) -> float:
        spec = {"mean": turns, "observation_tokens": 30.0, "environment": environment}
        return step_s(workload, turns=spec)

    assert of(low) <= of(high) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["grpo", "ppo", "rloo", "gspo"])
def test_neutral_fields_change_nothing(name: str) -> None:
    workload = workload_for(name)
    neutral = {
        "acceptance": 1.0,
        "oversampling": 1.0,
        "kept_fraction": 1.0,
        "max_rounds": 3,
        "turns": {"mean": 1.0, "observation_tokens": 500.0, "prefix_cache_hit": 0.0},
    }
    changed = Workload.model_validate({**workload.model_dump(), **neutral})
    plain, same = (price(each, "h100:2x8", LAYOUTS) for each in (workload, changed))
    assert plain == same


def test_what_is_generated_is_what_is_scored() -> None:
    """Rounds of generation, and their scores on CPUs, count the same responses."""
    workload = workload_for("dapo", oversampling=1.0, environment={"latency_s": 1.0, "workers": 4})
    calls = {call.name: call for call in calls_in_order(build_graph(workload))}
    generated = calls["generate"].sequences * calls["generate"].rounds
    assert calls["verify"].sequences == round(generated)
    assert price(workload, "h100:2x8", LAYOUTS).step_time_s >= calls["verify"].sequences / 4
