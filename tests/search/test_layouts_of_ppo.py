"""PPO of four 70B models on 128 GPUs: layouts that differ from call to call are worth having.

The comparison of ReaL (arXiv:2406.14088): its plans against one layout for everything, and against
models on nodes of their own. All times are of one cost model.
"""

from __future__ import annotations

import pytest

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import Problem, problem_from
from planner.schema import LengthDistribution, Plan, PlanSet, SearchSpace

MODEL = "meta-llama/Llama-3.1-70B"
ROLES = ("actor", "critic", "reference", "reward")
ONE_LAYOUT = ((8, 1), (8, 2), (8, 4))
"""(tp, pp) of everything: tensor parallelism in the node, pipelines across, data parallel rest."""


def ppo(prompt_tokens: int, response_tokens: int, sequences: int) -> Problem:
    read = problem_from(
        None,
        algorithm="ppo",
        models=dict.fromkeys(ROLES, MODEL),
        cluster="h100:16x8",
        prompts=sequences,
        samples=1,
        response_mean=float(response_tokens),
        response_max=response_tokens,
        max_staleness=0,
    )

    def fixed(tokens: int) -> LengthDistribution:
        return LengthDistribution(kind="fixed", mean_tokens=float(tokens), max_tokens=tokens)

    lengths = {"prompt_length": fixed(prompt_tokens), "response_length": fixed(response_tokens)}
    return Problem(read.workload.model_copy(update=lengths), read.cluster)


def fewer_degrees() -> SearchSpace:
    """The unrestricted space with fewer values, to keep the default run short."""
    space = load_space("relayout")
    trainer = {
        "tp": (1, 2, 8),
        "pp": (1, 2, 4, 8),
        "vpp": (1,),
        "cp": (1, 4),
        "micro_batch_sequences": (1, 4),
        "packing": (True,),
        "uneven_stages": False,
    }
    calls = {
        "train": space.calls["train"].model_copy(
            update=trainer | {"recompute": ("selective", "full"), "optimizer_on_cpu": (False,)}
        ),
        "forward": space.calls["forward"].model_copy(update=trainer),
        "generate": space.calls["generate"],
    }
    return space.model_copy(update={"calls": calls, "sub_node_meshes": False})


def one_layout(space: SearchSpace, tp: int, pp: int) -> SearchSpace:
    """All calls of all models on all devices, with the same degrees."""
    degrees = {"tp": (tp,), "pp": (pp,)}
    trainer = degrees | {"cp": (1,), "zero_stage": (1,), "vpp": (1,), "uneven_stages": False}
    calls = {
        kind: values.model_copy(update=degrees if kind == "generate" else trainer)
        for kind, values in space.calls.items()
    }
    return space.model_copy(
        update={
            "calls": calls,
            "placements": ("colocated",),
            "reallocation": False,
            "fusions": (),
        }
    )


def by_nodes(space: SearchSpace) -> SearchSpace:
    """Every model, and the engine, on nodes of its own."""
    own = {"colocated": ("engine", "reference", "reward", "critic")}
    return space.model_copy(
        update={
            "placements": ("colocated",),
            "own_devices": own,
            "reallocation": False,
            "fusions": (),
        }
    )


def best(problem: Problem, space: SearchSpace, gap: float = 0.005) -> PlanSet:
    return planner.plan(problem.workload, problem.cluster, space=space, top=1, gap=gap)


def actor_layouts(plan: Plan) -> set[tuple[int, ...]]:
    calls = (plan.calls[name].strategy for name in ("generate", "old_logprobs", "actor_train"))
    return {(s.tp, s.pp, s.cp, s.dp, s.zero_stage) for s in calls if s is not None}


def gains(problem: Problem, space: SearchSpace, gap: float) -> tuple[float, float, PlanSet]:
    """Times over one layout's best, and over the split by nodes; and the plans found."""
    found = best(problem, space, gap)
    ours = found.plans[0].step_time_s
    single = min(
        best(problem, one_layout(space, tp, pp), gap).plans[0].step_time_s for tp, pp in ONE_LAYOUT
    )
    split = best(problem, by_nodes(space), gap).plans[0].step_time_s
    return single / ours, split / ours, found


def test_layouts_that_differ_beat_one_layout_and_models_by_nodes() -> None:
    problem, space = ppo(1024, 1024, 512), fewer_degrees()
    over_one, over_nodes, found = gains(problem, space, 0.02)
    plan = found.plans[0]
    assert len(actor_layouts(plan)) >= 2
    assert over_one > 1.1
    assert over_nodes > 1.3
    # The trainer's passes differ too, not the engine alone.
    passes = [("old_logprobs", "actor_train"), ("values", "critic_train")]
    assert any(
        "reallocation" in plan.calls[forward].time_parts_s
        and plan.calls[forward].strategy != plan.calls[train].strategy
        for forward, train in passes
    )
    again = planner.evaluate(plan, problem.workload, problem.cluster)
    assert again.step_time_s == pytest.approx(plan.step_time_s, rel=1e-3)
    fixed = best(problem, space.model_copy(update={"reallocation": False}), 0.02)
    assert plan.step_time_s <= fixed.plans[0].step_time_s * 1.02
    assert found.search.bound_s <= fixed.plans[0].step_time_s


@pytest.mark.slow
@pytest.mark.parametrize("case", [(1024, 1024, 512), (7168, 1024, 128), (1024, 7168, 128)], ids=str)
def test_layouts_that_differ_pay_in_the_whole_space(case: tuple[int, int, int]) -> None:
    over_one, over_nodes, found = gains(ppo(*case), load_space("relayout"), 0.005)
    assert found.search.optimal
    assert len(actor_layouts(found.plans[0])) >= 2
    assert over_one > 1.05
    assert over_nodes > 1.25
