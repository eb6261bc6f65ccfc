"""Traces of planned and simulated steps: the format, and that they say what the plan says."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import trace_format
from simulator_problems import solved

from planner.report.trace import plan_trace
from planner.simulate.events.replay import simulate
from planner.simulate.events.timeline import CPU, Span, chrome_trace, mesh_name
from planner.simulate.timeline import OVERHEAD, planned_spans

OPTIONS: dict[str, dict[str, object]] = {
    "colocated": {},
    "one step off": {"cluster": "h100:2x8", "staleness": 1},
    "verifier": {"latency_s": 1.0, "workers": 512},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_planned_trace_is_valid_and_holds_the_calls_of_the_plan(name: str) -> None:
    answer = solved(**OPTIONS[name])
    plan = answer.plans[0]
    events = trace_format.check(plan_trace(plan, answer.workload, answer.cluster))
    for call, predicted in plan.calls.items():
        mine = [event for event in events if event["name"] == call]
        if predicted.time_s == 0:
            assert not mine
            continue
        first = min(mine, key=lambda event: event["ts"])
        assert first["ts"] == pytest.approx(predicted.start_s * 1e6, abs=1)
        if predicted.kind != "environment":
            assert first["dur"] == pytest.approx(predicted.time_s * 1e6)
            assert sum(first["args"]["seconds"].values()) == pytest.approx(predicted.time_s, 1e-4)


@pytest.mark.parametrize("name", OPTIONS)
def test_planned_spans_fill_whole_steps_and_no_device_twice(name: str) -> None:
    answer = solved(**OPTIONS[name])
    plan = answer.plans[0]
    spans = planned_spans(plan, answer.workload, answer.cluster, steps=3)
    trained = [span.start_s for span in spans if span.call == "actor_train"]
    overhead_s = plan.overheads_s[OVERHEAD] if plan.staleness else 0.0
    for before, after in pairwise(trained):
        assert after - before == pytest.approx(plan.step_time_s - overhead_s)
    if plan.staleness == 0:
        last = max(span.end_s for span in spans if span.call == OVERHEAD)
        assert last == pytest.approx(3 * plan.step_time_s)
    for mesh in {span.mesh for span in spans} - {CPU}:
        mine = sorted((s for s in spans if s.mesh == mesh), key=lambda span: span.start_s)
        for a, b in pairwise(mine):
            assert a.end_s <= b.start_s + 1e-6
    names = {mesh_name(mesh) for mesh in plan.assignment.meshes.values()}
    assert {span.mesh for span in spans} - {CPU} == names


def test_a_simulated_trace_is_valid() -> None:
    answer = solved(**OPTIONS["verifier"])
    found = simulate(answer.plans[0], answer.workload, answer.cluster, steps=3)
    events = trace_format.check(chrome_trace(found.spans))
    assert len(events) == len(found.spans)


def test_spans_that_overlap_get_threads_of_their_own() -> None:
    spans = [Span(0, "a", CPU, 0.0, 2.0), Span(1, "a", CPU, 1.0, 3.0), Span(2, "a", CPU, 2.0, 4.0)]
    events = trace_format.check(chrome_trace(spans))
    assert sorted((event["args"]["iteration"], event["tid"]) for event in events) == [
        (0, 0),
        (1, 1),
        (2, 0),
    ]


def test_the_checker_refuses_what_readers_drop() -> None:
    spans = [Span(0, "a", CPU, 0.0, 2.0), Span(1, "b", CPU, 1.0, 3.0)]
    apart = chrome_trace(spans)
    assert apart.count('"tid": 1') == 1
    overlap = apart.replace('"tid": 1', '"tid": 0')
    with pytest.raises(AssertionError):
        trace_format.check(overlap)
    with pytest.raises(AssertionError):
        trace_format.check(apart.replace('"dur": 2000000.0', '"dur": NaN'))


def test_perfetto_reads_the_trace(tmp_path: Path) -> None:
    shell = trace_format.perfetto_shell()
    if shell is None:
        pytest.skip("no trace_processor_shell on this machine (TRACE_PROCESSOR_SHELL)")
    processor = pytest.importorskip("perfetto.trace_processor")
    answer = solved(**OPTIONS["one step off"])
    plan = answer.plans[0]
    path = tmp_path / "trace.json"
    path.write_text(plan_trace(plan, answer.workload, answer.cluster))
    config = processor.TraceProcessorConfig(bin_path=shell)
    with processor.TraceProcessor(trace=str(path), config=config) as reader:
        rows = list(reader.query("select name, ts, dur from slice"))
        errors = list(
            reader.query("select value from stats where severity = 'error' and value > 0")
        )
    assert not errors
    assert len(rows) == len(planned_spans(plan, answer.workload, answer.cluster))
