"""Small problems that the experiments share, and what they read off their plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import planner
from planner.catalog.workloads import Problem, problem_from
from planner.schema import Plan, SearchSpace


@dataclass(frozen=True)
class Finding:
    """One experiment: what the guideline says, what the model shows, and whether they agree."""

    guideline: str
    experiment: str
    shown: str
    agrees: bool


def problem(actor: str = "Qwen/Qwen2.5-7B", cluster: str = "h100:4x8", **changes: Any) -> Problem:
    """A GRPO step of 64 prompts x 16 with long answers, unless changed."""
    options: dict[str, Any] = {
        "algorithm": "grpo",
        "prompts": 64,
        "samples": 16,
        "prompt_mean": 300.0,
        "prompt_max": 1024,
        "response_mean": 3000.0,
        "response_max": 16384,
        "max_staleness": 0,
    }
    return problem_from(None, models={"actor": actor}, cluster=cluster, **(options | changes))


def best(given: Problem, *, space: str | SearchSpace | None = None, **workload: Any) -> Plan:
    """The best plan, with fields of the workload replaced."""
    changed = given.workload.model_copy(update=workload)
    # `model_copy` does not validate: a slip in an experiment must not pass.
    changed = type(changed).model_validate(changed.model_dump())
    found = planner.plan(changed, given.cluster, space=space or given.space, top=1)
    return found.plans[0]


def share(plan: Plan, kind: str) -> float:
    """Time of the calls of one kind over the step time."""
    return sum(c.time_s for c in plan.calls.values() if c.kind == kind) / plan.step_time_s


def devices(plan: Plan, kind: str) -> int:
    """Devices of the largest mesh of the calls of one kind."""
    return max(c.mesh.devices for c in plan.calls.values() if c.kind == kind and c.mesh)


def time_s(plan: Plan, kind: str) -> float:
    """Time of the calls of one kind, seconds."""
    return sum(c.time_s for c in plan.calls.values() if c.kind == kind)
