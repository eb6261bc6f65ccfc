"""What physics and arithmetic allow, whatever the launcher; and the check of any strategies.

The rules here hold in every search space; a launcher adds its own in its YAML file. Both are run by
the same evaluator, over the candidates of the search and over a single strategy of a user alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.cost.arrays import BoolArray, StrategyArrays, encode
from planner.cost.rule_values import Placement, Values, call_values, strategy_values
from planner.cost.rules import CompiledRule, compile_rule_list, compile_rules, rules_for
from planner.errors import InputError
from planner.schema import (
    Call,
    CallSpace,
    ModelSpec,
    NodeGroup,
    Rule,
    SearchSpace,
    Strategy,
    Workload,
)
from planner.schema.workload import CallKind
from planner.search.physical_rules import PHYSICAL_RULES, TRAINER_CALLS

_RANGES = ("memory_fraction", "max_running_sequences")
_TRAINER_FIELDS = (
    *("tp", "pp", "vpp", "cp", "ulysses", "ep", "etp", "zero_stage", "shard_ranks"),
    *("pipeline_schedule", "micro_batch_sequences", "packing"),
    *("recompute", "offload", "optimizer_on_cpu", "dtype"),
)
_ENGINE_FIELDS = ("tp", "pp", "cp", "ep", "etp", "dtype", *_RANGES)


def call_space(space: SearchSpace, kind: CallKind) -> CallSpace:
    """The space's values for one kind of call; InputError when the launcher cannot run it."""
    found = space.calls.get(kind)
    if found is None:
        raise InputError(
            f"the search space {space.name} has no {kind} calls",
            where=f"search space {space.name}: calls",
            remedy=f"Add `{kind}`, or use a workload without such calls",
        )
    return found


def all_rules(space: SearchSpace, kind: CallKind) -> tuple[CompiledRule, ...]:
    """The physical rules and the space's own that apply to one kind of call."""
    physical = compile_rule_list(PHYSICAL_RULES, "built-in rules")
    return rules_for((*physical, *compile_rules(space)), kind)


def legal_mask(
    strategies: StrategyArrays,
    call: Call,
    model: ModelSpec,
    workload: Workload,
    group: NodeGroup,
    space: SearchSpace,
    *,
    cluster_devices: int | None = None,
    placement: Placement = "free",
    staleness: int = 0,
) -> BoolArray:
    """True for the strategies that the call may have in this space; shape [n].

    `placement` and `staleness` are those of the plans under consideration; some launchers' rules
    depend on them.
    """
    n = len(strategies)
    values = _values(
        strategies, call, model, workload, group, cluster_devices, placement, staleness
    )
    mask = np.ones(n, dtype=np.bool_)
    for _, _, allowed, _ in _allowed_values(strategies, call.kind, space, group):
        mask &= allowed
    for rule in all_rules(space, call.kind):
        mask &= rule.check.mask(values, n)
    return mask


@dataclass(frozen=True)
class BrokenRule:
    """One reason why a call may not have a strategy."""

    id: str
    """The rule's id, or the field that the space limits."""
    names: frozenset[str]
    """Fields and figures that it reads."""
    message: str
    """What is wrong, the remedy and the source."""


def broken_rules(
    strategy: Strategy,
    call: Call,
    model: ModelSpec,
    workload: Workload,
    group: NodeGroup,
    space: SearchSpace,
    *,
    cluster_devices: int | None = None,
    placement: Placement = "free",
    staleness: int = 0,
) -> list[BrokenRule]:
    """Why the call may not have this strategy in this space; empty when it may."""
    arrays = StrategyArrays.from_strategies([strategy])
    values = _values(arrays, call, model, workload, group, cluster_devices, placement, staleness)
    found = [
        BrokenRule(
            f"{field}-in-space",
            frozenset({field}),
            f"{text}. {remedy}. [search space {space.name}]",
        )
        for field, text, allowed, remedy in _allowed_values(arrays, call.kind, space, group)
        if not allowed[0]
    ]
    return found + [
        BrokenRule(rule.rule.id, rule.check.names, rule.message(values))
        for rule in all_rules(space, call.kind)
        if not rule.check.mask(values, 1)[0]
    ]


def explain_illegal(
    strategy: Strategy,
    call: Call,
    model: ModelSpec,
    workload: Workload,
    group: NodeGroup,
    space: SearchSpace,
    *,
    cluster_devices: int | None = None,
    placement: Placement = "free",
    staleness: int = 0,
) -> list[str]:
    """The messages of `broken_rules`."""
    broken = broken_rules(
        strategy,
        call,
        model,
        workload,
        group,
        space,
        cluster_devices=cluster_devices,
        placement=placement,
        staleness=staleness,
    )
    return [each.message for each in broken]


def equal_micro_batch_mask(
    strategies: StrategyArrays,
    call: Call,
    model: ModelSpec,
    workload: Workload,
    group: NodeGroup,
    space: SearchSpace,
) -> BoolArray:
    """Where all calls of a unit must share `micro_batch_sequences` (see SearchSpace); shape [n]."""
    n = len(strategies)
    if space.equal_micro_batch is None:
        return np.zeros(n, dtype=np.bool_)
    where = f"search space {space.name}: equal_micro_batch"
    rule = Rule(
        id="equal-micro-batch",
        calls=TRAINER_CALLS,
        check=space.equal_micro_batch,
        message=where,
        remedy=where,
        source=where,
    )
    (compiled,) = compile_rule_list((rule,), where)
    values = _values(strategies, call, model, workload, group, None, "free", 0)
    return compiled.check.mask(values, n)


def _values(
    strategies: StrategyArrays,
    call: Call,
    model: ModelSpec,
    workload: Workload,
    group: NodeGroup,
    cluster_devices: int | None,
    placement: Placement,
    staleness: int,
) -> Values:
    fixed = call_values(
        call,
        model,
        workload,
        group,
        cluster_devices=cluster_devices,
        placement=placement,
        staleness=staleness,
    )
    return fixed | strategy_values(strategies)


def _allowed_values(
    strategies: StrategyArrays, kind: CallKind, space: SearchSpace, group: NodeGroup
) -> list[tuple[str, str, BoolArray, str]]:
    """(field, what is wrong where it is wrong, allowed [n], remedy) for each field of the space."""
    values = call_space(space, kind)
    checks: list[tuple[str, str, BoolArray, str]] = []
    for field in _ENGINE_FIELDS if kind == "generate" else _TRAINER_FIELDS:
        array = getattr(strategies, field)
        options: tuple[Any, ...] = getattr(values, field)
        codes = [encode(field, option) for option in options]
        if field in _RANGES:
            low, high = min(codes), max(codes)
            allowed, text = (
                (array >= low) & (array <= high),
                f"between {low} and {high}" if low < high else f"{low}",
            )
        else:
            words = ", ".join(map(str, options))
            allowed, text = np.isin(array, codes), f"one of {words}" if len(options) > 1 else words
        checks.append((field, f"{field} is not {text}", allowed, f"Use {text}"))
    if kind != "generate":
        split = strategies.first_stage_layers + strategies.last_stage_layers > 0
        checks.append(
            (
                "first_stage_layers",
                "the launcher cannot set the layers of the first and last stage",
                np.asarray(~split | values.uneven_stages),
                "Use an even split",
            )
        )
        on = strategies.sequence_parallel
        wanted = {"never": ~on, "with_tp": on == (strategies.tp > 1), "optional": on | ~on}
        checks.append(
            (
                "sequence_parallel",
                f"sequence_parallel is {values.sequence_parallel}",
                wanted[values.sequence_parallel],
                "Follow tp" if values.sequence_parallel == "with_tp" else "Set it false",
            )
        )
    whole = (strategies.devices >= group.devices_per_node) | np.bool_(
        space.sub_node_meshes or group.nodes == 1
    )
    checks.append(("devices", "a part of a node is used", whole, "Use whole nodes"))
    return checks
