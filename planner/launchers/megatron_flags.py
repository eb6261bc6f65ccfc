"""Megatron-LM's flags of a training strategy, written and read."""

from __future__ import annotations

from typing import Any

from planner.errors import InputError
from planner.launchers.numbers import stage_ends
from planner.launchers.reading import CallFields
from planner.launchers.settings import Broken, Settings
from planner.schema import ModelSpec, Strategy

_DEGREES = {
    "tp": "tensor-model-parallel-size",
    "pp": "pipeline-model-parallel-size",
    "cp": "context-parallel-size",
    "ep": "expert-model-parallel-size",
    "etp": "expert-tensor-parallel-size",
}
_ENDS = {
    "first_stage_layers": "decoder-first-pipeline-num-layers",
    "last_stage_layers": "decoder-last-pipeline-num-layers",
}
_VIRTUAL = "num-layers-per-virtual-pipeline-stage"


def parallel_flags(strategy: Strategy, model: ModelSpec) -> dict[str, Any]:
    """Degrees, pipeline split, recomputation and the optimizer's place."""
    flags: dict[str, Any] = {
        name: getattr(strategy, field)
        for field, name in _DEGREES.items()
        if model.moe is not None or field not in ("ep", "etp")
    }
    flags["sequence-parallel"] = strategy.sequence_parallel
    if strategy.vpp > 1:
        flags[_VIRTUAL] = model.num_layers // (strategy.pp * strategy.vpp)
    for field, name in _ENDS.items():
        flags[name] = getattr(strategy, field) or None
    if strategy.recompute != "none":
        flags["recompute-granularity"] = strategy.recompute
    if strategy.recompute == "full":
        flags |= {"recompute-method": "uniform", "recompute-num-layers": 1}
    if strategy.optimizer_on_cpu:
        flags |= {
            "optimizer-cpu-offload": True,
            "overlap-cpu-optimizer-d2h-h2d": True,
            "use-precision-aware-optimizer": True,
        }
    return flags


def read_parallel(settings: Settings, model: ModelSpec) -> CallFields:
    """Fields of a training strategy but packing and microbatch."""
    keys = dict(_DEGREES)
    fields: dict[str, Any] = {field: settings.integer(key, 1) for field, key in keys.items()}
    if settings.optional_integer(keys["etp"]) is None:
        fields["etp"] = fields["tp"] if model.moe else 1
    for field, key in _ENDS.items():
        keys[field] = key
        fields[field] = settings.integer(key, 0, low=0)
    fields["first_stage_layers"], fields["last_stage_layers"] = stage_ends(
        fields["first_stage_layers"], fields["last_stage_layers"], model.num_layers, fields["pp"]
    )
    keys["vpp"] = _VIRTUAL
    fields["vpp"] = 1
    layers = settings.optional_integer(_VIRTUAL)
    if layers is not None:
        stage, rest = divmod(model.num_layers, fields["pp"])
        if rest or stage % layers:
            settings.broken.append(
                Broken(
                    "virtual-stage-divides-stage",
                    f"{layers} layers a virtual stage do not divide the {model.num_layers} layers "
                    f"over {fields['pp']} stages",
                    (_VIRTUAL,),
                    tuple(f"{_VIRTUAL}={n}" for n in range(stage, 0, -1) if stage % n == 0)[:2],
                    "Megatron-LM training/arguments.py",
                )
            )
        else:
            fields["vpp"] = stage // layers
    keys["sequence_parallel"] = "sequence-parallel"
    # Megatron switches it off without tensor parallelism.
    fields["sequence_parallel"] = settings.flag("sequence-parallel") and fields["tp"] > 1
    keys["recompute"] = "recompute-granularity"
    fields["recompute"] = settings.text("recompute-granularity", "none")
    if fields["recompute"] not in ("none", "full", "selective"):
        raise InputError("is not full or selective", where=settings.where(keys["recompute"]))
    method = settings.text("recompute-method", "uniform")
    layers_each = settings.integer("recompute-num-layers", 1)
    if fields["recompute"] == "full" and (method, layers_each) != ("uniform", 1):
        settings.notes.append(f"recompute {method} {layers_each}: priced as uniform 1")
    keys["optimizer_on_cpu"] = "optimizer-cpu-offload"
    fields["optimizer_on_cpu"] = settings.flag("optimizer-cpu-offload")
    settings.raw("overlap-cpu-optimizer-d2h-h2d")
    settings.raw("use-precision-aware-optimizer")
    fields["zero_stage"] = 1
    return CallFields(fields, keys)
