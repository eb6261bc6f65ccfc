"""From a launcher's settings to a workload and an assignment: the part that all `read` share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from planner.catalog.data import validate
from planner.catalog.models import load_model
from planner.catalog.spaces import load_space
from planner.errors import InputError
from planner.launchers.numbers import divisors, near, quotient
from planner.launchers.settings import Broken, NotUnderstood, Settings
from planner.schema import Assignment, Cluster, Mesh, ModelSpec, NodeGroup, Strategy, Workload
from planner.workload.algorithms import build_graph
from planner.workload.graph import calls_in_order

_DEGREES = ("tp", "pp", "cp")
_PROMPT_SHARE = 0.25
_RESPONSE_SHARE = 0.5


@dataclass(frozen=True)
class Context:
    """What a launcher's configuration does not say."""

    cluster: Cluster
    """The devices that it will run on."""
    models: Mapping[str, ModelSpec] = field(default_factory=dict)
    """Role -> architecture, where the configuration's own name is not to be looked up."""
    prompt_mean_tokens: float | None = None
    """Mean prompt; a quarter of the limit when None."""
    response_mean_tokens: float | None = None
    """Mean response; half of the limit when None."""


@dataclass(frozen=True)
class ReadConfig:
    """A launcher's configuration in the planner's words."""

    launcher: str
    space: str
    """The search space whose rules hold for it."""
    workload: Workload
    cluster: Cluster
    """The part of the given cluster that it uses."""
    assignment: Assignment | None
    """Strategies and meshes of every call; None when the degrees fit no mesh (see `broken`)."""
    keys: Mapping[str, Mapping[str, str]]
    """Call -> field of Strategy -> the launcher's setting."""
    budgets: Mapping[str, float]
    """Call -> longest sequences that its token budget really holds, where that is no whole number
    (its strategy has the next one)."""
    unpadded: frozenset[str]
    """Calls whose microbatches hold a number of sequences of their own lengths, without padding."""
    broken: tuple[Broken, ...]
    """Rules found broken while reading: what cannot be said as a Strategy or a Workload."""
    not_understood: tuple[NotUnderstood, ...]
    """Settings that do not enter the prediction."""
    notes: tuple[str, ...]
    """What was assumed."""
    settings: Mapping[str, Any]
    """Setting -> value in effect, the launcher's defaults included."""
    written: Mapping[str, Any]
    """Setting -> value, of those that were written down."""

    @property
    def reference_shares_actor_layout(self) -> bool:
        """Whether the reference runs in the actor's processes: never on devices of its own."""
        if not load_space(self.space).reference_shares_actor_layout:
            return False
        meshes = self.assignment.meshes if self.assignment else {}
        reference = meshes.get("reference_logprobs")
        return reference is None or reference == meshes.get("actor_train")


@dataclass
class CallFields:
    """Strategy fields of one call without dp, and the settings that they came from."""

    fields: dict[str, Any]
    keys: dict[str, str]
    budget: float | None = None
    """Longest sequences in a microbatch's token budget, when that is no whole number."""

    def but(self, other: CallFields) -> CallFields:
        """The same with the fields and settings of `other` over it."""
        own = "micro_batch_sequences" in other.fields
        budget = other.budget if own else self.budget
        return CallFields(self.fields | other.fields, self.keys | other.keys, budget)


class Reader:
    """Collects what a launcher module reads, then builds a ReadConfig."""

    def __init__(self, launcher: str, settings: Settings, context: Context):
        self.launcher = launcher
        self.settings = settings
        self.context = context
        self.group: NodeGroup = context.cluster.groups[0]
        self.models: dict[str, ModelSpec] = {}
        self.calls: dict[str, tuple[CallFields, Mesh]] = {}
        self.broken = settings.broken
        self.notes = settings.notes
        self._next_node = 0
        self._next_device = 0
        self._devices = 0
        if len(context.cluster.groups) > 1:
            self.notes.append(f"the node group {self.group.name} is taken; others are left out")

    def model(self, role: str, key: str) -> None:
        """The model of a role: given by the caller, or named by the setting `key`."""
        name = self.settings.text(key)
        given = self.context.models.get(role)
        if given is not None:
            self.models[role] = given
            return
        if name is None:
            raise InputError("no model is named", where=self.settings.where(key))
        self.models[role] = self._load(name, key)

    def longer(self, role: str, key: str) -> None:
        """The positions that the setting `key` gives the model instead of its own."""
        positions = self.settings.optional_integer(key)
        if positions is not None:
            self.models[role] = self.models[role].model_copy(update={"max_position": positions})

    def _load(self, name: str, key: str) -> ModelSpec:
        """A model by name or path; of a path that is not here, the model that it is named after."""
        try:
            return load_model(name)
        except InputError as error:
            if "/" in name.rstrip("/"):
                with contextlib.suppress(InputError):
                    found = load_model(PurePath(name).name)
                    self.notes.append(f"{key} {name}: taken as {found.name}")
                    return found
            raise InputError(
                f"the architecture of {name!r} is not known ({error.message})",
                where=self.settings.where(key),
                remedy="Name a catalogue model or a folder with its config.json with --model.",
            ) from None

    def lengths(self, prompt: int, response: int) -> dict[str, Any]:
        """Fields of Workload for prompts and responses of at most so many tokens."""
        found = {}
        for name, limit, mean, share in (
            ("prompt", prompt, self.context.prompt_mean_tokens, _PROMPT_SHARE),
            ("response", response, self.context.response_mean_tokens, _RESPONSE_SHARE),
        ):
            if mean is None:
                mean = max(1.0, share * limit)
                self.notes.append(
                    f"mean {name}: {mean:g} tokens, {share:g} of the limit, as the configuration "
                    f"has no mean; times follow it: give --{name}-mean"
                )
            elif not mean <= limit:
                raise InputError(
                    f"the mean, {mean:g} tokens, exceeds the configuration's limit, {limit} tokens",
                    where=f"--{name}-mean",
                    remedy="Lower the mean, or raise the limit with --set.",
                )
            found[f"{name}_length"] = {"mean_tokens": float(mean), "max_tokens": limit}
        return found

    def steps(self, batch: int, batch_key: str, part: int, part_key: str) -> int:
        """How many minibatches of `part` make `batch`; a broken rule (and 1) when they do not."""
        if part <= batch and batch % part == 0:
            return batch // part
        self.broken.append(
            Broken(
                "minibatch-divides-batch",
                f"a minibatch of {part} does not divide the batch of {batch}",
                (part_key, batch_key),
                (
                    *(f"{part_key}={n}" for n in near(divisors(batch), part)),
                    f"{batch_key}={max(part, batch // part * part)}",
                ),
                self.settings.keys.source,
            )
        )
        # A workload has whole minibatches: the nearest number of them that is not larger.
        return max(n for n in divisors(batch) if n <= max(1, batch // part))

    def mesh(self, nodes: int, per_node: int, keys: tuple[str, ...]) -> Mesh:
        """The next free devices: whole nodes, or a part of the node that was begun.

        More than the cluster has is a broken rule that names `keys`.
        """
        have = self.group
        self._devices += nodes * per_node
        if per_node > have.devices_per_node:
            self.broken.append(
                Broken(
                    "devices-within-node",
                    f"{per_node} devices on nodes of {have.devices_per_node}",
                    keys,
                    (f"{keys[-1]}={have.devices_per_node}",),
                    "the given cluster",
                )
            )
        if nodes > 1 and per_node < have.devices_per_node:
            nodes, per_node = self._gathered(nodes, per_node, keys)
        fresh = nodes > 1 or self._next_device + per_node > have.devices_per_node
        if fresh and self._next_device:
            self._next_node, self._next_device = self._next_node + 1, 0
        mesh = Mesh(
            group=have.name,
            first_node=self._next_node,
            nodes=nodes,
            first_device=self._next_device,
            devices_per_node=per_node,
        )
        if nodes > 1 or per_node >= have.devices_per_node:
            self._next_node += nodes
        else:
            self._next_device += per_node
            if self._next_device >= have.devices_per_node:
                self._next_node, self._next_device = self._next_node + 1, 0
        if self._devices > have.devices:
            self.broken.append(
                Broken(
                    "devices-within-cluster",
                    f"it needs {self._devices} devices, the cluster has {have.devices}",
                    keys,
                    (),
                    "the given cluster",
                )
            )
        return mesh

    def _gathered(self, nodes: int, per_node: int, keys: tuple[str, ...]) -> tuple[int, int]:
        """Parts of several nodes as one part of a node, or as whole nodes: meshes are no others."""
        whole = self.group.devices_per_node
        if nodes * per_node <= whole:
            found = (1, nodes * per_node)
        else:
            found = (-(-nodes * per_node // whole), whole)
        self.notes.append(
            f"{keys[-1]}: {per_node} devices on each of {nodes} nodes, priced as {found[1]} on "
            f"{found[0]}"
        )
        return found

    def put(self, call: str, fields: CallFields, mesh: Mesh) -> None:
        """The settings of one call."""
        self.calls[call] = (fields, mesh)

    def finish(
        self,
        workload: Mapping[str, Any],
        *,
        space: str,
        staleness: int = 0,
        engine: str | None = None,
        framework: str | None = None,
        unpadded: Iterable[str] = (),
    ) -> ReadConfig:
        """The workload and the assignment; InputError when the settings make no workload.

        `engine` and `framework` are profiles where they are not the space's; `unpadded` the calls
        whose microbatches are a number of sequences without padding.
        """
        found = self._workload(workload)
        chosen = load_space(space)
        strategies: dict[str, Strategy] = {}
        complete = not any(each.rule.startswith("devices-within") for each in self.broken)
        needed = self._needed(found)
        for call in needed:
            if call not in self.calls:
                raise ValueError(f"{self.launcher} reads nothing of the call {call}")
            fields, mesh = self.calls[call]
            strategy = self._strategy(call, fields, mesh)
            if strategy is None:
                complete = False
            else:
                strategies[call] = strategy
        assignment = None
        if complete:
            assignment = Assignment(
                meshes={call: self.calls[call][1] for call in needed},
                strategies=strategies,
                staleness=staleness,
                framework=framework or chosen.framework,
                engine=engine or chosen.engine,
                space=space,
            )
        return ReadConfig(
            launcher=self.launcher,
            space=space,
            workload=found,
            cluster=self._part([self.calls[call][1] for call in needed]),
            assignment=assignment,
            keys={call: self.calls[call][0].keys for call in needed},
            budgets={
                call: budget
                for call in needed
                if (budget := self.calls[call][0].budget) is not None
            },
            unpadded=frozenset(unpadded),
            broken=tuple(dict.fromkeys([*self.settings.refused_keys(), *self.broken])),
            not_understood=self.settings.not_understood(),
            notes=tuple(dict.fromkeys(self.notes)),
            settings=self.settings.effective(),
            written=self.settings.written(),
        )

    def _workload(self, fields: Mapping[str, Any]) -> Workload:
        limit = sum(fields[f"{name}_length"]["max_tokens"] for name in ("prompt", "response"))
        models = {}
        for role, model in self.models.items():
            if limit > model.max_position:
                self.broken.append(
                    Broken(
                        "sequence-within-model",
                        f"prompt and response may reach {limit} tokens, the {role} {model.name} "
                        f"supports {model.max_position}",
                        (),
                        (),
                        "the model's config.json",
                    )
                )
                model = model.model_copy(update={"max_position": limit})
            models[role] = model.model_dump(mode="json")
        return validate(
            Workload,
            {**fields, "models": models, "assumptions": list(dict.fromkeys(self.notes))},
            f"{self.launcher} configuration",
        )

    def _needed(self, workload: Workload) -> list[str]:
        try:
            graph = build_graph(workload)
        except InputError as error:
            raise InputError(
                error.message, where=f"{self.launcher} configuration", remedy=error.remedy
            ) from None
        return [call.name for call in calls_in_order(graph) if call.kind != "environment"]

    def _strategy(self, call: str, given: CallFields, mesh: Mesh) -> Strategy | None:
        """The strategy with dp filled in; None, and a broken rule, when the degrees do not fit."""
        fields = given.fields
        size = 1
        for name in _DEGREES:
            size *= fields.get(name, 1)
        if mesh.devices % size:
            self._degrees_broken(call, given, mesh, size)
            return None
        return validate(
            Strategy, {**fields, "dp": mesh.devices // size}, f"{self.launcher}: {call}"
        )

    def _degrees_broken(self, call: str, given: CallFields, mesh: Mesh, size: int) -> None:
        names = [n for n in _DEGREES if given.fields.get(n, 1) > 1 and n in given.keys]
        nearest = []
        for name in names:
            value = given.fields[name]
            for other in near(divisors(quotient(mesh.devices, size // value)), value):
                nearest.append(f"{given.keys[name]}={other}")
        keys = tuple(given.keys[name] for name in names)
        # Calls of one model have one layout: say it once.
        if any(each.rule == "devices-by-degrees" and each.keys == keys for each in self.broken):
            return
        words = " x ".join(f"{name} {given.fields[name]}" for name in names)
        self.broken.append(
            Broken(
                "devices-by-degrees",
                f"{mesh.devices} devices do not divide by {words}",
                keys,
                tuple(nearest),
                self.settings.keys.source,
                call,
            )
        )

    def _part(self, meshes: list[Mesh]) -> Cluster:
        """The given cluster cut down to the devices of the meshes."""
        group = self.group
        nodes = max(mesh.first_node + mesh.nodes for mesh in meshes)
        per_node = max(mesh.first_device + mesh.devices_per_node for mesh in meshes)
        part = group.model_copy(
            update={
                # Parts of nodes that were gathered may need more nodes than there are.
                "nodes": nodes,
                "devices_per_node": min(per_node, group.devices_per_node),
            }
        )
        return self.context.cluster.model_copy(update={"groups": (part,)})


def budget_sequences(tokens: int, cp: int, longest: int) -> tuple[int, float | None]:
    """Sequences of `longest` tokens in a budget of `tokens` on each of cp devices.

    (whole number, None), or (next whole number, exact) when the budget is between two; a remainder
    below cp tokens is the rounding of a budget that was divided by cp.
    """
    whole, rest = divmod(tokens * cp, longest)
    if whole >= 1 and rest < cp:
        return whole, None
    return whole + 1, tokens * cp / longest
