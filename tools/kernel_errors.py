"""Interpolation error of kernel tables on measured points that were held out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from kernel_engines import Columns
from kernel_engines import pick as rows

from planner.cost.kernels import KernelTable

Points = dict[str, Columns]
BoolArray = npt.NDArray[np.bool_]
HELD_OUT = 5  # one point in five
FEW_POINTS = 1000  # below, each fifth is held out in turn: one fifth says little


def held_out(columns: Columns, fifth: int = 0) -> BoolArray:
    """One point in five, by a fixed hash of its coordinates."""
    mixed = np.zeros(len(columns["t"]), dtype=np.uint64)
    for name in sorted(columns):
        if name != "t":
            mixed = (mixed ^ columns[name].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
    return np.asarray((mixed >> np.uint64(16)) % np.uint64(HELD_OUT) == fifth)


def held_out_predictions(
    points: Points, build: Callable[[Points], KernelTable]
) -> dict[str, tuple[Columns, npt.NDArray[np.float64]]]:
    """The points held out of each kernel, and |predicted / measured - 1| of each."""
    parts: dict[str, list[tuple[Columns, npt.NDArray[np.float64]]]] = {name: [] for name in points}
    for fifth in range(HELD_OUT):
        masks = {
            name: held_out(columns, fifth)
            if fifth == 0 or len(columns["t"]) < FEW_POINTS
            else np.zeros(len(columns["t"]), dtype=bool)
            for name, columns in points.items()
        }
        table = build({name: rows(columns, ~masks[name]) for name, columns in points.items()})
        for name, columns in points.items():
            if masks[name].any():
                missing = rows(columns, masks[name])
                error = np.abs(predict(table, name, missing) / missing["t"] - 1)
                parts[name].append((missing, error))
    return {name: _joined(some) for name, some in parts.items()}


def held_out_errors(points: Points, build: Callable[[Points], KernelTable]) -> dict[str, Any]:
    """Median and 90th percentile of |predicted / measured - 1| for each kernel."""
    return {
        name: {
            "points": len(error),
            "median": round(float(np.median(error)), 4),
            "p90": round(float(np.quantile(error, 0.9)), 4),
        }
        for name, (_, error) in held_out_predictions(points, build).items()
    }


def predict(table: KernelTable, name: str, p: Columns) -> npt.NDArray[np.float64]:
    """The table's times of the points of one kernel."""
    kernel, _, rest = name.partition("_")
    dtype: Any = rest
    if kernel == "gemm":
        return table.gemm_s(p["m"], p["n"], p["k"], dtype)
    if kernel == "moe":
        return _by(
            p,
            ("hidden", "inner", "top_k", "experts"),
            lambda q, key: table.moe_s(q["tokens"], *key, q["tp"], q["ep"], dtype),
        )
    if name == "prefill":
        return _by(
            p,
            ("head_dim", "window"),
            lambda q, key: table.prefill_attention_s(
                q["batch"], q["tokens"], q["heads"], q["kv_heads"], key[0], key[1] or None
            ),
        )
    if kernel == "decode":
        return _by(
            p,
            ("head_dim", "window"),
            lambda q, key: table.decode_attention_s(
                q["batch"],
                q["context"],
                q["heads"],
                q["kv_heads"],
                key[0],
                dtype,
                key[1] or None,
            ),
        )
    if name == "mla_prefill":
        return table.mla_prefill_s(p["batch"], p["tokens"], p["heads"])
    if name.startswith("mla_decode"):
        cache: Any = name.removeprefix("mla_decode_")
        return table.mla_decode_s(p["batch"], p["context"], p["heads"], cache)
    if name == "mla_absorb":
        return table.mla_absorb_s(p["tokens"], p["heads"])
    if name == "all_reduce_graph":
        return table.all_reduce_decode_s(p["devices"], p["nbytes"])
    kind: Any = rest
    return table.collective_s(kind, p["devices"], p["nbytes"])


def _by(
    p: Columns, names: tuple[str, ...], times: Callable[[Columns, tuple[int, ...]], Any]
) -> npt.NDArray[np.float64]:
    """Times of groups of points that share the columns `names`."""
    keys, place = np.unique(np.stack([p[n] for n in names], axis=1), axis=0, return_inverse=True)
    result = np.empty(len(p["t"]))
    for index, key in enumerate(keys):
        here = place.ravel() == index
        result[here] = times(rows(p, here), tuple(int(value) for value in key))
    return result


def _joined(
    parts: list[tuple[Columns, npt.NDArray[np.float64]]],
) -> tuple[Columns, npt.NDArray[np.float64]]:
    names = parts[0][0]
    columns = {name: np.concatenate([part[name] for part, _ in parts]) for name in names}
    return columns, np.concatenate([error for _, error in parts])
