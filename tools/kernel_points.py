"""Reads measured kernel points from the tables of the `aiconfigurator-core` package.

One function a kernel; each answers columns of equal length, times in seconds, the minimum over
engines at each point that the fastest of them ran. What is left out is said beside the code that
leaves it out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from kernel_engines import Columns, fastest, fastest_where_known, without_cached
from kernel_engines import pick as _pick

from planner.cost import kernel_work
from planner.cost.kernel_work import Work
from planner.schema import DeviceProfile

DTYPES = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4"}
"""Table dtypes and ours; fp8 is the faster of per-tensor and block scaling at each point."""
_ALIGNED_ROWS = 17  # m up to here is measured densely; above, only multiples of 16 are aligned
_MIN_BUS_SHARE = 0.2  # a collective below this share of the link at 1 GiB: a faulty server
_CHUNKED = 8192  # windows of this size are chunked attention in some engines: less work
_MAX_GROUP = 32  # query heads a KV head
_HALF_BYTES = 2  # message sizes of the tables are element counts
_CACHE_BYTES = 256e6  # twice the largest last-level cache among the devices (B200: 126 MB)
_BEST_BANDWIDTH_SHARE = 0.95  # what streams of many GB reach at most; faster came from the cache

GEMM = "gemm_perf.parquet"
PREFILL = "context_attention_perf.parquet"
DECODE = "generation_attention_perf.parquet"
MLA_PREFILL = "context_mla_perf.parquet"
MLA_DECODE = "generation_mla_perf.parquet"
MLA_ABSORB = "mla_bmm_perf.parquet"
MOE = "moe_perf.parquet"
NCCL = "nccl_perf.parquet"
ALL_REDUCE = "custom_allreduce_perf.parquet"
_ATTENTION = {
    "batch_size": "batch",
    "isl": "tokens",
    "num_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim",
    "window_size": "window",
}
# TensorRT-LLM 1.0.0's decode attention on A100 is up to 1.7 times faster than the memory allows,
# at working sets of gigabytes: it did not read the whole cache.
_SHAPE = ("hidden", "inner", "top_k", "experts", "tp", "ep")
_FAULTY = frozenset({("a100_sxm", DECODE, "trtllm")})


def engines(root: Path) -> list[str]:
    """The engines and versions whose tables were read, "kernel: engine version"."""
    names = {GEMM, PREFILL, DECODE, MLA_PREFILL, MLA_DECODE, MLA_ABSORB, MOE, NCCL, ALL_REDUCE}
    found = {
        f"{path.parts[-4]}: {path.parts[-3]} {path.parts[-2]}"
        for name in names
        for path in _paths(root, name)
    }
    return sorted(found)


def gemm(root: Path, device: DeviceProfile, dtype: Any) -> Columns:
    """Columns m, n, k, t of one dtype."""
    table = _read(root, GEMM)
    table = table.filter(pc.is_in(table["gemm_dtype"], pa.array(_names(dtype))))
    # vLLM's block-scaled fp8 bench has a floor of 57 to 470 us.
    table = table.filter(pc.invert(pc.match_substring(table["kernel_source"], "BlockScaledMM")))
    rows = _columns(table, {"m": "m", "n": "n", "k": "k"})
    rows = _pick(rows, (rows["m"] <= _ALIGNED_ROWS) | (rows["m"] % 16 == 0))
    work = kernel_work.gemm_work(rows["m"], rows["n"], rows["k"], dtype)
    return fastest(_from_memory(rows, work, device))  # all engines measured nearly all points


def prefill_attention(root: Path, device: DeviceProfile) -> Columns:
    """Columns batch, tokens, heads, kv_heads, head_dim, window, t; bf16."""
    table = _where(_read(root, PREFILL), attn_dtype="bfloat16", kv_cache_dtype="bfloat16")
    rows = _common_groups(_columns(table, _ATTENTION))
    rows = _pick(rows, rows["window"] != _CHUNKED)
    b, s, a, g = rows["batch"], rows["tokens"], rows["heads"], rows["kv_heads"]
    work = kernel_work.prefill_attention_work(b, s, a, g, 1)
    only_bytes = Work(np.zeros_like(work.flop), work.nbytes * rows["head_dim"])
    return _fastest_attention(_from_memory(rows, only_bytes, device), "tokens", "heads")


def decode_attention(root: Path, device: DeviceProfile, kv_dtype: Any) -> Columns:
    """Columns context, batch, heads, kv_heads, head_dim, window, t."""
    table = _where(_read(root, DECODE), kv_cache_dtype=_cache_name(kv_dtype))
    rows = _common_groups(_with_context(_columns(table, {**_ATTENTION, "step": "step"})))
    rows = _pick(rows, rows["window"] != _CHUNKED)
    read = np.where(
        rows["window"] > 0, np.minimum(rows["context"], rows["window"]), rows["context"]
    )
    work = kernel_work.decode_attention_work(
        rows["batch"], read, rows["heads"], rows["kv_heads"], 1, kv_dtype
    )
    only_bytes = Work(np.zeros_like(work.flop), work.nbytes * rows["head_dim"])
    return _fastest_attention(_from_memory(rows, only_bytes, device), "context", "kv_heads")


def mla_prefill(root: Path, device: DeviceProfile) -> Columns:
    """Columns batch, tokens, heads, t: the attention core without projections."""
    table = _where(_read(root, MLA_PREFILL), kv_cache_dtype="bfloat16")
    rows = _columns(table, {"batch_size": "batch", "isl": "tokens", "num_heads": "heads"})
    work = kernel_work.mla_prefill_work(rows["batch"], rows["tokens"], rows["heads"])
    rows = _from_memory(rows, work, device)
    return fastest_where_known(rows, [rows["batch"], rows["heads"]], rows["tokens"])


def mla_decode(root: Path, device: DeviceProfile, kv_dtype: Any) -> Columns:
    """Columns batch, context, heads, t: the attention core without projections."""
    table = _where(_read(root, MLA_DECODE), kv_cache_dtype=_cache_name(kv_dtype))
    names = {"batch_size": "batch", "isl": "tokens", "step": "step", "num_heads": "heads"}
    rows = _with_context(_columns(table, names))
    work = kernel_work.mla_decode_work(rows["batch"], rows["context"], rows["heads"], kv_dtype)
    rows = _from_memory(rows, work, device)
    return fastest_where_known(rows, [rows["batch"], rows["heads"]], rows["context"])


def mla_absorb(root: Path, device: DeviceProfile) -> Columns:
    """Columns tokens, heads, t: the sum of the two batched products, bf16."""
    table = _where(_read(root, MLA_ABSORB), bmm_dtype="bfloat16")
    names = {"num_tokens": "tokens", "num_heads": "heads"}
    before = fastest(_columns(_where(table, op_name="mla_gen_pre"), names))
    after = fastest(_columns(_where(table, op_name="mla_gen_post"), names))
    times = dict(zip(zip(after["tokens"], after["heads"], strict=True), after["t"], strict=True))
    points = zip(before["tokens"], before["heads"], strict=True)
    both = before["t"] + np.array([times.get(point, np.nan) for point in points])
    rows = _pick({**before, "t": both}, ~np.isnan(both))
    work = kernel_work.mla_absorb_work(rows["tokens"], rows["heads"])
    return _from_memory(rows, work, device)


def moe(root: Path, device: DeviceProfile, dtype: Any) -> Columns:
    """Columns hidden, inner, top_k, experts, tp, ep, tokens, t; gated experts, power law 1.01."""
    table = _read(root, MOE)
    table = table.filter(pc.is_in(table["moe_dtype"], pa.array(_names(dtype))))
    table = _where(table, distribution="power_law_1.01")
    table = table.filter(pc.invert(pc.match_substring(table["kernel_source"], "nongated")))
    rows = _columns(
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
    plain = (rows["top_k"] == 22) | ((rows["hidden"] == 2688) & (rows["inner"] == 1856))
    rows = _pick(rows, ~plain)
    sizes = [rows[name] for name in _SHAPE]
    work = kernel_work.moe_work(rows["tokens"], *sizes, dtype)  # type: ignore[call-arg, arg-type]
    rows = _from_memory(rows, work, device)
    points = fastest_where_known(rows, [rows[name] for name in _SHAPE], rows["tokens"])
    # A finer split of the experts never costs more: removes benches of one slow engine.
    for finer in ("ep", "tp"):
        points["t"] = _running_minimum(points, finer)
    # Nor do fewer tokens: removes badly chosen tiles at single sizes.
    points["t"] = _running_minimum(points, "tokens", falling=True)
    return points


def collective(root: Path, device: DeviceProfile, kind: str) -> Columns:
    """Columns devices, nbytes, t of an NCCL collective; the fastest NCCL version."""
    name = "alltoall" if kind == "all_to_all" else kind
    points = _messages(_where(_read(root, NCCL), nccl_dtype="half", op_name=name))
    # A smaller message never takes longer: removes single slow measurements.
    points["t"] = _running_minimum(points, "nbytes", falling=True)
    n = points["devices"]
    bus = points["nbytes"] * kernel_work.collective_factor(kind, n) / points["t"]
    keep = np.ones(len(n), dtype=bool)
    for count in np.unique(n):
        largest = (n == count) & (points["nbytes"] == points["nbytes"][n == count].max())
        if bus[largest].max() < _MIN_BUS_SHARE * device.scale_up_bandwidth_bytes_per_s:
            keep &= n != count
    return _pick(points, keep)


def all_reduce_graph(root: Path) -> Columns:
    """Columns devices, nbytes, t of the engines' all-reduce, replayed from a CUDA graph."""
    table = _read(root, ALL_REDUCE)
    table = table.filter(pc.invert(pc.match_substring(table["kernel_source"], "eager")))
    return _messages(table)


def _paths(root: Path, name: str) -> list[Path]:
    """Tables called `name` of the system whose folder is `root`, without the faulty ones."""
    return [
        path
        for path in sorted(root.glob(f"*/*/*/{name}"))
        if (root.name, name, path.parts[-3]) not in _FAULTY
        and (name != NCCL or path.parts[-3] == "nccl")
    ]


def _read(root: Path, name: str) -> pa.Table:
    """All rows of the tables called `name`, with a number for each engine, kernel and dtype."""
    tables = []
    for number, path in enumerate(_paths(root, name)):
        table = pq.read_table(path)
        label = pa.array([str(number)] * len(table))
        for part in ("kernel_source", "gemm_dtype", "moe_dtype"):
            if part in table.column_names:
                label = pc.binary_join_element_wise(
                    label, pc.fill_null(table[part].combine_chunks().cast(pa.string()), ""), "/"
                )
        tables.append(table.append_column("engine", label))
    table = pa.concat_tables(tables, promote_options="permissive")
    codes = table["engine"].combine_chunks().dictionary_encode().indices
    table = table.drop_columns("engine").append_column("engine", codes)
    if name in (PREFILL, DECODE):  # older engines have no windows and no such column
        if "window_size" in table.column_names:
            window = pc.fill_null(table["window_size"], 0)
            table = table.drop_columns("window_size")
        else:
            window = pa.nulls(len(table), pa.int64()).fill_null(0)
        table = table.append_column("window_size", window)
    return table


def _where(table: pa.Table, **equal: str) -> pa.Table:
    for name, value in equal.items():
        table = table.filter(pc.equal(table[name], value))
    return table


def _columns(table: pa.Table, names: dict[str, str]) -> Columns:
    """The named columns under our names, and t in seconds."""
    columns = {
        ours: np.asarray(table[name].to_numpy(), dtype=np.float64) for name, ours in names.items()
    }
    columns["engine"] = np.asarray(table["engine"].to_numpy(), dtype=np.float64)
    columns["t"] = np.asarray(table["latency"].to_numpy(), dtype=np.float64) * 1e-3
    return _pick(columns, columns["t"] > 0)


def _messages(table: pa.Table) -> Columns:
    points = fastest(_columns(table, {"num_gpus": "devices", "message_size": "nbytes"}))
    return {**points, "nbytes": points["nbytes"] * _HALF_BYTES}


def _names(dtype: str) -> list[str]:
    return [name for name, ours in DTYPES.items() if ours == dtype]


def _cache_name(kv_dtype: str) -> str:
    return "bfloat16" if kv_dtype == "bf16" else kv_dtype


def _with_context(rows: Columns) -> Columns:
    """Replaces tokens and step by the context: tokens already cached plus the new one."""
    context = rows["tokens"] + rows["step"]
    rest = {name: column for name, column in rows.items() if name not in ("tokens", "step")}
    return {"context": context, **rest}


def _common_groups(rows: Columns) -> Columns:
    """Leaves out more than 32 query heads a KV head: no model, and only slow fallbacks ran it."""
    return _pick(rows, rows["heads"] <= _MAX_GROUP * rows["kv_heads"])


def _from_memory(rows: Columns, work: Work, device: DeviceProfile) -> Columns:
    """Leaves out rows whose data came from the cache, which it does not in a whole model."""
    fastest = work.nbytes / (_BEST_BANDWIDTH_SHARE * device.memory_bandwidth_bytes_per_s)
    return without_cached(rows, (rows["t"] < fastest) & (work.nbytes <= _CACHE_BYTES))


def _fastest_attention(rows: Columns, length: str, each: str) -> Columns:
    """Equal work: head size, window, sequences x heads, heads a KV head and length agree."""
    line = [rows["head_dim"], rows["window"], rows["batch"] * rows[each]]
    return fastest_where_known(rows, [*line, rows["heads"] / rows["kv_heads"]], rows[length])


def _running_minimum(points: Columns, along: str, falling: bool = False) -> npt.NDArray[np.float64]:
    """Times replaced by the least time at the same or a smaller (falling: larger) `along`."""
    others = [name for name in points if name not in (along, "t")]
    direction = -1 if falling else 1
    order = np.lexsort([direction * points[along], *(points[name] for name in others)])
    times = points["t"][order].copy()
    same = np.ones(max(len(order) - 1, 0), dtype=bool)
    for name in others:
        same &= points[name][order][1:] == points[name][order][:-1]
    for row in np.flatnonzero(same) + 1:
        times[row] = min(times[row], times[row - 1])
    result = np.empty_like(times)
    result[order] = times
    return result
