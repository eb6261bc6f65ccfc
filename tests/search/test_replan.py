"""Planning again: what survives stays, least moves are least, bounds hold."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

import planner
from planner.catalog.workloads import Problem, problem_from
from planner.cli.main import app
from planner.errors import PlannerError
from planner.report.replan import render_replan
from planner.report.text import WIDTH, to_text
from planner.schema import Limits, Mesh, PlanSet, Replan
from planner.search.survivors import without_nodes


def problem(cluster: str = "h100:4x8") -> Problem:
    return problem_from(
        None,
        models={"actor": "Qwen/Qwen2.5-7B"},
        algorithm="grpo",
        cluster=cluster,
        prompts=96,
        samples=8,
        response_mean=800.0,
        response_max=2048,
        kl_weight=0.01,
    )


@pytest.fixture(scope="module")
def old() -> PlanSet:
    one = problem()
    return planner.plan(one.workload, one.cluster, space="verl-fsdp")


def step_s(found: Replan) -> float:
    return found.plans.plans[0].step_time_s


def test_an_answer_read_back_equals_the_one_written(old: PlanSet) -> None:
    found = planner.replan(old, without={"h100": [1]})
    assert Replan.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize("rank", [1, 2])
def test_nothing_lost_nothing_moves(old: PlanSet, rank: int) -> None:
    within = 0.0 if rank == 1 else math.inf
    found = planner.replan(old, without={}, rank=rank, within=within)
    assert found.moves == ()
    assert found.plans.plans[0].assignment == old.plans[rank - 1].assignment
    assert step_s(found) == old.plans[rank - 1].step_time_s
    assert found.lost_devices == 0


@pytest.mark.parametrize("within", [0.0, 0.1, math.inf])
def test_losing_an_idle_node_moves_nothing(old: PlanSet, within: float) -> None:
    three = planner.plan(old.workload, old.cluster, space="verl-fsdp", limits=Limits(devices=24))
    assert three.plans[0].devices == 24
    used = {
        node
        for mesh in three.plans[0].assignment.meshes.values()
        for node in range(mesh.first_node, mesh.first_node + mesh.nodes)
    }
    (idle,) = set(range(4)) - used
    found = planner.replan(three, without={"h100": [idle]}, within=within)
    assert found.moves == ()
    assert found.plans.cluster.devices == 24
    assert step_s(found) == three.plans[0].step_time_s


@pytest.mark.parametrize("lost", [[1], [3], [0, 2]])
def test_the_laws_of_every_answer(old: PlanSet, lost: list[int]) -> None:
    fastest, close, least, proven = (
        planner.replan(old, without={"h100": lost}, **options)  # type: ignore[arg-type]
        for options in ({}, {"within": 0.1}, {"within": math.inf}, {"thorough": True})
    )
    assert least.moved_bytes <= close.moved_bytes <= fastest.moved_bytes
    assert step_s(fastest) <= step_s(close) * 1.005
    assert step_s(close) <= close.least_step_time_s * 1.1 * (1 + 1e-9)
    assert proven.bound_from == "new search"
    assert step_s(proven) <= step_s(fastest) * 1.006
    for found in (fastest, close, least, proven):
        plan, plans = found.plans.plans[0], found.plans
        assert plans.cluster.devices == 32 - 8 * len(lost) == 32 - found.lost_devices
        again = planner.evaluate(plan, plans.workload, plans.cluster)
        assert again.fits
        assert again.step_time_s == plan.step_time_s
        assert again.calls == plan.calls
        assert plans.search.bound_s <= step_s(proven) * (1 + 1e-9)
        assert found.moved_bytes == sum(move.bytes for move in found.moves)
        moved = {call for move in found.moves for call in move.calls}
        # Nodes behind a lost one move up: what does not move is the old mesh in new numbers.
        survivors = without_nodes(old.cluster, {"h100": lost})
        for name, mesh in old.plans[0].assignment.meshes.items():
            if name not in moved:
                assert plan.assignment.meshes[name] == survivors.mesh(mesh)
        assert max(len(line) for line in to_text(render_replan(found)).splitlines()) <= WIDTH


def test_a_smaller_cluster_has_lost_its_last_nodes(old: PlanSet) -> None:
    smaller = planner.parse_cluster("h100:3x8")
    by_cluster = planner.replan(old, smaller)
    by_nodes = planner.replan(old, without={"h100": [3]})
    assert by_cluster.plans.plans == by_nodes.plans.plans
    assert by_cluster.moves == by_nodes.moves


def test_a_larger_cluster_keeps_the_plan_or_gets_faster(old: PlanSet) -> None:
    larger = planner.parse_cluster("h100:5x8")
    kept = planner.replan(old, larger, within=math.inf)
    assert kept.moves == ()
    faster = planner.replan(old, larger, thorough=True)
    assert step_s(faster) <= old.plans[0].step_time_s
    # The old bound says nothing of more devices.
    assert kept.bound_from == "work and depth"


def test_a_whole_group_may_be_lost() -> None:
    one = problem("h100:2x8+a100:2x8")
    both = planner.plan(one.workload, one.cluster, space="verl-fsdp", top=1)
    found = planner.replan(both, without={"h100": [0, 1]})
    meshes = found.plans.plans[0].assignment.meshes.values()
    assert {mesh.group for mesh in meshes} == {"a100"}
    assert all(move.bytes > 0 for move in found.moves)


def test_an_edited_plan_set_loses_its_bound(old: PlanSet) -> None:
    hashes = old.input_hashes | {"workload": "0" * 64}
    found = planner.replan(old.model_copy(update={"input_hashes": hashes}), without={"h100": [0]})
    assert found.bound_from == "work and depth"
    assert found.plans.search.bound_s <= step_s(found)


def test_nodes_behind_a_lost_one_move_up() -> None:
    cluster = planner.parse_cluster("h100:6x8")
    survivors = without_nodes(cluster, {"h100": [1, 3]})
    mesh = Mesh(group="h100", first_node=4, nodes=2, devices_per_node=8)
    moved = survivors.mesh(mesh)
    assert moved is not None
    assert moved.first_node == 2
    assert survivors.mesh(mesh.model_copy(update={"first_node": 2})) is None
    assert survivors.old_nodes("h100").tolist() == [0, 2, 4, 5]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"without": {"h100": [4]}}, "no node 4"),
        ({"without": {"h200": [0]}}, "unknown node group"),
        ({"without": {"h100": [0, 1, 2, 3]}}, "no node is left"),
        ({"without": {"h100": [0]}, "rank": 99}, "no plan of rank 99"),
        ({"without": {"h100": [0]}, "within": -1.0}, "within"),
        ({}, "neither"),
        ({"cluster": planner.parse_cluster("h100:4x4")}, "had nodes of 8"),
    ],
)
def test_changes_that_make_no_sense_are_refused(
    old: PlanSet, options: dict[str, object], words: str
) -> None:
    with pytest.raises(planner.InputError, match=words):
        planner.replan(old, **options)  # type: ignore[arg-type]


def test_the_command_reads_a_plan_file_and_writes_one(old: PlanSet, tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    path.write_text(old.model_dump_json())
    arguments = ["replan", str(path), "--without-nodes", "h100:3"]
    result = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert "8 devices are gone" in result.output
    written = PlanSet.model_validate_json((tmp_path / "new" / "plans.json").read_text())
    content = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert content["plans"]["plans"][0]["step_time_s"] == written.plans[0].step_time_s
    for wrong in (["--without-nodes", "3"], ["--without-nodes", "h100:x"], []):
        result = CliRunner().invoke(app, ["replan", str(path), *wrong])
        assert isinstance(result.exception, PlannerError)
        assert "--without-nodes" in str(result.exception)
