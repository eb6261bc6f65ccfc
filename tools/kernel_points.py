"""Reads measured kernel points from the tables of the `aiconfigurator-core` package.

One function a kernel; each answers columns of equal length, times in seconds, the minimum over
engines at each point. What is left out is said beside the code that leaves it out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Columns = dict[str, npt.NDArray[np.float64]]

DTYPES = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4"}
"""Table dtypes and ours; fp8 is the faster of per-tensor and block scaling at each point."""
_ALIGNED_ROWS = 17  # m up to here is measured densely; above, only multiples of 16 are aligned
_MIN_BUS_SHARE = 0.2  # a collective below this share of the link at 1 GiB: a faulty server
_MAX_GROUP = 32
_HALF_BYTES = 2  # message sizes of the tables are element counts


def engines(root: Path) -> list[str]:
    """The engines and versions whose tables were read, "kernel: engine version"."""
    found = {
        f"{path.parts[-4]}: {path.parts[-3]} {path.parts[-2]}"
        for path in root.rglob("*.parquet")
        if path.name in _FILES
    }
    return sorted(found)


def gemm(root: Path, dtype: str) -> Columns:
    """Columns m, n, k, t of one dtype."""
    table = _read(root, "gemm_perf.parquet")
    table = table.filter(pc.is_in(table["gemm_dtype"], pa.array(_names(dtype))))
    # vLLM's block-scaled fp8 bench has a floor of 57 to 470 us.
    table = table.filter(pc.invert(pc.match_substring(table["kernel_source"], "BlockScaledMM")))
    points = _fastest(table, {"m": "m", "n": "n", "k": "k"})
    aligned = (points["m"] <= _ALIGNED_ROWS) | (points["m"] % 16 == 0)
    return {name: column[aligned] for name, column in points.items()}


def prefill_attention(root: Path) -> Columns:
    """Columns batch, tokens, heads, kv_heads, head_dim, window, t; bf16."""
    table = _read(root, "context_attention_perf.parquet")
    table = _where(table, attn_dtype="bfloat16", kv_cache_dtype="bfloat16")
    points = _fastest(
        table,
        {
            "batch_size": "batch",
            "isl": "tokens",
            "num_heads": "heads",
            "num_key_value_heads": "kv_heads",
            "head_dim": "head_dim",
            "window_size": "window",
        },
    )
    # Windows of 8,192 are chunked attention in some engines: less work than a sliding window.
    return _common_groups(_pick(points, points["window"] != 8192))


def decode_attention(root: Path, kv_dtype: str) -> Columns:
    """Columns batch, context, heads, kv_heads, head_dim, t; full attention."""
    table = _read(root, "generation_attention_perf.parquet")
    table = _where(table, kv_cache_dtype="bfloat16" if kv_dtype == "bf16" else kv_dtype)
    table = table.filter(pc.equal(table["window_size"], 0))
    points = _fastest(
        _with_context(table),
        {
            "batch_size": "batch",
            "context": "context",
            "num_heads": "heads",
            "num_key_value_heads": "kv_heads",
            "head_dim": "head_dim",
        },
    )
    return _common_groups(points)


def mla_prefill(root: Path) -> Columns:
    """Columns batch, tokens, heads, t: the attention core without projections."""
    table = _where(_read(root, "context_mla_perf.parquet"), kv_cache_dtype="bfloat16")
    return _fastest(table, {"batch_size": "batch", "isl": "tokens", "num_heads": "heads"})


def mla_decode(root: Path, kv_dtype: str) -> Columns:
    """Columns batch, context, heads, t: the attention core without projections."""
    table = _read(root, "generation_mla_perf.parquet")
    table = _where(table, kv_cache_dtype="bfloat16" if kv_dtype == "bf16" else kv_dtype)
    return _fastest(
        _with_context(table), {"batch_size": "batch", "context": "context", "num_heads": "heads"}
    )


def mla_absorb(root: Path) -> Columns:
    """Columns tokens, heads, t: the sum of the two batched products, bf16."""
    table = _where(_read(root, "mla_bmm_perf.parquet"), bmm_dtype="bfloat16")
    keys = {"num_tokens": "tokens", "num_heads": "heads"}
    before = _fastest(_where(table, op_name="mla_gen_pre"), keys)
    after = _fastest(_where(table, op_name="mla_gen_post"), keys)
    places = {
        point: time
        for *point_list, time in zip(*after.values(), strict=True)
        for point in [tuple(point_list)]
    }
    both = np.array(
        [places.get(point, np.nan) for point in zip(before["tokens"], before["heads"], strict=True)]
    )
    return _pick({**before, "t": before["t"] + both}, ~np.isnan(both))


def moe(root: Path, dtype: str) -> Columns:
    """Columns hidden, inner, top_k, experts, tp, ep, tokens, t; gated experts, power law 1.01."""
    table = _read(root, "moe_perf.parquet")
    table = table.filter(pc.is_in(table["moe_dtype"], pa.array(_names(dtype))))
    table = _where(table, distribution="power_law_1.01")
    table = table.filter(pc.invert(pc.match_substring(table["kernel_source"], "nongated")))
    points = _fastest(
        table,
        {
            "hidden_size": "hidden",
            "inter_size": "inner",
            "topk": "top_k",
            "num_experts": "experts",
            "moe_tp_size": "tp",
            "moe_ep_size": "ep",
            "num_tokens": "tokens",
        },
    )
    # Nemotron's experts have two matrices; some engines do not say so in the kernel's name.
    plain = (points["top_k"] == 22) | ((points["hidden"] == 2688) & (points["inner"] == 1856))
    points = _pick(points, ~plain)
    # A finer split of the experts never costs more: removes benches of one slow engine.
    for finer in ("ep", "tp"):
        points["t"] = _running_minimum(points, finer)
    return points


def collective(root: Path, kind: str, link_bytes_per_s: float) -> Columns:
    """Columns devices, nbytes, t of an NCCL collective; the newest NCCL version."""
    newest = max(root.glob("comm/nccl/*/nccl_perf.parquet"), key=lambda p: _version(p.parent.name))
    table = _where(
        pq.read_table(newest),
        nccl_dtype="half",
        op_name="alltoall" if kind == "all_to_all" else kind,
    )
    points = _bytes(_fastest(table, {"num_gpus": "devices", "message_size": "nbytes"}))
    n = points["devices"]
    bus = points["nbytes"] * (n - 1) / n * (2 if kind == "all_reduce" else 1) / points["t"]
    keep = np.ones(len(n), dtype=bool)
    for count in np.unique(n):
        largest = (n == count) & (points["nbytes"] == points["nbytes"][n == count].max())
        if bus[largest].max() < _MIN_BUS_SHARE * link_bytes_per_s:
            keep &= n != count
    return _pick(points, keep)


def all_reduce_graph(root: Path) -> Columns:
    """Columns devices, nbytes, t of the engines' all-reduce, replayed from a CUDA graph."""
    table = _read(root, "custom_allreduce_perf.parquet")
    table = table.filter(pc.invert(pc.match_substring(table["kernel_source"], "eager")))
    return _bytes(_fastest(table, {"num_gpus": "devices", "message_size": "nbytes"}))


_FILES = frozenset(
    {
        "gemm_perf.parquet",
        "context_attention_perf.parquet",
        "generation_attention_perf.parquet",
        "context_mla_perf.parquet",
        "generation_mla_perf.parquet",
        "mla_bmm_perf.parquet",
        "moe_perf.parquet",
        "nccl_perf.parquet",
        "custom_allreduce_perf.parquet",
    }
)


def _common_groups(points: Columns) -> Columns:
    """Leaves out more than 32 query heads a KV head: no model, and only slow fallbacks ran it."""
    return _pick(points, points["heads"] <= _MAX_GROUP * points["kv_heads"])


def _read(root: Path, name: str) -> pa.Table:
    paths = sorted(root.glob(f"*/*/*/{name}"))
    table = pa.concat_tables([pq.read_table(path) for path in paths], promote_options="permissive")
    if "window_size" in table.column_names:  # older engines have no windows and no such column
        column = table.column_names.index("window_size")
        filled = pc.fill_null(table["window_size"], 0)
        table = table.set_column(column, "window_size", filled)
    return table


def _where(table: pa.Table, **equal: str) -> pa.Table:
    for name, value in equal.items():
        table = table.filter(pc.equal(table[name], value))
    return table


def _names(dtype: str) -> list[str]:
    return [name for name, ours in DTYPES.items() if ours == dtype]


def _with_context(table: pa.Table) -> pa.Table:
    """Adds the column context: tokens already cached plus the new one."""
    return table.append_column("context", pc.add(table["isl"], table["step"]))


def _fastest(table: pa.Table, keys: dict[str, str]) -> Columns:
    """The minimum latency of each distinct key, seconds; columns renamed, sorted by key."""
    grouped = table.group_by(list(keys)).aggregate([("latency", "min")])
    grouped = grouped.sort_by([(key, "ascending") for key in keys])
    columns = {ours: grouped[key].to_numpy().astype(np.float64) for key, ours in keys.items()}
    columns["t"] = grouped["latency_min"].to_numpy().astype(np.float64) * 1e-3
    return _pick(columns, columns["t"] > 0)


def _pick(columns: Columns, rows: npt.NDArray[np.bool_]) -> Columns:
    return {name: column[rows] for name, column in columns.items()}


def _bytes(points: Columns) -> Columns:
    return {**points, "nbytes": points["nbytes"] * _HALF_BYTES}


def _running_minimum(points: Columns, along: str) -> npt.NDArray[np.float64]:
    """Times replaced by the least time at the same or a smaller value of `along`."""
    others = [name for name in points if name not in (along, "t")]
    order = np.lexsort([points[along], *(points[name] for name in others)])
    times = points["t"][order].copy()
    same = np.ones(max(len(order) - 1, 0), dtype=bool)
    for name in others:
        same &= points[name][order][1:] == points[name][order][:-1]
    for row in np.flatnonzero(same) + 1:
        times[row] = min(times[row], times[row - 1])
    result = np.empty_like(times)
    result[order] = times
    return result


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
