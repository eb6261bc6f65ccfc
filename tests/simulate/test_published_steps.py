"""Published RL steps: predicted times, stages and directions against what was measured."""

import json
import sys
from functools import cache
from pathlib import Path
from statistics import mean, median

import pytest

from planner.measure.rl_cases import RLCase, read_rl_case
from planner.schema import Prediction
from planner.simulate.evaluate import evaluate

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

import accuracy_thresholds as thresholds  # noqa: E402


@cache
def cases() -> dict[str, RLCase]:
    raw = json.loads((TESTS / "cases" / "rl.json").read_text())
    steps = [case for case in raw if case["complete"] and case["algorithm"] == "GRPO"]
    return {case["id"]: read_rl_case(case) for case in steps}


@cache
def predicted(case_id: str) -> Prediction:
    case = cases()[case_id]
    return evaluate(case.assignment, case.workload, case.cluster)


def test_step_times_are_near_the_measured_ones() -> None:
    errors = [
        abs(predicted(case_id).step_time_s / case.measured["step_time_s"] - 1)
        for case_id, case in cases().items()
        if case_id not in thresholds.RL_STEP_UNCALIBRATED
    ]
    assert len(errors) == 41
    assert mean(errors) < thresholds.RL_STEP_MEAN_ERROR
    assert median(errors) < thresholds.RL_STEP_MEDIAN_ERROR


def test_no_prediction_beats_its_bounds() -> None:
    for case_id in cases():
        prediction = predicted(case_id)
        assert prediction.step_time_s >= prediction.work_depth_bound_s
        for name, call in prediction.calls.items():
            assert call.time_s >= call.bound_s, (case_id, name)
            assert sum(call.time_parts_s.values()) == pytest.approx(call.time_s), (case_id, name)


def test_published_configurations_fit() -> None:
    """They ran, so they fit."""
    assert [case_id for case_id in cases() if not predicted(case_id).fits] == []


@pytest.mark.parametrize("case_id", ["nemorl-v0.3-blog-llama3-8b-megatron-8xh100"])
def test_stages_are_near_the_measured_ones(case_id: str) -> None:
    """Good totals can hide stages whose errors cancel."""
    prediction, measured = predicted(case_id), cases()[case_id].measured
    calls = prediction.calls
    stages = {
        "generation_s": calls["generate"].time_s,
        "update_actor_s": calls["actor_train"].time_s,
        "logprob_s": calls["old_logprobs"].time_s + calls["reference_logprobs"].time_s,
        "refit_s": prediction.overheads_s["weight_sync"],
    }
    for name, allowed in thresholds.RL_STAGE_ERROR.items():
        assert stages[name] == pytest.approx(measured[name], rel=allowed), name
