"""What a launcher module writes, it reads back: the same strategies, placement and workload."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from launcher_cases import NEMO_CASES, VERL_CASES, Case
from random_plans import plans

from planner.launchers import get_launcher, launcher_names
from planner.launchers.reading import Context, ReadConfig
from planner.schema import Plan, Workload
from planner.workload.algorithms import build_graph

SPACES = [
    (name, space) for name in launcher_names() for space in get_launcher(name).capabilities.spaces
]
# A name, and what no launcher's file says.
UNWRITTEN = {"name", "assumptions", "environment", "models"}


NAMED = [("verl", VERL_CASES["fsdp-colocated"]), ("nemo-rl", NEMO_CASES["colocated"])]


def read_back(launcher: str, case: Case, files: dict[str, str] | None = None) -> ReadConfig:
    plan, workload, cluster = case
    context = Context(
        cluster,
        workload.models,
        workload.prompt_length.mean_tokens,
        workload.response_length.mean_tokens,
    )
    written = get_launcher(launcher).write(plan, workload, cluster)
    return get_launcher(launcher).read(files or written, [], context)


def assert_same(found: ReadConfig, plan: Plan, workload: Workload) -> None:
    assert found.broken == ()
    assert found.assignment is not None
    given_ = plan.assignment
    assert found.assignment.strategies == given_.strategies
    assert found.assignment.staleness == given_.staleness
    assert found.space == given_.space
    shapes = {name: (mesh.nodes, mesh.devices_per_node) for name, mesh in given_.meshes.items()}
    read = found.assignment.meshes
    assert {name: (mesh.nodes, mesh.devices_per_node) for name, mesh in read.items()} == shapes
    for one in given_.meshes:
        for other in given_.meshes:
            assert read[one].overlaps(read[other]) == given_.meshes[one].overlaps(
                given_.meshes[other]
            )
    assert said(found.workload) == said(workload)
    # Only models that run are named in a launcher's files.
    roles = {attributes["call"].role for _, attributes in build_graph(workload).nodes(data=True)}
    assert {role: found.workload.models[role] for role in roles & set(workload.models)} == {
        role: workload.models[role] for role in roles & set(workload.models)
    }
    unknown = [each.key for each in found.not_understood if "no such key" in each.reason]
    assert unknown == []


def said(workload: Workload) -> dict[str, Any]:
    fields = workload.model_dump(exclude=UNWRITTEN)
    fields["critic_optimizer_steps"] = workload.critic_optimizer_steps or workload.optimizer_steps
    return fields


@pytest.mark.parametrize(("launcher", "space"), SPACES)
def test_what_is_written_reads_back_the_same(launcher: str, space: str) -> None:
    assert round_trips(launcher, space, 40) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("launcher", launcher_names())
def test_five_hundred_plans_of_each_launcher_read_back_the_same(
    launcher: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spaces = [space for name, space in SPACES if name == launcher]
    total = sum(round_trips(launcher, space, -(-500 // len(spaces))) for space in spaces)
    with capsys.disabled():
        print(f"\n{launcher}: {total} random plans of {', '.join(spaces)} read back the same")
    assert total >= 500


def round_trips(launcher: str, space: str, number: int) -> int:
    """Writes and reads `number` random plans (the same in each run); returns how many it was."""
    algorithms = get_launcher(launcher).capabilities.algorithms
    done = 0

    @settings(
        max_examples=number,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    )
    @given(plans(launcher, space, tuple({"grpo", "ppo"} & set(algorithms))))
    def check(case: Case) -> None:
        nonlocal done
        assert_same(read_back(launcher, case), case[0], case[1])
        done += 1

    check()
    return done


@pytest.mark.parametrize("case", [*VERL_CASES.items(), *NEMO_CASES.items()], ids=lambda c: c[0])
def test_hand_made_plans_read_back_the_same(case: tuple[str, Any]) -> None:
    plan, workload, cluster = case[1]()
    workload = workload.model_copy(update={"max_staleness": plan.assignment.staleness})
    launcher = "nemo-rl" if case[0] in NEMO_CASES else "verl"
    assert_same(read_back(launcher, (plan, workload, cluster)), plan, workload)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_models_name_stays_a_name(name: str) -> None:
    """Quoting is undone exactly: `$(touch x)`, quotes, `${...}` and backslashes are text."""
    for launcher, make in (
        ("verl", VERL_CASES["fsdp-colocated"]),
        ("nemo-rl", NEMO_CASES["colocated"]),
    ):
        plan, workload, cluster = make()
        model = workload.models["actor"].model_copy(update={"name": name})
        models = {"actor": model, "reference": model}
        case = (plan, workload.model_copy(update={"models": models}), cluster)
        if get_launcher(launcher).supports(*case):
            continue
        found = read_back(launcher, case)
        key = {"verl": "actor_rollout_ref.model.path", "nemo-rl": "policy.model_name"}[launcher]
        assert found.settings[key] == name
