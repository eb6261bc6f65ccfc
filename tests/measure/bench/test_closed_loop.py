"""The closed loop's own arithmetic: errors, order, and predictions that follow the profile."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from measured_samples import facts, samples

FOLDER = Path(__file__).parents[3] / "benchmarks" / "closed_loop"
MODULES = ("configurations", "predict", "results")


@pytest.fixture(scope="module", autouse=True)
def _on_the_path() -> Iterator[None]:
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))
    for name in MODULES:
        sys.modules.pop(name, None)


def test_errors_and_order_of_known_rows() -> None:
    from results import Row, mean_error, right_order

    def row(group: str, predicted_s: float, measured_s: float) -> Row:
        return Row("training", group, "x", predicted_s, measured_s, 0.0)

    rows = [row("a", 1.1, 1.0), row("a", 1.8, 2.0), row("b", 9.0, 10.0), row("b", 8.0, 20.0)]
    assert mean_error(rows) == pytest.approx((0.1 + 0.1 + 0.1 + 0.6) / 4)
    # Pairs of different groups do not count; those of b are predicted the wrong way round.
    assert right_order(rows) == (1, 2)
    assert right_order([row("a", 1.0, 1.0), row("a", 0.9, 1.1)]) == (0, 0)


def test_configurations_are_distinct_and_enough() -> None:
    from configurations import Decoding, Training, all_configurations

    listed = all_configurations()
    assert len(set(listed)) == len(listed)
    assert sum(isinstance(one, Training) for one in listed) >= 40
    assert sum(isinstance(one, Decoding) for one in listed) >= 10
    for one in listed:
        if isinstance(one, Training):
            assert one.sequences // one.dp >= one.micro


def test_predictions_follow_the_measured_kernels_and_nothing_else() -> None:
    from configurations import WIDE, Decoding, Training
    from predict import Predictor

    step, token = Training(WIDE, 256, 8, 2), Decoding(WIDE, 8, 256)
    usual = Predictor(samples(), facts())
    slow = Predictor(samples(slower=lambda point, rank: 2.0), facts())
    for one in (step, token):
        before, after = usual.parts_s(one), slow.parts_s(one)
        # Twice as slow kernels and links make every step twice as slow.
        assert sum(after.values()) == pytest.approx(2.0 * sum(before.values()), rel=0.02)
    whole = usual.parts_s(replace(step, recompute=True))
    assert whole["compute"] > 1.2 * usual.parts_s(step)["compute"]
    halved = usual.parts_s(replace(step, dp=2))
    assert halved["compute"] == pytest.approx(0.5 * usual.parts_s(step)["compute"], rel=0.01)
    assert halved["dp_comm"] > 0.0
