"""Candidates: exactly the legal strategies, in arrays, fast; published recipes are among them."""

from __future__ import annotations

import itertools
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog.hardware import parse_cluster
from planner.catalog.spaces import load_space
from planner.cost.arrays import StrategyArrays, decode
from planner.errors import InputError
from planner.schema import (
    Call,
    CallSpace,
    LengthDistribution,
    ModelSpec,
    MoESpec,
    NodeGroup,
    Rule,
    SearchSpace,
    Strategy,
    Workload,
)
from planner.search.candidates import (
    enumerate_candidates,
    forward_variants,
    mesh_sizes,
    stage_splits,
    unit_layout_keys,
)
from planner.search.legality import equal_micro_batch_mask, explain_illegal, legal_mask

RECIPES = json.loads((Path(__file__).parent / "nemo_rl_recipes.json").read_text())


def fixed(tokens: int) -> LengthDistribution:
    return LengthDistribution(kind="fixed", mean_tokens=tokens, max_tokens=tokens)


def small_model(moe: bool, layers: int = 6) -> ModelSpec:
    return ModelSpec(
        name="small",
        architecture="custom",
        hidden_size=64,
        num_layers=layers,
        num_heads=8,
        num_kv_heads=2,
        head_dim=8,
        ffn_size=96,
        vocab_size=256,
        moe=MoESpec(num_experts=4, top_k=2, expert_ffn_size=48) if moe else None,
    )


def workload_of(model: ModelSpec, prompts: int = 8, steps: int = 2) -> Workload:
    return Workload(
        name="w",
        algorithm="grpo",
        models={"actor": model},
        prompts_per_step=prompts,
        samples_per_prompt=4,
        prompt_length=fixed(40),
        response_length=fixed(88),
        optimizer_steps=steps,
    )


def call_of(workload: Workload, kind: str, role: str = "actor") -> Call:
    return Call(
        name=kind,
        kind=kind,  # type: ignore[arg-type]
        role=role,
        sequences=workload.sequences_per_step,
        output="loss",
        optimizer_steps=workload.optimizer_steps if kind == "train" else 0,
    )


SMALL = SearchSpace(
    name="small",
    launcher=None,
    description="d",
    framework="f",
    engine="e",
    calls={
        "train": CallSpace(
            tp=(1, 2, 4),
            pp=(1, 2, 4),
            vpp=(1, 3),
            cp=(1, 2),
            ep=(1, 2, 4),
            etp=(1, 2),
            zero_stage=(1, 3),
            sequence_parallel="optional",
            micro_batch_sequences=(1, 2),
            recompute=("none", "full"),
            uneven_stages=True,
        ),
        "forward": CallSpace(
            tp=(1, 2, 4), pp=(1, 2, 4), cp=(1, 2), micro_batch_sequences=(1, 2), packing=(False,)
        ),
        "generate": CallSpace(
            tp=(1, 2, 4),
            pp=(1, 2),
            ep=(1, 2, 4),
            memory_fraction=(0.5, 0.9),
            max_running_sequences=(2, 8, 64),
        ),
    },
    placements=("free",),
    sub_node_meshes=True,
    rules=(
        Rule(
            id="zero-3",
            calls=("train",),
            check="zero_stage < 3 or pp == 1",
            message="m",
            remedy="r",
            source="s",
        ),
    ),
    version="1",
)


@pytest.mark.parametrize("kind", ["train", "forward", "generate"])
@pytest.mark.parametrize("moe", [False, True])
def test_equals_the_brute_force_over_all_values(kind: str, moe: bool) -> None:
    model = small_model(moe)
    workload = workload_of(model)
    call = call_of(workload, kind)
    group = parse_cluster("h100:2x8").groups[0]
    found = enumerate_candidates(call, model, workload, group, SMALL)
    assert _rows(found) == _brute_force(call, model, workload, group, SMALL)
    assert len(_rows(found)) == len(found)


def _rows(strategies: StrategyArrays) -> set[tuple[Any, ...]]:
    columns = [getattr(strategies, field.name).tolist() for field in fields(strategies)]
    return set(zip(*columns, strict=True))


def _brute_force(
    call: Call, model: ModelSpec, workload: Workload, group: NodeGroup, space: SearchSpace
) -> set[tuple[Any, ...]]:
    """Every combination of values, then the check that a user's strategies get."""
    values = space.calls[call.kind]
    strategies = []
    knobs = itertools.product(
        values.tp, values.pp, values.cp, values.ep, values.etp, values.vpp, values.zero_stage
    )
    for tp, pp, cp, ep, etp, vpp, zero in knobs:
        for devices in (1, 2, 4, 8, 16):
            if devices % (tp * pp * cp):
                continue
            dp = devices // (tp * pp * cp)
            degrees = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "etp": etp, "vpp": vpp, "dp": dp}
            if call.kind == "generate":
                cap = -(-call.sequences // dp)
                limits = values.max_running_sequences
                enough = next((limit for limit in limits if limit >= cap), limits[-1])
                for fraction, limit in itertools.product(values.memory_fraction, limits):
                    if limit <= enough:
                        strategies.append(
                            Strategy(
                                **degrees, memory_fraction=fraction, max_running_sequences=limit
                            )
                        )
                continue
            for rest in itertools.product(
                stage_splits(model.num_layers, pp, values.uneven_stages),
                (False, True),
                values.micro_batch_sequences,
                values.recompute,
                values.offload,
            ):
                (first, last), sequence_parallel, micro, recompute, offload = rest
                strategies.append(
                    Strategy(
                        **degrees,
                        zero_stage=zero,
                        first_stage_layers=first,
                        last_stage_layers=last,
                        sequence_parallel=sequence_parallel,
                        micro_batch_sequences=micro,
                        recompute=recompute,
                        offload=offload,
                        packing=values.packing[0],
                    )
                )
    everything = StrategyArrays.from_strategies(strategies)
    return _rows(everything.take(legal_mask(everything, call, model, workload, group, space)))


@given(
    layers=st.integers(4, 97),
    moe=st.booleans(),
    prompts=st.integers(1, 40),
    nodes=st.integers(1, 40),
    kind=st.sampled_from(["train", "forward", "generate"]),
    name=st.sampled_from(["any", "nemo-rl-megatron", "verl-fsdp", "verl-megatron"]),
    placement=st.sampled_from(["free", "colocated", "disaggregated"]),
    staleness=st.integers(0, 2),
)
@settings(max_examples=60, deadline=None)
def test_every_candidate_passes_the_check_that_users_get(
    layers: int,
    moe: bool,
    prompts: int,
    nodes: int,
    kind: str,
    name: str,
    placement: Any,
    staleness: int,
) -> None:
    model = small_model(moe, layers)
    workload = workload_of(model, prompts, 1)
    call = call_of(workload, kind)
    group = parse_cluster(f"h100:{nodes}x8").groups[0]
    space = load_space(name)
    classes = {"placement": placement, "staleness": staleness}
    found = enumerate_candidates(call, model, workload, group, space, **classes)
    assert legal_mask(found, call, model, workload, group, space, **classes).all()
    for index in range(0, len(found), max(1, len(found) // 20)):
        strategy = found.strategy(index)
        assert not explain_illegal(strategy, call, model, workload, group, space, **classes)


@given(layers=st.integers(1, 200), pp=st.integers(1, 20))
def test_stage_splits_hold_all_layers_in_equal_middles(layers: int, pp: int) -> None:
    for first, last in stage_splits(layers, pp, uneven=True):
        if (first, last) == (0, 0):
            assert layers % pp == 0
            continue
        assert pp > 1
        assert first >= last >= 1
        middle = layers - first - last
        assert middle == 0 if pp == 2 else middle > 0
        if pp > 2:
            per_stage, rest = divmod(middle, pp - 2)
            assert rest == 0
            assert max(first, last) <= per_stage + 1


def test_stage_splits_include_those_that_people_run() -> None:
    assert (3, 2) in stage_splits(61, 16, True)  # NeMo RL, DeepSeek-V3 on H100
    assert (7, 6) in stage_splits(61, 8, True)  # NeMo RL, DeepSeek-V3 on GB200
    assert (11, 11) in stage_splits(94, 8, True)  # NeMo RL, Qwen3-235B on H100
    assert (23, 23) in stage_splits(94, 4, True)  # NeMo RL, Qwen3-235B on GB200
    assert stage_splits(61, 16, False) == []
    assert stage_splits(64, 16, False) == [(0, 0)]


def test_mesh_sizes() -> None:
    space = load_space("any")
    whole = load_space("nemo-rl-megatron")
    assert mesh_sizes(parse_cluster("h100:1x8").groups[0], whole).tolist() == list(range(1, 9))
    assert mesh_sizes(parse_cluster("h100:3x8").groups[0], whole).tolist() == [8, 16, 24]
    assert mesh_sizes(parse_cluster("h100:3x8").groups[0], space).tolist() == [1, 2, 4, 8, 16, 24]
    large = mesh_sizes(parse_cluster("h100:64x8").groups[0], whole) // 8
    assert large.tolist() == [
        *(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 52, 56, 58, 60, 61, 62, 63, 64)
    ]


def test_padding_is_only_tried_where_packing_is_illegal() -> None:
    model = small_model(False)
    workload = workload_of(model)
    group = parse_cluster("h100:2x8").groups[0]
    space = load_space("nemo-rl-megatron")
    for role, packs in (("actor", True), ("reward", False)):
        found = enumerate_candidates(
            call_of(workload, "forward", role), model, workload, group, space, trained=False
        )
        assert len(found) > 0
        assert set(found.packing.tolist()) == {packs}


def test_frozen_models_have_no_optimizer_to_place() -> None:
    model = small_model(False)
    workload = workload_of(model)
    group = parse_cluster("h100:2x8").groups[0]
    space = load_space("verl-megatron")
    call = call_of(workload, "forward", "reference")
    frozen = enumerate_candidates(call, model, workload, group, space, trained=False)
    assert not frozen.optimizer_on_cpu.any()
    assert {decode("offload", code) for code in frozen.offload} == {"none", "all"}


def test_placement_and_staleness_narrow_the_candidates() -> None:
    model = small_model(True)
    workload = workload_of(model)
    group = parse_cluster("h100:2x8").groups[0]
    space = load_space("nemo-rl-megatron")
    train, generate = call_of(workload, "train"), call_of(workload, "generate")

    def offloads(placement: Any) -> set[str]:
        found = enumerate_candidates(train, model, workload, group, space, placement=placement)
        return {decode("offload", code) for code in found.offload}

    assert offloads("free") == {"none", "optimizer", "all"}
    assert offloads("colocated") == {"all"}
    assert offloads("disaggregated") == {"none", "optimizer"}
    free = enumerate_candidates(generate, model, workload, group, space)
    stale = enumerate_candidates(generate, model, workload, group, space, staleness=1)
    assert (free.ep > free.tp).any()
    assert not (stale.ep > stale.tp).any()
    colocated = enumerate_candidates(
        generate, model, workload, group, space, staleness=1, placement="colocated"
    )
    assert len(colocated) == 0


def test_dtype_that_the_space_or_device_lacks() -> None:
    model = small_model(False)
    workload = workload_of(model).model_copy(update={"train_dtype": "fp8"})
    call = call_of(workload, "train")
    with pytest.raises(InputError, match="verl-fsdp runs bf16"):
        enumerate_candidates(
            call, model, workload, parse_cluster("h100:1x8").groups[0], load_space("verl-fsdp")
        )
    a100 = parse_cluster("a100:1x8").groups[0]
    assert len(enumerate_candidates(call, model, workload, a100, load_space("any"))) == 0


def test_forward_variants_keep_the_layout() -> None:
    model = small_model(True)
    workload = workload_of(model)
    group = parse_cluster("h100:2x8").groups[0]
    space = load_space("nemo-rl-megatron")
    train = enumerate_candidates(call_of(workload, "train"), model, workload, group, space)
    forward, rows = forward_variants(
        call_of(workload, "forward"), model, workload, group, space, train
    )
    assert set(forward.micro_batch_sequences.tolist()) == {1, 2, 4, 8}
    assert (forward.recompute == 0).all()
    keys = unit_layout_keys([train, forward])
    assert (keys[0][rows] == keys[1]).all()


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_layout_keys_are_equal_exactly_for_equal_layouts(data: st.DataObject) -> None:
    strategy = st.builds(
        Strategy,
        tp=st.sampled_from([1, 2, 65536]),
        pp=st.sampled_from([1, 65536]),
        cp=st.sampled_from([1, 65535]),
        dp=st.sampled_from([1, 2]),
        offload=st.sampled_from(["none", "all"]),
        first_stage_layers=st.sampled_from([0, 3]),
        micro_batch_sequences=st.sampled_from([1, 2]),
        recompute=st.sampled_from(["none", "full"]),
    )
    calls = [data.draw(st.lists(strategy, min_size=1, max_size=6)) for _ in range(2)]
    arrays = [StrategyArrays.from_strategies(rows) for rows in calls]
    masks = [np.asarray([row.dp == 2 for row in rows]) for rows in calls]
    keys = unit_layout_keys(arrays, masks)

    def layout(row: Strategy) -> Strategy:
        free = {"recompute": "none"} | ({"micro_batch_sequences": 1} if row.dp != 2 else {})
        return row.model_copy(update=free)

    flat = [
        (layout(row), key)
        for rows, ks in zip(calls, keys, strict=True)
        for row, key in zip(rows, ks.tolist(), strict=True)
    ]
    for (one, key), (other, other_key) in itertools.combinations(flat, 2):
        assert (one == other) == (key == other_key)


def test_a_large_cluster_has_hundreds_of_thousands_of_candidates() -> None:
    recipe = RECIPES["models"]["Qwen3-30B-A3B"]
    model = ModelSpec.model_validate_json(json.dumps(recipe))
    workload = workload_of(model, prompts=512, steps=4)
    group = parse_cluster("h100:64x8").groups[0]
    call = call_of(workload, "train")
    space = load_space("any")
    found = enumerate_candidates(call, model, workload, group, space)
    assert len(found) > 300_000


def test_illegal_strategies_are_explained() -> None:
    model = small_model(True)
    workload = workload_of(model)
    group = parse_cluster("h100:2x8").groups[0]
    space = load_space("nemo-rl-megatron")

    def reasons(**strategy: Any) -> str:
        return "\n".join(
            explain_illegal(
                Strategy(zero_stage=1, **strategy),
                call_of(workload, "train"),
                model,
                workload,
                group,
                space,
            )
        )

    assert reasons(dp=8) == ""
    assert "8 query heads do not divide by tp 16" in reasons(tp=16, sequence_parallel=True)
    assert "tp is not one of 1, 2, 4, 8" in reasons(tp=16, sequence_parallel=True)
    assert "4 experts do not divide by ep 8" in reasons(ep=8, dp=8)
    assert "do not divide by dp 3" in reasons(dp=3)
    assert "sequence_parallel is with_tp" in reasons(tp=2, dp=4)
    assert "part of a node" in reasons(tp=2, dp=2, sequence_parallel=True)
    assert "cp 2 without sequence packing" in reasons(cp=2, dp=4, packing=False)
    assert "6 layers do not divide by pp 4" in reasons(pp=4, dp=2)
    assert "Give both" in reasons(pp=4, dp=2, last_stage_layers=1)
    assert "leave no fitting middle" in reasons(
        pp=4, dp=2, first_stage_layers=3, last_stage_layers=3
    )
    assert reasons(pp=4, dp=2, first_stage_layers=1, last_stage_layers=1) == ""


# Published configurations that a launcher's present rules refuse, and why.
REFUSED_MICRO_BATCH = {
    # tp 4 with train_micro_batch_size 1 and logprob_batch_size 4 over 4 optimizer steps: today's
    # check in models/policy/lm_policy.py refuses that unless NRL_IGNORE_TP_ACCURACY_CHECK is set.
    "grpo-qwen3-30ba3b-4n8g-40K",
}


@pytest.mark.parametrize("case", RECIPES["cases"], ids=lambda case: case["id"])
def test_published_recipes_lie_inside_the_space(case: dict[str, Any]) -> None:
    model = ModelSpec.model_validate_json(json.dumps(RECIPES["models"][case["model"]]))
    sequences = case["prompts_per_step"] * case["samples_per_prompt"]
    half = case["max_sequence_tokens"] // 2
    workload = Workload(
        name=case["id"],
        algorithm="grpo",
        models={"actor": model},
        prompts_per_step=case["prompts_per_step"],
        samples_per_prompt=case["samples_per_prompt"],
        prompt_length=fixed(half),
        response_length=fixed(half),
        optimizer_steps=sequences // case["train_global_batch"],
        train_dtype=case["train_dtype"],
        generate_dtype=case["generate_dtype"],
        old_logprobs=case.get("old_logprobs", "recompute"),
    )
    split = case["placement"] == "disaggregated"
    total = case["train_devices"] + (case["generate_devices"] if split else 0)
    device = "gb200-nvl72" if "GB200" in case["device"] else "h100"
    group = parse_cluster(
        f"{device}:{total // case['devices_per_node']}x{case['devices_per_node']}"
    ).groups[0]
    space = load_space("nemo-rl-megatron")
    given_train = dict(case["train"])
    logprob = given_train.pop("logprob_micro_batch_sequences") or 1
    known = {key: value for key, value in given_train.items() if value is not None}
    known = known | {"sequence_parallel": known.get("tp", 1) > 1}
    degrees = known["tp"] * known["pp"] * known.get("cp", 1)
    train = Strategy(
        **known,
        dp=case["train_devices"] // degrees,
        zero_stage=1,
        offload="none" if split else "all",
        dtype=case["train_dtype"],
    )
    forward = train.model_copy(update={"recompute": "none", "micro_batch_sequences": logprob})
    engine = {key: value for key, value in case["generate"].items() if value is not None}
    generate = Strategy(
        **engine,
        dp=case["generate_devices"] // (engine["tp"] * engine.get("pp", 1)),
        dtype=case["generate_dtype"],
    )
    classes: dict[str, Any] = {"placement": case["placement"], "staleness": case["staleness"]}
    for kind, strategy in (("train", train), ("forward", forward), ("generate", generate)):
        call = call_of(workload, kind)
        assert not explain_illegal(strategy, call, model, workload, group, space, **classes)
    arrays = StrategyArrays.from_strategies([train])
    must_equal = equal_micro_batch_mask(
        arrays, call_of(workload, "train"), model, workload, group, space
    )[0]
    refused = bool(must_equal and train.micro_batch_sequences != logprob)
    assert refused == (case["id"] in REFUSED_MICRO_BATCH)
    _assert_enumerated(train, call_of(workload, "train"), model, workload, group, classes)
    _assert_enumerated(generate, call_of(workload, "generate"), model, workload, group, classes)


def _assert_enumerated(
    strategy: Strategy,
    call: Call,
    model: ModelSpec,
    workload: Workload,
    group: NodeGroup,
    classes: dict[str, Any],
) -> None:
    """The search meets the recipe's layout; knobs that it does not vary freely may differ."""
    found = enumerate_candidates(
        call,
        model,
        workload,
        group,
        load_space("nemo-rl-megatron"),
        [strategy.devices],
        **classes,
    )
    layout = ("tp", "pp", "cp", "ep", "dp", "first_stage_layers", "last_stage_layers")
    rows = np.ones(len(found), dtype=np.bool_)
    for name in layout:
        rows &= getattr(found, name) == getattr(strategy, name)
    assert rows.any()
