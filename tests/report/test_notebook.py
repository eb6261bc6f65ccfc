"""What a notebook shows of plans: tables, a timeline, data frames, figures."""

from __future__ import annotations

import sys

import pytest
from pages import HOSTILE, answer

from planner.errors import InputError
from planner.report.html import tables
from planner.report.notebook import plan_figures


def test_a_plan_set_shows_as_its_ranking_and_its_best_plan() -> None:
    plans = answer()
    shown = plans._repr_html_()
    assert tables.ranking(plans) in shown
    assert plans.plans[0]._repr_html_() in shown
    for element in ("<script", "<style", "<img", "http"):
        assert element not in shown
    assert HOSTILE not in shown


def test_bars_fill_the_iteration_and_lie_within_it() -> None:
    plan = answer(1).plans[0]
    shown = plan._repr_html_()
    bars = [
        (float(part.split("left:")[1].split("%")[0]), float(part.split("width:")[1].split("%")[0]))
        for part in shown.split("<div ")
        if "left:" in part
    ]
    assert len(bars) == sum(call.time_s > 0 for call in plan.calls.values())
    assert min(left for left, _ in bars) == 0
    assert max(left + width for left, width in bars) == pytest.approx(100, abs=0.01)


def test_data_frames_have_the_numbers_of_the_plans() -> None:
    pytest.importorskip("pandas")
    plans = answer()
    frame = plans.to_dataframe()
    assert list(frame["step_time_s"]) == [plan.step_time_s for plan in plans.plans]
    assert list(frame["rank"]) == [plan.rank for plan in plans.plans]
    calls = plans.to_dataframe(calls=True)
    assert len(calls) == sum(len(plan.calls) for plan in plans.plans)
    row = calls[(calls["rank"] == 1) & (calls["call"] == "actor_train")].iloc[0]
    best = plans.plans[0].calls["actor_train"]
    assert row["time_s"] == best.time_s
    assert best.strategy is not None
    assert row["dp"] == best.strategy.dp
    assert row["memory_bytes.total"] == best.memory_bytes["total"]
    parts = [name for name in calls.columns if name.startswith("time_s.")]
    assert row[parts].astype(float).sum() == pytest.approx(best.time_s)


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"pip install 'rlmplan\[report\]'"):
        answer().to_dataframe()


def test_figures_come_by_name() -> None:
    found = plan_figures(answer(), rank=2)
    assert set(found) == {"timeline", "waterfall", "memory", "time_parts", "lengths"}
    assert all(figure.data for figure in found.values())
    with pytest.raises(KeyError):
        plan_figures(answer(), rank=9)
