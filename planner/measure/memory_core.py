"""One rank's peak memory for a model, a strategy and a profile: what the readers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from planner.catalog.hardware import parse_cluster
from planner.cost.arrays import StrategyArrays
from planner.cost.batching import form_batch
from planner.cost.context import CallContext
from planner.cost.kernel_tables import load_kernels
from planner.cost.memory import call_memory, stage_memory
from planner.cost.pipeline import form_stages
from planner.cost.state import stage_parameters
from planner.schema import (
    Call,
    FrameworkProfile,
    LengthDistribution,
    ModelSpec,
    Strategy,
    Workload,
)

STATE = ("weights", "gradients", "optimizer")
"""Items that stay between steps."""


@dataclass(frozen=True)
class TrainingRun:
    """A training step or log-probability pass as memory sees it: equal, padded sequences."""

    model: ModelSpec
    strategy: Strategy
    profile: FrameworkProfile
    device: str
    """Device profile."""
    devices_per_node: int
    tokens: int
    """Tokens of a sequence."""
    microbatches: int
    """In one optimizer step on one data-parallel rank."""
    lora_rank: int = 0
    kind: Literal["train", "forward"] = "train"
    """A training step, or a pass of log-probabilities in a trained model's processes."""


def with_constants(profile: FrameworkProfile, values: Mapping[str, float]) -> FrameworkProfile:
    """The profile with some constants set to what the user's options say.

    KeyError for a constant that the profile does not have: options choose among its terms.
    """
    constants = dict(profile.constants)
    for name, value in values.items():
        constants[name] = constants[name].model_copy(update={"value": float(value)})
    return profile.model_copy(update={"constants": constants})


def peak_parts(run: TrainingRun, stage: str | None = None) -> dict[str, float]:
    """Itemised peak in bytes of the fullest pipeline stage, or of the given one.

    `stage` is "first", "middle" or "last"; with one stage all mean the same.
    """
    context = _context(run)
    arrays = StrategyArrays.from_strategies([run.strategy])
    batch, stages = form_batch(context, arrays), form_stages(context, arrays)
    parameters = stage_parameters(context, arrays, stages)
    if stage is None:
        parts = call_memory(context, arrays, batch, stages, parameters).parts
    else:
        stage = "first" if run.strategy.pp == 1 else stage
        parts = stage_memory(context, arrays, batch, stages, parameters, stage)
    return {name: float(value[0]) for name, value in parts.items()}


def _context(run: TrainingRun) -> CallContext:
    strategy = run.strategy
    nodes = -(-strategy.devices // run.devices_per_node)
    group = parse_cluster(f"{run.device}:{nodes}x{run.devices_per_node}").groups[0]
    sequences = strategy.dp * strategy.micro_batch_sequences * run.microbatches
    # A token budget may be longer than any sequence that the model supports.
    longest = max(run.model.max_position, run.tokens)
    model = run.model.model_copy(update={"max_position": longest})
    # No sequence has fewer than two tokens, so that it splits into prompt and response.
    half = run.tokens // 2
    workload = Workload(
        name="memory",
        algorithm="grpo",
        models={"actor": model},
        prompts_per_step=sequences,
        samples_per_prompt=1,
        prompt_length=_fixed(half),
        response_length=_fixed(run.tokens - half),
        lora_rank=run.lora_rank,
    )
    training = run.kind == "train"
    call = Call(
        name="actor_train" if training else "old_logprobs",
        kind=run.kind,
        role="actor",
        sequences=sequences,
        output="loss" if training else "logprobs",
        optimizer_steps=1 if training else 0,
    )
    return CallContext(
        call=call,
        model=model,
        workload=workload,
        group=group,
        framework=run.profile,
        engine=run.profile,
        kernels=load_kernels(group.device),
        trained=True,
    )


def _fixed(tokens: int) -> LengthDistribution:
    return LengthDistribution(kind="fixed", mean_tokens=float(tokens), max_tokens=tokens)


def with_strategy(run: TrainingRun, **changes: object) -> TrainingRun:
    """The same run under a strategy with some fields changed."""
    return replace(run, strategy=run.strategy.model_copy(update=changes))
