"""Options of a unit before they are filtered: strategies of each call with their costs."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from planner.cost.arrays import CallCosts, IntArray, StrategyArrays
from planner.schema import Call


@dataclass(frozen=True)
class Rows:
    """Joined options on one node group, not yet filtered."""

    strategies: dict[str, StrategyArrays]
    """Call -> strategies; row i belongs to option i of n."""
    time_s: npt.NDArray[np.float64]
    peak_bytes: npt.NDArray[np.float64]
    resident_bytes: npt.NDArray[np.float64]
    host_bytes: npt.NDArray[np.float64]
    costed: int

    @property
    def devices(self) -> IntArray:
        return next(iter(self.strategies.values())).devices

    def take(self, index: IntArray) -> Rows:
        """The rows that an index array selects."""
        return Rows(
            strategies={name: rows.take(index) for name, rows in self.strategies.items()},
            time_s=self.time_s[index],
            peak_bytes=self.peak_bytes[index],
            resident_bytes=self.resident_bytes[index],
            host_bytes=self.host_bytes[index],
            costed=self.costed,
        )


def merged(first: Rows, second: Rows) -> Rows:
    """The rows of both; the calls are in the order of the first."""
    order = list(first.strategies)
    columns = [list(second.strategies).index(name) for name in order]
    return Rows(
        strategies={
            name: concatenate([first.strategies[name], second.strategies[name]]) for name in order
        },
        time_s=np.concatenate([first.time_s, second.time_s[:, columns]]),
        peak_bytes=np.concatenate([first.peak_bytes, second.peak_bytes[:, columns]]),
        resident_bytes=np.concatenate([first.resident_bytes, second.resident_bytes]),
        host_bytes=np.concatenate([first.host_bytes, second.host_bytes]),
        costed=first.costed + second.costed,
    )


def concatenate(parts: list[StrategyArrays]) -> StrategyArrays:
    """Rows of all parts one after another; no parts give no rows."""
    if not parts:
        return StrategyArrays.from_columns({}, 0)
    return StrategyArrays(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(StrategyArrays)
        }
    )


def rows_of(
    names: list[Call],
    strategies: list[StrategyArrays],
    costs: list[CallCosts],
    calls: list[Call],
    costed: int,
) -> Rows:
    by_name = {
        call.name: (rows, cost) for call, rows, cost in zip(names, strategies, costs, strict=True)
    }
    ordered = [by_name[call.name] for call in calls]
    return Rows(
        strategies={call.name: rows for call, (rows, _) in zip(calls, ordered, strict=True)},
        time_s=np.stack([cost.time_s for _, cost in ordered], axis=1),
        peak_bytes=np.stack([cost.peak_bytes for _, cost in ordered], axis=1),
        resident_bytes=np.max([cost.resident_bytes for _, cost in ordered], axis=0),
        host_bytes=np.max([cost.host_bytes_per_device for _, cost in ordered], axis=0),
        costed=costed,
    )
