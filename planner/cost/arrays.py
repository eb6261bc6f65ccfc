"""The two structs of arrays that flow through the cost model: strategies in, costs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from planner.schema import Strategy
from planner.schema.hardware import DType
from planner.schema.strategy import Offload, PipelineSchedule, Recompute

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
OFFLOAD: tuple[Offload, ...] = ("none", "optimizer", "all")
DTYPES: tuple[DType, ...] = ("bf16", "fp8", "fp4")
SCHEDULES: tuple[PipelineSchedule, ...] = ("1f1b", "zb-h1", "zb-h2", "dualpipe")
DUALPIPE = SCHEDULES.index("dualpipe")
CODED: dict[str, tuple[str, ...]] = {
    "recompute": RECOMPUTE,
    "offload": OFFLOAD,
    "dtype": DTYPES,
    "pipeline_schedule": SCHEDULES,
}
"""Fields whose values are words, held as indices into these."""
_BOOL = ("sequence_parallel", "packing", "optimizer_on_cpu")
_FLOAT = ("memory_fraction",)


@dataclass(frozen=True)
class StrategyArrays:
    """n strategies; every field is an array of shape [n] named as in `schema.Strategy`.

    Fields of words (`recompute`, `offload`, `dtype`, `pipeline_schedule`) hold indices: see CODED.
    """

    tp: IntArray
    pp: IntArray
    vpp: IntArray
    cp: IntArray
    ulysses: IntArray
    ep: IntArray
    etp: IntArray
    dp: IntArray
    zero_stage: IntArray
    shard_ranks: IntArray
    pipeline_schedule: IntArray
    sequence_parallel: BoolArray
    micro_batch_sequences: IntArray
    packing: BoolArray
    recompute: IntArray
    offload: IntArray
    first_stage_layers: IntArray
    last_stage_layers: IntArray
    max_running_sequences: IntArray
    memory_fraction: FloatArray
    dtype: IntArray
    optimizer_on_cpu: BoolArray

    def __len__(self) -> int:
        return len(self.tp)

    @property
    def devices(self) -> IntArray:
        """Devices of each strategy: tp x pp x cp x dp, shape [n]."""
        return self.tp * self.pp * self.cp * self.dp

    @classmethod
    def from_columns(cls, columns: dict[str, npt.ArrayLike], n: int) -> StrategyArrays:
        """Build from columns by field name; a missing field takes Strategy's default."""
        unknown = set(columns) - {field.name for field in fields(cls)}
        if unknown:
            raise KeyError(f"no such strategy fields: {sorted(unknown)}")
        defaults = Strategy()
        arrays: dict[str, Any] = {}
        for field in fields(cls):
            value: Any = columns.get(field.name)
            if value is None:
                value = encode(field.name, getattr(defaults, field.name))
            arrays[field.name] = np.ascontiguousarray(
                np.broadcast_to(np.asarray(value, dtype=_dtype(field.name)), (n,))
            )
        return cls(**arrays)

    @classmethod
    def from_strategies(cls, strategies: Sequence[Strategy]) -> StrategyArrays:
        """Arrays of the given strategies, in order."""
        columns: dict[str, npt.ArrayLike] = {
            field.name: [encode(field.name, getattr(s, field.name)) for s in strategies]
            for field in fields(cls)
        }
        return cls.from_columns(columns, len(strategies))

    def strategy(self, index: int) -> Strategy:
        """Row `index` as a Strategy."""
        values = {
            field.name: decode(field.name, getattr(self, field.name)[index])
            for field in fields(self)
        }
        return Strategy(**values)

    def take(self, index: npt.ArrayLike) -> StrategyArrays:
        """The rows that an index array or a Boolean mask selects."""
        rows = np.asarray(index)
        return replace(self, **{f.name: getattr(self, f.name)[rows] for f in fields(self)})


def encode(name: str, value: Any) -> Any:
    """A strategy field's value as the number that the arrays hold."""
    return CODED[name].index(value) if name in CODED else value


def decode(name: str, value: Any) -> Any:
    """The inverse of `encode`, as a Python value."""
    if name in CODED:
        return CODED[name][int(value)]
    if name in _BOOL:
        return bool(value)
    return float(value) if name in _FLOAT else int(value)


def _dtype(name: str) -> type[Any]:
    if name in _BOOL:
        return np.bool_
    return cast(type[Any], np.float64 if name in _FLOAT else np.int64)


@dataclass(frozen=True)
class CallCosts:
    """Cost of one call under n strategies; every array has shape [n].

    A strategy that cannot run at all (the engine has no room for one sequence, say) has
    `time_s` = inf.
    """

    time_s: FloatArray
    """Duration of the whole call in one RL step, seconds."""
    time_parts_s: dict[str, FloatArray]
    """Itemised seconds; the parts sum to `time_s`."""
    work_flop: FloatArray
    """FLOP of all devices together, recomputation included."""
    useful_flop: FloatArray
    """FLOP without recomputation and padding; the same for every strategy."""
    traffic_bytes: FloatArray
    """Device-memory traffic of all devices together, a lower estimate."""
    depth: IntArray
    """Dependent kernels and collectives on the critical path."""
    bound_s: FloatArray
    """max(useful work / peak, traffic / bandwidth, depth x latency) on the call's devices."""
    memory_parts_bytes: dict[str, FloatArray]
    """Itemised bytes on the fullest device while the call runs, the model's own state included."""
    peak_bytes: FloatArray
    """Sum of `memory_parts_bytes`."""
    resident_bytes: FloatArray
    """Bytes that stay on each device while the call does not run (after offload or sleep)."""
    host_bytes_per_device: FloatArray
    """Host memory that the call's model needs, bytes for each of its devices."""

    def take(self, index: npt.ArrayLike) -> CallCosts:
        """The rows that an index array or a Boolean mask selects."""
        rows = np.asarray(index)

        def pick(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: array[rows] for key, array in value.items()}
            return value[rows]

        return CallCosts(**{f.name: pick(getattr(self, f.name)) for f in fields(self)})
