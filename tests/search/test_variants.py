"""Layouts of one model that differ from call to call: priced, searched, proven."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import Problem, problem_from
from planner.errors import InputError
from planner.schema import Assignment, CallSpace, Mesh, SearchSpace, Strategy
from planner.search.legality import explain_illegal
from planner.search.problems import scopes
from planner.search.replan import replan
from planner.simulate.copies import of_assignment
from planner.simulate.evaluate import evaluate, evaluate_instance
from planner.simulate.fusions import offered, with_fusions
from planner.simulate.instance import Instance, make_instance
from planner.simulate.prices import price_assignments


def tiny(**changes: object) -> Problem:
    options: dict[str, object] = {
        "algorithm": "grpo",
        "cluster": "h100:1x2",
        "prompts": 16,
        "samples": 8,
        "response_mean": 300.0,
        "response_max": 1024,
        "max_staleness": 0,
    }
    own = {name: changes.pop(name) for name in ("old_logprobs", "kl_weight") if name in changes}
    read = problem_from(None, models={"actor": "Qwen/Qwen2.5-1.5B"}, **(options | changes))
    if own.get("kl_weight"):
        own["models"] = dict.fromkeys(("actor", "reference"), read.workload.models["actor"])
    return Problem(read.workload.model_copy(update=own), read.cluster)


def few_degrees(**changes: object) -> SearchSpace:
    """The unrestricted space with so few values that every assignment can be tried."""
    space = load_space("relayout")
    train = CallSpace(
        tp=(1, 2), zero_stage=(1, 3), sequence_parallel="with_tp", recompute=("selective",)
    )
    forward = CallSpace(tp=(1, 2), zero_stage=(1, 3), sequence_parallel="with_tp")
    generate = CallSpace(tp=(1, 2), memory_fraction=(0.5,), max_running_sequences=(128,))
    calls = {"train": train, "forward": forward, "generate": generate}
    return space.model_copy(update={"calls": calls, **changes})


def instance_of(problem: Problem, space: SearchSpace) -> Instance:
    return make_instance(
        problem.workload,
        problem.cluster,
        framework=space.framework,
        engine=space.engine,
        reference_shares_actor_layout=False,
        reallocates=space.reallocation,
    )


def fused(problem: Problem, space: SearchSpace) -> list[Instance]:
    """The instance, and its fused forms."""
    instance = instance_of(problem, space)
    sets = offered(instance, space.fusions)
    return [instance, *(with_fusions(instance, names) for names in sets)]


def all_assignments(
    problem: Problem, space: SearchSpace, instance: Instance
) -> Iterator[Assignment]:
    """Every legal assignment on one node of two devices."""
    group = problem.cluster.groups[0]
    meshes = [
        Mesh(group=group.name, first_node=0, nodes=1, first_device=first, devices_per_node=count)
        for first, count in ((0, 1), (1, 1), (0, 2))
    ]
    choices: dict[str, list[tuple[Mesh, Strategy]]] = {}
    for call in instance.calls:
        if call.kind == "environment":
            continue
        found = []
        for mesh, tp, zero in itertools.product(meshes, (1, 2), (1, 3)):
            if mesh.devices % tp or (call.kind == "generate" and zero == 3):
                continue
            engine = {"memory_fraction": 0.5, "max_running_sequences": 128}
            trainer = {
                "zero_stage": zero,
                "sequence_parallel": tp > 1,
                "recompute": "selective" if call.kind == "train" else "none",
            }
            fields = engine if call.kind == "generate" else trainer
            strategy = Strategy.model_validate({"tp": tp, "dp": mesh.devices // tp, **fields})
            if not explain_illegal(
                strategy, call, instance.model(call), problem.workload, group, space
            ):
                found.append((mesh, strategy))
        choices[call.name] = found
    for picked in itertools.product(*choices.values()):
        yield Assignment(
            meshes={name: mesh for name, (mesh, _) in zip(choices, picked, strict=True)},
            strategies={name: s for name, (_, s) in zip(choices, picked, strict=True)},
            framework=space.framework,
            engine=space.engine,
            space=space.name,
            fusions=instance.fusions,
        )


def brute_force_s(problem: Problem, space: SearchSpace) -> float:
    instance = instance_of(problem, space)
    best_s = float("inf")
    assignments = [
        each
        for form in fused(problem, space)
        for each in all_assignments(problem, space, form)
        # Copies and fusions are not combined on devices of their own.
        if not form.fusions or of_assignment(form, each).units == form.units
    ]
    prices = price_assignments(instance, assignments)
    for assignment in assignments:
        try:
            prediction = evaluate_instance(instance, assignment, bound_s=0.0, prices=prices)
        except InputError:
            continue
        verdicts = {call.memory_verdict for call in prediction.calls.values()}
        if verdicts == {"fits"}:
            best_s = min(best_s, prediction.step_time_s)
    return best_s


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"response_mean": 900.0},
        {"old_logprobs": "either"},
        {"kl_weight": 0.001},
    ],
    ids=str,
)
def test_the_search_finds_the_best_of_all_layouts(changes: dict[str, object]) -> None:
    problem, space = tiny(**changes), few_degrees()
    answer = planner.plan(problem.workload, problem.cluster, space=space, top=1, gap=1e-4)
    best_s = brute_force_s(problem, space)
    assert answer.search.bound_s <= best_s * (1 + 1e-9)
    assert answer.plans[0].step_time_s == pytest.approx(best_s, rel=2e-4)


def layouts(assignment: Assignment, *calls: str) -> set[tuple[int, ...]]:
    return {
        (s.tp, s.pp, s.cp, s.dp, s.zero_stage)
        for s in (assignment.strategies[name] for name in calls)
    }


def two_layouts(
    problem: Problem, train: Strategy, forward: Strategy, **fields: object
) -> Assignment:
    group = problem.cluster.groups[0]
    mesh = Mesh(
        group=group.name,
        first_node=0,
        nodes=group.nodes,
        devices_per_node=group.devices_per_node,
    )
    names = ("generate", "old_logprobs", "actor_train")
    engine = Strategy(tp=1, dp=mesh.devices, memory_fraction=0.5)
    return Assignment.model_validate(
        {
            "meshes": dict.fromkeys(names, mesh),
            "strategies": {"generate": engine, "old_logprobs": forward, "actor_train": train},
            "framework": "generic",
            "engine": "vllm",
            "space": "relayout",
        }
    )


def test_a_second_layout_costs_its_reallocation_and_keeps_nothing() -> None:
    problem = tiny()
    train = Strategy(dp=2, zero_stage=1)
    other = Strategy(tp=2, dp=1, zero_stage=1, sequence_parallel=True)
    same = evaluate(two_layouts(problem, train, train), problem.workload, problem.cluster)
    split = evaluate(two_layouts(problem, train, other), problem.workload, problem.cluster)
    assert "reallocation" not in same.calls["old_logprobs"].time_parts_s
    # The trainer's ranks hold everything that tensor-parallel ranks need.
    assert "reallocation" not in split.calls["old_logprobs"].time_parts_s
    back = evaluate(two_layouts(problem, other, train), problem.workload, problem.cluster)
    parts = back.calls["old_logprobs"].time_parts_s
    assert parts["reallocation"] > 0
    assert sum(parts.values()) == pytest.approx(back.calls["old_logprobs"].time_s)
    # While the copy works, the trainer's state is still there; while it does not, nothing is.
    memory = back.calls["old_logprobs"].memory_bytes
    trainer = back.calls["actor_train"].memory_bytes
    state = sum(trainer[name] for name in ("weights", "gradients", "optimizer"))
    assert memory["other_models"] >= state
    assert trainer["other_models"] == pytest.approx(
        same.calls["actor_train"].memory_bytes["other_models"]
    )


def test_a_copy_on_other_devices_receives_all_its_weights() -> None:
    problem = tiny()
    base = two_layouts(problem, Strategy(dp=2, zero_stage=3), Strategy(dp=2, zero_stage=3))
    half = base.meshes["generate"].model_copy(update={"devices_per_node": 1})
    moved = base.model_copy(
        update={
            "meshes": base.meshes | {"old_logprobs": half},
            "strategies": base.strategies | {"old_logprobs": Strategy(dp=1, zero_stage=1)},
        }
    )
    parts = evaluate(moved, problem.workload, problem.cluster).calls["old_logprobs"].time_parts_s
    device = problem.cluster.groups[0].device
    weights = 2 * 1.54e9
    fastest = max(device.scale_out_bandwidth_bytes_per_s, device.host_link_bandwidth_bytes_per_s)
    assert parts["reallocation"] >= weights / fastest


def test_launchers_have_one_layout_for_a_trainer() -> None:
    problem = tiny()
    base = two_layouts(problem, Strategy(dp=2, zero_stage=3), Strategy(dp=2, zero_stage=3))
    half = base.meshes["generate"].model_copy(update={"devices_per_node": 1})
    moved = base.model_copy(
        update={
            "space": "verl-fsdp",
            "meshes": base.meshes | {"old_logprobs": half},
            "strategies": base.strategies | {"old_logprobs": Strategy(dp=1, zero_stage=1)},
        }
    )
    with pytest.raises(InputError, match="share one copy"):
        evaluate(moved, problem.workload, problem.cluster)
    for name in ("verl-fsdp", "verl-megatron", "nemo-rl-megatron"):
        assert not load_space(name).reallocation


def test_a_sleeping_trainer_takes_room_from_the_engine_on_its_devices_only() -> None:
    problem = tiny(cluster="h100:2x8")
    space = load_space("relayout").model_copy(update={"engine": "vllm-verl"})
    classes = scopes(instance_of(problem, space), space, 1.0)
    assert {each.engine_apart for each in classes if not each.copied} == {False, True}
    group = problem.cluster.groups[0].name
    here = Mesh(group=group, first_node=0, nodes=1, devices_per_node=8)
    there = here.model_copy(update={"first_node": 1})
    strategies = {
        "generate": Strategy(dp=8),
        "old_logprobs": Strategy(dp=8, zero_stage=3),
        "actor_train": Strategy(dp=8, zero_stage=3),
    }
    cache = {}
    for name, mesh in (("shared", here), ("apart", there)):
        assignment = Assignment(
            meshes={"generate": mesh, "old_logprobs": here, "actor_train": here},
            strategies=strategies,
            framework="verl-fsdp",
            engine="vllm-verl",
        )
        prediction = evaluate(assignment, problem.workload, problem.cluster)
        cache[name] = prediction.calls["generate"].memory_bytes["kv_cache"]
    residue = instance_of(problem, space).engine.value("trainer_residue_bytes")
    assert residue > 0
    assert cache["apart"] - cache["shared"] == pytest.approx(residue, abs=1)


def test_a_fused_plan_can_be_planned_again_on_what_is_left() -> None:
    problem = tiny(cluster="h100:2x2", old_logprobs="either")
    space = few_degrees()
    answer = planner.plan(problem.workload, problem.cluster, space=space, top=1)
    assert answer.plans[0].assignment.fusions == ("engine_logprobs",)
    group = problem.cluster.groups[0].name
    left = replan(answer, without={group: [1]}, space=space).plans.plans[0]
    assert left.devices <= 2
    assert left.step_time_s >= answer.plans[0].step_time_s
