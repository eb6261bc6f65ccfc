"""Workload: an RL algorithm, its models and batches. Call: one model function call of a step."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from planner.schema.base import (
    Name,
    NonNegativeInt,
    PositiveInt,
    Schema,
)
from planner.schema.hardware import DType
from planner.schema.model import ModelSpec

# Bounds far above any workload, so that a slip is refused where it is given and products of two
# figures stay within 64-bit integers and floats.
MAX_LENGTH_TOKENS = 2**31
"""Longer sequences are taken for a mistake."""
MeanTokens = Annotated[float, Field(ge=1, le=MAX_LENGTH_TOKENS)]
MaxTokens = Annotated[int, Field(gt=0, le=MAX_LENGTH_TOKENS)]
Sigma = Annotated[float, Field(ge=0.01, le=5)]
Weight = Annotated[float, Field(ge=1e-30, le=1e30)]
Prompts = Annotated[int, Field(gt=0, le=10**9)]
Samples = Annotated[int, Field(gt=0, le=10**6)]
OptimizerSteps = Annotated[int, Field(gt=0, le=10**6)]
Epochs = Annotated[int, Field(gt=0, le=10_000)]
Staleness = Annotated[int, Field(ge=0, le=1024)]
KlWeight = Annotated[float, Field(ge=0, le=1e6)]


class LengthDistribution(Schema):
    """Distribution of sequence lengths, tokens.

    `lognormal` is clipped at `max_tokens` so that its mean after clipping is `mean_tokens`;
    `histogram` takes (tokens, weight) pairs; `fixed` has all sequences at `mean_tokens`.
    """

    kind: Literal["lognormal", "histogram", "fixed"] = "lognormal"
    """lognormal, cut at max_tokens; histogram of given lengths; or fixed, all at mean_tokens."""
    mean_tokens: MeanTokens
    """Mean length, tokens."""
    max_tokens: MaxTokens
    """The cap; no sequence is longer."""
    sigma: Sigma = 0.9
    """Lognormal shape; only `kind: lognormal` reads it."""
    histogram: tuple[tuple[MaxTokens, Weight], ...] = ()
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

    latency_s: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Mean seconds for one response on one worker."""
    workers: Annotated[int, Field(gt=0, le=10**7)] = 64
    """Responses scored at the same time."""


class Workload(Schema):
    """One RL iteration to be planned."""

    name: Name
    """The name shown in plans."""
    algorithm: Name
    """A registered algorithm, for example "grpo" or "ppo"."""
    models: dict[Name, ModelSpec]
    """Role -> model: actor always; critic, reference, reward as the algorithm asks."""
    prompts_per_step: Prompts
    """Prompts of one step."""
    samples_per_prompt: Samples
    """Responses to each prompt (the group of GRPO)."""
    prompt_length: LengthDistribution
    """Lengths of prompts."""
    response_length: LengthDistribution
    """Lengths of responses."""
    optimizer_steps: OptimizerSteps = 1
    """Minibatches of the batch in one epoch: optimizer steps of the actor per epoch."""
    critic_optimizer_steps: OptimizerSteps | None = None
    """The critic's; the actor's number when null."""
    epochs: Epochs = 1
    """Passes over the batch in training."""
    kl_weight: KlWeight = 0.0
    """Weight of the KL term; the reference model runs only when it is above zero."""
    old_logprobs: Literal["recompute", "engine", "skip"] = "recompute"
    """Where the old log-probabilities come from: a forward pass of the trainer, the generation
    engine, or nowhere (strictly on-policy single step, ratio identically one)."""
    environment: EnvironmentSpec = EnvironmentSpec()
    """What scores responses on CPUs."""
    max_staleness: Staleness = 1
    """How many versions behind the policy a sample may be: plans with 0..max are considered."""
    lora_rank: NonNegativeInt = 0
    """Rank of the low-rank adapters that are trained beside frozen weights; 0 = all is trained."""
    train_dtype: DType = "bf16"
    """Precision of matrix products in training and forward calls."""
    generate_dtype: DType = "bf16"
    """Precision of weights and matrix products in generation."""
    kv_cache_dtype: Literal["bf16", "fp8"] = "bf16"
    """Precision of the engine's key-value cache."""
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
    """What it does; decides which cost model prices it."""
    role: Name
    """The model that it runs, a key of `Workload.models`; "environment" for CPU work."""
    sequences: PositiveInt
    """Sequences processed in one step (per epoch for training)."""
    output: Literal["tokens", "logprobs", "values", "rewards", "loss"]
    """What it produces: log-probs need the vocabulary head, values and rewards a scalar head."""
    epochs: PositiveInt = 1
    """Passes over the sequences; 1 unless the kind is train."""
    optimizer_steps: NonNegativeInt = 0
    """Optimizer steps per epoch; 0 unless the kind is train."""
