"""Guidelines on placement: layouts of each call, colocation or split, weight transfer."""

from __future__ import annotations

from problems import Finding, best

import planner
from planner.catalog.spaces import load_space
from planner.catalog.workloads import problem_from


def layouts_of_their_own() -> Finding:
    """Guideline 2: different layouts per call beat one global layout."""
    given = problem_from(preset="real-ppo-70b")
    free = planner.plan(given.workload, given.cluster, space="any", top=1).plans[0]
    degrees = {(s.tp, s.pp, s.dp) for n, s in free.assignment.strategies.items() if n in free.calls}
    colocated = load_space("any").model_copy(update={"placements": ("colocated",)})
    together = planner.plan(given.workload, given.cluster, space=colocated, top=1).plans[0]
    return Finding(
        "2 a layout for each call, calls side by side where they can be",
        "PPO with four 70B models on 128 devices: any placement against all calls on all devices",
        f"{len(degrees)} layouts; {together.step_time_s / free.step_time_s:.2f}x faster",
        len(degrees) >= 2 and together.step_time_s >= free.step_time_s,
    )


def small_colocates_large_splits() -> Finding:
    """Guidelines 3 and 4: one-step-off slows Qwen3-30B on 16 GB200, and speeds it on 32 H100."""
    gains = []
    for name in ("nemo-qwen3-30b-gb200", "nemo-qwen3-30b"):
        given = problem_from(preset=name)
        steps = []
        for placement, staleness in (("colocated", 0), ("disaggregated", 1)):
            space = load_space("nemo-rl-megatron").model_copy(update={"placements": (placement,)})
            steps.append(best(given, space=space, max_staleness=staleness).step_time_s)
        gains.append(steps[0] / steps[1])
    return Finding(
        "3, 4 splitting 16 devices starves both sides; 32 gain",
        "Qwen3-30B-A3B on 16 GB200 and on 32 H100: best colocated over best one-step-off",
        f"{gains[0]:.2f}x and {gains[1]:.2f}x",
        gains[0] < 1.0 < gains[1],
    )


def weight_sync_is_seconds() -> Finding:
    """Guideline 10: below 5 % of the step except for tiny steps."""
    shares = []
    for name in ("nemo-qwen3-30b", "nemo-deepseek-v3"):
        given = problem_from(preset=name)
        plan = best(given, space="nemo-rl-megatron")
        sync = sum(s for part, s in plan.overheads_s.items() if part.startswith("weight_sync"))
        shares.append(sync / plan.step_time_s)
    return Finding(
        "10 weight transfer is below 5 % of the step",
        "presets nemo-qwen3-30b and nemo-deepseek-v3",
        " and ".join(f"{value:.1%}" for value in shares),
        max(shares) < 0.05,
    )


EXPERIMENTS = (layouts_of_their_own, small_colocates_large_splits, weight_sync_is_seconds)
