"""The rule evaluator: Python's meaning, over arrays, and nothing else of Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.arrays import StrategyArrays
from planner.cost.rule_values import RULE_NAMES, call_values, strategy_values
from planner.cost.rules import compile_expression, compile_rule_list, compile_rules
from planner.errors import InputError
from planner.schema import (
    Call,
    DeviceProfile,
    LengthDistribution,
    ModelSpec,
    MoESpec,
    NodeGroup,
    Rule,
    SearchSpace,
    Strategy,
    Workload,
)

NUMBERS = ("tp", "pp", "dp", "num_heads")
BOOLEANS = ("packing", "is_moe")

numbers = st.deferred(
    lambda: st.one_of(
        st.integers(0, 9).map(str),
        st.sampled_from(NUMBERS),
        st.tuples(numbers, st.sampled_from(["+", "-", "*"]), numbers).map(
            lambda p: f"({p[0]} {p[1]} {p[2]})"
        ),
        # divisors that are never zero
        st.tuples(numbers, st.sampled_from(["//", "%"]), st.sampled_from(["tp", "pp", "3"])).map(
            lambda p: f"({p[0]} {p[1]} {p[2]})"
        ),
        st.tuples(st.sampled_from(["min", "max"]), numbers, numbers).map(
            lambda p: f"{p[0]}({p[1]}, {p[2]})"
        ),
        st.tuples(numbers, booleans, numbers).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        numbers.map(lambda p: f"-({p})"),
    )
)
booleans = st.deferred(
    lambda: st.one_of(
        st.sampled_from([*BOOLEANS, "True", "False"]),
        st.tuples(numbers, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), numbers).map(
            lambda p: f"({p[0]} {p[1]} {p[2]})"
        ),
        st.tuples(numbers, numbers, numbers).map(lambda p: f"({p[0]} < {p[1]} <= {p[2]})"),
        st.tuples(numbers, numbers, numbers).map(lambda p: f"({p[0]} in ({p[1]}, {p[2]}))"),
        st.tuples(booleans, st.sampled_from(["and", "or"]), booleans).map(
            lambda p: f"({p[0]} {p[1]} {p[2]})"
        ),
        booleans.map(lambda p: f"(not {p})"),
    )
)
rows = st.lists(
    st.fixed_dictionaries(
        {name: st.integers(1, 16) for name in NUMBERS} | {name: st.booleans() for name in BOOLEANS}
    ),
    min_size=1,
    max_size=4,
)


@given(booleans, rows)
@settings(max_examples=400, deadline=None)
def test_means_what_python_means_for_every_row(text: str, values: list[dict[str, int]]) -> None:
    expression = compile_expression(text, "test")
    columns = {name: np.asarray([row[name] for row in values]) for name in values[0]}
    expected = [bool(eval(text, {"min": min, "max": max}, row)) for row in values]
    assert expression.mask(columns, len(values)).tolist() == expected
    alone = [bool(expression.mask(row, 1)[0]) for row in values]
    assert alone == expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "tp.real == 1",
        "tp[0] == 1",
        "(lambda: tp)() == 1",
        "tp ** 9 == 1",
        "[x for x in (1, 2)] == 1",
        "f'{tp}' == '1'",
        "(tp := 1) == 1",
        "tp & 1 == 1",
        "tp is 1",
        "print(tp) == 1",
        "min(tp) == 1",
        "max(tp, pp, key=tp) == 1",
        "min(*tp) == 1",
        "tp in pp",
        "tp in ()",
        "{tp} == {1}",
        "tp == 1; pp == 1",
        "tp ==",
        "",
        "tp + 1",
        "tp",
        "recompute",
        "'full'",
        "tp == 'full'",
        "recompute < 'full'",
        "recompute == 'sometimes'",
        "recompute == offload",
        "tp and pp",
        "packing + 1 == 2",
        "packing == 1",
        "tp == 1e300 * 99999999999999999999",
        "await tp",
        "tp if packing else packing",
        "None",
        "tp == None",
        "tp == b'1'",
        "tp == 1j",
        "...",
    ],
)
def test_everything_else_is_refused_with_the_place(text: str) -> None:
    with pytest.raises(InputError, match="here: rule r") as error:
        compile_expression(text, "here: rule r")
    assert error.value.remedy


def test_unknown_names_are_named_with_space_and_rule() -> None:
    space = SearchSpace(
        name="mine",
        launcher=None,
        description="d",
        framework="f",
        engine="e",
        calls={},
        placements=("free",),
        rules=(_rule("tpp == 1"),),
        version="1",
    )
    with pytest.raises(InputError, match=r"search space mine: rule r.*'tpp'"):
        compile_rules(space)


def test_messages_may_only_name_what_rules_see() -> None:
    for message in ("{tpp}", "{tp.__class__}", "{tp[0]}", "{tp:>9}", "{tp!r}", "{}"):
        with pytest.raises(InputError, match="no rule can see"):
            compile_rule_list((_rule("tp == 1", message),), "here")


def test_text_fields_compare_with_their_choices() -> None:
    strategies = StrategyArrays.from_strategies(
        [Strategy(recompute="full"), Strategy(recompute="none"), Strategy(offload="all")]
    )
    values = strategy_values(strategies)
    full = compile_expression("recompute == 'full'", "test")
    assert full.mask(values, 3).tolist() == [True, False, False]
    either = compile_expression("recompute in ('full', 'selective') or offload != 'none'", "test")
    assert either.mask(values, 3).tolist() == [True, False, True]
    reverse = compile_expression("'all' == offload", "test")
    assert reverse.mask(values, 3).tolist() == [False, False, True]


def test_text_of_the_call_compares_too() -> None:
    check = compile_expression("role == 'critic' and placement != 'colocated'", "test")
    assert check.mask({"role": "critic", "placement": "free"}, 2).tolist() == [True, True]
    assert check.mask({"role": "actor", "placement": "free"}, 2).tolist() == [False, False]


def test_division_by_zero_is_no_error() -> None:
    check = compile_expression("num_experts == 0 or 8 % num_experts == 0", "test")
    assert check.mask({"num_experts": np.asarray([0, 4, 3])}, 3).tolist() == [True, True, False]


def test_message_shows_values_as_people_read_them() -> None:
    (rule,) = compile_rule_list(
        (_rule("tp == 1", "tp {tp}, {recompute}, moe {is_moe}, share {memory_fraction}"),), "here"
    )
    strategies = StrategyArrays.from_strategies([Strategy(), Strategy(tp=4, recompute="full")])
    values = strategy_values(strategies) | {"is_moe": True}
    assert rule.message(values, 1).startswith("tp 4, full, moe True, share 0.9. Do it. [here]")


def test_every_documented_name_has_a_value() -> None:
    values = call_values(*_call()) | strategy_values(StrategyArrays.from_strategies([Strategy()]))
    assert values.keys() == RULE_NAMES.keys()


def test_values_of_a_call() -> None:
    call, model, workload, group = _call()
    values = call_values(call, model, workload, group, cluster_devices=64, staleness=1)
    assert values["sequences_per_step"] == 32
    assert values["sequences_per_optimizer_step"] == 8
    assert values["max_sequence_tokens"] == 100
    assert values["num_experts"] == 8
    assert (values["devices_per_node"], values["scale_up_domain_devices"]) == (4, 72)
    assert (values["cluster_devices"], values["staleness"]) == (64, 1)
    assert call_values(call, model, workload, group)["cluster_devices"] == 8


def _rule(check: str, message: str = "wrong") -> Rule:
    return Rule(
        id="r", calls=("train",), check=check, message=message, remedy="Do it.", source="here"
    )


def _call() -> tuple[Call, ModelSpec, Workload, NodeGroup]:
    model = ModelSpec(
        name="m",
        architecture="custom",
        hidden_size=64,
        num_layers=4,
        num_heads=8,
        num_kv_heads=4,
        head_dim=8,
        ffn_size=128,
        vocab_size=256,
        moe=MoESpec(num_experts=8, top_k=2, expert_ffn_size=32),
    )
    workload = Workload(
        name="w",
        algorithm="grpo",
        models={"actor": model},
        prompts_per_step=8,
        samples_per_prompt=4,
        prompt_length=LengthDistribution(kind="fixed", mean_tokens=40, max_tokens=40),
        response_length=LengthDistribution(kind="fixed", mean_tokens=60, max_tokens=60),
        optimizer_steps=4,
    )
    call = Call(
        name="actor_train",
        kind="train",
        role="actor",
        sequences=32,
        output="loss",
        optimizer_steps=4,
    )
    device = DeviceProfile(
        id="d",
        vendor="v",
        peak_flop_per_s={"bf16": 1e15},
        memory_bytes=2**36,
        memory_bandwidth_bytes_per_s=1e12,
        scale_up_bandwidth_bytes_per_s=1e11,
        scale_up_domain_devices=72,
        scale_up_topology="switch",
        scale_out_bandwidth_bytes_per_s=1e10,
        host_link_bandwidth_bytes_per_s=1e10,
        memory_efficiency=0.9,
        kernel_latency_s=1e-6,
        scale_up_latency_s=1e-6,
        scale_out_latency_s=1e-6,
        scale_up_efficiency=0.9,
        scale_out_efficiency=0.9,
        kernel_table="t",
        sources=("test",),
    )
    group = NodeGroup(name="g", nodes=2, devices_per_node=4, device=device, host_memory_bytes=2**40)
    return call, model, workload, group
