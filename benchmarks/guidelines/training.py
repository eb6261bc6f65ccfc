"""Guidelines on training and memory: packing, experts, long context, offload, utilisation."""

from __future__ import annotations

from problems import Finding, best, problem, time_s

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import problem_from
from planner.schema import SearchSpace


def restricted(name: str, kind: str, **values: object) -> SearchSpace:
    """A shipped space with some values of the train and forward calls replaced."""
    space = load_space(name)
    calls = dict(space.calls)
    for each in ("train", "forward") if kind == "trainer" else (kind,):
        calls[each] = calls[each].model_copy(update=values)
    return space.model_copy(update={"calls": calls})


def memory_recipe() -> Finding:
    """Guideline 11: full recomputation, offload and a sleeping engine for 30B on few nodes."""
    given = problem("Qwen/Qwen3-30B-A3B", "h100:1x8", prompts=32, samples=8)
    plan = best(given, space="verl-megatron")
    train = next(s for n, s in plan.assignment.strategies.items() if plan.calls[n].kind == "train")
    saved = [
        word
        for word, on in (
            ("full recomputation", train.recompute == "full"),
            ("CPU optimizer", train.optimizer_on_cpu),
            (f"offload {train.offload}", train.offload != "none"),
        )
        if on
    ]
    return Finding(
        "11 recomputation and offload make 30B fit on few nodes",
        "Qwen3-30B-A3B on 8 H100",
        "best plan uses " + (", ".join(saved) or "none of them"),
        len(saved) >= 2,
    )


def packing() -> Finding:
    """Guideline 12: microbatches by tokens, universal."""
    given = problem(response_mean=2000.0, response_max=8192)
    times = []
    for packs in (True, False):
        space = restricted("verl-fsdp", "trainer", packing=(packs,))
        found = planner.plan(given.workload, given.cluster, space=space, top=1)
        times.append(time_s(found.plans[0], "train"))
    return Finding(
        "12 microbatches by tokens, not by padded sequences",
        "7B on 32 H100, answers of 2,000 on average, 8,192 at most",
        f"training {times[1] / times[0]:.1f}x slower with padding",
        times[1] > 1.5 * times[0],
    )


def experts_prefer_expert_parallelism() -> Finding:
    """Guideline 13: EP with small TP for mixtures of experts."""
    given = problem("Qwen/Qwen3-30B-A3B", "h100:4x8")
    times = []
    for degrees in ({"ep": (1, 2, 4, 8, 16), "tp": (1, 2)}, {"ep": (1,), "tp": (1, 2, 4, 8)}):
        space = restricted("nemo-rl-megatron", "trainer", **degrees)
        found = planner.plan(given.workload, given.cluster, space=space, top=1)
        times.append(time_s(found.plans[0], "train"))
    return Finding(
        "13 experts are split by expert parallelism, not by tensor parallelism",
        "Qwen3-30B-A3B on 32 H100, EP up to 16 with TP up to 2 against TP up to 8 without EP",
        f"training {times[1] / times[0]:.2f}x slower without EP",
        times[1] > times[0],
    )


def context_parallelism_for_long_sequences() -> Finding:
    """Guideline 14: CP from 16k up."""
    degrees = []
    for mean, cap in ((1000.0, 3072), (20000.0, 39000)):
        given = problem(
            "Qwen/Qwen2.5-32B", "h100:8x8", response_mean=mean, response_max=cap, prompts=32
        )
        plan = best(given, space="nemo-rl-megatron")
        degrees += [
            s.cp for n, s in plan.assignment.strategies.items() if plan.calls[n].kind == "train"
        ]
    return Finding(
        "14 context parallelism from 16k tokens up",
        "32B on 64 H100, at most 4k and 40k tokens a sequence",
        f"cp {degrees[0]} and {degrees[1]}",
        degrees[0] <= 2 <= degrees[1] and degrees[0] < degrees[1],
    )


def utilisation_inside_rl() -> Finding:
    """Guideline 15: training MFU inside RL below that of pre-training (41 to 48 %)."""
    found = []
    for actor, cluster in (
        ("deepseek-ai/DeepSeek-V3", "h100:32x8"),
        ("Qwen/Qwen3-30B-A3B", "h100:4x8"),
    ):
        given = problem(actor, cluster, response_mean=1000.0, response_max=3072)
        plan = best(given, space="nemo-rl-megatron")
        call = next(c for c in plan.calls.values() if c.kind == "train")
        assert call.mesh is not None
        analysis = planner.analyze_plan(plan, given.workload, given.cluster)
        work = next(c.work_flop for c in analysis.calls.values() if c.kind == "train")
        peak = given.cluster.groups[0].device.peak_flop_per_s["bf16"]
        found.append(work / (call.time_s * call.mesh.devices * peak))
    return Finding(
        "15 training inside RL reaches 0.19 to 0.40 of peak, below pre-training",
        "DeepSeek-V3 on 256 and Qwen3-30B-A3B on 32 H100, short answers",
        " and ".join(f"{value:.0%}" for value in found),
        all(value < 0.41 for value in found),
    )


def distillation_is_cheap() -> Finding:
    """Guideline 16: on-policy distillation takes about a tenth of RL's device hours.

    The published tenth is mostly fewer steps; what a step can show is one response a prompt
    instead of a group, with a teacher's pass instead of a verifier.
    """
    costs = []
    lengths = {"response_mean": 8000.0, "response_max": 32000, "cluster": "h100:4x8"}
    for name, samples in (("on-policy-distillation", 1), ("grpo", 8)):
        models = {"actor": "Qwen/Qwen3-8B"} | (
            {"teacher": "Qwen/Qwen3-32B"} if name == "on-policy-distillation" else {}
        )
        given = problem_from(
            None, algorithm=name, models=models, prompts=512, samples=samples, **lengths
        )
        costs.append(best(given).step_time_s * given.cluster.devices / 512)
    return Finding(
        "16 distil when you can: about a tenth of RL's device hours",
        "Qwen3-8B, 512 prompts: one response each with a 32B teacher against GRPO's eight",
        f"{costs[0]:.0f} against {costs[1]:.0f} device-seconds a prompt",
        costs[0] < 0.5 * costs[1],
    )


EXPERIMENTS = (
    memory_recipe,
    packing,
    experts_prefer_expert_parallelism,
    context_parallelism_for_long_sequences,
    utilisation_inside_rl,
    distillation_is_cheap,
)
