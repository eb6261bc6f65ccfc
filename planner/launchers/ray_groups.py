"""Makes the placement groups of an exported plan in a running Ray cluster.

Needs nothing but Ray: `rlmplan export --ray` writes this file beside `ray_placement.json`. Every
node of the plan has a Ray resource of its own, which the node is started with
(`python ray_groups.py nodes` prints the commands), and every bundle asks for a sliver of it: Ray
cannot put a bundle elsewhere.

    python ray_groups.py nodes     commands that start the nodes
    python ray_groups.py check     makes the groups, says where each bundle landed, removes them

    from ray_groups import load, make_groups, scheduling
    plan = load("ray_placement.json")
    groups = make_groups(plan)
    Worker.options(num_gpus=1, scheduling_strategy=scheduling(plan, groups, "generate", rank))
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

_FILE = "ray_placement.json"


def load(path: str | Path = _FILE) -> dict[str, Any]:
    """The placement in a file that `rlmplan export --ray` wrote."""
    found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return found


def start_commands(plan: dict[str, Any]) -> dict[str, str]:
    """Node of the plan -> the command that starts Ray there; the first is the head."""
    commands = {}
    for number, (node, facts) in enumerate(plan["nodes"].items()):
        place = "--head --port=6379" if number == 0 else '--address="$HEAD_ADDRESS:6379"'
        resources = shlex.quote(json.dumps({facts["resource"]: 1}))
        commands[node] = f"ray start {place} --num-gpus={facts['gpus']} --resources={resources}"
    return commands


def make_groups(plan: dict[str, Any], timeout_s: float = 60.0) -> dict[str, Any]:
    """Group name -> placement group, all of them ready.

    Ray must be initialised. RuntimeError, and no group left behind, when the cluster cannot hold
    them within `timeout_s` seconds.
    """
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    groups: dict[str, Any] = {}
    try:
        for name, group in plan["groups"].items():
            bundles = [bundle["resources"] for bundle in group["bundles"]]
            # The bundles' own resources say where they go; PACK adds nothing to them.
            groups[name] = placement_group(bundles, strategy="PACK", name=name)
        for name, made in groups.items():
            ready, _ = ray.wait([made.ready()], timeout=timeout_s)
            if not ready:
                wanted = sorted({bundle["node"] for bundle in plan["groups"][name]["bundles"]})
                raise RuntimeError(
                    f"no room for the placement group {name} on {', '.join(wanted)} after "
                    f"{timeout_s:g} s: start the nodes as `python ray_groups.py nodes` prints"
                )
    except BaseException:
        for made in groups.values():
            remove_placement_group(made)
        raise
    return groups


def scheduling(plan: dict[str, Any], groups: dict[str, Any], call: str, rank: int) -> Any:
    """The scheduling strategy that puts a call's worker of one rank on its device's bundle."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    place = plan["calls"][call]
    return PlacementGroupSchedulingStrategy(
        placement_group=groups[place["group"]],
        placement_group_bundle_index=place["bundles"][rank],
    )


def landed(plan: dict[str, Any], groups: dict[str, Any]) -> list[tuple[str, int, str, str]]:
    """(group, bundle, node that the plan names, node where the bundle is) for every bundle.

    A node that has no resource of the plan is named by Ray's own id.
    """
    import ray
    from ray.util.placement_group import placement_group_table

    own = {facts["resource"]: node for node, facts in plan["nodes"].items()}
    names = {}
    for node in ray.nodes():
        marks = [own[name] for name in node["Resources"] if name in own]
        names[node["NodeID"]] = marks[0] if marks else node["NodeID"]
    found = []
    for name, made in groups.items():
        places = placement_group_table(made)["bundles_to_node_id"]
        for index, bundle in enumerate(plan["groups"][name]["bundles"]):
            found.append((name, index, bundle["node"], names.get(places[index], places[index])))
    return found


def main() -> int:
    """Prints the start commands, or makes the groups and says where their bundles are."""
    here = Path(__file__).with_name(_FILE)
    if sys.argv[1:] not in (["nodes"], ["check"]):
        print(__doc__, file=sys.stderr)
        return 2
    plan = load(here)
    if sys.argv[1] == "nodes":
        for node, command in start_commands(plan).items():
            print(f"{node}: {command}")
        return 0
    import ray
    from ray.util.placement_group import remove_placement_group

    ray.init(address="auto", log_to_driver=False)
    try:
        groups = make_groups(plan)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    wrong = 0
    for name, index, wanted, node in landed(plan, groups):
        print(f"{name} bundle {index}: {node}{'' if node == wanted else f', not {wanted}'}")
        wrong += node != wanted
    for made in groups.values():
        remove_placement_group(made)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
