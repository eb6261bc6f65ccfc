"""Model shapes and device names as the measured cases spell them."""

from __future__ import annotations

import re
from typing import Any, Literal

from planner.errors import InputError
from planner.schema import MLASpec, ModelSpec, MoESpec, WindowSpec

DEVICES = {
    "A100-SXM-40GB": "a100-40-sxm",
    "A100-SXM-80GB": "a100-80-sxm",
    "A6000-48GB": "a6000-48",
    "A800-SXM-80GB": "a800-80-sxm",
    "B200-SXM-180GB": "b200-sxm",
    "B300-SXM-288GB": "b300-sxm",
    "GB200-NVL72-186GB": "gb200-nvl72",
    "GB300-NVL72-288GB": "gb300-nvl72",
    "H100-96GB-HBM2e-500W": "h100-96-hbm2e",
    "H100-SXM-80GB": "h100-80-sxm",
    "H20-96GB": "h20-96",
    "H200-SXM-141GB": "h200-141-sxm",
    "H800-SXM-80GB": "h800-80-sxm",
    "L40S-48GB": "l40s-48",
    "MI300X-192GB": "mi300x",
}
"""Device name in a case -> device profile."""

_KNOWN = {
    *("name", "hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts"),
    *("topk", "mlp", "attention", "tied_embeddings", "shared_experts", "moe_ffn", "moe_every"),
    *("first_dense_layers", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim"),
    *("qk_rope_head_dim", "v_head_dim", "sliding_window", "pos"),
}
_WINDOW = re.compile(r"(\d+) on alternating layers")
# Cases say nothing of the longest position that a model supports; they ran.
_ANY_POSITION = 10**7


def device_id(name: str, where: str) -> str:
    """The profile of a device as a case names it."""
    if name not in DEVICES:
        raise InputError(f"unknown device {name!r}", where=where, remedy=f"Known: {list(DEVICES)}")
    return DEVICES[name]


def model_spec(shape: dict[str, Any], where: str) -> ModelSpec:
    """ModelSpec of a case's shape; refuses fields that it does not know."""
    unknown = set(shape) - _KNOWN
    if unknown:
        raise InputError(f"unknown model fields {sorted(unknown)}", where=where)
    mla = None
    if shape["attention"] == "mla":
        mla = MLASpec(
            q_lora_rank=shape["q_lora_rank"],
            kv_lora_rank=shape["kv_lora_rank"],
            qk_nope_head_dim=shape["qk_nope_head_dim"],
            qk_rope_head_dim=shape["qk_rope_head_dim"],
            v_head_dim=shape["v_head_dim"],
        )
    moe = None
    if shape.get("experts"):
        moe = MoESpec(
            num_experts=shape["experts"],
            top_k=shape["topk"],
            expert_ffn_size=shape["moe_ffn"],
            shared_ffn_size=shape.get("shared_experts", 0) * shape["moe_ffn"],
            first_dense_layers=shape.get("first_dense_layers", 0),
            layer_interval=shape.get("moe_every", 1),
        )
    head_dim = shape["head_dim"]
    if mla is not None:
        head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    return ModelSpec(
        name=shape["name"],
        architecture="custom",
        hidden_size=shape["hidden"],
        num_layers=shape["layers"],
        num_heads=shape["heads"],
        num_kv_heads=shape["kv_heads"],
        head_dim=head_dim,
        ffn_size=shape["ffn"],
        vocab_size=shape["vocab"],
        tie_embeddings=shape["tied_embeddings"],
        mlp=_mlp(shape["mlp"], where),
        attention="mla" if mla else "gqa",
        mla=mla,
        moe=moe,
        window=_window(shape.get("sliding_window"), where),
        max_position=_ANY_POSITION,
        source=where,
    )


def _mlp(text: str, where: str) -> Literal["gated", "plain"]:
    """Cases write "swiglu", "gelu (2 matmuls, no gate)", "squared relu (2 matmuls)"."""
    kind = text.split("(")[0].strip()
    if kind in ("swiglu", "geglu"):
        return "gated"
    if kind in ("gelu", "relu", "squared relu"):
        return "plain"
    raise InputError(f"unknown feed-forward {text!r}", where=where)


def _window(text: str | None, where: str) -> WindowSpec | None:
    if text is None:
        return None
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise InputError(f"unknown sliding window {text!r}", where=where)
    return WindowSpec(size_tokens=int(found[1]), full_attention_every=2)
