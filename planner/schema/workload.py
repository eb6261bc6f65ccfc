"""Workload: an RL algorithm, its models and batches. Call: one model function call of a step."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from planner.schema.base import (
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Schema,
)
from planner.schema.hardware import DType
from planner.schema.model import ModelSpec


class LengthDistribution(Schema):
    """Distribution of sequence lengths, tokens.

    `lognormal` is clipped at `max_tokens` so that its mean after clipping is `mean_tokens`;
    `histogram` takes (tokens, weight) pairs; `fixed` has all sequences at `mean_tokens`.
    """

    kind: Literal["lognormal", "histogram", "fixed"] = "lognormal"
    mean_tokens: PositiveFloat
    max_tokens: PositiveInt
    """The cap; no sequence is longer."""
    sigma: PositiveFloat = 0.9
    """Lognormal shape; only `kind: lognormal` reads it."""
    histogram: tuple[tuple[PositiveInt, PositiveFloat], ...] = ()
    """(tokens, weight) pairs with ascending tokens; weights need not sum to one."""

    @model_validator(mode="after")
    def _mean_within_cap(self) -> Self:
        if self.mean_tokens > self.max_tokens:
            raise ValueError(
                f"mean_tokens {self.mean_tokens:g} exceeds max_tokens {self.max_tokens}"
            )
        if (self.kind == "histogram") != bool(self.histogram):
            raise ValueError('kind "histogram" needs the field `histogram`, and only then')
        tokens = [pair[0] for pair in self.histogram]
        if tokens != sorted(set(tokens)):
            raise ValueError("histogram tokens must ascend without repeats")
        if tokens and tokens[-1] > self.max_tokens:
            raise ValueError(f"histogram reaches {tokens[-1]} tokens, above max_tokens")
        return self


class EnvironmentSpec(Schema):
    """A CPU verifier or environment that scores or answers responses."""

    latency_s: NonNegativeFloat = 0.0
    """Mean seconds for one response on one worker."""
    workers: PositiveInt = 64
    """Responses scored at the same time."""


class Workload(Schema):
    """One RL iteration to be planned."""

    name: Name
    algorithm: Name
    """A registered algorithm, for example "grpo" or "ppo"."""
    models: dict[Name, ModelSpec]
    """Role -> model: actor always; critic, reference, reward as the algorithm asks."""
    prompts_per_step: PositiveInt
    samples_per_prompt: PositiveInt
    prompt_length: LengthDistribution
    response_length: LengthDistribution
    optimizer_steps: PositiveInt = 1
    """Minibatches of the batch in one epoch: optimizer steps of the actor per epoch."""
    critic_optimizer_steps: PositiveInt | None = None
    """The critic's; the actor's number when null."""
    epochs: PositiveInt = 1
    kl_weight: NonNegativeFloat = 0.0
    """Weight of the KL term; the reference model runs only when it is above zero."""
    old_logprobs: Literal["recompute", "engine", "skip"] = "recompute"
    """Where the old log-probabilities come from: a forward pass of the trainer, the generation
    engine, or nowhere (strictly on-policy single step, ratio identically one)."""
    environment: EnvironmentSpec = EnvironmentSpec()
    max_staleness: NonNegativeInt = 1
    """How many versions behind the policy a sample may be: plans with 0..max are considered."""
    lora_rank: NonNegativeInt = 0
    """Rank of the low-rank adapters that are trained beside frozen weights; 0 = all is trained."""
    train_dtype: DType = "bf16"
    generate_dtype: DType = "bf16"
    kv_cache_dtype: Literal["bf16", "fp8"] = "bf16"
    assumptions: tuple[str, ...] = ()
    """What was assumed because the user did not say it; printed with every plan."""

    @property
    def sequences_per_step(self) -> int:
        """Responses in one step."""
        return self.prompts_per_step * self.samples_per_prompt

    @property
    def max_sequence_tokens(self) -> int:
        """Longest prompt + response, tokens."""
        return self.prompt_length.max_tokens + self.response_length.max_tokens

    @property
    def mean_sequence_tokens(self) -> float:
        """Mean prompt + response, tokens."""
        return self.prompt_length.mean_tokens + self.response_length.mean_tokens

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.sequences_per_step % self.optimizer_steps != 0:
            raise ValueError(
                f"prompts_per_step x samples_per_prompt = {self.sequences_per_step} is not a "
                f"multiple of optimizer_steps {self.optimizer_steps}"
            )
        for role, model in self.models.items():
            if self.max_sequence_tokens > model.max_position:
                raise ValueError(
                    f"prompt + response may reach {self.max_sequence_tokens} tokens, but the "
                    f"{role} {model.name} supports {model.max_position}"
                )
        return self


CallKind = Literal["generate", "forward", "train", "environment"]


class Call(Schema):
    """One model function call of the iteration graph."""

    name: Name
    """Unique within the graph, for example "generate", "reference_logprobs", "actor_train"."""
    kind: CallKind
    role: Name
    """The model that it runs, a key of `Workload.models`; "environment" for CPU work."""
    sequences: PositiveInt
    """Sequences processed in one step (per epoch for training)."""
    output: Literal["tokens", "logprobs", "values", "rewards", "loss"]
    """What it produces: log-probs need the vocabulary head, values and rewards a scalar head."""
    epochs: PositiveInt = 1
    optimizer_steps: NonNegativeInt = 0
    """Optimizer steps per epoch; 0 unless the kind is train."""
