"""A Hugging Face `config.json` as checked fields, and the parts that architectures share.

A config is foreign input: every read names the field, refuses what is not plausible, and raises
InputError. Values that Transformers fills in when a config omits them are the callers' defaults.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any

from planner.errors import InputError
from planner.schema.model import MAX_LAYERS

# Bounds that only a corrupt file exceeds; they keep products of two sizes inside 64-bit integers.
MAX_SIZE = 2**24
_MAX_POSITION = 2**40
_MAX_SHOWN = 60
BY_HAND = (
    "Correct the file, or describe the model by hand as a ModelSpec file "
    "(docs/adding-a-model.md; `rlmplan schema ModelSpec` lists its fields)."
)


class ConfigFields:
    """Checked access to the fields of one config; `where` names the file in errors."""

    def __init__(self, config: Mapping[str, Any], where: str):
        self.config = config
        self.where = where

    def size(
        self, *keys: str, default: int | None = None, minimum: int = 1, maximum: int = MAX_SIZE
    ) -> int:
        """The first of `keys` that is given and not null, as a whole number within the bounds.

        Without a default the field is required.
        """
        for key in keys:
            if self.config.get(key) is not None:
                return self._whole(key, self.config[key], minimum, maximum)
        if default is None:
            raise self.missing(*keys)
        return default

    def nullable_size(self, key: str, absent: int | None) -> int | None:
        """A whole number; `absent` when the field is not there, None when it is null."""
        value = self.config.get(key, absent)
        return None if value is None else self._whole(key, value, 1, MAX_SIZE)

    def flag(self, key: str, default: bool) -> bool:
        """A Boolean; `default` when absent or null."""
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.invalid(key, value, "true or false")
        return value

    def text(self, key: str, default: str) -> str:
        """A string; `default` when absent or null."""
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.invalid(key, value, "a text")
        return value

    def items(self, key: str, kind: type[Any]) -> list[Any] | None:
        """A list whose elements are all of type `kind`; None when absent or null."""
        value = self.config.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(item) is kind for item in value):
            raise self.invalid(key, value, f"a list of {kind.__name__}")
        return value

    def missing(self, *keys: str) -> InputError:
        """The error for a required field that is not there."""
        near = difflib.get_close_matches(keys[0], [str(key) for key in self.config], n=1)
        hint = f"Is `{near[0]}` meant? " if near else ""
        names = " or ".join(f"`{key}`" for key in keys)
        return InputError(f"missing field {names}", where=self.where, remedy=hint + BY_HAND)

    def invalid(self, key: str, value: Any, expected: str) -> InputError:
        """The error for a field whose value is not `expected`."""
        try:
            given = repr(value)
        except (ValueError, RecursionError):  # integers of thousands of digits, deep nesting
            given = f"a {type(value).__name__}"
        if len(given) > _MAX_SHOWN:
            given = given[: _MAX_SHOWN - 3] + "..."
        return InputError(
            f"must be {expected}, given {given}", where=f"{self.where}: {key}", remedy=BY_HAND
        )

    def _whole(self, key: str, value: Any, minimum: int, maximum: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise self.invalid(key, value, f"a whole number from {minimum} to {maximum}")
        return value


def common(fields: ConfigFields) -> dict[str, Any]:
    """The ModelSpec fields that every architecture reads alike."""
    return {
        "hidden_size": fields.size("hidden_size"),
        "num_layers": num_layers(fields),
        "num_heads": fields.size("num_attention_heads"),
        "ffn_size": fields.size("intermediate_size"),
        "vocab_size": fields.size("vocab_size"),
        "tie_embeddings": fields.flag("tie_word_embeddings", False),
        "mtp_layers": fields.size("num_nextn_predict_layers", default=0, minimum=0, maximum=100),
        "max_position": max_position(fields),
    }


def num_layers(fields: ConfigFields) -> int:
    """`num_hidden_layers`."""
    return fields.size("num_hidden_layers", maximum=MAX_LAYERS)


def max_position(fields: ConfigFields, extended_by_rope: bool = True) -> int:
    """Longest sequence in tokens, with the rotary scaling that the config switches on.

    vLLM's rule (`_get_and_verify_max_len`): YaRN stretches the original length by its factor,
    linear and dynamic scaling stretch `max_position_embeddings`; the llama3 and longrope kinds
    state the stretched length already.
    """
    length = fields.size("max_position_embeddings", default=131072, maximum=_MAX_POSITION)
    key = "rope_scaling" if fields.config.get("rope_scaling") is not None else "rope_parameters"
    scaling = fields.config.get(key)
    if scaling is None or not extended_by_rope:
        return length
    if not isinstance(scaling, dict):
        raise fields.invalid(key, scaling, "a mapping")
    rope = ConfigFields(scaling, f"{fields.where}: {key}")
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind not in ("yarn", "linear", "dynamic"):
        return length
    factor = scaling.get("factor", 1)
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not 0 < factor < 2**20:
        raise rope.invalid("factor", factor, "a positive number")
    base = length
    if kind == "yarn":
        base = rope.size("original_max_position_embeddings", default=length, maximum=_MAX_POSITION)
    return max(length, min(_MAX_POSITION, math.floor(base * factor)))


def grouped_query(
    fields: ConfigFields, kv_heads: int | None = None, head_dim: int | None = None
) -> dict[str, Any]:
    """Key-value heads and head size.

    `kv_heads` and `head_dim` are what Transformers assumes when the config omits them; None
    stands for "as many as query heads" and "hidden size / query heads", as does a null.
    """
    heads = fields.size("num_attention_heads")
    kv = fields.nullable_size("num_key_value_heads", absent=kv_heads)
    size = fields.nullable_size("head_dim", absent=head_dim)
    if size is None:
        hidden = fields.size("hidden_size")
        if hidden % heads != 0:
            raise fields.invalid(
                "head_dim", None, f"given: hidden_size {hidden} / {heads} heads is not whole"
            )
        size = hidden // heads
    return {"num_kv_heads": heads if kv is None else kv, "head_dim": size}


def latent_attention(fields: ConfigFields, q_lora_rank: int | None) -> dict[str, Any]:
    """Multi-head latent attention; `q_lora_rank` is the class's default, null means none."""
    mla = {
        "q_lora_rank": fields.nullable_size("q_lora_rank", absent=q_lora_rank),
        "kv_lora_rank": fields.size("kv_lora_rank"),
        "qk_nope_head_dim": fields.size("qk_nope_head_dim"),
        "qk_rope_head_dim": fields.size("qk_rope_head_dim"),
        "v_head_dim": fields.size("v_head_dim"),
    }
    return {
        "attention": "mla",
        "mla": mla,
        "num_kv_heads": fields.size("num_attention_heads"),
        "head_dim": fields.size("qk_nope_head_dim") + fields.size("qk_rope_head_dim"),
    }


def attention_bias(fields: ConfigFields, key: str = "attention_bias") -> dict[str, Any]:
    """One flag for the biases of all four attention projections."""
    given = fields.flag(key, False)
    return {"qkv_bias": given, "output_bias": given}


def moe_layers(fields: ConfigFields, is_moe: list[bool]) -> dict[str, int]:
    """`first_dense_layers` and `layer_interval` of a per-layer list; InputError if it fits none.

    ModelSpec says: layer i is MoE when i >= first_dense_layers and (i + 1) % layer_interval == 0.
    """
    if True not in is_moe:
        raise InputError("no layer has experts", where=fields.where, remedy=BY_HAND)
    first = is_moe.index(True)
    for interval in (1, first + 1, *(_second(is_moe, first))):
        if is_moe == [i >= first and (i + 1) % interval == 0 for i in range(len(is_moe))]:
            return {"first_dense_layers": first, "layer_interval": interval}
    raise InputError(
        "the layers with experts follow no regular pattern", where=fields.where, remedy=BY_HAND
    )


def _second(flags: list[bool], first: int) -> list[int]:
    """Distance from the first to the second true flag, if there is a second."""
    return [flags.index(True, first + 1) - first] if flags.count(True) > 1 else []


def sliding_window(
    fields: ConfigFields, size: int | None, is_full: list[bool] | None = None
) -> dict[str, Any]:
    """The window of `size` tokens on the layers that are not full.

    `layer_types` of the config decides which are; `is_full` is the architecture's rule where the
    config has none (None: no layer is full).
    """
    kinds = fields.items("layer_types", str)
    if kinds is not None:
        layers = num_layers(fields)
        if len(kinds) != layers:
            raise fields.invalid("layer_types", kinds, f"a list of {layers} layers")
        for kind in kinds:
            if kind not in ("sliding_attention", "full_attention"):
                raise fields.invalid("layer_types", kind, "sliding_attention or full_attention")
        is_full = [kind == "full_attention" for kind in kinds]
    if size is None or (is_full and all(is_full)):
        return {}
    every = is_full.index(True) + 1 if is_full and True in is_full else 0
    if is_full and is_full != [every > 0 and (i + 1) % every == 0 for i in range(len(is_full))]:
        raise InputError(
            "the layers with full attention follow no regular pattern",
            where=fields.where,
            remedy=BY_HAND,
        )
    return {"window": {"size_tokens": size, "full_attention_every": every}}


def every_nth_full(fields: ConfigFields, every: int) -> list[bool]:
    """Full attention in each `every`-th layer: the rule of Gemma, OLMo-3 and gpt-oss."""
    return [(i + 1) % every == 0 for i in range(num_layers(fields))]
