"""Exact solution, without a solver, of problems whose device calls run one at a time.

Two forms cover the common launchers: all units on one mesh (colocated), and two meshes such that
any two events either share a mesh or are ordered by the data (generation apart from training; a
critic would run beside the actor only on its own mesh, which is a third). Then the step time is a
sum, whatever the order, and choosing the options is a small problem over fronts of (time, memory).

Asynchronous steps of these forms are bounded by the load of each mesh instead; the bound is checked
with an exact schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from planner.search.placement.evaluate import Evaluator, Plan
from planner.search.placement.fronts import Front, fastest_mix, mesh_fronts
from planner.search.placement.instance import Instance, Key

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ChainOutcome:
    """What the special case proves: `bound_s` holds for all plans (inf: there is none)."""

    plan: Plan | None
    bound_s: float
    method: str


def solve_chain(instance: Instance, evaluator: Evaluator) -> ChainOutcome | None:
    """Best plan and bound if the problem has one of the two forms, else None.

    The bound equals the plan's value except where host calls or the latency limit of an
    asynchronous step interfere; then the caller must go on with the general search.
    """
    if not 1 <= len(instance.meshes) <= 2 or any(len(rows) == 0 for rows in instance.options):
        return None
    if instance.staleness == 0 and not _serial(instance):
        return None
    sets = _event_sets(instance)
    found: tuple[float, list[int]] | None
    if len(instance.meshes) == 1:
        found = fastest_mix(instance, 0, sets, _objective(instance, sets, False))
    else:
        fronts = [mesh_fronts(instance, m, sets) for m in range(2)]
        found = _two_meshes(instance, sets, fronts)
    method = "chain" if instance.staleness == 0 else "pools"
    if found is None:
        return ChainOutcome(None, math.inf, method)
    bound_s, choice = found
    return ChainOutcome(evaluator.evaluate(choice), bound_s, method)


def _serial(instance: Instance) -> bool:
    """Whether any two events on devices share a mesh or are ordered by the data."""
    on_devices = [e for e, meshes in enumerate(instance.event_meshes) if meshes]
    return all(
        instance.ordered(a, b) or instance.event_meshes[a] & instance.event_meshes[b]
        for a, b in combinations(on_devices, 2)
    )


def _event_sets(instance: Instance) -> list[frozenset[int]]:
    """Sets of device calls whose total times decide: all of them, and for each host call those
    that cannot run beside it (its ancestors and descendants)."""
    calls = range(instance.n_calls)
    sets = [frozenset(calls)]
    if instance.staleness == 0:
        for k in range(len(instance.host_s)):
            host = instance.n_calls + k
            sets.append(frozenset(e for e in calls if instance.ordered(e, host)))
    return list(dict.fromkeys(sets))


def _objective(
    instance: Instance, sets: list[frozenset[int]], disjoint: bool
) -> Callable[[FloatArray], FloatArray]:
    """Lower bound of the makespan from the totals of the sets, [..., sets] -> [...]."""
    first = instance.n_calls + len(instance.host_s)
    sync_s = [
        s.disjoint_s if disjoint and s.trainer != s.engine else s.shared_s for s in instance.syncs
    ]
    # Seconds besides the set's calls on each path: all syncs, or one host call and those after it.
    paths: list[tuple[int, float]] = [(0, sum(sync_s))]
    # A cyclic schedule runs host calls beside the next iteration: they do not bound the period.
    hosts = instance.host_s if instance.staleness == 0 else ()
    for k, host_s in enumerate(hosts):
        host = instance.n_calls + k
        members = frozenset(e for e in range(instance.n_calls) if instance.ordered(e, host))
        if members in sets:
            later = sum(x for i, x in enumerate(sync_s) if instance.ordered(host, first + i))
            paths.append((sets.index(members), host_s + later))

    def value(totals: FloatArray) -> FloatArray:
        result: FloatArray = totals[..., paths[0][0]] + paths[0][1]
        for column, seconds in paths[1:]:
            result = np.maximum(result, totals[..., column] + seconds)
        return result

    return value


def _choice(instance: Instance, picked: list[tuple[int, npt.NDArray[np.int64]]]) -> list[int]:
    choice = [0] * len(instance.units)
    for mesh, rows in picked:
        for unit, row in zip(instance.meshes[mesh], rows.tolist(), strict=True):
            choice[unit] = row
    return choice


def _two_meshes(
    instance: Instance, sets: list[frozenset[int]], fronts: list[dict[Key, Front]]
) -> tuple[float, list[int]] | None:
    together = _objective(instance, sets, False)
    beside = _objective(instance, sets, True)
    sync_s = sum(s.disjoint_s for s in instance.syncs if s.trainer != s.engine)
    best: tuple[float, list[int]] | None = None

    def offer(values: FloatArray, key: tuple[Key, Key], left: Front, right: Front) -> None:
        nonlocal best
        if values.size == 0:
            return
        k = int(values.argmin())
        if not math.isfinite(values.flat[k]) or (best is not None and values.flat[k] >= best[0]):
            return
        i, j = divmod(k, len(right))
        best = float(values.flat[k]), _choice(instance, [(0, left.rows[i]), (1, right.rows[j])])

    for key_a, left in fronts[0].items():
        for key_b, right in fronts[1].items():
            same_group = key_a[0] == key_b[0]
            if not same_group or key_a[1] + key_b[1] <= instance.group_devices[key_a[0]]:
                if instance.staleness == 0:
                    values = beside(left.time_s[:, None, :] + right.time_s[None, :, :])
                else:
                    values = sync_s + np.maximum(
                        left.time_s[:, None, 0] + _own_syncs(instance, 0),
                        right.time_s[None, :, 0] + _own_syncs(instance, 1),
                    )
                offer(values, (key_a, key_b), left, right)
            if same_group and (0, 1) not in instance.apart:
                values = together(left.time_s[:, None, :] + right.time_s[None, :, :])
                offer(
                    np.where(_fit(instance, key_a[0], left, right), values, np.inf),
                    (key_a, key_b),
                    left,
                    right,
                )
    return best


def _own_syncs(instance: Instance, mesh: int) -> float:
    """Seconds of the syncs within one mesh."""
    return sum(s.shared_s for s in instance.syncs if s.trainer == s.engine == mesh)


def _fit(instance: Instance, group: int, left: Front, right: Front) -> npt.NDArray[np.bool_]:
    """Matrix of the combinations that fit on shared devices."""
    held = left.resident_bytes[:, None] + right.resident_bytes[None, :]
    extra = np.maximum(left.extra_bytes[:, None], right.extra_bytes[None, :])
    host = left.host_bytes[:, None] + right.host_bytes[None, :]
    fits: npt.NDArray[np.bool_] = (held + extra <= instance.group_memory_bytes[group]) & (
        host <= instance.group_host_bytes[group]
    )
    return fits
