"""`capacity`: the fronts of several clusters as answers to a deadline or a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.errors import InputError
from planner.schema import ParetoFront
from planner.schema.capacity import Capacity, CapacityChoice
from planner.schema.front import FrontPoint
from planner.search.sizes import in_words

_SECONDS_PER_HOUR = 3600.0


def choose(
    fronts: Sequence[ParetoFront],
    *,
    steps: float,
    within_s: float | None,
    budget_usd: float | None,
    without_plan: Sequence[str] = (),
) -> Capacity:
    """Every point of the fronts as a run of `steps`, ranked by what was asked for.

    Of a size the fastest plan is also the cheapest that reserves all of it, so the best point is
    the best answer among these sizes. With a deadline the cheapest that meets it comes first, with
    a budget alone the fastest, with neither the knee's rule: least time x cost. Choices without a
    price come after those with one, in the order of the fronts: device-hours stand for money among
    those of one kind of devices, and are never compared between kinds.

    Raises InputError for a budget that no price speaks of.
    """
    found = [_choice(front, point, steps) for front in fronts for point in front.points]
    devices = {
        front.cluster.name: tuple(group.device.id for group in front.cluster.groups)
        for front in fronts
    }

    def kinds(choice: CapacityChoice) -> tuple[str, ...]:
        """The devices that it is made of."""
        every = zip(choice.point.size, devices[choice.cluster], strict=True)
        return tuple(device for count, device in every if count > 0)

    if budget_usd is not None and not any(choice.cost_usd is not None for choice in found):
        raise InputError(
            "no device has a price",
            where="budget",
            remedy="Give price_usd_per_device_hour in the cluster file",
        )
    limit_s = math.inf if within_s is None else within_s
    limit_usd = math.inf if budget_usd is None else budget_usd
    judged = []
    for choice in found:
        slow = choice.run_interval_s[1] / choice.run_s
        meets = _meets(choice, 1.0, limit_s, limit_usd)
        surely = meets and _meets(choice, slow, limit_s, limit_usd)
        judged.append(choice.model_copy(update={"meets": meets, "surely": surely}))

    def money(choice: CapacityChoice) -> float:
        return choice.device_hours if choice.cost_usd is None else choice.cost_usd

    order = list(dict.fromkeys(kinds(choice) for choice in found))

    def unit(choice: CapacityChoice) -> float:
        """Choices of one unit have comparable `money`; 0: US dollars."""
        return 0.0 if choice.cost_usd is not None else 1.0 + order.index(kinds(choice))

    def miss(choice: CapacityChoice) -> float:
        """How far it is from the limits, as a factor."""
        usd = choice.cost_usd if choice.cost_usd is not None else math.inf
        over = usd / limit_usd if math.isfinite(limit_usd) else 0.0
        return max(choice.run_s / limit_s, over)

    def rank(choice: CapacityChoice) -> tuple[bool, float, float, float, str]:
        if not choice.meets:
            return True, miss(choice), unit(choice), money(choice), choice.devices_in_words
        if within_s is not None:
            value = money(choice)
        elif budget_usd is not None:
            value = choice.run_s
        else:
            value = choice.run_s * money(choice)
        return False, unit(choice), value, choice.run_s, choice.devices_in_words

    ranked = tuple(sorted(judged, key=rank))
    lines = tuple(dict.fromkeys(line for front in fronts for line in front.assumptions))
    return Capacity(
        steps=steps,
        within_s=within_s,
        budget_usd=budget_usd,
        choices=ranked,
        verdict=_verdict(ranked, steps, within_s, budget_usd)
        + _unpriced([kinds(choice) for choice in found if choice.cost_usd is None], len(found)),
        without_plan=tuple(without_plan),
        assumptions=lines,
        workload=fronts[0].workload,
        clusters=tuple(front.cluster for front in fronts),
    )


def _choice(front: ParetoFront, point: FrontPoint, steps: float) -> CapacityChoice:
    low, high = point.plan.step_time_interval_s
    run_s = steps * point.step_time_s
    usd = point.cost_per_step_usd
    words = in_words(point.size, front.cluster)
    if len(point.size) == 1:
        words += f" {front.cluster.groups[0].device.id}"
    return CapacityChoice(
        cluster=front.cluster.name,
        devices_in_words=words,
        run_s=run_s,
        run_interval_s=(steps * low, steps * high),
        device_hours=point.devices * run_s / _SECONDS_PER_HOUR,
        cost_usd=None if usd is None else usd * steps,
        meets=False,
        surely=False,
        point=point,
    )


def _meets(choice: CapacityChoice, slower: float, limit_s: float, limit_usd: float) -> bool:
    usd = math.inf if choice.cost_usd is None else choice.cost_usd
    cheap = not math.isfinite(limit_usd) or usd * slower <= limit_usd
    return choice.run_s * slower <= limit_s and cheap


def _unpriced(without: Sequence[tuple[str, ...]], choices: int) -> str:
    """What missing prices mean for the ranking, as the end of the verdict."""
    kinds = list(dict.fromkeys(without))
    if not kinds:
        return ""
    names = ", ".join(" + ".join(devices) for devices in kinds)
    if len(without) < choices:
        return f". {names}: no price, so ranked after what has one"
    if len(kinds) == 1:
        return f". {names}: no price, so ranked by device-hours"
    return (
        f". No prices ({names}): ranked by device-hours within a kind of devices, kinds not "
        "compared but listed as given"
    )


def duration_in_words(value_s: float) -> str:
    """For example "3.4 days", "2 hours", "45 minutes"."""
    for unit, unit_s in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if value_s >= unit_s:
            return f"{value_s / unit_s:,.3g} {unit}"
    return f"{value_s:.3g} s"


def _verdict(
    ranked: Sequence[CapacityChoice],
    steps: float,
    within_s: float | None,
    budget_usd: float | None,
) -> str:
    best = ranked[0]
    usd = "" if best.cost_usd is None else f", ${best.cost_usd:,.0f}"
    words = f"{best.devices_in_words}: {steps:,.0f} steps take {duration_in_words(best.run_s)}{usd}"
    asked = within_s is not None or budget_usd is not None
    if not best.meets:
        return f"none of them does; the nearest: {words}"
    sure = next((choice for choice in ranked if choice.surely), None)
    if asked and not best.surely:
        words += "; it may not at the slow end of the prediction"
        if sure is not None:
            words += f", {sure.devices_in_words} would"
    return words
