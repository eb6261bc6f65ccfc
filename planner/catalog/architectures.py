"""Known architectures: one short function each, from a Hugging Face config to ModelSpec fields.

A function returns only what differs from `hf_config.common`. The defaults are those of the
configuration and model classes of Transformers (or of the model's own repository) for fields
that a config may omit.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from planner.catalog.data import validate
from planner.catalog.hf_config import (
    BY_HAND,
    ConfigFields,
    attention_bias,
    common,
    every_nth_full,
    grouped_query,
    latent_attention,
    max_position,
    moe_layers,
    num_layers,
    sliding_window,
)
from planner.errors import InputError
from planner.schema import ModelSpec

Reader = Callable[[ConfigFields], dict[str, Any]]
_READERS: dict[str, Reader] = {}


def architecture(*model_types: str) -> Callable[[Reader], Reader]:
    """Register the function below as the reader of these `model_type`s."""

    def register(reader: Reader) -> Reader:
        for model_type in model_types:
            _READERS[model_type] = reader
        return reader

    return register


def known_architectures() -> list[str]:
    """Every `model_type` that `read_config` understands, sorted."""
    return sorted(_READERS)


def read_config(config: Any, name: str, where: str) -> ModelSpec:
    """The ModelSpec of a parsed Hugging Face `config.json`.

    `name` becomes the spec's name, `where` names the file in errors. Quantization and other
    fields that do not change the shape are ignored. Raises InputError for an unknown
    `model_type`, a missing field or an implausible value.
    """
    if not isinstance(config, dict):
        raise InputError(
            f"a config must be a mapping, given a {type(config).__name__}",
            where=where,
            remedy=BY_HAND,
        )
    fields = ConfigFields(config, where)
    model_type = fields.text("model_type", "")
    if not model_type:
        raise fields.missing("model_type")
    if model_type not in _READERS:
        raise _unknown(model_type, config, where)
    if model_type == "gemma3":
        fields = _text_part(fields)
    spec = {**common(fields), **_READERS[model_type](fields)}
    return validate(
        ModelSpec, {"name": name, "architecture": model_type, "source": where, **spec}, where
    )


def _unknown(model_type: str, config: dict[str, Any], where: str) -> InputError:
    inner = config.get("text_config")
    inner_type = inner.get("model_type") if isinstance(inner, dict) else None
    hint = ""
    if isinstance(inner_type, str) and inner_type in _READERS:
        hint = (
            f'Its `text_config` is of the known type "{inner_type}": save that part as a '
            "config.json of its own to plan the language model without the other towers. "
        )
    near = difflib.get_close_matches(model_type.lower(), known_architectures(), n=3, cutoff=0.7)
    if near:
        hint += f"Did you mean {' or '.join(near)}? (Another name usually has another shape.) "
    return InputError(
        f"unknown architecture {model_type[:60]!r}",
        where=f"{where}: model_type",
        remedy=f"{hint}Known: {', '.join(known_architectures())}. {BY_HAND}",
    )


def _text_part(fields: ConfigFields) -> ConfigFields:
    """The language model inside a multimodal config; the outer embedding flag holds for it."""
    inner = fields.config.get("text_config")
    if not isinstance(inner, dict):
        raise fields.invalid("text_config", inner, "a mapping")
    tied = {k: fields.config[k] for k in ("tie_word_embeddings",) if k in fields.config}
    return ConfigFields({**_GEMMA3_TEXT, **tied, **inner}, f"{fields.where}: text_config")


# Transformers leaves values equal to Gemma3TextConfig's defaults out of a nested config.
_GEMMA3_TEXT = {"vocab_size": 262208, "num_attention_heads": 8}


# Dense models -------------------------------------------------------------------------------


@architecture("llama")
def _llama(f: ConfigFields) -> dict[str, Any]:
    return {**grouped_query(f), **attention_bias(f), "mlp_bias": f.flag("mlp_bias", False)}


@architecture("mistral")
def _mistral(f: ConfigFields) -> dict[str, Any]:
    return {
        **grouped_query(f, kv_heads=8),
        **sliding_window(f, f.nullable_size("sliding_window", absent=4096)),
    }


@architecture("qwen2")
def _qwen2(f: ConfigFields) -> dict[str, Any]:
    return {**grouped_query(f), **_qwen_window(f), "qkv_bias": True}


@architecture("qwen3")
def _qwen3(f: ConfigFields) -> dict[str, Any]:
    return {
        **grouped_query(f, head_dim=128),
        **_qwen_window(f),
        **attention_bias(f),
        "qk_norm": "head",
    }


@architecture("mimo")
def _mimo(f: ConfigFields) -> dict[str, Any]:
    return {**grouped_query(f), **_qwen_window(f), "qkv_bias": f.flag("attention_bias", True)}


def _qwen_window(f: ConfigFields) -> dict[str, Any]:
    if not f.flag("use_sliding_window", False):
        return {}
    full = f.size("max_window_layers", default=28, minimum=0)  # the leading layers stay full
    size = f.nullable_size("sliding_window", absent=4096)
    return sliding_window(f, size, [i < full for i in range(num_layers(f))])


@architecture("gemma2")
def _gemma2(f: ConfigFields) -> dict[str, Any]:
    window = f.nullable_size("sliding_window", absent=4096)
    return {
        **grouped_query(f, kv_heads=4, head_dim=256),
        **attention_bias(f),
        **sliding_window(f, window, every_nth_full(f, 2)),
        "tie_embeddings": f.flag("tie_word_embeddings", True),
        "norms_per_layer": 4,
    }


@architecture("gemma3", "gemma3_text")
def _gemma3(f: ConfigFields) -> dict[str, Any]:
    every = f.size("sliding_window_pattern", "_sliding_window_pattern", default=6)
    window = f.nullable_size("sliding_window", absent=4096)
    return {
        **grouped_query(f, kv_heads=4, head_dim=256),
        **attention_bias(f),
        **sliding_window(f, window, every_nth_full(f, every)),
        "tie_embeddings": f.flag("tie_word_embeddings", True),
        "qk_norm": "head",
        "norms_per_layer": 4,
        # Gemma-3 states the stretched length beside its rotary factor.
        "max_position": max_position(f, extended_by_rope=False),
    }


@architecture("glm", "glm4")
def _glm(f: ConfigFields) -> dict[str, Any]:
    four_norms = f.config["model_type"] == "glm4"
    return {
        **grouped_query(f, kv_heads=2, head_dim=128),
        "qkv_bias": f.flag("attention_bias", True),
        "norms_per_layer": 4 if four_norms else 2,
    }


@architecture("olmo2", "olmo3")
def _olmo(f: ConfigFields) -> dict[str, Any]:
    spec = {**grouped_query(f), **attention_bias(f), "qk_norm": "full"}
    if f.config["model_type"] == "olmo3":
        window = f.nullable_size("sliding_window", absent=4096)
        spec.update(sliding_window(f, window, every_nth_full(f, 4)))
    return spec


@architecture("phi3")
def _phi3(f: ConfigFields) -> dict[str, Any]:
    window = f.nullable_size("sliding_window", absent=None)
    return {**grouped_query(f), **sliding_window(f, window)}


@architecture("nemotron")
def _nemotron(f: ConfigFields) -> dict[str, Any]:
    return {
        **grouped_query(f),
        **attention_bias(f),
        "mlp": "plain",
        "mlp_bias": f.flag("mlp_bias", False),
        "norm_bias": True,
    }


@architecture("internlm2")
def _internlm2(f: ConfigFields) -> dict[str, Any]:
    bias = f.flag("bias", True)
    return {**grouped_query(f), "qkv_bias": bias, "output_bias": bias}


# Mixtures of experts ------------------------------------------------------------------------


@architecture("mixtral")
def _mixtral(f: ConfigFields) -> dict[str, Any]:
    return {
        **grouped_query(f, kv_heads=8),
        **sliding_window(f, f.nullable_size("sliding_window", absent=None)),
        "moe": {
            "num_experts": f.size("num_local_experts"),
            "top_k": f.size("num_experts_per_tok"),
            "expert_ffn_size": f.size("intermediate_size"),
        },
    }


@architecture("qwen2_moe")
def _qwen2_moe(f: ConfigFields) -> dict[str, Any]:
    moe = _qwen_experts(f)
    moe["shared_ffn_size"] = f.size("shared_expert_intermediate_size")
    moe["shared_gate"] = True
    return {
        **grouped_query(f),
        **_qwen_window(f),
        "qkv_bias": f.flag("qkv_bias", True),
        "moe": moe,
    }


@architecture("qwen3_moe")
def _qwen3_moe(f: ConfigFields) -> dict[str, Any]:
    return {
        **grouped_query(f, kv_heads=4),
        **_qwen_window(f),
        **attention_bias(f),
        "qk_norm": "head",
        "moe": _qwen_experts(f),
    }


def _qwen_experts(f: ConfigFields) -> dict[str, Any]:
    dense = frozenset(f.items("mlp_only_layers", int) or ())
    step = f.size("decoder_sparse_step", default=1)
    is_moe = [i not in dense and (i + 1) % step == 0 for i in range(num_layers(f))]
    return {
        "num_experts": f.size("num_experts"),
        "top_k": f.size("num_experts_per_tok"),
        "expert_ffn_size": f.size("moe_intermediate_size"),
        **moe_layers(f, is_moe),
    }


@architecture("deepseek_v2")
def _deepseek_v2(f: ConfigFields) -> dict[str, Any]:
    return {
        **latent_attention(f, q_lora_rank=1536),
        **attention_bias(f),
        "moe": _shared_experts(f, "n_routed_experts", "n_shared_experts", first_dense=0),
    }


@architecture("deepseek_v3", "kimi_k2")
def _deepseek_v3(f: ConfigFields) -> dict[str, Any]:
    moe = _shared_experts(f, "n_routed_experts", "n_shared_experts", first_dense=3)
    moe["router_bias"] = f.text("topk_method", "noaux_tc") == "noaux_tc"
    return {**latent_attention(f, q_lora_rank=1536), **attention_bias(f), "moe": moe}


@architecture("glm4_moe")
def _glm4_moe(f: ConfigFields) -> dict[str, Any]:
    moe = _shared_experts(f, "n_routed_experts", "n_shared_experts", first_dense=1)
    moe["router_bias"] = True
    return {
        **grouped_query(f, kv_heads=8),
        "qkv_bias": f.flag("attention_bias", False),
        "qk_norm": "head" if f.flag("use_qk_norm", False) else "none",
        "moe": moe,
    }


@architecture("bailing_moe", "bailing_moe_v2")
def _bailing(f: ConfigFields) -> dict[str, Any]:
    moe = _shared_experts(f, "num_experts", "num_shared_experts", first_dense=0)
    moe["router_bias"] = f.flag("moe_router_enable_expert_bias", False)
    bias = f.flag("use_bias", True)
    return {
        **grouped_query(f),
        "qkv_bias": f.flag("use_qkv_bias", False),
        "output_bias": bias,
        "mlp_bias": bias,
        "qk_norm": "head" if f.flag("use_qk_norm", False) else "none",
        "moe": moe,
    }


def _shared_experts(f: ConfigFields, routed: str, shared: str, first_dense: int) -> dict[str, Any]:
    """DeepSeek's layout: routed and shared experts of one width after leading dense layers."""
    width = f.size("moe_intermediate_size")
    first = f.size("first_k_dense_replace", default=first_dense, minimum=0)
    step = f.size("moe_layer_freq", default=1)
    return {
        "num_experts": f.size(routed),
        "top_k": f.size("num_experts_per_tok"),
        "expert_ffn_size": width,
        "expert_groups": f.size("n_group", default=1),
        "groups_per_token": f.size("topk_group", default=1),
        "shared_ffn_size": width * f.size(shared, default=0, minimum=0),
        **moe_layers(f, [i >= first and i % step == 0 for i in range(num_layers(f))]),
    }


@architecture("olmoe")
def _olmoe(f: ConfigFields) -> dict[str, Any]:
    return {
        **grouped_query(f),
        **attention_bias(f),
        "qk_norm": "full",
        "moe": {
            "num_experts": f.size("num_experts", default=64),
            "top_k": f.size("num_experts_per_tok", default=8),
            "expert_ffn_size": f.size("intermediate_size"),
        },
    }


@architecture("gpt_oss")
def _gpt_oss(f: ConfigFields) -> dict[str, Any]:
    window = f.nullable_size("sliding_window", absent=128)
    bias = f.flag("attention_bias", True)
    return {
        **grouped_query(f, kv_heads=8, head_dim=64),
        **sliding_window(f, window, every_nth_full(f, 2)),
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": True,
        "attention_sinks": True,
        "moe": {
            "num_experts": f.size("num_local_experts"),
            "top_k": f.size("num_experts_per_tok", "experts_per_token"),
            "expert_ffn_size": f.size("intermediate_size"),
            "router_bias": True,
        },
    }
