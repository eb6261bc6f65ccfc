"""What a launcher module offers, and what all of them need to know about a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from planner.cost.arrays import StrategyArrays
from planner.cost.rule_values import Placement
from planner.errors import InputError
from planner.launchers.reading import Context, ReadConfig
from planner.schema import (
    Assignment,
    Call,
    Cluster,
    Mesh,
    NodeGroup,
    Plan,
    SearchSpace,
    Strategy,
    Workload,
)
from planner.search.candidates import LAYOUT_FIELDS
from planner.search.legality import equal_micro_batch_mask, explain_illegal
from planner.workload.algorithms import build_graph
from planner.workload.graph import calls_in_order

LaunchFiles = dict[str, str]
"""File name -> content."""


@dataclass(frozen=True)
class Capabilities:
    """What a launcher can do, as data: the table of `rlmplan launchers` is made of it.

    Strategies, placements and asynchrony are not repeated here: they are what the spaces allow.
    """

    spaces: tuple[str, ...]
    """Its search spaces, the one to plan in by default first."""
    algorithms: tuple[str, ...]
    """Registered algorithms whose files `write` makes."""
    backends: str
    """Training and generation engines, in words."""
    checked_by: str
    """Which code of the launcher judges exported files in the tests, or against what else they
    are held."""
    also: Mapping[str, str] = field(default_factory=dict)
    """Strategies of the taxonomy (`planner.launchers.taxonomy`) that the launcher has but that no
    plan uses -> the setting that turns them on."""


class Launcher(Protocol):
    """Writes plans as files of one launcher, and reads such files.

    A caller asks `supports` first: it says why a plan cannot be run, in sentences for a person.
    `write` raises InputError with the same reasons. All methods only read their arguments, and
    none touches a disk. `read` of what `write` wrote gives the same strategies and workload.
    """

    name: str
    """The name that `rlmplan export --to` takes."""
    version: str
    """Release of the launcher that the files are for."""
    capabilities: Capabilities
    """What it can do."""

    def read(
        self, files: Mapping[str, str], overrides: Sequence[str], context: Context
    ) -> ReadConfig:
        """The workload and assignment that the launcher would run.

        `files` maps names to contents (a configuration, a launch script, or both; later ones hold),
        `overrides` are settings in the launcher's own syntax on top of them. Nothing is dropped in
        silence: what does not enter the result is listed in it. Raises InputError, naming the file
        and the setting, for values that cannot be read.
        """
        ...

    def settings(
        self, assignment: Assignment, workload: Workload, cluster: Cluster
    ) -> dict[str, Any]:
        """The launcher's own settings that carry the assignment, keyed as `read` knows them.

        It need not be legal: `check` shows with it what a change of one degree means in the
        launcher's words.
        """
        ...

    def supports(self, plan: Plan, workload: Workload, cluster: Cluster) -> list[str]:
        """Reasons why the launcher cannot run the plan; empty when it can."""
        ...

    def write(self, plan: Plan, workload: Workload, cluster: Cluster) -> LaunchFiles:
        """The launcher's files for the plan."""
        ...


@dataclass(frozen=True)
class Layout:
    """A plan's decisions, by call."""

    strategies: dict[str, Strategy]
    meshes: dict[str, Mesh]
    placement: Placement | None
    """colocated: generation uses the actor's devices; disaggregated: none of them; None: some."""
    staleness: int

    @property
    def train(self) -> Strategy:
        """The actor's training strategy."""
        return self.strategies["actor_train"]

    @property
    def generate(self) -> Strategy:
        """The engine's strategy."""
        return self.strategies["generate"]

    @property
    def train_mesh(self) -> Mesh:
        """The actor's devices."""
        return self.meshes["actor_train"]

    @property
    def engine_mesh(self) -> Mesh:
        """The engine's devices."""
        return self.meshes["generate"]

    def get(self, call: str) -> Strategy | None:
        """The strategy of a call that the workload may lack."""
        return self.strategies.get(call)


def layout_of(plan: Plan | Assignment) -> Layout:
    """The plan's strategies and meshes, with the placement in one word."""
    assignment = plan.assignment if isinstance(plan, Plan) else plan
    train, engine = assignment.meshes.get("actor_train"), assignment.meshes.get("generate")
    placement: Placement | None = None
    if train is not None and engine is not None:
        if train == engine:
            placement = "colocated"
        elif not train.overlaps(engine):
            placement = "disaggregated"
    return Layout(
        strategies=dict(assignment.strategies),
        meshes=dict(assignment.meshes),
        placement=placement,
        staleness=assignment.staleness,
    )


_UNWRITTEN = (
    *("acceptance", "oversampling", "kept_fraction", "token_budget", "replay_sequences"),
    *("partial_rollout", "tail_batching"),
    *("critic_epochs", "turns", "block_diffusion", "speculation", "gradient_exchange"),
    "lora_rank",
)
"""Fields of a workload that change the run and that no launcher module writes."""


def _is_default(workload: Workload, name: str) -> bool:
    default = Workload.model_fields[name].get_default(call_default_factory=True)
    return bool(getattr(workload, name) == default)


def common_reasons(
    plan: Plan,
    workload: Workload,
    cluster: Cluster,
    space: SearchSpace,
    algorithms: Collection[str],
    own: Callable[[Layout, Workload], list[str]],
    *,
    fp8_cache: bool = False,
    adapters: bool = False,
) -> list[str]:
    """Why a launcher cannot run the plan: missing calls, mixed placement, broken rules, its own.

    `algorithms` are those that the launcher's module writes; `own` gives the reasons of this
    launcher alone, asked once the plan has every call; `fp8_cache` says that the module writes the
    precision of the key-value cache, `adapters` the rank of the actor's adapters.

    Assumed of all launchers here: one node group, the engine either on all of the actor's devices
    or on none, the critic and the reference on the actor's devices. Every rule of `space` is
    checked for every call, by the evaluator that the search uses.
    """
    if workload.algorithm not in algorithms:
        verb = "is" if len(algorithms) == 1 else "are"
        return [f"only {' and '.join(algorithms)} {verb} exported, not {workload.algorithm}"]
    fields = [name for name in _UNWRITTEN if not (adapters and name == "lora_rank")]
    unwritten = [name for name in fields if not _is_default(workload, name)]
    if unwritten:
        return [f"no setting is written for {', '.join(unwritten)} of the workload"]
    layout = layout_of(plan)
    calls = [call for call in calls_in_order(build_graph(workload)) if call.kind != "environment"]
    reasons = [
        f"the plan says nothing of the call {call.name}"
        for call in calls
        if call.name not in layout.strategies or call.name not in layout.meshes
    ]
    if reasons:
        return reasons
    names = {mesh.group for mesh in layout.meshes.values()}
    if len(names) > 1:
        return [f"it uses the node groups {', '.join(sorted(names))}, only one can be launched"]
    try:
        group = cluster.group(next(iter(names)))
    except KeyError:
        return [f"the cluster has no node group {next(iter(names))}"]
    if layout.placement is None:
        reasons.append("generation uses some but not all of the actor's devices")
    if layout.staleness > space.max_staleness:
        reasons.append(f"staleness {layout.staleness} is above {space.max_staleness}")
    for call in calls:
        strategy, mesh = layout.strategies[call.name], layout.meshes[call.name]
        if strategy.devices != mesh.devices:
            reasons.append(
                f"{call.name} has degrees for {strategy.devices} devices on {mesh.devices}"
            )
        broken = explain_illegal(
            strategy,
            call,
            workload.models[call.role],
            workload,
            group,
            space,
            cluster_devices=cluster.devices,
            placement=layout.placement or "free",
            staleness=layout.staleness,
        )
        reasons += [f"{call.name}: {text}" for text in broken]
    reasons += _unit_reasons(layout, calls, space)
    reasons += _micro_batch_reasons(layout, calls, workload, group, space)
    reasons += _reward_reasons(layout, calls, space)
    if workload.kv_cache_dtype != "bf16" and not fp8_cache:
        reasons.append(f"no setting is written for a {workload.kv_cache_dtype} key-value cache")
    return reasons + own(layout, workload)


def _unit_reasons(layout: Layout, calls: list[Call], space: SearchSpace) -> list[str]:
    reasons = []
    for call in calls:
        if call.role == "reference" and not space.reference_shares_actor_layout:
            continue  # a model of its own
        lead = "critic_train" if call.role == "critic" else "actor_train"
        if call.kind == "generate" or call.role == "reward" or lead not in layout.strategies:
            continue
        if layout.meshes[call.name] != layout.train_mesh:
            reasons.append(f"{call.name} is not on the actor's devices")
        mine, theirs = layout.strategies[call.name], layout.strategies[lead]
        differ = [name for name in LAYOUT_FIELDS if getattr(mine, name) != getattr(theirs, name)]
        if differ:
            reasons.append(f"{call.name} and {lead} differ in {', '.join(differ)}")
    return reasons


def _micro_batch_reasons(
    layout: Layout,
    calls: list[Call],
    workload: Workload,
    group: NodeGroup,
    space: SearchSpace,
) -> list[str]:
    """Where the space wants equal microbatches of a trained model's calls."""
    reasons = []
    for lead in (call for call in calls if call.kind == "train"):
        strategies = StrategyArrays.from_strategies([layout.strategies[lead.name]])
        model = workload.models[lead.role]
        if not equal_micro_batch_mask(strategies, lead, model, workload, group, space)[0]:
            continue
        roles = (lead.role, "reference") if lead.role == "actor" else (lead.role,)
        differ = [
            call.name
            for call in calls
            if call.role in roles
            and call.kind == "forward"
            and layout.strategies[call.name].micro_batch_sequences
            != layout.strategies[lead.name].micro_batch_sequences
        ]
        if differ:
            reasons.append(
                f"{', '.join(differ)} and {lead.name} must have the same micro_batch_sequences"
            )
    return reasons


def _reward_reasons(layout: Layout, calls: list[Call], space: SearchSpace) -> list[str]:
    """The reward model shares all of the trainer's devices or has its own, as the space says."""
    reward = next((call.name for call in calls if call.role == "reward"), None)
    if reward is None or layout.placement is None:
        return []
    mesh = layout.meshes[reward]
    others = [other for name, other in layout.meshes.items() if name != reward]
    apart = not any(mesh.overlaps(other) for other in others)
    split = layout.placement == "disaggregated"
    must = "reward" in space.own_devices.get("disaggregated" if split else "colocated", ())
    if must and not apart:
        return ["the reward model shares devices, but must have its own"]
    if not apart and mesh != layout.train_mesh:
        return ["the reward model uses some but not all of the actor's devices"]
    return []


def refuse_unsupported(
    launcher: Launcher, plan: Plan, workload: Workload, cluster: Cluster
) -> None:
    """Raise the InputError of `write` for a plan that the launcher cannot run."""
    reasons = launcher.supports(plan, workload, cluster)
    if reasons:
        raise InputError(
            f"{launcher.name} cannot run this plan: {'; '.join(reasons)}",
            remedy="Plan in one of the launcher's search spaces",
        )


def omegaconf_literal(text: str) -> str:
    """Text that OmegaConf takes as it is: an unescaped `${` would start an interpolation."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def _priced_as(launcher: Launcher, plan: Plan) -> str:
    """Whose overheads the prediction has, where they are not the launcher's own."""
    if plan.assignment.space in launcher.capabilities.spaces:
        return ""
    return f" with the overheads of {plan.assignment.framework}"


def header(launcher: Launcher, plan: Plan, workload: Workload) -> str:
    """Comment lines that say what a written file is: safe for YAML and shell alike."""
    priced = _priced_as(launcher, plan)
    facts = [
        f"Plan {plan.rank} for {workload.name}: {plan.placement}",
        f"Predicted step time {plan.step_time_s:.1f} s on {plan.devices} devices{priced}",
        f"Written for {launcher.name} ({launcher.version})",
    ]
    # Names are the user's: a line break in one must not start a line of code.
    return "".join(f"# {' '.join(fact.split())}\n" for fact in facts)
