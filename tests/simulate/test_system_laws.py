"""Laws of strategies between calls, and figures of systems that search or predict plans.

The seed's theory (work, depth, taxonomy), Ring-lite (arXiv:2506.14731), ReaL (arXiv:2406.14088) and
vTrain (MICRO 2024).
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import Problem, problem_from
from planner.cost.calls import call_costs
from planner.errors import InputError
from planner.schema import Assignment, Mesh, Prediction, SearchSpace, Strategy
from planner.simulate.evaluate import evaluate
from planner.simulate.events.replay import simulate
from planner.workload.lengths import expected_maximum
from planner.workload.partial import period_tokens
from tests.cost.training_contexts import LLAMA_8B, arrays, context, fixed, model


def grpo(actor: str = "Qwen/Qwen2.5-7B", **changes: object) -> Problem:
    read = problem_from(
        None,
        algorithm="grpo",
        models={"actor": actor},
        cluster="h100:1x8",
        prompts=32,
        samples=8,
        response_mean=500.0,
        response_max=2048,
    )
    return Problem(read.workload.model_copy(update=changes), read.cluster)


def laid_out(
    problem: Problem,
    engine: tuple[int, int, Strategy],
    trainer: tuple[int, int, Strategy],
    *,
    staleness: int = 0,
    space: str = "any",
) -> Assignment:
    """(first device, devices, strategy) of the engine and of the trainer."""

    def mesh(first: int, devices: int) -> Mesh:
        group = problem.cluster.groups[0].name
        return Mesh(
            group=group, first_node=0, nodes=1, first_device=first, devices_per_node=devices
        )

    train = trainer[2]
    return Assignment(
        meshes={
            "generate": mesh(*engine[:2]),
            "old_logprobs": mesh(*trainer[:2]),
            "actor_train": mesh(*trainer[:2]),
        },
        strategies={
            "generate": engine[2],
            "old_logprobs": train.model_copy(update={"recompute": "none"}),
            "actor_train": train,
        },
        staleness=staleness,
        framework="generic",
        engine="vllm",
        space=space,
    )


def busy_s(found: Prediction) -> float:
    return found.step_time_s - found.overheads_s["step_overhead"]


def test_asynchronous_is_no_slower_than_in_turn_and_no_faster_than_the_longer_pool() -> None:
    problem = grpo()
    engine, trainer = (0, 4, Strategy(dp=4)), (4, 4, Strategy(dp=4, zero_stage=3))
    turn, stale = (
        evaluate(laid_out(problem, engine, trainer, staleness=k), problem.workload, problem.cluster)
        for k in (0, 1)
    )
    calls = turn.calls
    pools = (
        calls["generate"].time_s,
        calls["old_logprobs"].time_s + calls["actor_train"].time_s,
    )
    sync_s = turn.overheads_s["weight_sync"]
    # In turn: both pools, one waiting for the other.
    assert busy_s(turn) == pytest.approx(sum(pools) + sync_s)
    assert busy_s(stale) <= busy_s(turn)
    stale_pools = (
        stale.calls["generate"].time_s,
        stale.calls["old_logprobs"].time_s + stale.calls["actor_train"].time_s,
    )
    assert busy_s(stale) >= max(stale_pools)


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_more_devices_never_lower_a_rollout_below_its_depth(devices: int) -> None:
    problem = grpo()
    trainer = (0, 8, Strategy(dp=8, zero_stage=3, offload="all"))
    engine = (0, devices, Strategy(dp=devices, memory_fraction=0.5))
    found = evaluate(laid_out(problem, engine, trainer), problem.workload, problem.cluster)
    latency_s = problem.cluster.groups[0].device.kernel_latency_s
    generate = found.calls["generate"]
    assert generate.time_s >= generate.bound_s >= generate.depth * latency_s
    one = laid_out(problem, (0, 1, Strategy(dp=1, memory_fraction=0.5)), trainer)
    alone = evaluate(one, problem.workload, problem.cluster).calls["generate"]
    # Replicas divide the work and leave the longest response as it is.
    assert generate.depth == alone.depth
    assert generate.work_flop == pytest.approx(alone.work_flop, rel=1e-9)


def test_depth_of_a_pipeline_grows_with_its_stages() -> None:
    given = context(LLAMA_8B, sequences=64)
    stages = [Strategy(pp=p, dp=8 // p, zero_stage=1) for p in (1, 2, 4, 8)]
    found = call_costs(given, arrays(*stages))
    assert (np.diff(found.depth) > 0).all()
    assert np.ptp(found.useful_flop) == 0.0


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_carrying_over_caps_a_rollout_and_conserves_its_tokens(share: float) -> None:
    """Kimi k1.5's partial rollouts (arXiv:2501.12599): no step waits for the longest response."""
    trainer = (0, 8, Strategy(dp=8, zero_stage=3, offload="all"))
    engine = (0, 8, Strategy(dp=8, memory_fraction=0.5))
    plain, partial = (
        evaluate(laid_out(each, engine, trainer), each.workload, each.cluster).calls["generate"]
        for each in (grpo(), grpo(partial_rollout=share))
    )
    lengths = grpo().workload.response_length
    longest = float(expected_maximum(lengths, 256))
    tokens = period_tokens(lengths, longest, share)
    # As deep as the tokens of one step, and as much work as before.
    assert partial.depth / plain.depth == pytest.approx(tokens / longest, rel=0.01)
    assert partial.work_flop == pytest.approx(plain.work_flop, rel=1e-9)
    assert partial.time_s < 0.75 * plain.time_s


# Ring-lite -------------------------------------------------------------------------------------


def test_fixed_tokens_take_the_variation_out_of_training() -> None:
    """Simulated: over 10 % from step to step with all responses, under 1 % with a budget."""
    lengths = grpo().workload.response_length.model_copy(
        update={"mean_tokens": 1000.0, "max_tokens": 16384, "sigma": 1.3}
    )
    plain = grpo(
        response_length=lengths, prompts_per_step=16, samples_per_prompt=8, max_staleness=0
    )
    budget = round(100 * plain.workload.mean_sequence_tokens)
    fixed_tokens = plain.workload.model_copy(update={"algorithm": "c3po", "token_budget": budget})

    def variation(problem: Problem) -> float:
        answer = planner.plan(problem.workload, problem.cluster, space="verl-fsdp", top=1)
        found = simulate(answer.plans[0], problem.workload, problem.cluster, steps=24)
        times = [span.end_s - span.start_s for span in found.spans if span.call == "actor_train"]
        return float(np.std(times) / np.mean(times))

    assert variation(plain) > 0.10
    assert variation(Problem(fixed_tokens, plain.cluster)) < 0.01


# ReaL ------------------------------------------------------------------------------------------


def few_degrees() -> SearchSpace:
    space = load_space("any")
    trainer = {
        "tp": (1,),
        "pp": (1,),
        "vpp": (1,),
        "cp": (1,),
        "zero_stage": (1,),
        "micro_batch_sequences": (1,),
        "packing": (True,),
        "recompute": ("full",),
        "offload": ("none", "all"),
        "uneven_stages": False,
        "optimizer_on_cpu": (False,),
    }
    engine = {"tp": (1,), "pp": (1,), "memory_fraction": (0.5,), "max_running_sequences": (256,)}
    calls = {
        "train": space.calls["train"].model_copy(update=trainer),
        "forward": space.calls["forward"].model_copy(update=trainer | {"recompute": ("none",)}),
        "generate": space.calls["generate"].model_copy(update=engine),
    }
    return space.model_copy(update={"calls": calls, "fusions": ()})


def test_on_eight_devices_the_search_finds_the_best_of_all_plans() -> None:
    """Sizes, degrees, offload, places and staleness tried one by one."""
    problem = grpo("Qwen/Qwen2.5-1.5B")
    sizes = (2, 4, 8)
    engines = [(n, Strategy(dp=n, memory_fraction=0.5, max_running_sequences=256)) for n in sizes]
    trainers = [
        (n, Strategy(dp=n, zero_stage=1, recompute="full", offload=offload))
        for n, offload in product(sizes, ("none", "all"))
    ]
    best_s, tried = np.inf, 0
    for (a, engine), (b, trainer) in product(engines, trainers):
        for first, staleness in ((0, 0), (a, 0), (a, 1)):
            if first + b > 8:
                continue
            given = laid_out(problem, (0, a, engine), (first, b, trainer), staleness=staleness)
            try:
                found = evaluate(given, problem.workload, problem.cluster)
            except InputError:
                # The engine has no room for one sequence.
                continue
            tried += 1
            if found.fits:
                best_s = min(best_s, found.step_time_s)
    assert tried > 30
    answer = planner.plan(problem.workload, problem.cluster, space=few_degrees(), top=1)
    assert answer.plans[0].step_time_s <= best_s * 1.005
    assert answer.search.bound_s <= best_s * (1 + 1e-9)


# vTrain ----------------------------------------------------------------------------------------

MT_NLG = model(
    name="MT-NLG-530B",
    hidden_size=20480,
    num_layers=105,
    num_heads=128,
    num_kv_heads=128,
    head_dim=160,
    ffn_size=4 * 20480,
    vocab_size=51200,
    mlp="plain",
)


def mt_nlg_s(devices: int, *strategies: Strategy) -> list[float]:
    given = context(
        MT_NLG,
        cluster=f"a100:{devices // 8}x8",
        sequences=1920,
        prompt=fixed(48),
        response=fixed(2000),
        profile="megatron-lm-2022",
    )
    found = call_costs(given, arrays(*strategies))
    room = given.group.device.memory_bytes * 0.9
    return [
        float(seconds) if peak < room else float("inf")
        for seconds, peak in zip(found.time_s, found.peak_bytes, strict=True)
    ]


def megatron(tp: int, dp: int, pp: int) -> Strategy:
    return Strategy(tp=tp, pp=pp, dp=dp, packing=False, recompute="full")


MEASURED_S = {2240: 60.1, 2800: 50.2, 3360: 44.4}
"""One step of 1,920 sequences at (8, ., 35), as the paper of the model tells."""


def test_the_largest_model_scales_as_measured() -> None:
    """Uncalibrated for this system the times are short by a quarter; their ratios are right."""
    found = {n: mt_nlg_s(n, megatron(8, n // 280, 35))[0] for n in MEASURED_S}
    for devices, measured in MEASURED_S.items():
        assert found[devices] == pytest.approx(measured, rel=0.35)
        ratio = found[devices] / found[2240]
        assert ratio == pytest.approx(measured / MEASURED_S[2240], rel=0.05)


@pytest.mark.parametrize("devices", MEASURED_S)
def test_a_sweep_finds_a_plan_as_cheap_as_the_published_one(devices: int) -> None:
    published = megatron(8, devices // 280, 35)
    degrees = [
        (tp, pp)
        for tp in (1, 2, 4, 8)
        for pp in (3, 5, 7, 15, 21, 35, 105)
        if devices % (tp * pp) == 0
    ]
    legal = [
        megatron(tp, devices // (tp * pp), pp)
        for tp, pp in degrees
        if 1920 % (devices // (tp * pp)) == 0
    ]
    assert published in legal
    times = mt_nlg_s(devices, published, *legal)
    assert np.isfinite(times[0])
    assert min(times[1:]) <= times[0]
