"""Reads the training backends of NeMo RL: Megatron and DTensor."""

from __future__ import annotations

from typing import Any

from planner.errors import InputError
from planner.launchers.reading import CallFields
from planner.launchers.settings import Settings


def read_megatron(s: Settings, owner: str) -> CallFields:
    """A Megatron strategy of the `policy` or `value`, without offload, packing and microbatch."""
    section = f"{owner}.megatron_cfg"
    names = {
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "cp": "context_parallel_size",
        "ep": "expert_model_parallel_size",
        "etp": "expert_tensor_parallel_size",
    }
    keys = {field: f"{section}.{name}" for field, name in names.items()}
    fields: dict[str, Any] = {field: s.integer(key, 1) for field, key in keys.items()}
    keys |= {
        "first_stage_layers": f"{section}.num_layers_in_first_pipeline_stage",
        "last_stage_layers": f"{section}.num_layers_in_last_pipeline_stage",
        "sequence_parallel": f"{section}.sequence_parallel",
        "recompute": f"{section}.activation_checkpointing",
        "optimizer_on_cpu": f"{section}.optimizer.optimizer_cpu_offload",
        "dtype": f"{section}.fp8_cfg.enabled",
    }
    for field in ("first_stage_layers", "last_stage_layers"):
        fields[field] = s.integer(keys[field], 0, low=0)
    for field in ("sequence_parallel", "optimizer_on_cpu"):
        fields[field] = s.flag(keys[field])
    fields["dtype"] = "fp8" if s.flag(keys["dtype"]) else "bf16"
    fields["recompute"] = "none"
    granularity = s.text(f"{section}.recompute_granularity", "full")
    if s.flag(keys["recompute"]):
        if granularity not in ("full", "selective"):
            raise InputError(
                f"{granularity!r} is not full or selective",
                where=s.where(f"{section}.recompute_granularity"),
            )
        fields["recompute"] = granularity
    fraction = f"{section}.optimizer.optimizer_offload_fraction"
    if fields["optimizer_on_cpu"]:
        s.not_modelled(fraction, "priced as all of the optimizer", lambda v: v in (1, 1.0))
    s.raw(fraction)
    s.not_modelled(
        f"{section}.fine_grained_activation_offloading", "activation offload: not priced", off
    )
    s.not_modelled(f"{section}.use_fused_linear_logprobs", "fused output head: not priced", off)
    # Without it every data-parallel rank holds the whole optimizer state.
    fields["zero_stage"] = int(s.flag(f"{section}.optimizer.use_distributed_optimizer", True))
    return CallFields(fields, keys)


def read_dtensor(s: Settings, owner: str) -> CallFields:
    """A DTensor (FSDP2) strategy, without offload, packing and microbatch."""
    section = f"{owner}.dtensor_cfg"
    keys = {
        "tp": f"{section}.tensor_parallel_size",
        "cp": f"{section}.context_parallel_size",
        "recompute": f"{section}.activation_checkpointing",
        "sequence_parallel": f"{section}.sequence_parallel",
    }
    s.not_modelled(f"{section}.cpu_offload", "CPU offload of FSDP2: not priced", off)
    s.not_modelled(f"{section}.expert_parallel_size", "priced without", lambda v: v in (None, 1))
    s.not_modelled(f"{section}.dp_replicate_size", "priced without", lambda v: v in (None, 1))
    return CallFields(
        {
            "tp": s.integer(keys["tp"], 1),
            "cp": s.integer(keys["cp"], 1),
            "recompute": "full" if s.flag(keys["recompute"]) else "none",
            "sequence_parallel": s.flag(keys["sequence_parallel"]),
            "zero_stage": 3,
            "dtype": "bf16",
        },
        keys,
    )


def read_lora_rank(s: Settings, *, megatron: bool) -> int:
    """Rank of the actor's adapters; 0 without."""
    section = "policy.megatron_cfg.peft" if megatron else "policy.dtensor_cfg.lora_cfg"
    rank = s.integer(f"{section}.dim", 0, low=0)
    return rank if s.flag(f"{section}.enabled") else 0


def off(value: Any) -> bool:
    """Whether a switch or a size is turned off."""
    return value in (None, False, 0, "false", "0")
