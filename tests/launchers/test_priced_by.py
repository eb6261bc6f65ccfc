"""A plan made elsewhere is priced with the overheads of the launcher that it is exported to."""

from __future__ import annotations

from pathlib import Path

from launcher_cases import VERL_CASES, nodes
from typer.testing import CliRunner

import planner
from planner.cli.main import app
from planner.launchers import get_launcher, priced_by
from planner.schema import PlanSet
from planner.simulate.evaluate import evaluate

VERL = get_launcher("verl")


def elsewhere() -> tuple[planner.Plan, planner.Workload, planner.Cluster]:
    """verl's colocated FSDP plan as if it were made in the space of everything."""
    plan, workload, cluster = VERL_CASES["fsdp-colocated"]()
    other = {"space": "any", "framework": "generic", "engine": "vllm"}
    assignment = plan.assignment.model_copy(update=other)
    found = evaluate(assignment, workload, cluster)
    fields = {field: getattr(found, field) for field in type(found).model_fields}
    return plan.model_copy(update={**fields, "assignment": assignment}), workload, cluster


def test_the_launchers_own_profiles_are_used() -> None:
    plan, workload, cluster = elsewhere()
    own = priced_by(VERL, plan, workload, cluster)
    assert (own.assignment.space, own.assignment.framework) == ("verl-fsdp", "verl-fsdp")
    assert own.step_time_s == evaluate(own.assignment, workload, cluster).step_time_s
    assert own.step_time_s != plan.step_time_s
    assert own.assignment.strategies == plan.assignment.strategies
    assert priced_by(VERL, own, workload, cluster) is own


def test_files_say_whose_overheads_the_prediction_has() -> None:
    plan, workload, cluster = elsewhere()
    first = VERL.write(plan, workload, cluster)["run.sh"]
    assert f"{plan.step_time_s:.1f} s on 16 devices with the overheads of generic\n" in first
    own = priced_by(VERL, plan, workload, cluster)
    second = VERL.write(own, workload, cluster)["run.sh"]
    assert f"# Predicted step time {own.step_time_s:.1f} s on 16 devices\n" in second


def test_a_plan_that_no_space_allows_stays() -> None:
    plan, workload, cluster = elsewhere()
    meshes = {call: nodes(0, 2) for call in plan.assignment.meshes}
    strategies = {
        call: strategy.model_copy(update={"micro_batch_sequences": 3})
        for call, strategy in plan.assignment.strategies.items()
    }
    changes = {"meshes": meshes, "strategies": strategies}
    other = plan.model_copy(
        update={"assignment": plan.assignment.model_copy(update=changes), "step_time_s": 1.0}
    )
    assert priced_by(VERL, other, workload, cluster) is other


def test_export_prices_again(tmp_path: Path) -> None:
    plan, workload, cluster = elsewhere()
    base = planner.plan(workload, cluster, space="verl-fsdp", top=1, deadline_s=5, gap=0.2)
    content = base.model_copy(update={"plans": (plan,), "space": "any"})
    assert isinstance(content, PlanSet)
    path = tmp_path / "plans.json"
    path.write_text(content.model_dump_json())
    result = CliRunner().invoke(
        app, ["export", str(path), "--to", "verl", "-o", str(tmp_path / "out")]
    )
    assert result.exit_code == 0, result.output
    own = priced_by(VERL, plan, workload, cluster)
    assert f"with verl's own it takes {own.step_time_s:.1f} s a step" in result.stderr
    assert f"{own.step_time_s:.1f} s on 16 devices\n" in (tmp_path / "out" / "run.sh").read_text()
