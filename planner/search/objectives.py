"""What a plan is ranked by, and what it must stay within.

Every objective is, up to a factor or a reciprocal that no plan changes, one of three *scores* to be
minimised: the step time T; the device-seconds of a step, U x T, with U the devices that the plan
reserves; and its price, the sum over node groups of U x price, times T. So a sub-cluster has a
*rate* (1, devices, or dollars a second), and rate x (lower bound of its step time) bounds the score
of every plan that reserves it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from planner.errors import InputError
from planner.schema import Cluster, Limits, Plan, Workload
from planner.search.sizes import Size

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Objective:
    """One way to rank plans."""

    name: str
    score: Literal["time", "devices", "money"]
    words: str
    """What it is, for help texts and reports."""
    larger_is_better: bool = False
    per_budget: bool = False
    """It is counted until `tokens` tokens are generated and trained on."""


OBJECTIVES: dict[str, Objective] = {
    each.name: each
    for each in (
        Objective("step_time", "time", "seconds of a step"),
        Objective("tokens_per_s", "time", "tokens a second", larger_is_better=True),
        Objective(
            "tokens_per_s_per_device",
            "devices",
            "tokens a second and reserved device",
            larger_is_better=True,
        ),
        Objective("gpu_hours_to_tokens", "devices", "device-hours to the tokens", per_budget=True),
        Objective("cost_per_step", "money", "US dollars a step"),
        Objective("cost_to_tokens", "money", "US dollars to the tokens", per_budget=True),
    )
}


class Goal:
    """An objective with limits, for one workload and cluster.

    Raises InputError for an unknown objective, a missing token budget or price.
    """

    def __init__(
        self,
        objective: str,
        limits: Limits,
        tokens: float | None,
        workload: Workload,
        cluster: Cluster,
    ):
        if objective not in OBJECTIVES:
            raise InputError(
                f"unknown objective {objective!r}",
                where="objective",
                remedy=f"Known: {', '.join(OBJECTIVES)}",
            )
        self.objective = OBJECTIVES[objective]
        self.limits = limits
        self.tokens_per_step = workload.sequences_per_step * workload.mean_sequence_tokens
        self.steps = None if tokens is None else tokens / self.tokens_per_step
        self.cluster = cluster
        self._check(tokens)

    def _check(self, tokens: float | None) -> None:
        if tokens is not None and not 0 < tokens < math.inf:
            raise InputError(
                f"the token budget is {tokens:g}", where="tokens", remedy="Give a number above zero"
            )
        per_budget = {"objective": self.objective.per_budget}
        per_budget["limits.cost_usd"] = self.limits.cost_usd is not None
        for where, needed in per_budget.items():
            if needed and tokens is None:
                raise InputError(
                    "counts until a number of tokens, and none is given",
                    where=where,
                    remedy="Give the token budget: tokens, --tokens 1e9",
                )
        money = {
            "objective": self.objective.score == "money",
            "limits.cost_per_step_usd": self.limits.cost_per_step_usd is not None,
            "limits.cost_usd": self.limits.cost_usd is not None,
        }
        for group in self.cluster.groups:
            for where, needed in money.items():
                if needed and _price(self.cluster, group.name) is None:
                    raise InputError(
                        f"needs the price of {group.device.id}, and none is known",
                        where=where,
                        remedy="Give price_usd_per_device_hour in the cluster file",
                    )

    def usd_per_s(self, size: Size) -> float | None:
        """Price of the devices for a second; None when a group's is unknown."""
        total = 0.0
        for devices, group in zip(size, self.cluster.groups, strict=True):
            price = _price(self.cluster, group.name)
            if price is None and devices:
                return None
            total += devices * (price or 0.0) / _SECONDS_PER_HOUR
        return total

    def rate(self, size: Size) -> float:
        """Score of a plan on these devices for each second of its step."""
        if self.objective.score == "time":
            return 1.0
        if self.objective.score == "devices":
            return float(sum(size))
        usd = self.usd_per_s(size)
        assert usd is not None
        return usd

    @property
    def cost_per_step_limit_usd(self) -> float:
        """The tighter of the two money limits, for one step."""
        limits = [self.limits.cost_per_step_usd]
        if self.limits.cost_usd is not None:
            assert self.steps is not None
            limits.append(self.limits.cost_usd / self.steps)
        return min((limit for limit in limits if limit is not None), default=math.inf)

    def most_s(self, size: Size) -> float:
        """Longest step time within the limits of a plan that reserves these devices; 0: none."""
        if self.limits.devices is not None and sum(size) > self.limits.devices:
            return 0.0
        most = self.limits.step_time_s or math.inf
        if math.isfinite(self.cost_per_step_limit_usd):
            usd = self.usd_per_s(size)
            most = min(most, self.cost_per_step_limit_usd / usd if usd else math.inf)
        return most

    def allows(self, plan: Plan) -> bool:
        """Whether the plan stays within the limits."""
        return plan.step_time_s <= self.most_s(used(plan, self.cluster))

    def score(self, plan: Plan) -> float:
        """What is minimised."""
        return self.rate(used(plan, self.cluster)) * plan.step_time_s

    def value(self, score: float) -> float:
        """A score in the objective's own unit."""
        if self.objective.larger_is_better:
            return self.tokens_per_step / score if score > 0 else math.inf
        value = score * (self.steps or 1.0 if self.objective.per_budget else 1.0)
        return value / _SECONDS_PER_HOUR if self.objective.score == "devices" else value


def used(plan: Plan, cluster: Cluster) -> Size:
    """Devices of each group in the union of the plan's meshes."""
    ranges: dict[str, set[tuple[int, int]]] = {group.name: set() for group in cluster.groups}
    for mesh in set(plan.assignment.meshes.values()):
        per_node = cluster.group(mesh.group).devices_per_node
        first = mesh.first_node * per_node + mesh.first_device
        ranges[mesh.group].add((first, first + mesh.devices))
    return tuple(_covered(sorted(ranges[group.name])) for group in cluster.groups)


def _covered(ranges: Sequence[tuple[int, int]]) -> int:
    """Length of the union of ranges that ascend by their first element."""
    total, reached = 0, 0
    for first, end in ranges:
        total += max(0, end - max(first, reached))
        reached = max(reached, end)
    return total


def used_by(first: dict[str, int], devices: dict[str, tuple[int, int]], groups: int) -> Size:
    """Devices of each group that meshes cover: unit -> first device, unit -> (group, devices)."""
    sizes = []
    for group in range(groups):
        ranges = [
            (first[name], first[name] + count)
            for name, (at, count) in devices.items()
            if at == group
        ]
        sizes.append(_covered(sorted(ranges)))
    return tuple(sizes)


def _price(cluster: Cluster, group: str) -> float | None:
    found = cluster.group(group)
    return found.price_usd_per_device_hour or found.device.price_usd_per_hour
