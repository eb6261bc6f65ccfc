"""Guidelines on generation: its share, its tail, speculation, prefix caches, staleness."""

from __future__ import annotations

import itertools

from problems import Finding, best, devices, problem, share, time_s

from planner.schema.workload import Speculation, TurnSpec


def rollout_dominates() -> Finding:
    """Guideline 1: about 70 % of the step for long chains of thought."""
    long = share(best(problem(), space="verl-fsdp"), "generate")
    short = share(
        best(problem(response_mean=300.0, response_max=1024), space="verl-fsdp"), "generate"
    )
    return Finding(
        "1 rollout dominates long-answer steps (70 to 85 %)",
        "7B on 32 H100, colocated: answers of 3,000 against 300 tokens",
        f"generation {long:.0%} of the step against {short:.0%}",
        long > 0.6 and long > short,
    )


def devices_do_not_shorten_the_tail() -> Finding:
    """Guideline 1: more devices do not shorten the tail."""
    few, many = (best(problem(cluster=f"h100:{nodes}x8"), space="verl-fsdp") for nodes in (4, 16))
    generate, train = (time_s(few, k) / time_s(many, k) for k in ("generate", "train"))
    return Finding(
        "1 more devices do not shorten the tail",
        "7B, the same step on 32 and on 128 H100",
        f"generation {generate:.2f}x faster, training {train:.2f}x",
        generate < 2.0 < train,
    )


def staleness_saturates() -> Finding:
    """Guidelines 4 and 5: the first version of staleness gains most, later ones little."""
    given = problem(response_mean=4000.0, response_max=32768, cluster="h100:8x8")
    steps = [
        best(given, space="nemo-rl-megatron", max_staleness=k).step_time_s for k in (0, 1, 2, 4, 8)
    ]
    gains = [a / b for a, b in itertools.pairwise(steps)]
    return Finding(
        "4, 5 asynchrony gains 1.2 to 2.7 times, most of it at small staleness",
        "7B on 64 H100, up to 32k tokens, staleness 0, 1, 2, 4, 8",
        "gain of each level " + " ".join(f"{gain:.2f}x" for gain in gains),
        steps[0] / steps[-1] > 1.2 and max(gains[:2]) >= max(gains[2:]) and min(gains) >= 0.995,
    )


def longer_answers_shift_devices_to_generation() -> Finding:
    """Guideline 6: shift to generation as responses get longer."""
    shares = []
    for mean, cap in ((500.0, 2048), (2000.0, 8192), (8000.0, 32768)):
        given = problem(response_mean=mean, response_max=cap, cluster="h100:8x8")
        plan = best(given, space="nemo-rl-megatron", max_staleness=1)
        shares.append(devices(plan, "generate") / plan.devices if plan.staleness else 1.0)
    return Finding(
        "6 equalise generation and training; longer answers move devices to generation",
        "7B on 64 H100, one-step-off, answers of 500, 2,000 and 8,000 tokens on average",
        "share of generation " + " ".join(f"{value:.0%}" for value in shares),
        shares == sorted(shares) and shares[0] < shares[-1],
    )


def speculation_pays_at_small_batches() -> Finding:
    """Guideline 9: on for the tail, off at large batch."""
    draft = Speculation(draft_tokens=3, acceptance=0.7)
    gains = []
    for prompts in (4, 512):
        given = problem("Qwen/Qwen2.5-32B", "h100:1x8", prompts=prompts, samples=8)
        plain = best(given, space="verl-megatron")
        drafted = best(given, space="verl-megatron", speculation=draft)
        gains.append(time_s(plain, "generate") / time_s(drafted, "generate"))
    return Finding(
        "9 speculation shortens the tail, not full batches",
        "32B on 8 H100, 3 draft tokens accepted at 0.7: 32 and 4,096 responses",
        f"generation {gains[0]:.2f}x and {gains[1]:.2f}x faster",
        gains[0] > 1.3 and gains[0] > gains[1],
    )


def prefix_caches_matter_for_agents() -> Finding:
    """Guideline 17: without the cache prefill grows with the square of the turns."""
    ratios = []
    for turns in (4.0, 16.0):
        given = problem(response_mean=4000.0, response_max=8192)
        # The same trajectory cut into more turns: tool answers of 8,000 tokens in all.
        spec = {"mean": turns, "observation_tokens": 8000.0 / (turns - 1)}
        times = [
            time_s(
                best(given, space="verl-fsdp", turns=TurnSpec(prefix_cache_hit=hit, **spec)),
                "generate",
            )
            for hit in (1.0, 0.0)
        ]
        ratios.append(times[1] / times[0])
    return Finding(
        "17 prefix caches decide agentic rollouts",
        "7B on 32 H100, 4 and 16 turns, with and without the context in the cache",
        f"generation {ratios[0]:.2f}x and {ratios[1]:.2f}x slower without",
        1.0 < ratios[0] < ratios[1],
    )


EXPERIMENTS = (
    rollout_dominates,
    devices_do_not_shorten_the_tail,
    staleness_saturates,
    longer_answers_shift_devices_to_generation,
    speculation_pays_at_small_batches,
    prefix_caches_matter_for_agents,
)
