"""Hypothesis strategies for plans that a launcher can run, drawn from its search spaces."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st
from launcher_cases import QWEN_8B, QWEN_30B, Case, grpo, make_plan, ppo

from planner.catalog.hardware import parse_cluster
from planner.catalog.spaces import load_space
from planner.cost.arrays import StrategyArrays
from planner.launchers import get_launcher
from planner.schema import Mesh, Strategy, Workload
from planner.search.candidates import enumerate_candidates
from planner.workload.algorithms import build_graph

NODES = 4
CLUSTER = parse_cluster(f"h100:{NODES}x8")
FIXED: dict[str, dict[str, Any]] = {
    "prime-rl": {"optimizer_steps": 1, "kl_weight": 0, "old_logprobs": "engine"}
}
"""Fields of the workload of which a launcher runs one value."""


@lru_cache(maxsize=256)
def candidates(
    workload: str, call: str, space: str, devices: int, placement: str, staleness: int
) -> StrategyArrays:
    found = Workload.model_validate_json(workload)
    node = build_graph(found).nodes[call]["call"]
    return enumerate_candidates(
        node,
        found.models[node.role],
        found,
        CLUSTER.groups[0],
        load_space(space),
        [devices],
        trained=node.role != "reward",
        placement=placement,  # type: ignore[arg-type]
        staleness=staleness,
    )


@st.composite
def plans(draw: st.DrawFn, launcher: str, space: str, algorithms: tuple[str, ...]) -> Case:
    """A plan of the space that the launcher supports, its workload, and a cluster of 4 nodes."""
    model = draw(st.sampled_from([QWEN_8B, QWEN_30B]))
    fixed = FIXED.get(launcher, {})
    steps = draw(st.sampled_from([1, 2, 4]))
    changes: dict[str, Any] = {
        "optimizer_steps": steps,
        "kl_weight": draw(st.sampled_from([0, 0.1])),
    } | fixed
    changes["kl_weight"] = float(changes["kl_weight"])
    split = draw(st.booleans()) or "colocated" not in load_space(space).placements
    split = split and "disaggregated" in load_space(space).placements
    most = min(2, load_space(space).max_staleness)
    staleness = draw(st.integers(0, most)) if split else 0
    changes["max_staleness"] = staleness
    if changes["kl_weight"] == 0.0:
        changes["models"] = {"actor": model}
    if draw(st.sampled_from(algorithms)) == "ppo":
        changes.setdefault("models", {"actor": model, "reference": model})
        changes["models"] = changes["models"] | {"critic": model}
        workload = ppo(model, **changes)
    else:
        workload = grpo(model, **changes)
    return draw(_plan(launcher, space, workload, split, staleness))


@st.composite
def _plan(
    draw: st.DrawFn, launcher: str, space: str, workload: Workload, split: bool, staleness: int
) -> Case:
    train_nodes = draw(st.sampled_from([1, 2, 3])) if split else draw(st.sampled_from([1, 2, 4]))
    engine_nodes = NODES - train_nodes if split else train_nodes
    group = CLUSTER.groups[0].name
    train_mesh = Mesh(group=group, first_node=0, nodes=train_nodes, devices_per_node=8)
    engine_mesh = (
        Mesh(group=group, first_node=train_nodes, nodes=engine_nodes, devices_per_node=8)
        if split
        else train_mesh
    )
    placement = "disaggregated" if split else "colocated"
    text = workload.model_dump_json()

    def pick(call: str, mesh: Mesh) -> Strategy:
        found = candidates(text, call, space, mesh.devices, placement, staleness)
        assume(len(found) > 0)
        return found.strategy(draw(st.integers(0, len(found) - 1)))

    strategies: dict[str, Strategy] = {}
    meshes: dict[str, Mesh] = {}
    for name, attributes in build_graph(workload).nodes(data=True):
        call = attributes["call"]
        if call.kind == "generate":
            strategies[name], meshes[name] = pick(name, engine_mesh), engine_mesh
        elif call.kind == "train":
            strategies[name], meshes[name] = pick(name, train_mesh), train_mesh
    if draw(st.booleans()):
        strategies = {
            name: strategy if name == "generate" else strategy.model_copy(update={"packing": False})
            for name, strategy in strategies.items()
        }
    for name, attributes in build_graph(workload).nodes(data=True):
        call = attributes["call"]
        if call.kind == "forward":
            lead = strategies["critic_train" if call.role == "critic" else "actor_train"]
            micro = draw(st.sampled_from([lead.micro_batch_sequences, 1, 2, 4]))
            strategies[name] = lead.model_copy(
                update={"recompute": "none", "micro_batch_sequences": micro}
            )
            meshes[name] = train_mesh
    plan = make_plan(workload, strategies, meshes, staleness=staleness, space=space)
    assume(not get_launcher(launcher).supports(plan, workload, CLUSTER))
    return plan, workload, CLUSTER
