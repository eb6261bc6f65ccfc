"""Measured peaks, breakdowns and out-of-memory facts as cases."""

from __future__ import annotations

from typing import Any

from planner.catalog.frameworks import load_framework
from planner.catalog.hardware import load_device
from planner.errors import InputError
from planner.measure import memory_golden_cases
from planner.measure.case import Prediction, RawCase, Reader, Scored
from planner.measure.memory_core import (
    STATE,
    TrainingRun,
    peak_parts,
    with_constants,
    with_strategy,
)
from planner.measure.memory_verdict import fits_score
from planner.measure.profiles import training_profile
from planner.measure.recomputation import Mix, recomputation
from planner.measure.shapes import device_id, model_spec
from planner.schema import FrameworkProfile, ModelSpec, Strategy
from planner.schema.hardware import DType

_GIB = 2.0**30
# Start of `source` -> what a user of that software knows: framework, layers, and what it reports
# as its peak (bytes in tensors, bytes that the allocator reserved, or what the driver shows).
_SOURCES: dict[str, tuple[str, str, str]] = {
    "PrimeIntellect-ai/prime-rl": ("prime-rl", "eager", "allocated"),
    "pytorch/torchtitan": ("torchtitan", "compiled", "reserved"),
    "InternLM/InternEvo": ("internevo", "fused", "driver"),
    "arXiv 2205.05198": ("megatron-lm", "fused", "allocated"),
    "NVIDIA-NeMo/Megatron-Bridge": ("megatron-bridge", "fused", "allocated"),
}
_DTYPES: dict[str, DType] = {
    "bf16": "bf16",
    "fp16 mixed": "bf16",
    "fp16": "bf16",
    "fp8": "fp8",
    "fp8 linear": "bf16",  # weights, gradients and kept activations stay in bf16
    "nvfp4": "fp4",
}
_ATTENTION = {
    "flash_attention_2": "flash2",
    "flash_attention_3": "flash3",
    "sdpa": "sdpa-flash2",
    "unfused": "unfused",
}
# PyTorch's per-operator policy keeps a layer's input, the attention output and every second
# product: for a gated feed-forward about this share of what lies between full and none.
_PER_OPERATOR_KEPT = 0.35
_SHARDING = (None, False, True, "FULL_SHARD", "FSDP2", "FSDP2 full shard")
_NEEDED = ("n_gpus", "micro_batch", "seq_len", "zero_stage", "recompute")
_RAN = {"fits": True, "OOM": False, "does not fit 80 GB (analytic in the paper)": False}
_MODES = {
    "tp_only": (False, "none"),
    "sequence_parallel": (True, "none"),
    "selective_recompute": (False, "selective"),
    "sp_plus_selective": (True, "selective"),
    "full_recompute": (False, "full"),
}
"""Name in a table of relative activations -> (sequence parallel, recompute)."""


def _recognises(case: RawCase) -> bool:
    return "outcome" in case and "mem_breakdown_gib" in case


def predict(case: RawCase) -> Prediction:
    """Peak, itemised, and the verdict, of the fullest pipeline stage."""
    if case.get("megatron_args"):
        return memory_golden_cases.predict(memory_golden_cases.from_table(case))
    where = f"case {case['id']}"
    framework, elementwise, kind = _source(case, where)
    profile = _profile(case, framework, elementwise, where)
    model = model_spec(_shape(case["model"]), where)
    scores: list[Scored]
    if case["outcome"] == "relative":
        scores = _relative(case, profile, where)
    else:
        run, mix = read_memory_case(case)
        whole = _mixed(run, mix)
        scores = [*_peaks(case, run, mix, kind, whole), _fits(case, run, whole, where)]
    name = f"{framework} / {model.name} / {case['gpu']}"
    batch = "/".join(str(case.get(key)) for key in ("n_gpus", "seq_len", "global_batch", "lora"))
    return Prediction(
        group=name,
        strategy_group=f"{name} / {batch} / {case.get('trainer')}",
        framework=profile.name,
        scores=tuple(scores),
    )


def read_memory_case(case: RawCase) -> tuple[TrainingRun, list[tuple[float, Strategy]]]:
    """The run that a case describes, and the strategies that its recomputation mixes.

    Raises InputError for what the case lacks ("set X") or spells in an unknown way.
    """
    where = f"case {case['id']}"
    framework, elementwise, _ = _source(case, where)
    profile = _profile(case, framework, elementwise, where)
    model = model_spec(_shape(case["model"]), where)
    missing = _missing(case)
    if missing:
        raise InputError(
            "memory cannot be decided", where=where, remedy=f"Set {', '.join(missing)}."
        )
    tp, pp, cp = (int(case.get(key) or 1) for key in ("tp", "pp", "cp"))
    dp = int(case.get("dp") or case["n_gpus"] // (tp * pp * cp))
    micro = int(case["micro_batch"])
    mix = _recomputed(case["recompute"], framework, pp, model, where)
    profile = with_constants(profile, {"activations_on_host": float(mix.on_host)})
    strategy = Strategy(
        tp=tp,
        pp=pp,
        cp=cp,
        vpp=int(case.get("vpp") or 1),
        ep=int(case.get("ep") or 1),
        etp=int(case.get("etp") or 1),
        dp=dp,
        zero_stage=int(case["zero_stage"]),
        sequence_parallel=bool(case.get("sequence_parallel")),
        micro_batch_sequences=micro,
        packing=False,
        dtype=_dtype(case, where),
    )
    # Enough microbatches to fill the pipeline where the case does not count them.
    batch = case.get("global_batch") or dp * micro * pp
    run = TrainingRun(
        model=model,
        strategy=strategy,
        profile=profile,
        device=device_id(case["gpu"], where),
        devices_per_node=min(8, strategy.devices),
        tokens=int(case["seq_len"]),
        microbatches=max(int(batch) // (dp * micro), 1),
        lora_rank=int(case.get("lora") or 0),
    )
    return run, [
        (share, strategy.model_copy(update={"recompute": name})) for share, name in mix.shares
    ]


def _missing(case: RawCase) -> list[str]:
    return [field for field in _NEEDED if case.get(field) is None]


def _lacks(case: RawCase) -> str | None:
    missing = ["n_gpus"] if case.get("megatron_args") else _missing(case)
    return f"unknown: set {', '.join(missing)}" if missing else None


def _source(case: RawCase, where: str) -> tuple[str, str, str]:
    for start, known in _SOURCES.items():
        if str(case["source"]).strip().startswith(start):
            return known
    if str(case["source"]).strip() == "same" and str(case.get("fsdp")).startswith("FSDP2"):
        # A row that refers to the one before it: the sharding alone names the software.
        return "torchtitan", "compiled", "reserved"
    raise InputError(f"unknown software {case['source']!r}", where=f"{where}: source")


def _profile(case: RawCase, framework: str, elementwise: str, where: str) -> FrameworkProfile:
    attention = case.get("attention") or ("unfused" if framework == "megatron-lm" else "sdpa")
    if attention not in _ATTENTION:
        raise InputError(f"unknown attention {attention!r}", where=where)
    if case.get("fsdp") not in _SHARDING:
        raise InputError(f"unknown sharding {case['fsdp']!r}", where=f"{where}: fsdp")
    if str(case.get("notes")).startswith("eager"):
        elementwise = "eager"
    setup = {
        "framework": framework,
        "attention_kernel": _ATTENTION[attention],
        "elementwise": elementwise,
    }
    device = load_device(device_id(case["gpu"], where))
    name = training_profile(setup, device)
    if name == "internevo" and case.get("fsdp"):
        name = "internevo-fsdp"
    if name == "torchtitan" and int(case.get("tp") or 1) > 1:
        name = "torchtitan-loss-parallel"
    trainer = case.get("trainer")
    if trainer not in (None, "rl", "sft"):
        raise InputError(f"unknown trainer {trainer!r}", where=where)
    return load_framework("prime-rl-sft" if trainer == "sft" else name)


def _recomputed(text: str, framework: str, pp: int, model: ModelSpec, where: str) -> Mix:
    if text == "selective (per-op)" or (text == "selective" and framework == "torchtitan"):
        return Mix(((_PER_OPERATOR_KEPT, "none"), (1.0 - _PER_OPERATOR_KEPT, "full")))
    return recomputation(text, framework, pp, model, where)


def _dtype(case: RawCase, where: str) -> DType:
    if case["dtype"] not in _DTYPES:
        raise InputError(f"unknown dtype {case['dtype']!r}", where=where)
    return _DTYPES[case["dtype"]]


def _shape(shape: dict[str, Any]) -> dict[str, Any]:
    """Feed-forward names with a remark in brackets, without it."""
    return {**shape, "mlp": str(shape["mlp"]).split(" (")[0]}


def _mixed(run: TrainingRun, mix: list[tuple[float, Strategy]]) -> dict[str, float]:
    """Itemised peak; layers of different recomputation add up in their shares."""
    total: dict[str, float] = {}
    for share, strategy in mix:
        parts = peak_parts(with_strategy(run, recompute=strategy.recompute))
        for name, value in parts.items():
            total[name] = total.get(name, 0.0) + share * value
    return total


def _peaks(
    case: RawCase,
    run: TrainingRun,
    mix: list[tuple[float, Strategy]],
    kind: str,
    whole: dict[str, float],
) -> list[Scored]:
    """The published peak, or the published breakdown's sum for the first stage."""
    if case.get("peak_mem_gib") is not None:
        reported = _reported(run.profile, kind, sum(whole.values()))
        return [Scored("peak_memory", case["peak_mem_gib"] * _GIB, reported, whole)]
    published = case.get("mem_breakdown_gib")
    if not published:
        return []
    parts = peak_parts(with_strategy(run, recompute=mix[0][1].recompute), "first")
    names = {"params_grads_optimizer": STATE, "activations": ("activations",)}
    unknown = set(published) - set(names)
    if unknown:
        raise InputError(f"unknown items {sorted(unknown)}", where=f"case {case['id']}")
    items = {name: sum(parts[part] for part in names[name]) for name in published}
    return [Scored("peak_memory", sum(published.values()) * _GIB, sum(items.values()), items)]


def _reported(profile: FrameworkProfile, kind: str, allocated: float) -> float:
    """What the source calls its peak, from bytes in tensors."""
    if kind == "allocated":
        return allocated
    reserved = allocated * profile.value("fragmentation_factor")
    if kind == "reserved":
        return reserved
    return reserved + profile.value("device_reserve_bytes") + profile.value("nccl_bytes")


def _fits(case: RawCase, run: TrainingRun, whole: dict[str, float], where: str) -> Scored:
    if case["outcome"] not in _RAN:
        raise InputError(f"unknown outcome {case['outcome']!r}", where=where)
    return fits_score(run, sum(whole.values()), ran=_RAN[case["outcome"]])


def _relative(case: RawCase, profile: FrameworkProfile, where: str) -> list[Scored]:
    """Activations relative to tensor parallelism alone, in bytes of the predicted whole."""
    table = case["relative_activation_pct"]
    unknown = set(table) - set(_MODES)
    if unknown or "tp_only" not in table:
        raise InputError(f"unknown modes {sorted(unknown)}", where=where)
    tp = int(case["tp"])
    run = TrainingRun(
        model=model_spec(_shape(case["model"]), where),
        strategy=Strategy(tp=tp, packing=False),
        profile=profile,
        device=device_id(case["gpu"], where),
        devices_per_node=tp,
        tokens=int(case["seq_len"]),
        microbatches=1,
    )
    found = {}
    for mode in table:
        parallel, recompute = _MODES[mode]
        parts = peak_parts(with_strategy(run, sequence_parallel=parallel, recompute=recompute))
        found[mode] = parts["activations"]
    whole = found["tp_only"]
    return [
        Scored("peak_memory", pct / 100.0 * whole, found[mode], {"activations": found[mode]})
        for mode, pct in table.items()
        if mode != "tp_only"
    ]


READER = Reader("memory", _recognises, predict, metric="peak_memory", lacks=_lacks)
