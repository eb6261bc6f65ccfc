"""rlmplan: parallelism plans for RL post-training of language models.

The public API: `plan` searches, `pareto` plans for every number of devices, `capacity` sizes a
cluster for a deadline or a budget, `replan` plans after a change of the cluster, `plan_fleet`
shares a cluster among jobs, `evaluate` prices a given assignment, `analyze_plan` says what bounds a
plan, `explain` why it is as it is, `load_problem`, `load_fleet`, `load_model` and `parse_cluster`
read inputs; the types are in `planner.schema`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.version import __version__

__all__ = [
    "InfeasibleError",
    "InputError",
    "PlannerError",
    "PlanningCancelledError",
    "__version__",
    "analyze_plan",
    "capacity",
    "evaluate",
    "explain",
    "load_fleet",
    "load_model",
    "load_problem",
    "pareto",
    "parse_cluster",
    "plan",
    "plan_fleet",
    "replan",
]

if TYPE_CHECKING:
    from planner.api import capacity, pareto, plan, replan
    from planner.catalog.fleet import load_fleet
    from planner.catalog.hardware import parse_cluster
    from planner.catalog.models import load_model
    from planner.catalog.workloads import load_problem
    from planner.errors import InfeasibleError, InputError, PlannerError, PlanningCancelledError
    from planner.fleet.api import plan_fleet
    from planner.search.analysis import analyze_plan
    from planner.search.explain import explain
    from planner.simulate.evaluate import evaluate

# Imported on first use, so that `import planner` stays fast.
_HOME = {
    "InfeasibleError": "planner.errors",
    "InputError": "planner.errors",
    "PlannerError": "planner.errors",
    "PlanningCancelledError": "planner.errors",
    "analyze_plan": "planner.search.analysis",
    "capacity": "planner.api",
    "evaluate": "planner.simulate.evaluate",
    "explain": "planner.search.explain",
    "load_fleet": "planner.catalog.fleet",
    "load_model": "planner.catalog.models",
    "load_problem": "planner.catalog.workloads",
    "pareto": "planner.api",
    "parse_cluster": "planner.catalog.hardware",
    "plan": "planner.api",
    "plan_fleet": "planner.fleet.api",
    "replan": "planner.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'planner' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
