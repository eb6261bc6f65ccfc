"""The HTML report as text: complete, escaped, without a network, its numbers those of the plans."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pages import HOSTILE, answer, page
from plotly.offline import get_plotlyjs
from typer.testing import CliRunner

from planner.cli.main import app
from planner.errors import InputError
from planner.report import figures
from planner.report.figures import timeline, waterfall_steps
from planner.schema import PlanSet
from planner.simulate.timeline import planned_spans


class Reader(HTMLParser):
    """Elements, attributes, and what stands in data scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.texts: list[str] = []
        self.values: dict[str, list[float]] = {}
        self._script = ""
        self._table = ""
        # Millions of characters of a library's code, which would take seconds.
        assert get_plotlyjs() in text
        self.feed(text.replace(get_plotlyjs(), ""))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        self._script = (found.get("id") or "code") if tag == "script" else ""
        if tag == "table":
            self._table = found.get("id") or ""
        if value := found.get("data-value"):
            self.values.setdefault(self._table, []).append(float(value))

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        else:
            self.texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._script = ""


@pytest.fixture(scope="module")
def read() -> Reader:
    return Reader(page())


def test_the_page_holds_the_plans_as_they_are(read: Reader) -> None:
    assert PlanSet.model_validate_json(read.scripts["plans"]) == answer()


def test_numbers_in_the_tables_are_those_of_the_plans(read: Reader) -> None:
    wanted = [
        value
        for plan in answer().plans
        for value in (
            float(plan.rank),
            float(plan.devices),
            plan.step_time_s,
            plan.tokens_per_s_per_device,
            plan.cost_per_step_usd,
        )
    ]
    assert read.values["ranking"] == wanted
    for plan in answer().plans:
        times = [call.time_s for call in plan.calls.values()]
        assert set(times) | set(plan.overheads_s.values()) <= set(read.values[f"calls-{plan.rank}"])


def test_names_are_text_and_nothing_else(read: Reader) -> None:
    tags = [tag for tag, _ in read.tags]
    assert "img" not in tags
    assert tags.count("script") == 4
    assert HOSTILE in "".join(read.texts)
    for _, attributes in read.tags:
        assert not any(name.startswith("on") for name in attributes)
    assert "<img" not in json.dumps(json.loads(read.scripts["figures"]))


def test_nothing_is_loaded_from_elsewhere(read: Reader) -> None:
    for tag, attributes in read.tags:
        assert tag not in ("iframe", "object", "embed", "img")
        for name in ("src", "href"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert "@import" not in page()
    assert "url(" not in page().split("<style>")[1].split("</style>")[0]


def test_every_figure_has_its_place_and_axes_have_units(read: Reader) -> None:
    found = json.loads(read.scripts["figures"])
    places = [a["id"] for _, a in read.tags if a.get("class") == "figure"]
    assert sorted(found) == sorted(str(place) for place in places)
    for name, figure in found.items():
        axes = [value for key, value in figure["layout"].items() if re.match(r"[xy]axis", key)]
        titles = " ".join(axis.get("title", {}).get("text", "") for axis in axes)
        assert re.search(r"seconds|GiB|tokens|devices", titles), name
    assert "front" in found


def test_the_waterfall_adds_up_to_the_step() -> None:
    for staleness in (0, 1):
        for plan in answer(staleness=staleness).plans:
            total = sum(value for _, value in waterfall_steps(plan))
            assert total == pytest.approx(plan.step_time_s)


def test_the_timeline_shows_every_span() -> None:
    plans = answer(staleness=1)
    spans = planned_spans(plans.plans[0], plans.workload, plans.cluster)
    shown = timeline(plans.plans[0], spans)
    assert sum(len(trace.x) for trace in shown.data) == len(spans)
    assert sum(sum(trace.x) for trace in shown.data) == pytest.approx(
        sum(span.end_s - span.start_s for span in spans)
    )


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    plans = tmp_path / "plans.json"
    plans.write_text(answer().model_dump_json())
    html = tmp_path / "deep" / "report.html"
    result = CliRunner().invoke(
        app, ["report", str(plans), "--html", str(html), "--no-front"], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert result.stdout.strip() == str(html)
    found = Reader(html.read_text())
    assert PlanSet.model_validate_json(found.scripts["plans"]) == answer()
    assert "front" not in json.loads(found.scripts["figures"])


def test_without_plotly_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(InputError, match=r"pip install 'rlmplan\[report\]'"):
        figures.graph_objects()
    arguments = ["plan", "--preset", "grpo", "--html", str(tmp_path / "x.html")]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, InputError)
    assert not list(tmp_path.iterdir())
