"""Small problems and fixed prices for the simulator's tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import planner
from planner.catalog.workloads import Problem, problem_from
from planner.schema import EnvironmentSpec, PlanSet
from planner.simulate.events.prices import ReplicaPrices


def problem(
    *,
    model: str = "Qwen/Qwen2.5-7B",
    cluster: str = "h100:1x8",
    prompts: int = 64,
    samples: int = 8,
    mean: float = 800.0,
    longest: int = 2048,
    staleness: int = 0,
    partial_rollout: float | None = None,
    latency_s: float = 0.0,
    workers: int = 64,
    algorithm: str = "grpo",
    changes: dict[str, object] | None = None,
) -> Problem:
    models = {"actor": model} | ({"critic": model} if algorithm == "ppo" else {})
    found = problem_from(
        None,
        algorithm=algorithm,
        models=models,
        cluster=cluster,
        prompts=prompts,
        samples=samples,
        response_mean=mean,
        response_max=longest,
    )
    update = {
        "max_staleness": staleness,
        "partial_rollout": partial_rollout,
        "environment": EnvironmentSpec(latency_s=latency_s, workers=workers),
        **(changes or {}),
    }
    return replace(found, workload=found.workload.model_copy(update=update))


_SOLVED: dict[str, PlanSet] = {}


def solved(**options: object) -> PlanSet:
    """Plans of a problem; the same object for the same options."""
    if repr(options) not in _SOLVED:
        _SOLVED[repr(options)] = _solve(**options)
    return _SOLVED[repr(options)]


def _solve(**options: object) -> PlanSet:
    found = problem(**options)  # type: ignore[arg-type]
    return planner.plan(found.workload, found.cluster, space="verl-fsdp", top=2)


def prices(
    *,
    step_s: float = 0.01,
    attention_s: float = 0.0,
    prefill_token_s: float = 0.0,
    request_s: float = 0.0,
    max_running: int = 1000,
    pool_tokens: float = 1e12,
    window_tokens: float = np.inf,
    growth: float = 1.0,
    replicas: int = 1,
) -> ReplicaPrices:
    """A step takes `step_s` and `attention_s` for every running sequence and cached token; half of
    the cache of a token is in windowed layers where there is a window."""
    contexts = np.array([0.0, 1e6])
    running = np.arange(1.0, max_running + 1.0)[:, None]
    windowed = 0.5 if np.isfinite(window_tokens) else 0.0
    return ReplicaPrices(
        replicas=replicas,
        step_s=step_s + attention_s * running * contexts,
        kv_tokens=contexts,
        prefill_token_s=prefill_token_s,
        request_s=request_s,
        max_running=max_running,
        pool_bytes=pool_tokens,
        token_bytes=1.0 - windowed,
        window_bytes=windowed,
        window_tokens=window_tokens,
        context_growth=growth,
        prompt_sharing=1,
    )
