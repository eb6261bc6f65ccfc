"""A small problem, and a command that plays a system which is not as the cost model says."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path

import planner
from planner.catalog.workloads import problem_from
from planner.launchers.logs import read_log
from planner.launchers.trial_files import write_trial
from planner.schema import PlanSet
from planner.search.tuning.loop import Task

SYSTEM = """
import json, pathlib, sys, time
plan = json.load(open(sys.argv[1]))["plans"][0]
mode = sys.argv[2] if len(sys.argv) > 2 else ""
with open(pathlib.Path(__file__).with_name("ran"), "a") as file:
    print(json.dumps(plan["assignment"], sort_keys=True), file=file)
running = plan["assignment"]["strategies"]["generate"]["max_running_sequences"]
if mode == "fails" and running % 3 == 0:
    sys.exit("RuntimeError: unlucky")
if mode == "memory" and plan["assignment"]["strategies"]["generate"]["memory_fraction"] > 0.3:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
if mode == "slow":
    time.sleep(0.3)
factor = {"generate": 1.5, "train": 0.8}
stages = {
    name: call["time_s"] * factor.get(call["kind"], 1.0) for name, call in plan["calls"].items()
}
step = plan["step_time_s"] + sum(stages[n] - c["time_s"] for n, c in plan["calls"].items())
for warm in (1.5, 1.0, 1.0):
    print(json.dumps({"step_time_s": warm * step, "stages_s": stages, "peak_memory_gib": 40}))
"""


TUNER = """\
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tuning_problem import PlanSet, task
import tuning_problem
found = PlanSet.model_validate_json(Path(sys.argv[2], "plans.json").read_text())
tuning_problem.plans = lambda: found
from planner.search.tuning.loop import Budget, tune
print("ready", flush=True)
folder, trials, storage = Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
sampler = sys.argv[5] if len(sys.argv) > 5 else "model"
tune(found, task(folder, "slow"), Budget(trials=trials), storage=storage, sampler=sampler)
"""
"""Arguments: folder of this file, folder of plans.json, trials, storage, sampler. Says "ready"."""


@lru_cache(maxsize=1)
def plans() -> PlanSet:
    """GRPO of 7B on one node, in the space of verl with FSDP: plans that can be exported."""
    given = problem_from(
        None,
        algorithm="grpo",
        models={"actor": "Qwen/Qwen2.5-7B"},
        cluster="h100:1x8",
        prompts=64,
        samples=8,
        response_mean=800.0,
        response_max=2048,
    )
    return planner.plan(given.workload, given.cluster, space="verl-fsdp", top=2)


def task(folder: Path, mode: str = "", timeout_s: float = 60.0) -> Task:
    """Runs the system; what ran is in the file "ran"."""
    folder.mkdir(exist_ok=True)
    (folder / "system.py").write_text(SYSTEM)
    return Task(
        command=f"{sys.executable} {folder}/system.py {{config}} {mode}",
        folder=folder / "trials",
        write=lambda plan, place: write_trial(None, plans(), plan, place),
        read=read_log,
        timeout_s=timeout_s,
    )


def ran(folder: Path) -> list[str]:
    """The assignments that the system was given, in order."""
    path = folder / "ran"
    return path.read_text().splitlines() if path.exists() else []
