"""Fitting: known constants come back from steps that they produced."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from planner.catalog.frameworks import load_framework, overridden, profile_path
from planner.errors import InputError
from planner.measure.fit import fit, spread
from planner.measure.profile_file import number, rewritten
from planner.measure.readers import all_readers, reader_of
from planner.measure.training_cases import READER, predict
from planner.measure.unknown import Unknown, unknown_cases, unknown_spread

CASES = Path(__file__).parent.parent / "cases" / "training.json"
PROFILE = "internevo"


@cache
def rows() -> tuple[dict[str, Any], ...]:
    read = json.loads(CASES.read_text())
    return tuple(c for c in read if c["setup"]["framework"] == PROFILE)


def as_measured(values: dict[str, float], path: Path) -> Path:
    """A file in which the cases take exactly the time that these constants predict."""
    with overridden({PROFILE: values}):
        made = [
            {**row, "measured": {"step_time_s": predict(row).scores[0].predicted}} for row in rows()
        ]
    path.write_text(json.dumps(made))
    return path


def test_constants_come_back(tmp_path: Path) -> None:
    truth = {"gemm_efficiency": 0.9, "dp_latency_per_rank_s": 1.5e-3}
    path = as_measured(truth, tmp_path / "made.json")
    found = fit([path], [PROFILE], constants=list(truth), readers=(READER,))
    for name, value in truth.items():
        assert found.values[PROFILE][name] == pytest.approx(value, rel=0.05)
    assert found.cases == 32
    assert found.error_in_sample < 0.005
    assert found.error_left_out < 0.01
    assert [one.case.id for one in found.left_out] == [row["id"] for row in rows()]
    errors = [abs(np.expm1(one.residual)) for one in found.left_out]
    assert np.mean(errors) == pytest.approx(found.error_left_out)
    assert found.at_edge == ()


def test_a_constant_at_the_edge_is_named_and_an_idle_one_stays(tmp_path: Path) -> None:
    known = load_framework(PROFILE).constants["gemm_efficiency"]
    path = as_measured({"gemm_efficiency": 0.8 * known.low}, tmp_path / "slow.json")
    idle = "optimizer_bytes_per_parameter"  # of memory alone: no step time depends on it
    found = fit([path], [PROFILE], constants=["gemm_efficiency", idle], readers=(READER,))
    assert found.values[PROFILE]["gemm_efficiency"] == pytest.approx(known.low, rel=0.01)
    assert found.at_edge == ((PROFILE, "gemm_efficiency"),)
    assert found.values[PROFILE][idle] == load_framework(PROFILE).value(idle)


def test_frameworks_weigh_the_same_in_the_width_of_unmeasured_software() -> None:
    many = [Unknown(f"a{i}", "generic", "a", "training", 0.01) for i in range(90)]
    few = [Unknown(f"b{i}", "generic", "b", "training", -0.5) for i in range(10)]
    assert unknown_spread(many) == pytest.approx(0.01 / 1.2816)
    # Half of the weight is the few rows of the other framework.
    assert unknown_spread([*many, *few]) == pytest.approx(0.5 / 1.2816)


def test_cases_are_priced_as_unmeasured_software(tmp_path: Path) -> None:
    read = [row for row in json.loads((CASES.parent / "rl.json").read_text()) if row["complete"]]
    steps = [row for row in read if row["algorithm"] == "GRPO"]
    few = [steps[0], next(row for row in steps if row["framework"].startswith("verl"))]
    path = tmp_path / "few.json"
    path.write_text(json.dumps([*few, {**few[0], "id": "doubtful", "flag": "twice"}]))
    found = unknown_cases([path])
    assert [(one.profile, one.kind, one.framework) for one in found] == [
        ("generic", "rl", "NeMo"),
        ("generic", "rl", "verl"),
    ]
    known = [reader_of(row, all_readers()).predict(row).scores[0] for row in few]
    for one, figure in zip(found, known, strict=True):
        assert one.residual != pytest.approx(np.log(figure.predicted / figure.measured), abs=1e-3)


def test_overrides_end_with_the_block() -> None:
    before = load_framework(PROFILE).value("gemm_efficiency")
    with overridden({PROFILE: {"gemm_efficiency": 0.123}}):
        assert load_framework(PROFILE).value("gemm_efficiency") == 0.123
    assert load_framework(PROFILE).value("gemm_efficiency") == before


def test_an_override_reaches_heirs_that_do_not_state_the_constant() -> None:
    with overridden({"prime-rl": {"gemm_efficiency": 0.5, "attention_max_flop_per_s": 1e14}}):
        heir = load_framework("prime-rl-flash2")
    assert heir.value("gemm_efficiency") == 0.5
    assert heir.value("attention_max_flop_per_s") != 1e14


def test_nothing_to_fit_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "few.json"
    path.write_text(json.dumps(rows()[:2]))
    with pytest.raises(InputError, match="no case is priced by"):
        fit([path], ["verl-fsdp"], constants=["gemm_efficiency"], readers=(READER,))
    with pytest.raises(InputError, match="nothing to fit"):
        fit([path], [PROFILE], constants=["no_such"], readers=(READER,))


def test_spread_is_the_deviation_of_normal_residuals() -> None:
    residuals = np.random.default_rng(0).normal(0.0, 0.1, 20_000)
    assert spread(residuals) == pytest.approx(0.1, rel=0.03)


def test_a_profile_is_rewritten_in_place() -> None:
    text = profile_path(PROFILE).read_text()
    new = rewritten(text, {"gemm_efficiency": 0.75}, 0.0456, "a test")
    before, after = yaml.safe_load(text), yaml.safe_load(new)
    assert after["constants"]["gemm_efficiency"]["value"] == 0.75
    assert after["relative_error"] == 0.046
    assert after["relative_error_source"] == "a test"
    after["constants"]["gemm_efficiency"]["value"] = before["constants"]["gemm_efficiency"]["value"]
    assert after["constants"] == before["constants"]


@pytest.mark.parametrize("value", [0.0, 1.0, 0.123456, 2.7e-5, 3.3e14, 12345.0])
def test_numbers_read_back_as_floats(value: float) -> None:
    read = yaml.safe_load(number(value))
    assert isinstance(read, float)
    assert read == pytest.approx(value, rel=6e-3)
