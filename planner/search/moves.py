"""What moves between two plans: state that devices need and do not hold, and its time.

A unit's state is its weights and, when it is trained, its optimizer state, as the memory model
counts them for each device. Ranks lie on a mesh with tensor-parallel neighbours next to each other
and pipeline stages outermost. With the same degrees but for the data-parallel one, a device keeps
the weights of its tensor- and pipeline-parallel rank if it had that rank, and of what ZeRO shards
the overlap of its old and new shard. With other degrees nothing is counted as kept: an upper
estimate. State of lost devices comes from their replicas or the last checkpoint; reading that is
not part of the time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from planner.schema import CallPrediction, Cluster, Mesh, Move, Plan, Strategy
from planner.search.survivors import Survivors
from planner.simulate.instance import Instance

FloatArray = npt.NDArray[np.float64]
_SAME = ("tp", "pp", "vpp", "cp", "ep", "etp", "first_stage_layers", "last_stage_layers", "dtype")
STATE_FIELDS = (*_SAME, "dp", "zero_stage", "shard_ranks")
"""Fields of a strategy that decide where a unit's state lies."""


def holders(instance: Instance, plan: Mapping[str, CallPrediction]) -> dict[str, tuple[str, ...]]:
    """Unit -> its calls, the one that shows its whole state first; `instance` is the plan's own.

    Units that hold a copy while a pass runs keep no state and are left out.
    """
    return {
        unit.name: tuple(sorted(unit.calls, key=lambda name: plan[name].kind != "train"))
        for unit in instance.units
        if not set(unit.calls) <= instance.copies.keys()
    }


def move_of(
    unit: str,
    calls: tuple[str, ...],
    old_call: str,
    old: Plan,
    new: Mapping[str, CallPrediction],
    survivors: Survivors,
) -> Move | None:
    """The move of a unit to its mesh and layout among the new calls; None when it stays.

    `calls` are the unit's, `old_call` the old plan's call that held its state, as of `holders`.
    """
    before, after = old.calls[old_call], new[calls[0]]
    assert before.mesh is not None
    assert before.strategy is not None
    assert after.mesh is not None
    assert after.strategy is not None
    mapped = survivors.mesh(before.mesh)
    if mapped == after.mesh and _layout(before.strategy) == _layout(after.strategy):
        return None
    received = _received_bytes(before.mesh, before.strategy, after, survivors)
    return Move(
        unit=unit,
        calls=calls,
        from_mesh=before.mesh,
        to_mesh=after.mesh,
        from_strategy=before.strategy,
        to_strategy=after.strategy,
        why="lost nodes" if mapped is None else "room or speed",
        bytes=round(float(received.sum())),
        seconds=float(received.max(initial=0.0)) / _bandwidth(survivors.new, after.mesh.group),
    )


def _layout(strategy: Strategy) -> tuple[object, ...]:
    """What decides where state lies."""
    return tuple(getattr(strategy, name) for name in STATE_FIELDS)


def _bandwidth(cluster: Cluster, group: str) -> float:
    device = cluster.group(group).device
    return device.scale_out_bandwidth_bytes_per_s * device.scale_out_efficiency


def _received_bytes(
    old_mesh: Mesh, old: Strategy, now: CallPrediction, survivors: Survivors
) -> FloatArray:
    """Bytes that each device of the new mesh lacks."""
    assert now.mesh is not None
    assert now.strategy is not None
    new = now.strategy
    held = now.memory_bytes
    weights = float(held.get("weights", 0) + held.get("engine_weights", 0))
    optimizer = float(held.get("optimizer", 0))
    ranks = np.arange(now.mesh.devices)
    before = _old_ranks(old_mesh, now.mesh, survivors)
    same = (before >= 0) & all(getattr(old, name) == getattr(new, name) for name in _SAME)
    sharded = np.where(same, _shard_overlap(before, old, ranks, new), 0.0)
    whole = np.where(same & (_model_rank(before, old) == _model_rank(ranks, new)), 1.0, 0.0)
    kept_weights = sharded if new.zero_stage == 3 or old.zero_stage == 3 else whole
    kept_optimizer = sharded if new.zero_stage or old.zero_stage else whole
    result: FloatArray = weights * (1.0 - kept_weights) + optimizer * (1.0 - kept_optimizer)
    return result


def _old_ranks(old: Mesh, new: Mesh, survivors: Survivors) -> npt.NDArray[np.int64]:
    """Rank in the old mesh of each device of the new one; -1 for devices that were not in it."""
    if new.group != old.group:
        return np.full(new.devices, -1, dtype=np.int64)
    per_node = survivors.new.group(new.group).devices_per_node
    device = np.arange(new.devices) + new.first_node * per_node + new.first_device
    was = survivors.old_nodes(new.group)[device // per_node]
    rank = was * per_node + device % per_node - old.first_node * per_node - old.first_device
    inside = (was >= 0) & (rank >= 0) & (rank < old.devices)
    return np.where(inside, rank, -1)


def _model_rank(ranks: npt.NDArray[np.int64], s: Strategy) -> npt.NDArray[np.int64]:
    """A number for the part of the model that a rank holds (with what it is replicated over)."""
    stage = ranks // (s.devices // s.pp)
    inner = ranks % max(s.tp, s.ep * s.etp)
    result: npt.NDArray[np.int64] = stage * s.devices + inner
    return result


def _shard_overlap(
    before: npt.NDArray[np.int64], old: Strategy, ranks: npt.NDArray[np.int64], new: Strategy
) -> FloatArray:
    """Part of each device's new shard that its old shard holds."""

    def place(r: npt.NDArray[np.int64], s: Strategy) -> tuple[npt.NDArray[np.int64], FloatArray]:
        return r // (s.devices // s.pp) * s.tp + r % s.tp, (
            (r % (s.devices // s.pp)) // s.tp / (s.dp * s.cp)
        ).astype(np.float64)

    (was, low_a), (now, low_b) = place(before, old), place(ranks, new)
    high_a, high_b = low_a + 1 / (old.dp * old.cp), low_b + 1 / (new.dp * new.cp)
    overlap = np.maximum(0.0, np.minimum(high_a, high_b) - np.maximum(low_a, low_b))
    part: FloatArray = np.where(was == now, overlap * new.dp * new.cp, 0.0)
    return part
