"""The keys of a problem file, as users write them (units in the descriptions)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from planner.schema import (
    BlockDiffusion,
    DType,
    EnvironmentSpec,
    GradientExchange,
    Schema,
    Speculation,
    TailBatching,
    TurnSpec,
)
from planner.schema.base import Name, NonNegativeInt
from planner.schema.workload import (
    Acceptance,
    Epochs,
    KeptFraction,
    KlWeight,
    MaxTokens,
    MeanTokens,
    OptimizerSteps,
    Oversampling,
    PartialRollout,
    Prompts,
    Rounds,
    Samples,
    Sequences,
    Sigma,
    Staleness,
    TokenBudget,
    Weight,
)


class LengthsFile(Schema):
    """Lengths of prompts or responses."""

    mean: MeanTokens | None = None
    """Mean after cutting at `max`, tokens."""
    max: MaxTokens | None = None
    """Limit, tokens."""
    kind: Literal["lognormal", "fixed"] | None = None
    sigma: Sigma | None = None
    """Shape of a lognormal."""
    histogram: dict[str, Weight] | None = None
    """Tokens: weight."""
    file: Name | None = None
    """Measured lengths: one a line, a JSON list, or JSON lines."""
    field: Name | None = None
    """Which field of each JSON object is the length."""


class BatchFile(Schema):
    prompts: Prompts | None = None
    """Prompts in one step."""
    samples: Samples | None = None
    """Responses for each prompt."""
    optimizer_steps: OptimizerSteps | None = None
    critic_optimizer_steps: OptimizerSteps | None = None
    epochs: Epochs | None = None
    critic_epochs: Epochs | None = None
    acceptance: Acceptance | None = None
    """Share of prompts whose group is kept."""
    oversampling: Oversampling | None = None
    """Prompts of one round of generation over `prompts`."""
    max_rounds: Rounds | None = None
    partial_rollout: PartialRollout | None = None
    """Share of the batch that is carried over unfinished into the next step."""
    tail_batching: TailBatching | None = None
    """Short rounds that start more than a batch, and long ones for what they left."""
    kept_fraction: KeptFraction | None = None
    """Share of the responses that is trained on."""
    token_budget: TokenBudget | None = None
    """Tokens that each optimizer step trains on."""
    replay: dict[Name, Sequences] | None = None
    """Role: sequences that it trains on in one epoch, from a replay buffer."""


class DtypesFile(Schema):
    train: DType | None = None
    generate: DType | None = None
    kv_cache: Literal["bf16", "fp8"] | None = None


class LimitsFile(Schema):
    """What every plan must stay within."""

    devices: Annotated[int, Field(gt=0, le=10**9)] | None = None
    """Devices that a plan may reserve."""
    step_time_s: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Longest step, seconds."""
    cost_per_step_usd: Annotated[float, Field(gt=0, le=1e12)] | None = None
    cost_usd: Annotated[float, Field(gt=0, le=1e15)] | None = None
    """Price until the token budget `tokens` is spent, US dollars."""


class ProblemFile(Schema):
    """The keys of a problem file."""

    name: Name | None = None
    algorithm: Name | None = None
    models: dict[Name, str | dict[str, Any]] = Field(default_factory=dict)
    """Role: model name, path, or the model's config.json inline."""
    cluster: str | dict[str, Any] | None = None
    """NAME:NODESxDEVICES, the path of a cluster file, or its content inline."""
    batch: BatchFile = BatchFile()
    prompt: LengthsFile = LengthsFile()
    response: LengthsFile = LengthsFile()
    kl_weight: KlWeight | None = None
    old_logprobs: Literal["recompute", "engine", "either", "skip"] | None = None
    environment: EnvironmentSpec | None = None
    turns: TurnSpec | None = None
    block_diffusion: BlockDiffusion | None = None
    speculation: Speculation | None = None
    gradient_exchange: GradientExchange | None = None
    lora_rank: NonNegativeInt | None = None
    max_staleness: Staleness | None = None
    dtypes: DtypesFile = DtypesFile()
    space: Name | None = None
    objective: Name | None = None
    """step_time (default), tokens_per_s, tokens_per_s_per_device, gpu_hours_to_tokens,
    cost_per_step or cost_to_tokens."""
    tokens: Annotated[float, Field(gt=0, le=1e18)] | None = None
    """Budget of prompt and response tokens."""
    limits: LimitsFile = LimitsFile()
    top: Annotated[int, Field(ge=1, le=100)] | None = None
    deadline_s: Annotated[float, Field(gt=0, le=1e7)] | None = None
