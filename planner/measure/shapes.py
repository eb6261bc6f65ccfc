"""Model shapes and device names as the measured cases spell them."""

from __future__ import annotations

from typing import Any

from planner.errors import InputError
from planner.schema import MLASpec, ModelSpec, MoESpec

DEVICES = {
    "H100-SXM-80GB": "h100-80-sxm",
    "GB200-NVL72-186GB": "gb200-nvl72",
    "H20-96GB": "h20-96",
    "H800-SXM-80GB": "h800-80-sxm",
}
"""Device name in a case -> device profile."""

_KNOWN = {
    *("name", "hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts"),
    *("topk", "mlp", "attention", "tied_embeddings", "shared_experts", "moe_ffn"),
    *("first_dense_layers", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim"),
    *("qk_rope_head_dim", "v_head_dim"),
}


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
        mlp="gated" if shape["mlp"] == "swiglu" else "plain",
        attention="mla" if mla else "gqa",
        mla=mla,
        moe=moe,
        source=where,
    )
