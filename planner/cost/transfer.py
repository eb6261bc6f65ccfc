"""Between the calls: new weights for the engine, and what a step costs whatever it does."""

from __future__ import annotations

from planner.cost.kernel_work import DTYPE_BYTES
from planner.cost.parameters import count_parameters
from planner.cost.shapes import attention_gemms, moe_layers, up_matrices
from planner.schema import DType, FrameworkProfile, ModelSpec, Workload

_NORMS_PER_LAYER = 2
_ENDS = 3
"""Embedding, final norm and head."""


def weight_sync_s(
    model: ModelSpec,
    framework: FrameworkProfile,
    dtype: DType,
    shared: bool,
    within_domain: bool = False,
) -> float:
    """Seconds from the trainer's new weights until the engine decodes with them.

    A fixed part (waking the engine, agreeing on buffers) and a part by bytes, since published
    times grow with the model and not with the number of devices; mechanisms that send tensor by
    tensor pay for each. `dtype` is that of the weights sent; `shared` is True when trainer and
    engine use the same devices, `within_domain` when they are in one scale-up domain. The
    constants are the framework profile's `refit_*`.
    """
    nbytes = count_parameters(model).total * DTYPE_BYTES[dtype]
    kind = "shared" if shared else "disjoint"
    fixed = framework.value(f"refit_{kind}_fixed_s")
    per_byte = framework.value(f"refit_{kind}_s_per_byte")
    if within_domain and not shared:
        fixed = _value(framework, "refit_local_fixed_s", fixed)
        per_byte = _value(framework, "refit_local_s_per_byte", per_byte)
    tensors = weight_tensors(model) * _value(framework, "refit_per_tensor_s", 0.0)
    return fixed + tensors + per_byte * nbytes


def _value(framework: FrameworkProfile, name: str, absent: float) -> float:
    """A constant that only some mechanisms have."""
    return framework.value(name) if name in framework.constants else absent


def weight_tensors(model: ModelSpec) -> int:
    """Weight tensors that a trainer names one by one: every expert has its own."""
    matrices = up_matrices(model) + 1
    per_layer = len(attention_gemms(model, 1)) + _NORMS_PER_LAYER
    experts = moe_layers(model)
    count = model.num_layers * per_layer + (model.num_layers - experts) * matrices + _ENDS
    if model.moe is not None:
        shared = matrices if model.moe.shared_ffn_size else 0
        count += experts * (model.moe.num_experts * matrices + shared + 1)
    return count


def step_fixed_s(workload: Workload, framework: FrameworkProfile) -> float:
    """Seconds of every step that no call accounts for: data loading, batching, logging."""
    per_sequence = framework.value("step_per_sequence_s") * workload.sequences_per_step
    return framework.value("step_fixed_s") + per_sequence
