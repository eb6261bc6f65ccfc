"""Reading published RL steps and weight synchronisations, and what is predicted for them."""

import json
from functools import cache
from pathlib import Path
from statistics import mean

import pytest

from planner.errors import InputError
from planner.measure.case import Prediction
from planner.measure.rl_step_cases import READER

CASES = Path(__file__).parents[1] / "cases" / "rl.json"


@cache
def cases() -> dict[str, dict]:
    return {case["id"]: case for case in json.loads(CASES.read_text())}


@cache
def predictions() -> dict[str, Prediction]:
    return {key: READER.predict(case) for key, case in cases().items() if case["complete"]}


def errors(metric: str) -> list[float]:
    return [
        abs(score.predicted / score.measured - 1)
        for prediction in predictions().values()
        for score in prediction.scores
        if score.metric == metric
    ]


def test_every_complete_case_is_modelled() -> None:
    assert len(predictions()) == 51
    assert all(READER.recognises(case) for case in cases().values())


@pytest.mark.parametrize(
    ("metric", "rows", "allowed"),
    [
        ("step_time", 42, 0.10),
        ("generation", 3, 0.12),
        ("train", 2, 0.22),
        ("logprob", 2, 0.20),
        ("refit", 11, 0.15),
    ],
)
def test_metrics_are_near_the_measured_ones(metric: str, rows: int, allowed: float) -> None:
    assert len(errors(metric)) == rows
    assert mean(errors(metric)) < allowed


def test_a_step_explains_itself() -> None:
    for prediction in predictions().values():
        for score in prediction.scores:
            if score.metric == "step_time":
                assert {"generate", "actor_train", "weight_sync"} <= set(score.breakdown)


def test_mechanisms_of_weight_synchronisation_have_their_own_profiles() -> None:
    names = {key: p.framework for key, p in predictions().items() if key.startswith("refit")}
    assert set(names.values()) == {"verl-per-tensor", "verl-bucketed", "checkpoint-engine"}
    assert names["refit-verl-qwen3-235b-a22b-64to64-ce0"] == "verl-per-tensor"


def test_incomplete_and_unknown_cases_are_refused_by_name() -> None:
    incomplete = next(c for c in cases().values() if not c["complete"] and c["algorithm"] == "GRPO")
    with pytest.raises(InputError, match="incomplete"):
        READER.predict(incomplete)
    case = cases()["verl-dpsk-671b-96xh20"]
    for change in ({"framework": "slime"}, {"dtype_gen": "int4"}, {"gpu": "H900"}):
        with pytest.raises(InputError) as refused:
            READER.predict(case | change)
        assert case["id"] in str(refused.value)
    sync = cases()["refit-verl-qwen3-235b-a22b-64to64-ce0"]
    with pytest.raises(InputError, match="synchronisation"):
        READER.predict(sync | {"notes": "another mechanism"})
