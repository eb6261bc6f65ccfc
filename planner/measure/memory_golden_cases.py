"""Golden values of Megatron-LM's tests as cases: memory of the last rank, from launch arguments."""

from __future__ import annotations

import re
from math import gcd
from typing import Any

from planner.catalog.frameworks import load_framework
from planner.errors import InputError
from planner.measure.case import Prediction, RawCase, Reader, Scored
from planner.measure.memory_core import TrainingRun, peak_parts, with_constants
from planner.measure.memory_verdict import fits_score
from planner.measure.shapes import device_id
from planner.schema import MLASpec, ModelSpec, MoESpec, Strategy

PROFILE = "megatron-ci"
_GIB = 2.0**30
# The recipes of the tests (tests/test_utils/recipes) run them on one node of eight devices, or on
# two of four; cases that give no count ran so.
_DEVICES = {
    **dict.fromkeys(("A100-SXM-80GB", "H100-SXM-80GB", "H200-SXM-141GB", "B200-SXM-180GB"), (8, 8)),
    **dict.fromkeys(("GB200", "GB200-NVL72-186GB", "GB300", "GB300-NVL72-288GB"), (8, 4)),
}
_NAMES = {"GB200": "GB200-NVL72-186GB", "GB300": "GB300-NVL72-288GB"}
# Megatron-LM's defaults (megatron/training/arguments.py); the tests' own tokenizer is GPT-2's.
_GPT2_VOCABULARY = 50257
_VOCABULARY = {
    "TikTokenizer": 131072,
    "Llama2Tokenizer": 32000,
    "GPTSentencePieceTokenizer": 256000,  # the tests' nemotron_2_256k.model
}
_ALIGNMENT = 128
_PROBABILITY_BYTES = 2.0  # without dropout attention keeps bf16 probabilities alone
_KNOWN = {
    *("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size"),
    *("expert-model-parallel-size", "expert-tensor-parallel-size", "use-distributed-optimizer"),
    *("num-layers-per-virtual-pipeline-stage", "pipeline-model-parallel-layout"),
    *("sequence-parallel", "micro-batch-size", "global-batch-size", "seq-length", "train-iters"),
    *("num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "kv-channels"),
    *("group-query-attention", "num-query-groups", "swiglu", "vocab-size", "tokenizer-type"),
    *("make-vocab-size-divisible-by", "untie-embeddings-and-output-weights"),
    *("multi-latent-attention", "q-lora-rank", "kv-lora-rank", "qk-head-dim"),
    *("qk-pos-emb-head-dim", "v-head-dim", "mtp-num-layers", "bf16", "fp16"),
    *("num-experts", "moe-router-topk", "moe-layer-freq", "moe-ffn-hidden-size"),
    *("moe-shared-expert-intermediate-size", "moe-token-dispatcher-type"),
    *("recompute-granularity", "recompute-method", "recompute-num-layers", "recompute-modules"),
    *("attention-backend", "use-flash-attn", "attention-softmax-in-fp32", "transformer-impl"),
    *("cross-entropy-loss-fusion", "cuda-graph-impl", "fp8-format", "fp8-recipe", "optimizer"),
    *(
        "use-megatron-fsdp",
        "data-parallel-sharding-strategy",
        "num-distributed-optimizer-instances",
    ),
    *("num-virtual-stages-per-pipeline-rank", "decoder-first-pipeline-num-layers"),
    *("decoder-last-pipeline-num-layers", "account-for-embedding-in-pipeline-split"),
    *("account-for-loss-in-pipeline-split", "attention-dropout", "hidden-dropout"),
}
# Arguments that change no tensor that is kept.
_HARMLESS = re.compile(
    r"overlap-.*|no-.*|moe-router-.*|moe-aux-loss-coeff|moe-grouped-gemm|moe-permute-fusion|"
    r"position-embedding-type|rotary-.*|normalization|norm-epsilon|qk-layernorm|squared-relu|"
    r"disable-bias-linear|apply-layernorm-1p|calculate-per-token-loss|deterministic-mode|"
    r"max-position-embeddings|seed|lr.*|min-lr|weight-decay|clip-grad|ckpt-.*|dist-ckpt-.*|"
    r"async-save|init-method-std|tp-comm-overlap|use-mcore-models"
)
_FREQUENCY = re.compile(r"\(\[0\]\*(\d+)\+\[1\]\*(\d+)\)")
_LAYOUT = re.compile(r"\(([^()]*)\)\*(\d+)|([A-Za-z])\*(\d+)|([A-Za-z|])")


def _recognises(case: RawCase) -> bool:
    return "mem_max_allocated_gib" in case and isinstance(case.get("args"), dict)


def _complete(case: RawCase) -> bool:
    """Release runs span several nodes that the case does not count, and tests that start from a
    frozen checkpoint hold an inference engine whose cache is not given."""
    counted = case.get("nodes") is not None
    return case["test_type"] != "frozen-start" and (case["test_type"] != "release" or counted)


def from_table(case: RawCase) -> RawCase:
    """The golden form of a row of a table of peaks that carries `megatron_args`.

    Raises InputError when the row does not count its devices.
    """
    if case.get("n_gpus") is None:
        where = f"case {case['id']}"
        raise InputError("memory cannot be decided", where=where, remedy="Set n_gpus.")
    per_node = min(_DEVICES.get(case["gpu"], (8, 8))[1], case["n_gpus"])
    return {
        "id": case["id"],
        "gpu": case["gpu"],
        "nodes": case["n_gpus"] // per_node,
        "gpus_per_node": per_node,
        "env": "lts" if "golden_values_lts" in str(case["source"]) else "dev",
        "args": case["megatron_args"],
        "mem_max_allocated_gib": case["peak_mem_gib"],
    }


def predict(case: RawCase) -> Prediction:
    """Peak of the last pipeline stage, and whether it fits."""
    where = f"case {case['id']}"
    run = read_golden_case(case)
    parts = peak_parts(run, "last")
    measured = case["mem_max_allocated_gib"] * _GIB
    predicted = sum(parts.values())
    whole = sum(peak_parts(run).values())
    return Prediction(
        group=f"Megatron-LM CI / {run.model.name} / {case['gpu']}",
        strategy_group=f"{where}",
        framework=run.profile.name,
        scores=(
            Scored("peak_memory", measured, predicted, parts),
            fits_score(run, whole, ran=True),
        ),
    )


def read_golden_case(case: RawCase) -> TrainingRun:
    """The run that the arguments describe; InputError for an argument that it does not know."""
    where = f"case {case['id']}"
    args = case["args"]
    unknown = {name for name in args if name not in _KNOWN and not _HARMLESS.fullmatch(name)}
    if unknown:
        raise InputError(f"unknown arguments {sorted(unknown)}", where=f"{where}: args")
    if case["gpu"] not in _DEVICES:
        raise InputError(f"unknown device {case['gpu']!r}", where=f"{where}: gpu")
    total, per_node = _DEVICES[case["gpu"]]
    if case["nodes"] is not None:
        per_node = case["gpus_per_node"]
        total = case["nodes"] * per_node
    tp, pp, cp = (
        int(args.get(f"{name}-parallel-size", 1))
        for name in ("tensor-model", "pipeline-model", "context")
    )
    dp, left = divmod(total, tp * pp * cp)
    if left or not dp:
        raise InputError(f"tp {tp} x pp {pp} x cp {cp} do not divide {total} devices", where=where)
    micro = int(args["micro-batch-size"])
    # Megatron-LM refuses a global batch that is no multiple of micro batch x data-parallel ranks:
    # a test with a smaller batch runs on fewer devices.
    dp = gcd(dp, int(args.get("global-batch-size", micro * dp)) // micro)
    chunks = _chunks(args, pp, where)
    per_rank = [sum(chunks[rank::pp]) for rank in range(pp)]
    uneven = len(set(per_rank)) > 1
    strategy = Strategy(
        tp=tp,
        pp=pp,
        cp=cp,
        vpp=len(chunks) // pp,
        ep=int(args.get("expert-model-parallel-size", 1)),
        etp=int(args.get("expert-tensor-parallel-size", tp)) if "num-experts" in args else 1,
        dp=dp,
        zero_stage=_zero_stage(args, where),
        sequence_parallel=bool(args.get("sequence-parallel")) and tp > 1,
        micro_batch_sequences=micro,
        packing=False,
        recompute=_recompute(args, where),
        first_stage_layers=per_rank[0] if uneven else 0,
        last_stage_layers=per_rank[-1] if uneven else 0,
        dtype="fp8" if args.get("fp8-format") else "bf16",
    )
    return TrainingRun(
        model=_model(args, where),
        strategy=strategy,
        profile=with_constants(
            load_framework(_profile(case, args)), _options(case, args, dp * cp, where)
        ),
        device=device_id(str(_NAMES.get(case["gpu"], case["gpu"])), where),
        devices_per_node=per_node,
        tokens=int(args["seq-length"]),
        microbatches=max(int(args.get("global-batch-size", micro * dp)) // (micro * dp), 1),
    )


def _profile(case: RawCase, args: dict[str, Any]) -> str:
    if args.get("fp16"):
        return f"{PROFILE}-fp16"
    return f"{PROFILE}-ampere" if case["gpu"].startswith("A100") else PROFILE


def _options(case: RawCase, args: dict[str, Any], ranks: int, where: str) -> dict[str, float]:
    """Constants of the profile that the arguments choose among."""
    dispatcher = args.get(
        "moe-token-dispatcher-type", "allgather" if args.get("num-experts") else None
    )
    if dispatcher not in (None, "allgather", "alltoall", "flex"):
        raise InputError(f"unknown token dispatcher {dispatcher!r}", where=f"{where}: args")
    values: dict[str, float] = {
        "attention_unfused": float(_unfused(case, args, where)),
        "dispatch_gathers_tokens": float(dispatcher == "allgather"),
    }
    instances = int(args.get("num-distributed-optimizer-instances") or 1)
    if instances > 1:
        values["zero_shard_ranks"] = max(ranks // instances, 1)
    if args.get("hidden-dropout") == 0:
        values["dropout_mask_bytes"] = 0.0
    if args.get("attention-dropout") == 0:
        values["unfused_score_bytes"] = _PROBABILITY_BYTES
    if args.get("mtp-num-layers"):
        heads = 1 + int(args["mtp-num-layers"])
        values["logits_train_bytes"] = heads * load_framework(PROFILE).value("logits_train_bytes")
    return values


def _unfused(case: RawCase, args: dict[str, Any], where: str) -> bool:
    backend = args.get("attention-backend")
    if backend not in (None, "unfused", "flash", "fused", "local", "auto"):
        raise InputError(f"unknown attention backend {backend!r}", where=f"{where}: args")
    if args.get("transformer-impl") == "local" and not args.get("use-flash-attn"):
        return True
    # In deterministic mode, which the tests of experts set, the long-term-support release's
    # Transformer Engine has no fused kernel.
    asked = backend is not None or args.get("use-flash-attn")
    deterministic = case.get("env") == "lts" and "num-experts" in args and not asked
    return deterministic or backend in ("unfused", "local")


def _zero_stage(args: dict[str, Any], where: str) -> int:
    if args.get("use-megatron-fsdp"):
        strategy = args.get("data-parallel-sharding-strategy", "no_shard")
        stages = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
        if strategy not in stages:
            raise InputError(f"unknown sharding strategy {strategy!r}", where=f"{where}: args")
        return stages[strategy]
    return 1 if args.get("use-distributed-optimizer") else 0


def _recompute(args: dict[str, Any], where: str) -> Any:
    kind = args.get("recompute-granularity")
    if kind is None:
        return "none"
    if kind not in ("selective", "full"):
        raise InputError(f"unknown recompute granularity {kind!r}", where=f"{where}: args")
    return kind


def _model(args: dict[str, Any], where: str) -> ModelSpec:
    hidden, heads = int(args["hidden-size"]), int(args["num-attention-heads"])
    gated = bool(args.get("swiglu"))
    # Without a width, two thirds of 4 h in multiples of 64 when gated, else 4 h.
    default = int(4 * hidden * 2 / 3) // 64 * 64 if gated else 4 * hidden
    ffn = int(args.get("ffn-hidden-size") or default)
    mla = None
    if args.get("multi-latent-attention"):
        mla = MLASpec(
            q_lora_rank=args.get("q-lora-rank"),
            kv_lora_rank=args["kv-lora-rank"],
            qk_nope_head_dim=args["qk-head-dim"],
            qk_rope_head_dim=args["qk-pos-emb-head-dim"],
            v_head_dim=args["v-head-dim"],
        )
    groups = (
        int(args.get("num-query-groups", heads)) if args.get("group-query-attention") else heads
    )
    mtp = int(args.get("mtp-num-layers") or 0)
    layers = int(args["num-layers"]) + mtp
    return ModelSpec(
        name=f"{layers} x {hidden}" + (" moe" if args.get("num-experts") else ""),
        architecture="custom",
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads if mla else groups,
        head_dim=(
            mla.qk_nope_head_dim + mla.qk_rope_head_dim
            if mla
            else int(args.get("kv-channels") or hidden // heads)
        ),
        ffn_size=ffn,
        vocab_size=_vocabulary(args, where),
        tie_embeddings=not args.get("untie-embeddings-and-output-weights"),
        mlp="gated" if gated else "plain",
        attention="mla" if mla else "gqa",
        norm_bias=True,
        mla=mla,
        moe=_experts(args, ffn, where),
    )


def _experts(args: dict[str, Any], ffn: int, where: str) -> MoESpec | None:
    if not args.get("num-experts"):
        return None
    frequency = str(args.get("moe-layer-freq", 1))
    found = _FREQUENCY.fullmatch(frequency)
    if found is None and frequency != "1":
        raise InputError(f"unknown moe-layer-freq {frequency!r}", where=f"{where}: args")
    return MoESpec(
        num_experts=args["num-experts"],
        top_k=args["moe-router-topk"],
        expert_ffn_size=args.get("moe-ffn-hidden-size") or ffn,
        shared_ffn_size=args.get("moe-shared-expert-intermediate-size") or 0,
        first_dense_layers=int(found[1]) if found else 0,
    )


def _vocabulary(args: dict[str, Any], where: str) -> int:
    kind = args.get("tokenizer-type")
    if args.get("vocab-size"):
        size = int(args["vocab-size"])
    elif kind in (None, "GPT2BPETokenizer"):
        size = _GPT2_VOCABULARY
    elif kind in _VOCABULARY:
        size = _VOCABULARY[kind]
    else:
        raise InputError(f"no vocabulary is given for {kind}", where=f"{where}: args")
    block = int(args.get("make-vocab-size-divisible-by", _ALIGNMENT))
    block *= int(args["tensor-model-parallel-size"])
    return -(-size // block) * block


def _chunks(args: dict[str, Any], pp: int, where: str) -> list[int]:
    """Layers of each virtual stage in model order; a prediction layer counts as one."""
    layers, mtp = int(args["num-layers"]), int(args.get("mtp-num-layers") or 0)
    layout = args.get("pipeline-model-parallel-layout")
    if layout:
        text = "".join(
            (m[1] or m[3] or m[5]) * int(m[2] or m[4] or 1) for m in _LAYOUT.finditer(str(layout))
        )
        chunks = [stage.count("t") + stage.count("m") for stage in text.split("|")]
        if len(chunks) % pp or sum(chunks) != layers + mtp:
            raise InputError(f"cannot read the layout {layout!r}", where=f"{where}: args")
        return chunks
    virtual = int(args.get("num-layers-per-virtual-pipeline-stage") or 0)
    vpp = int(args.get("num-virtual-stages-per-pipeline-rank") or 0)
    vpp = vpp or (layers // pp // virtual if virtual and pp > 1 else 1)
    chunks = _split(args, layers, pp, vpp, where)
    chunks[-1] += mtp
    return chunks


def _split(args: dict[str, Any], layers: int, pp: int, vpp: int, where: str) -> list[int]:
    """Layers of pp x vpp virtual stages when no layout is written out."""
    first = args.get("decoder-first-pipeline-num-layers")
    last = args.get("decoder-last-pipeline-num-layers")
    ranks = [first, *[None] * (pp - 2), last] if pp > 1 else [None]
    given = [int(one) for one in ranks if one]
    if given:
        rest, left = divmod(layers - sum(given), max(pp - len(given), 1))
        counts = [int(one) if one else rest for one in ranks]
        if left or any(one % vpp for one in counts):
            raise InputError(f"{layers} layers do not divide as given", where=where)
        return [counts[rank] // vpp for _ in range(vpp) for rank in range(pp)]
    # Megatron-LM may count embedding and loss as a layer each.
    embedding = bool(args.get("account-for-embedding-in-pipeline-split"))
    loss = bool(args.get("account-for-loss-in-pipeline-split"))
    whole, left = divmod(layers + embedding + loss, pp * vpp)
    if left and not embedding and not loss:
        embedding = loss = True
        whole, left = divmod(layers + 2, pp * vpp)
    if left:
        raise InputError(f"{layers} layers do not divide into {pp * vpp} stages", where=where)
    chunks = [whole] * (pp * vpp)
    chunks[0] -= embedding
    chunks[-1] -= loss
    return chunks


READER = Reader("megatron-golden", _recognises, predict, metric="peak_memory", complete=_complete)
