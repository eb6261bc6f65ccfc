"""How measured training rows spell activation recomputation."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from planner.errors import InputError
from planner.schema import ModelSpec
from planner.schema.strategy import Recompute

_BLOCK = re.compile(r'full \(method "block", (\d+) layers per stage\)')
_MODULES = re.compile(r"selective modules (\[.*\])")
# Megatron-Core modules whose recomputation is elementwise or a small product: under 2 % of a step.
_CHEAP_MODULES = {"layernorm", "moe_act", "mla_up_proj", "mlp", "shared_experts"}
# PyTorch's per-operator policy keeps every second matrix product and the attention output.
_PER_OPERATOR_SHARE = 0.5


@dataclass(frozen=True)
class Mix:
    """Weights of the three ways of recomputing whose weighted times add up to the row's."""

    shares: tuple[tuple[float, Recompute], ...]
    on_host: bool = False
    """True when checkpointed activations move to host memory."""


def recomputation(
    text: str | None, framework: str, pp: int | None, model: ModelSpec, where: str
) -> Mix:
    """The mix that a row's `recompute` describes; InputError for a spelling that is not known."""
    if text in (None, "none"):
        return _one("none")
    if text == "full" or (text or "").startswith('full (method "uniform"'):
        return _one("full")
    if text == "full + activations offloaded to CPU":
        return Mix(((1.0, "full"),), on_host=True)
    if text == "selective (every other layer)":
        return _between(0.5)
    if text == "selective (per-op)" or (text == "selective" and framework == "torchtitan"):
        share = _PER_OPERATOR_SHARE
        return Mix(((1.0, "none"), (share, "full"), (-share, "selective")))
    if text == "selective":
        return _one("selective")
    assert text is not None
    block = _BLOCK.fullmatch(text)
    if block is not None:
        return _between(min(1.0, int(block[1]) * (pp or 1) / model.num_layers))
    listed = _MODULES.fullmatch(text)
    if listed is not None:
        return _modules(set(json.loads(listed[1])), where)
    raise InputError(f"recompute: unknown {text!r}", where=where)


def _modules(modules: set[str], where: str) -> Mix:
    unknown = modules - _CHEAP_MODULES - {"core_attn", "moe"}
    if unknown:
        raise InputError(f"recompute: unknown modules {sorted(unknown)}", where=where)
    if "moe" in modules:
        # Everything but the attention core, near enough: experts dominate a layer.
        return Mix(((1.0, "none"), (1.0, "full"), (-1.0, "selective")))
    return _one("selective" if "core_attn" in modules else "none")


def _one(recompute: Recompute) -> Mix:
    return Mix(((1.0, recompute),))


def _between(share: float) -> Mix:
    return Mix(((1.0 - share, "none"), (share, "full")))
