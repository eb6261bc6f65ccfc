"""What most algorithms have in common: generate, score, forward passes, train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.schema import Call, Workload
from planner.workload import calls
from planner.workload.graph import in_stages

if TYPE_CHECKING:
    import networkx as nx


def on_policy(
    workload: Workload,
    passes: Sequence[Call],
    *,
    trains: Sequence[str] = ("actor",),
    extra_per_prompt: int = 0,
) -> nx.DiGraph:
    """Generate, score, make the forward `passes`, train every role in `trains`.

    The passes read the responses alone, so they run beside scoring, unless the scores decide which
    responses are trained on: then they wait for them. A model in the role env_llm answers the
    policy in its turns.
    """
    rollout = [[calls.generate(workload, extra_per_prompt=extra_per_prompt)]]
    if "env_llm" in workload.models:
        rollout.append([calls.simulate_environment(workload)])
    scores = [calls.score(workload, extra_per_prompt=extra_per_prompt)]
    training = [calls.train(workload, role) for role in trains]
    if selects(workload):
        return in_stages(*rollout, scores, passes, training)
    return in_stages(*rollout, [*scores, *passes], training)


def selects(workload: Workload) -> bool:
    """True when the scores decide which responses are trained on."""
    return (
        workload.acceptance < 1.0
        or workload.oversampling > 1.0
        or workload.kept_fraction < 1.0
        or workload.token_budget is not None
    )


def keeping(workload: Workload, fraction: float) -> Workload:
    """The workload with the algorithm's own kept fraction where the user has not given one."""
    if workload.kept_fraction < 1.0 or fraction >= 1.0:
        return workload
    return workload.model_copy(update={"kept_fraction": fraction})
