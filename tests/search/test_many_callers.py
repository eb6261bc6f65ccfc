"""The same answer whoever asks: hash seeds, dictionary orders, threads, processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

import planner
from planner.catalog.workloads import problem_from

ROOT = Path(__file__).parents[2]
MODELS = {
    "actor": "Qwen/Qwen2.5-1.5B",
    "critic": "Qwen/Qwen2.5-0.5B",
    "reward": "Qwen/Qwen2.5-0.5B",
}
PROBLEMS = (("grpo", 400.0), ("grpo", 900.0), ("ppo", 400.0), ("rloo", 600.0))


def answer(algorithm: str, mean: float, backwards: bool = False) -> str:
    """The plans as JSON, without the times that the search took."""
    roles = MODELS if algorithm == "ppo" else {"actor": MODELS["actor"]}
    problem = problem_from(
        None,
        algorithm=algorithm,
        models=dict(reversed(roles.items())) if backwards else roles,
        cluster="h100:1x8",
        prompts=32,
        samples=4,
        response_mean=mean,
        response_max=2048,
    )
    plans = planner.plan(problem.workload, problem.cluster, space="verl-fsdp", top=2)
    content = plans.model_dump(mode="json")
    for key in [key for key in content["search"] if key.endswith("_s") and key != "bound_s"]:
        del content["search"][key]
    return json.dumps(content, sort_keys=True)


@cache
def alone(algorithm: str, mean: float) -> str:
    return answer(algorithm, mean)


def test_the_search_s_own_times_are_all_that_differs() -> None:
    assert answer(*PROBLEMS[0]) == alone(*PROBLEMS[0])


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_hash_seeds_and_the_order_of_roles_change_nothing(seed: str) -> None:
    code = f"import {Path(__file__).stem} as t; print(t.answer('ppo', 400.0, True))"
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == alone("ppo", 400.0)


def test_threads_do_not_disturb_one_another_and_none_is_left() -> None:
    expected = [alone(*problem) for problem in PROBLEMS]
    before = threading.active_count()
    with ThreadPoolExecutor(len(PROBLEMS)) as pool:
        found = list(pool.map(lambda problem: answer(*problem), PROBLEMS))
    assert found == expected
    assert threading.active_count() == before


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_plan_too(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this platform")
    expected = alone(*PROBLEMS[0])  # the parent has solved before it forks
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        assert pool.apply_async(answer, PROBLEMS[0]).get(timeout=120) == expected
