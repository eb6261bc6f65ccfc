"""Plans of every launcher over algorithms, models, placements and cluster sizes, by search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from launcher_cases import QWEN_8B, QWEN_30B, grpo, ppo

import planner
from planner.catalog.hardware import parse_cluster
from planner.errors import InfeasibleError
from planner.launchers import get_launcher
from planner.schema import Cluster, Plan, Workload

WORKLOADS: dict[str, tuple[Workload, str]] = {
    "grpo-8b-1x8": (grpo(QWEN_8B), "h100:1x8"),
    "grpo-8b-2x8-on-policy": (
        grpo(QWEN_8B, optimizer_steps=1, kl_weight=0.0, models={"actor": QWEN_8B}),
        "h100:2x8",
    ),
    "grpo-8b-2x8-engine": (
        grpo(
            QWEN_8B,
            optimizer_steps=1,
            kl_weight=0.0,
            models={"actor": QWEN_8B},
            old_logprobs="engine",
            max_staleness=1,
        ),
        "h100:2x8",
    ),
    "grpo-30b-4x8": (grpo(QWEN_30B), "h100:4x8"),
    "grpo-8b-3x8-stale": (grpo(QWEN_8B, max_staleness=2), "h100:3x8"),
    "ppo-8b-2x8": (ppo(QWEN_8B), "h100:2x8"),
}


def plans_of(launcher: str, only: str = "") -> Iterator[tuple[str, Plan, Workload, Cluster]]:
    """The best plans of each workload in each of the launcher's spaces that it can run."""
    found = get_launcher(launcher)
    for space in found.capabilities.spaces:
        for name, (workload, spec) in WORKLOADS.items():
            if workload.algorithm not in found.capabilities.algorithms or only not in name:
                continue
            cluster = parse_cluster(spec)
            try:
                plans = planner.plan(workload, cluster, space=space, top=3, deadline_s=10, gap=0.05)
            except (InfeasibleError, planner.InputError):
                continue
            for plan in plans.plans:
                if not found.supports(plan, plans.workload, plans.cluster):
                    yield f"{space}-{name}-{plan.rank}", plan, plans.workload, plans.cluster


def write_all(
    launcher: str, folder: Path, only: str = ""
) -> dict[str, tuple[Plan, Workload, Cluster]]:
    """Every plan of `plans_of` written to a folder of its name."""
    written = {}
    for name, plan, workload, cluster in plans_of(launcher, only):
        (folder / name).mkdir(parents=True)
        for file, content in get_launcher(launcher).write(plan, workload, cluster).items():
            (folder / name / file).write_text(content)
        written[name] = (plan, workload, cluster)
    return written
