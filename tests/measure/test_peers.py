"""The comparison with public peers: which cases count, and the tables. No peer is needed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from planner.measure.case_files import load_cases

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    path = TESTS.parent / "benchmarks" / "peers.py"
    spec = importlib.util.spec_from_file_location("peers_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def cases(name: str) -> list[dict[str, Any]]:
    return load_cases(TESTS / "cases" / name) or []


def test_errors_ranks_and_regret_of_both_are_in_the_table(peers: ModuleType) -> None:
    done = peers.Comparison("peer 1.0", "defaults", cases=3, peer_s=3.0, ours_s=0.3)
    for measured, theirs, ours in ((1.0, 2.0, 1.1), (2.0, 1.0, 2.0), (4.0, 4.0, 4.0)):
        done.rows.append(peers.Row("a.json, x", "step_time", measured, theirs, ours, "g"))
    lines = peers.report(done)
    assert lines[0] == "### peer 1.0: defaults"
    row = next(line for line in lines if line.startswith("| a.json"))
    # The peer: errors 100, 50, 0 %; two of three pairs in order; it ranks the 2 s one first.
    peer = "50.0 | 50.0 | 16.7 | 0.33 | 100.0"
    assert row == f"| a.json, x | step_time | 3 | {peer} | 3.3 | 0.0 | 3.3 | 1.00 | 0.0 |"
    assert any("peer / ours 10." in line for line in lines)


def test_equal_times_for_all_strategies_have_no_rank(peers: ModuleType) -> None:
    rows = [peers.Row("x", "step_time", t, 3.0 * (1 + t * 1e-15), t, "g") for t in (1.0, 2.0, 4.0)]
    assert peers.figures(rows, "peer")[3:] == ["", ""]
    assert peers.figures(rows, "ours")[3:] == ["1.00", "0.0"]


def test_only_cases_that_both_predict_count(peers: ModuleType) -> None:
    name = "training_vtrain_single.json"
    work = peers.countable({name: cases(name)}, peers.training_cases.recognises)[:3]

    def predict(case: dict[str, Any]) -> dict[str, float]:
        if case["id"] == work[0][1]["id"]:
            raise peers.NotCoveredError("too odd")
        if case["id"] == work[1][1]["id"]:
            raise AssertionError("inner {detail}")
        return {"step_time": 1.0}

    done = peers.compare("peer", "defaults", predict, work)
    assert done.cases == 1
    assert [row.measured for row in done.rows] == [work[2][1]["measured"]["step_time_s"]]
    assert done.left_out == {"too odd": 1, "the peer fails: AssertionError: inner": 1}


def test_flagged_incomplete_and_repeated_cases_do_not_count(peers: ModuleType) -> None:
    rows = cases("inference.json")
    work = peers.countable({"inference.json": rows}, peers.inference_cases.READER.recognises)
    ids = [case["id"] for _, case in work]
    assert sorted(ids) == sorted({r["id"] for r in rows if r["complete"] and not r["flag"]})


def test_serving_case_as_arguments_of_the_peer(peers: ModuleType) -> None:
    case = next(
        one
        for one in cases("inference.json")
        if one["model"]["name"] == "Qwen3-32B" and one["weight_dtype"] == "fp8"
    )
    inputs = peers.aiconfigurator_inputs(case)
    assert inputs["model_path"] == "Qwen/Qwen3-32B"
    assert inputs["batch_size"] == case["concurrency"]
    assert (inputs["gemm_quant_mode"], inputs["kvcache_quant_mode"]) == ("fp8", "fp8")
    queued = next(one for one in cases("inference.json") if "concurrency" not in one)
    with pytest.raises(peers.NotCoveredError, match="fixed concurrency"):
        peers.aiconfigurator_inputs(queued)
