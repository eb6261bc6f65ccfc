"""Measured peaks, golden values and out-of-memory reports against the memory model."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.catalog.frameworks import load_framework
from planner.catalog.models import load_model
from planner.errors import InputError
from planner.measure import memory_cases, memory_golden_cases
from planner.measure.case import Prediction, RawCase
from planner.measure.memory_core import STATE, peak_parts, with_constants, with_strategy
from planner.measure.memory_verdict import Question, judge
from planner.measure.validation import validate

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

import accuracy_thresholds as thresholds  # noqa: E402

CASES = TESTS / "cases"
FILES = [CASES / "memory.json", CASES / "megatron_golden.json"]
GIB = 2**30


@cache
def rows(name: str) -> tuple[RawCase, ...]:
    return tuple(json.loads((CASES / name).read_text()))


def case(start: str, **changes: Any) -> RawCase:
    """A copy of the first row whose id begins so, with some fields changed."""
    found = next(
        row
        for name in ("memory.json", "megatron_golden.json")
        for row in rows(name)
        if row["id"].startswith(start)
    )
    return {**found, **changes}


@cache
def outcomes():
    return validate(FILES).outcomes


def predictions() -> list[tuple[str, Prediction]]:
    return [(one.id, one.prediction) for one in outcomes() if one.prediction is not None]


def peak_errors() -> dict[str, list[float]]:
    errors: dict[str, list[float]] = {}
    for _, prediction in predictions():
        for score in prediction.scores:
            if score.metric == "peak_memory":
                error = score.predicted / score.measured - 1.0
                errors.setdefault(prediction.group, []).append(error)
    return errors


def test_peaks_agree_with_the_measured_ones():
    errors = np.abs(np.concatenate(list(peak_errors().values())))
    assert len(errors) > 200
    assert errors.mean() < thresholds.PEAK_MEMORY_MEAN_ERROR
    assert np.median(errors) < thresholds.PEAK_MEMORY_MEAN_ERROR / 2


def test_no_group_is_far_off_as_a_whole():
    for group, errors in peak_errors().items():
        if len(errors) >= 3:
            assert np.mean(np.abs(errors)) < thresholds.PEAK_MEMORY_GROUP_ERROR, group


def test_itemised_peaks_add_up():
    for name, prediction in predictions():
        peak = [one for one in prediction.scores if one.metric == "peak_memory"]
        for score in peak:
            if "Megatron-LM CI" in prediction.group or "prime-rl" in prediction.group:
                assert sum(score.breakdown.values()) == pytest.approx(score.predicted), name


def test_runs_that_ran_fit_and_those_that_did_not_do_not():
    verdicts = [s for _, p in predictions() for s in p.scores if s.metric == "fits"]
    right = [score.measured == score.predicted for score in verdicts]
    assert np.mean(right) >= thresholds.RIGHT_VERDICTS
    out_of_memory = [score for score in verdicts if score.measured == 0.0]
    assert out_of_memory
    for score in out_of_memory:
        if score.breakdown["need"] > 1.1 * score.breakdown["usable"]:
            assert score.predicted == 0.0


def test_complete_cases_are_predicted():
    skipped = [one for one in outcomes() if one.counts_as_skipped]
    assert len(skipped) <= thresholds.SKIPPED_MEMORY_CASES * len(predictions()), [
        (one.id, one.skipped_because) for one in skipped
    ]


@pytest.mark.parametrize("report", rows("oom_reports.json"), ids=lambda report: report["id"])
def test_public_out_of_memory_reports(report: RawCase):
    model = load_model(report["model"]) if report["model"] else None
    found = judge(Question(model=model, **report["inputs"]))
    assert found.verdict == report["verdict"]
    assert set(report.get("decided_by", [])) <= set(found.decided_by)
    if "need_gb" in report:
        assert found.need_bytes[1] / 1e9 == pytest.approx(report["need_gb"], rel=0.10)


def test_reports_are_scored_or_say_what_they_lack():
    outcomes = validate([CASES / "oom_reports.json"]).outcomes
    decided = [one for one in outcomes if one.prediction is not None]
    assert len(decided) == 7
    for one in decided:
        assert [s.predicted == s.measured for s in one.prediction.scores] == [True]
    reports = {report["id"]: report for report in rows("oom_reports.json")}
    for one in outcomes:
        if one.prediction is None:
            assert one.incomplete
            assert one.skipped_because.startswith("unknown: set ")
            assert set(reports[one.id]["decided_by"]) <= set(
                one.skipped_because.removeprefix("unknown: set ").split(", ")
            )


def test_a_missing_input_that_cannot_matter_is_not_asked_for():
    tiny = load_model("Qwen/Qwen2.5-0.5B")
    found = judge(
        Question(model=tiny, profile="nemo-rl", device="h200-141-sxm", tokens=2048, tp=1, dp=8)
    )
    assert found.verdict == "fits"
    assert found.remedy == ""


def test_an_unknown_verdict_says_what_to_set():
    found = judge(
        Question(
            model=load_model("Qwen/Qwen2.5-7B"),
            profile="nemo-rl",
            device="h100-80-sxm",
            tp=1,
            dp=8,
            zero_stage=1,
            recompute="full",
            chunked_logits=False,
        )
    )
    assert found.verdict == "unknown"
    assert found.remedy == "Set tokens."


def test_golden_values_are_of_the_last_rank():
    # Interleaved over four stages: the first stage keeps more microbatches, the last the logits.
    run = memory_golden_cases.read_golden_case(
        case("mcore-gpt-gpt3_mcore_te_tp1_pp4_vp1_resume_torch_dist_tunable_overlap-dev-a100")
    )
    first, last = peak_parts(run, "first"), peak_parts(run, "last")
    assert first["logits"] == 0.0 < last["logits"]
    assert first["activations"] > last["activations"]


def test_a_distributed_optimizer_holds_6_plus_12_over_d_bytes():
    plain = case("mcore-gpt-gpt3_mcore_te_tp4_pp1_qk_layernorm_test_mode-dev-a100")
    args = {**plain["args"], "use-distributed-optimizer": True}
    whole = memory_golden_cases.read_golden_case(plain)
    shared = memory_golden_cases.read_golden_case({**plain, "args": args})
    assert shared.strategy.dp == 2
    states = [sum(peak_parts(run)[name] for name in STATE) for run in (whole, shared)]
    assert states[1] / states[0] == pytest.approx((6 + 12 / 2) / 18)


def test_a_test_with_a_small_batch_runs_on_fewer_devices():
    # Batch 2 of micro batches of 2 leaves one data-parallel rank: 18 bytes a parameter, 62.7 GiB.
    row = case("mcore-gpt-gpt3_mcore_reruns_resume_check_grads")
    run = memory_golden_cases.read_golden_case(row)
    assert run.strategy.dp == 1
    state = sum(peak_parts(run)[name] for name in STATE)
    assert state / GIB == pytest.approx(row["mem_allocated_gib"], rel=0.01)


def test_a_pipeline_layout_gives_each_rank_its_layers():
    run = memory_golden_cases.read_golden_case(
        case("mcore-moe-gpt3_moe_mcore_te_tp2_pp2_ep4_etp1_no_mtp_no_a2a_ovlp")
    )
    assert (run.strategy.vpp, run.model.num_layers) == (4, 15)
    assert (run.strategy.first_stage_layers, run.strategy.last_stage_layers) == (9, 6)


def test_adapters_leave_the_base_in_fp32_and_train_little():
    run, _ = memory_cases.read_memory_case(
        case("mem-prime-1xh100-Qwen-Qwen3-4B-Instruct-2507-rl-16-1gpu-Recompute")
    )
    parts = peak_parts(run)
    assert parts["weights"] == pytest.approx(4 * 4.02e9, rel=0.02)
    # 33 million adapter elements of rank 16: master weights' gradients and moments.
    assert parts["gradients"] == pytest.approx(4 * 33.0e6, rel=0.01)
    half = with_constants(run.profile, {"frozen_base_bytes_per_parameter": 2.0})
    assert peak_parts(replace(run, profile=half))["weights"] < 0.55 * parts["weights"]


def test_offloaded_checkpoints_leave_two_layers_on_the_device():
    start = "mem-prime-1xh100-Qwen-Qwen3-4B-Instruct-2507-rl-16-1gpu-"
    kept = memory_cases.read_memory_case(case(start + "Recompute-flash_attention_3-65536"))[0]
    moved = memory_cases.read_memory_case(case(start + "Offload-flash_attention_3-65536"))[0]
    parts = [
        peak_parts(with_strategy(run, recompute="full"))["activations"] for run in (kept, moved)
    ]
    layer = 2 * 2560 * 65536
    assert parts == pytest.approx([36 * layer, 2 * layer])


def test_reserved_peaks_are_larger_than_allocated_ones():
    row = case("mem-tt-llama3-405b-512g-cp1")
    prediction = memory_cases.predict(row)
    score = prediction.scores[0]
    factor = load_framework("torchtitan").value("fragmentation_factor")
    assert score.predicted == pytest.approx(factor * sum(score.breakdown.values()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"micro_batch": None}, "Set micro_batch"),
        ({"dtype": "int3"}, "dtype"),
        ({"recompute": "sometimes"}, "recompute"),
        ({"source": "a page"}, "software"),
        ({"trainer": "dpo"}, "trainer"),
        ({"gpu": "Q100"}, "device"),
        ({"outcome": "perhaps"}, "outcome"),
    ],
)
def test_what_is_not_known_is_refused_with_the_case(changes: dict[str, Any], message: str):
    row = case("mem-prime-8xh100-Qwen-Qwen3-4B", **changes)
    with pytest.raises(InputError, match=message) as error:
        memory_cases.predict(row)
    assert row["id"] in str(error.value)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("sequence-parallell", True),
        ("attention-backend", "magic"),
        ("recompute-granularity", "some"),
        ("tokenizer-type", "SomeTokenizer"),
        ("tensor-model-parallel-size", 3),
    ],
)
def test_unknown_launch_arguments_are_refused(argument: str, value: Any):
    row = case("mcore-gpt-gpt3_mcore_te_tp2_pp2_cp2-dev-gb200")
    args = {key: row["args"][key] for key in row["args"] if key != "vocab-size"}
    with pytest.raises(InputError) as error:
        memory_golden_cases.predict({**row, "args": {**args, argument: value}})
    assert row["id"] in str(error.value)


def test_release_runs_without_a_device_count_are_incomplete():
    row = case("mcore-gpt-gpt3_15b_8t_release_sm_gb200-dev-gb200")
    assert not memory_golden_cases.READER.complete(row)
    assert memory_golden_cases.READER.complete({**row, "nodes": 16, "gpus_per_node": 4})


def test_what_stays_between_steps_agrees_too():
    errors = []
    for row in rows("megatron_golden.json"):
        if memory_golden_cases.READER.complete(row):
            run = memory_golden_cases.read_golden_case(row)
            parts = peak_parts(run, "last")
            state = sum(parts[name] for name in STATE)
            state += run.profile.value("allocator_floor_bytes")
            errors.append(abs(state / GIB / row["mem_allocated_gib"] - 1.0))
    assert np.median(errors) < thresholds.PEAK_MEMORY_MEAN_ERROR


@pytest.mark.parametrize("row", [one for one in rows("memory.json") if "miles" in one["id"]])
def test_incomplete_reports_say_what_is_missing(row: RawCase):
    assert not memory_cases.READER.complete(row)
    known = {**row, "source": "pytorch/torchtitan", "fsdp": "FSDP2"}
    with pytest.raises(InputError, match="Set micro_batch"):
        memory_cases.predict(known)


def test_a_row_with_launch_arguments_is_read_like_a_golden_value():
    row = case("mem-mcore-gpt-gpt3_7b_tp1_pp4_memory_speed-dev-a100")
    with pytest.raises(InputError, match="Set n_gpus"):
        memory_cases.predict(row)
    score = memory_cases.predict({**row, "n_gpus": 8}).scores[0]
    assert score.predicted == pytest.approx(score.measured, rel=0.05)


@pytest.mark.parametrize(
    "name", ["gpt-gpt3_15b_8t_release", "mixtral-mixtral_8x22b_tp2pp8ep8vpp1_release"]
)
def test_large_models_agree_once_their_devices_are_counted(name: str):
    # The rows do not count their devices; release runs use several nodes of eight.
    row = case(f"mem-mcore-{name}-dev-h100", n_gpus=128)
    score = memory_cases.predict(row).scores[0]
    assert score.predicted == pytest.approx(score.measured, rel=0.05)
