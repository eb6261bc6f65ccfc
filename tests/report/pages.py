"""A small answer and its page, with names that a careless page would run."""

from __future__ import annotations

from functools import cache

import planner
from planner.catalog.workloads import problem_from
from planner.launchers import get_launcher
from planner.report.html.page import ReportData, html_report
from planner.schema import PlanSet
from planner.search.analysis import analyze_plan

HOSTILE = "</script><img src=x onerror=\"console.error('ran')\"> & 'friends'"


def answer(staleness: int = 0) -> PlanSet:
    """Plans of a workload, a model, a cluster and a node group of a hostile name."""
    return _answer(staleness)


@cache
def _answer(staleness: int) -> PlanSet:
    name = HOSTILE
    given = problem_from(
        None,
        algorithm="grpo",
        models={"actor": "Qwen/Qwen2.5-7B"},
        cluster="h100:2x8",
        prompts=64,
        samples=8,
        response_mean=800.0,
        response_max=4096,
        kl_weight=0.001,
        max_staleness=staleness,
    )
    group = given.cluster.groups[0].model_copy(update={"name": name})
    cluster = given.cluster.model_copy(update={"name": name, "groups": (group,)})
    actor = given.workload.models["actor"].model_copy(update={"name": name})
    models = {**given.workload.models, "actor": actor}
    workload = given.workload.model_copy(
        update={"name": name, "models": models, "assumptions": (name,)}
    )
    space = "verl-megatron" if staleness else "verl-fsdp"
    return planner.plan(workload, cluster, space=space, top=2)


def page(staleness: int = 0) -> str:
    """The report of `answer`."""
    return _page(staleness)


@cache
def _page(staleness: int) -> str:
    plans = answer(staleness)
    workload, cluster = plans.workload, plans.cluster
    files = {
        plan.rank: {
            name: get_launcher(name).write(plan, workload, cluster) for name in plan.launchers
        }
        for plan in plans.plans
    }
    space = plans.plans[0].assignment.space
    front = planner.pareto(workload, cluster, space=space, sizes=[8, 16])
    return html_report(
        ReportData(plans, analyze_plan(plans.plans[0], workload, cluster), front, files)
    )
