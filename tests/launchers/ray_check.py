"""Makes exported placement groups in a real local Ray cluster. Not a test: see test_ray_real.py.

    python ray_check.py FOLDER...

Ray starts the plans' nodes, in an order that is not theirs and beside one that no plan names, with
logical GPUs. FOLDER/ray_groups.py makes the groups of FOLDER/ray_placement.json. Prints one JSON
object a folder: where every bundle landed, and where Ray ran a task of the first and the last rank
of every call; or the error. The last object is about a placement on a node that is not there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group_table, remove_placement_group


def main() -> None:
    folders = [Path(name) for name in sys.argv[1:]]
    plans = [json.loads((folder / "ray_placement.json").read_text()) for folder in folders]
    nodes: dict[str, Any] = {}
    for plan in plans:
        nodes |= plan["nodes"]
    cluster = Cluster()
    cluster.add_node(num_cpus=16, num_gpus=8, include_dashboard=False)  # of no plan
    for facts in reversed(nodes.values()):
        cluster.add_node(num_cpus=16, num_gpus=facts["gpus"], resources={facts["resource"]: 1})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    own = {
        node["NodeID"]: name
        for name, facts in nodes.items()
        for node in ray.nodes()
        if facts["resource"] in node["Resources"]
    }
    module = load(folders[0])
    for plan in plans:
        print(json.dumps(check(module, plan, own)), flush=True)
    print(json.dumps(missing(module, plans[0]) | command(folders[0], cluster)), flush=True)
    ray.shutdown()
    cluster.shutdown()


def load(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("ray_groups", folder / "ray_groups.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@ray.remote(num_cpus=1)
def where() -> str:
    return str(ray.get_runtime_context().get_node_id())


def check(module: Any, plan: dict[str, Any], own: dict[str, str]) -> dict[str, Any]:
    groups = module.make_groups(plan, timeout_s=120.0)
    bundles = {}
    for name, made in groups.items():
        places = placement_group_table(made)["bundles_to_node_id"]
        bundles[name] = [own.get(places[i], "another") for i in sorted(places)]
    ranks = {}
    for call, place in plan["calls"].items():
        for rank in (0, len(place["bundles"]) - 1):
            strategy = module.scheduling(plan, groups, call, rank)
            task = where.options(num_gpus=1, scheduling_strategy=strategy).remote()
            ranks[f"{call} {rank}"] = own.get(ray.get(task, timeout=120), "another")
    told = module.landed(plan, groups)
    for made in groups.values():
        remove_placement_group(made)
    return {"bundles": bundles, "ranks": ranks, "told": told}


def missing(module: Any, plan: dict[str, Any]) -> dict[str, Any]:
    """A node that the cluster lacks is said so, and no group stays behind."""
    text = json.dumps(plan)
    node = next(iter(plan["nodes"]))
    lost = json.loads(text.replace(plan["nodes"][node]["resource"], "rlmplan-nowhere-0"))
    try:
        module.make_groups(lost, timeout_s=3.0)
    except RuntimeError as error:
        states = [group["state"] for group in placement_group_table().values()]
        return {"error": str(error), "left": [each for each in states if each != "REMOVED"]}
    return {"error": ""}


def command(folder: Path, cluster: Cluster) -> dict[str, Any]:
    """`python ray_groups.py check`, as a user starts it."""
    words = [sys.executable, str(folder / "ray_groups.py"), "check"]
    environment = os.environ | {"RAY_ADDRESS": cluster.address}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    return {"exit": done.returncode, "said": done.stdout.splitlines()}


main()
