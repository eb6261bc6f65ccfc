"""Between the calls: new weights for the engine, and what a step costs whatever it does."""

from __future__ import annotations

from planner.cost.kernel_work import DTYPE_BYTES
from planner.cost.parameters import count_parameters
from planner.schema import DType, FrameworkProfile, ModelSpec, Workload


def weight_sync_s(
    model: ModelSpec, framework: FrameworkProfile, dtype: DType, shared: bool
) -> float:
    """Seconds from the trainer's new weights until the engine decodes with them.

    A fixed part (waking the engine, agreeing on buffers) and a part by bytes, since published
    times grow with the model and not with the number of devices. `dtype` is that of the weights
    sent; `shared` is True when trainer and engine use the same devices. The constants are the
    framework profile's `refit_*`.
    """
    nbytes = count_parameters(model).total * DTYPE_BYTES[dtype]
    kind = "shared" if shared else "disjoint"
    fixed = framework.value(f"refit_{kind}_fixed_s")
    return fixed + framework.value(f"refit_{kind}_s_per_byte") * nbytes


def step_fixed_s(workload: Workload, framework: FrameworkProfile) -> float:
    """Seconds of every step that no call accounts for: data loading, batching, logging."""
    per_sequence = framework.value("step_per_sequence_s") * workload.sequences_per_step
    return framework.value("step_fixed_s") + per_sequence
