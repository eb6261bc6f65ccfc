"""`check` foresees publicly reported failures, and says of their remedies that they help."""

from __future__ import annotations

from dataclasses import replace

import pytest
from more_reported_cases import MORE_REPORTS
from reported_cases import REPORTS, Report

from planner.catalog.hardware import parse_cluster
from planner.catalog.models import load_model
from planner.launchers import get_launcher
from planner.launchers.check import check
from planner.launchers.reading import Context
from planner.schema.check import CheckReport

ALL = REPORTS | MORE_REPORTS


def run(report: Report) -> CheckReport:
    cluster = parse_cluster(report.cluster)
    if report.device_memory_gib is not None:
        group = cluster.groups[0]
        device = group.device.model_copy(update={"memory_bytes": report.device_memory_gib * 2**30})
        group = group.model_copy(update={"device": device})
        cluster = cluster.model_copy(update={"groups": (group,)})
    if report.host_memory_gib is not None:
        group = cluster.groups[0].model_copy(
            update={"host_memory_bytes": report.host_memory_gib * 2**30}
        )
        cluster = cluster.model_copy(update={"groups": (group,)})
    models = {role: load_model(name) for role, name in report.models.items()}
    return check(
        get_launcher(report.launcher), report.text, [], Context(cluster, models), search=False
    )


def right(report: Report, found: CheckReport) -> bool:
    """Whether the verdict is what was seen, for the reason that was seen."""
    short = {each.call for each in found.shortages}
    if report.memory:
        return found.verdict == "will not run" and report.memory in short
    if report.rules:
        return report.rules <= {each.rule for each in found.broken}
    if report.runs:
        return found.verdict != "will not run"
    assert found.prediction is not None
    times = {name: call.time_s for name, call in found.prediction.calls.items()}
    return max(times, key=lambda name: times[name]) == report.slow


def test_nine_of_ten_reported_outcomes_are_foreseen() -> None:
    verdicts = {name: right(report, run(report)) for name, report in ALL.items()}
    wrong = sorted(name for name, ok in verdicts.items() if not ok)
    assert len(wrong) <= len(ALL) // 10, wrong


@pytest.mark.parametrize("name", [name for name, report in ALL.items() if report.remedy])
def test_the_known_remedy_removes_the_cause(name: str) -> None:
    report = ALL[name]
    found = run(replace(report, settings=report.settings | report.remedy))
    short = {each.call for each in found.shortages}
    assert report.memory not in short
    assert not report.rules & {each.rule for each in found.broken}


@pytest.mark.parametrize("name", [name for name, report in ALL.items() if report.faster])
def test_what_the_thread_proposes_is_faster(name: str) -> None:
    """By tokens a second, since a proposal may change the batch to suit its devices."""
    report = ALL[name]
    rates = []
    for settings in (report.settings, report.settings | report.faster):
        found = run(replace(report, settings=settings))
        assert found.prediction is not None
        rates.append(found.workload.sequences_per_step / found.prediction.step_time_s)
    assert rates[1] > rates[0]


def test_memory_falls_with_more_devices() -> None:
    """A plan that fits two devices fits eight (verl-project/verl#2820 reported the opposite)."""
    base = REPORTS["host-memory-of-offloading"]
    peaks = []
    for devices in (2, 8):
        settings = {key: value for key, value in base.settings.items() if "offload" not in key} | {
            "trainer.n_gpus_per_node": devices,
            "data.train_batch_size": 512,
        }
        found = run(replace(base, settings=settings, host_memory_gib=None))
        assert found.prediction is not None
        peaks.append(found.prediction.calls["actor_train"].memory_bytes["total"])
    assert peaks[1] < peaks[0]


@pytest.mark.parametrize(
    ("world", "tp", "pp", "cp", "ep"),
    [
        (32, 4, 4, 1, 8),
        (32, 4, 4, 2, 8),
        (32, 2, 4, 4, 8),
        (32, 1, 4, 8, 8),
        (16, 8, 2, 1, 8),
        (16, 2, 2, 4, 8),
        (16, 1, 2, 8, 8),
    ],
)
def test_expert_groups_may_span_context_ranks(
    world: int, tp: int, pp: int, cp: int, ep: int
) -> None:
    """All of these were run (radixark/miles#3290): context parallelism is inside expert groups."""
    base = REPORTS["optimizer-in-host-memory"]
    settings = base.settings | {
        "hf-checkpoint": "Qwen/Qwen3-30B-A3B",
        "actor-num-nodes": world // 8,
        "tensor-model-parallel-size": tp,
        "pipeline-model-parallel-size": pp,
        "context-parallel-size": cp,
        "expert-model-parallel-size": ep,
        "rollout-num-gpus-per-engine": 4,
    }
    found = run(
        replace(base, settings=settings, cluster=f"h100:{world // 8}x8", host_memory_gib=None)
    )
    assert found.broken == ()
