"""Predictions by the planner's own cost functions on the measured profile.

No constant comes from the measured steps: kernel times, link, elementwise and loss factors and
launch times are those of `rlmplan measure`'s kernels, the rest says what the programs do (no
overlap, fp32 gradients, checkpointing that stops early).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from configurations import Configuration, Decoding, Size, Sync, Training

from planner.catalog.frameworks import load_framework
from planner.catalog.kernels import kernel_arrays
from planner.cost.arrays import StrategyArrays
from planner.cost.calls import call_costs
from planner.cost.context import CallContext
from planner.cost.decode import step_table
from planner.cost.engine_kernels import EngineShapes
from planner.cost.kernel_tables import table_from_arrays
from planner.cost.kernels import KernelTable
from planner.cost.reallocation import reallocation_s
from planner.cost.weight_formats import uniform
from planner.measure.bench.journal import Sample
from planner.measure.bench.profile import Facts, Figure, device_file, figures, trainer_constants
from planner.measure.bench.table import table_arrays
from planner.schema import (
    Call,
    FrameworkProfile,
    LengthDistribution,
    NodeGroup,
    Strategy,
    Workload,
)

_LOGIT_MOVES = 3.0
"""Times that the planner moves each byte kept for a logit (planner/cost/passes.py)."""
_STEP_KERNELS = 6
"""Kernels of a decoding step outside its layers: embedding, two rotary look-ups, norm, choice of
the token, its copy."""
_BASE = "h100-80-sxm"


@dataclass(frozen=True)
class Predictor:
    """Prices configurations on a measured machine."""

    samples: dict[str, Sample]
    facts: Facts

    @cached_property
    def found(self) -> dict[str, Figure]:
        """The machine's figures."""
        return figures(self.samples, self.facts)

    @cached_property
    def group(self) -> NodeGroup:
        """One node of two such devices."""
        device = device_file(self.found, self.facts, None, _BASE).profile()
        return NodeGroup(
            name="here",
            nodes=1,
            devices_per_node=2,
            device=device,
            host_memory_bytes=self.facts.host_memory_bytes,
        )

    @cached_property
    def kernels(self) -> KernelTable:
        """The measured kernel table."""
        base = kernel_arrays(_BASE)
        arrays = table_arrays(self.samples.values(), self.group.device, base)
        return table_from_arrays(arrays, self.group.device)

    @cached_property
    def trainer(self) -> FrameworkProfile:
        """Constants of the programs."""
        loss = self.found["loss_bytes_per_logit"].value
        word = float(self.facts.dtype_bytes)
        return _changed(
            "generic",
            **trainer_constants(self.found),
            gemm_efficiency=1.0,
            logits_train_bytes=loss / _LOGIT_MOVES,
            dp_overlap=0.0,
            dp_interference=0.0,
            straggler_per_doubling=0.0,
            gradient_reduce_bytes=word,
            optimizer_step_fixed_s=0.0,
            microbatch_fixed_s=0.0,
            recompute_skips_last_product=1.0,
        )

    @cached_property
    def engine(self) -> FrameworkProfile:
        """Constants of the decoding program."""
        return _changed(
            "generic-engine",
            step_s=_STEP_KERNELS * self.found["kernel_latency_s"].value,
            layer_s=self.found["layer_launches_s"].value,
            sequence_step_s=0.0,
            host_roof_sequence_s=0.0,
        )

    def parts_s(self, one: Configuration) -> dict[str, float]:
        """Predicted seconds of one step, by part."""
        if isinstance(one, Training):
            context = self._context(one.size, one.tokens, one.sequences, "train")
            parts = call_costs(context, _of(one)).time_parts_s
            return {name: float(part[0]) for name, part in parts.items()}
        if isinstance(one, Decoding):
            return self._decoding_s(one)
        return {"transfer": self._sync_s(one)}

    def _decoding_s(self, one: Decoding) -> dict[str, float]:
        context = self._context(one.size, one.size.longest, one.batch, "generate")
        degree = np.array([one.tp])
        shapes = EngineShapes(degree, np.ones(1, np.int64), np.ones(1, np.int64))
        table = step_table(context, shapes, uniform("bf16"), float(max(one.batch, 16)))
        step = table.step(
            np.zeros(1, np.int64), np.array([[float(one.batch)]]), np.array([[float(one.context)]])
        )
        return {
            "compute": float(step.weights_s[0, 0]),
            "attention": float(step.attention_s[0, 0]),
            "tp_comm": float(step.communication_s[0, 0]),
            "host": float(step.overhead_s[0, 0]),
        }

    def _sync_s(self, one: Sync) -> float:
        context = self._context(one.size, 128, 8, "generate")
        return float(reallocation_s(context, StrategyArrays.from_strategies([Strategy()]))[0])

    def _context(self, size: Size, tokens: int, sequences: int, kind: str) -> CallContext:
        half = tokens // 2
        workload = Workload(
            name="closed loop",
            algorithm="grpo",
            models={"actor": size.spec},
            prompts_per_step=sequences,
            samples_per_prompt=1,
            prompt_length=_fixed(half),
            response_length=_fixed(tokens - half),
        )
        train = kind == "train"
        call = Call(
            name=f"actor_{kind}",
            kind="train" if train else "generate",
            role="actor",
            sequences=sequences,
            output="loss" if train else "tokens",
            optimizer_steps=1 if train else 0,
        )
        return CallContext(
            call=call,
            model=size.spec,
            workload=workload,
            group=self.group,
            framework=self.trainer,
            engine=self.engine,
            kernels=self.kernels,
            trained=train,
        )


def _of(one: Training) -> StrategyArrays:
    strategy = Strategy(
        dp=one.dp,
        tp=one.tp,
        pp=one.pp,
        micro_batch_sequences=one.micro,
        packing=False,
        recompute="full" if one.recompute else "none",
    )
    return StrategyArrays.from_strategies([strategy])


def _fixed(tokens: int) -> LengthDistribution:
    return LengthDistribution(kind="fixed", mean_tokens=float(tokens), max_tokens=tokens)


def _changed(name: str, **values: float) -> FrameworkProfile:
    profile = load_framework(name)
    constants = {
        key: one.model_copy(update={"value": float(values.pop(key))}) if key in values else one
        for key, one in profile.constants.items()
    }
    if values:
        raise KeyError(f"{name} has no {sorted(values)}")
    return profile.model_copy(update={"constants": constants})
