"""Workload: an RL algorithm, its models and batches. Call: one model function call of a step."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from planner.schema.base import (
    Fraction,
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
Acceptance = Annotated[float, Field(ge=1e-4, le=1)]
Oversampling = Annotated[float, Field(ge=1, le=1000)]
Rounds = Annotated[int, Field(ge=1, le=1000)]
PartialRollout = Annotated[float, Field(gt=0, le=16)]
KeptFraction = Annotated[float, Field(ge=1e-6, le=1)]
TokenBudget = Annotated[int, Field(gt=0, le=10**15)]
Sequences = Annotated[int, Field(gt=0, le=10**9)]
_MOST_RACING = 1024
"""Samples of a prompt of which the first to end are kept."""


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
    latency_sigma: Annotated[float, Field(ge=0, le=5)] = 0.0
    """Shape of a lognormal latency of that mean; 0: every response takes the mean."""


class TurnSpec(Schema):
    """Trajectories of several turns: the policy writes, the environment answers, and so on.

    `response_length` is what the policy writes in a whole trajectory, all turns together; answers
    come in proportion to it, so a trajectory twice as long has twice as many.
    """

    mean: Annotated[float, Field(ge=1, le=10_000)] = 1.0
    """Turns of a trajectory on average; the environment answers between two turns."""
    observation_tokens: Annotated[float, Field(ge=0, le=MAX_LENGTH_TOKENS)] = 0.0
    """Tokens that one answer adds to the context, on average: prefilled, in every later forward
    pass, masked from the loss."""
    prefix_cache_hit: Fraction = 1.0
    """Share of the context so far that the engine still holds when a turn begins; the rest is
    prefilled again."""
    environment: EnvironmentSpec = EnvironmentSpec()
    """Seconds of one answer, and answers that are worked on at the same time."""


class BlockDiffusion(Schema):
    """Decoding block by block: every token of a block is denoised in parallel.

    Blocks of one token, one pass and one view are autoregressive decoding.
    """

    block_tokens: Annotated[int, Field(ge=1, le=4096)] = 1
    """Tokens of one block; blocks follow one another and see all blocks before them."""
    mean_passes: Annotated[float, Field(ge=1, le=4096)] = 1.0
    """Denoising passes over a block on average, each over all its tokens."""
    separate_commit: bool = False
    """True: one more pass writes the block's final keys and values; False: it is fused with the
    first pass of the next block."""
    training_views: Annotated[float, Field(ge=1, le=64)] = 2.0
    """Copies of each token that a training or log-probability pass processes: clean and noisy."""


class Speculation(Schema):
    """Speculative decoding: a draft proposes tokens, one pass of the policy verifies them."""

    draft_tokens: Annotated[int, Field(ge=1, le=64)]
    """Tokens proposed for each pass."""
    acceptance: Annotated[float, Field(ge=0, lt=1)]
    """Probability that a proposed token is accepted when all before it were."""
    draft_cost: Annotated[float, Field(ge=0, le=10)] = 0.05
    """Time of one draft step over that of a decode step of the policy with as many sequences."""


class TailBatching(Schema):
    """Short rounds that drop stragglers, and long rounds for the prompts that were dropped.

    A short round starts more than a batch and ends when the batch is full; prompts without enough
    responses wait for a long round of their own. Every sample is of the newest weights.
    """

    prompts: Annotated[float, Field(gt=1, le=16)]
    """Prompts started in a short round over `prompts_per_step`; the excess waits."""
    samples: Annotated[float, Field(ge=1, le=16)] = 1.0
    """Samples of each prompt started in a short round over `samples_per_prompt`; the last to end
    are dropped, so the kept ones are shorter than a prompt's mean."""


class GradientExchange(Schema):
    """How data-parallel replicas of a trained model agree on their weights.

    The defaults exchange every gradient whole in every optimizer step. What departs from them
    changes the optimizer's arithmetic, so it is a property of the run and not a choice of layout.
    """

    compression: Annotated[float, Field(ge=1, le=10_000)] = 1.0
    """Bytes of a gradient over the bytes that travel: quantisation, or the largest entries with
    their indices. What was left out is added to the next gradient (error feedback)."""
    local_steps: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Optimizer steps between two exchanges of ranks that hold replicas of the whole state; in
    between each goes on alone (DiLoCo, arXiv:2311.08105). Ranks that share one state by ZeRO
    still exchange in every step."""
    delayed: bool = False
    """True: a step applies the gradients of the step before (asynchronous data parallelism), so
    the exchange has a whole step to hide behind. ZeRO stages below 3."""


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
    critic_epochs: Epochs | None = None
    """The critic's; the actor's number when null."""
    kl_weight: KlWeight = 0.0
    """Weight of the KL term; the reference model runs only when it is above zero."""
    old_logprobs: Literal["recompute", "engine", "either", "skip"] = "recompute"
    """Where the old log-probabilities come from: a forward pass of the trainer, the generation
    engine, or nowhere (strictly on-policy single step, ratio identically one)."""
    environment: EnvironmentSpec = EnvironmentSpec()
    """What scores responses on CPUs."""
    acceptance: Acceptance = 1.0
    """Share of prompts whose group of responses is kept (dynamic sampling drops groups without
    contrast): generation goes on until `prompts_per_step` are."""
    oversampling: Oversampling = 1.0
    """Prompts generated in one round over `prompts_per_step`."""
    max_rounds: Rounds = 10
    """Rounds of generation after which the step goes on with what was kept."""
    partial_rollout: PartialRollout | None = None
    """Responses over the batch that are in flight with it; the step goes on when the batch is
    full, and as many unfinished ones go on in the next step under new weights, over as many steps
    as they need. null: every response ends in its step."""
    tail_batching: TailBatching | None = None
    """Short and long rounds; null: every step ends with its longest response."""
    kept_fraction: KeptFraction = 1.0
    """Share of a step's responses that is trained on (best of n, the two of a pair, ...)."""
    token_budget: TokenBudget | None = None
    """Tokens of prompts and responses that every optimizer step trains on, whatever the lengths
    (C3PO); null: all responses that are kept."""
    replay_sequences: dict[Name, Sequences] = Field(default_factory=dict)
    """Role -> sequences that it trains on in one epoch, drawn from a replay buffer or a fixed set:
    its training then does not wait for the step's generation."""
    turns: TurnSpec = TurnSpec()
    """Turns of a trajectory; one turn is a single answer to the prompt."""
    block_diffusion: BlockDiffusion | None = None
    """How a block-diffusion model decodes and trains; null: autoregressive."""
    speculation: Speculation | None = None
    """Speculative decoding; null: every pass gives one token."""
    gradient_exchange: GradientExchange = GradientExchange()
    """What data-parallel replicas exchange, and how often."""
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
    def context_growth(self) -> float:
        """Tokens that the context grows by for each token that the policy writes: 1 and the
        environment's answers."""
        answers = self.turns.observation_tokens * (self.turns.mean - 1.0)
        return 1.0 + answers / self.response_length.mean_tokens

    @property
    def max_sequence_tokens(self) -> int:
        """Longest prompt + trajectory, tokens."""
        longest = math.ceil(self.response_length.max_tokens * self.context_growth - 1e-6)
        return self.prompt_length.max_tokens + longest

    @property
    def mean_sequence_tokens(self) -> float:
        """Mean prompt + trajectory, tokens."""
        response = self.response_length.mean_tokens * self.context_growth
        return self.prompt_length.mean_tokens + response

    @property
    def training_views(self) -> float:
        """Copies of each token in a training or forward pass."""
        return 1.0 if self.block_diffusion is None else self.block_diffusion.training_views

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        replayed = "actor" in self.replay_sequences
        if not replayed and self.sequences_per_step % self.optimizer_steps != 0:
            raise ValueError(
                f"prompts_per_step x samples_per_prompt = {self.sequences_per_step} is not a "
                f"multiple of optimizer_steps {self.optimizer_steps}"
            )
        if self.block_diffusion is not None and self.speculation is not None:
            raise ValueError("block_diffusion and speculation exclude each other")
        if self.tail_batching is not None:
            others = {
                "partial_rollout": self.partial_rollout is not None,
                "acceptance": self.acceptance < 1.0,
                "oversampling": self.oversampling > 1.0,
                "turns": self.turns.mean > 1.0,
            }
            if any(others.values()):
                found = ", ".join(name for name, given in others.items() if given)
                raise ValueError(f"tail_batching excludes {found}")
            if self.samples_per_prompt > _MOST_RACING:
                raise ValueError(f"tail_batching takes at most {_MOST_RACING} samples per prompt")
        strangers = sorted(set(self.replay_sequences) - set(self.models))
        if strangers:
            raise ValueError(f"replay_sequences names roles without a model: {strangers}")
        for role, model in self.models.items():
            if self.max_sequence_tokens > model.max_position:
                answers = " + answers of the environment" if self.context_growth > 1 else ""
                raise ValueError(
                    f"prompt + response{answers} may reach {self.max_sequence_tokens} tokens, but "
                    f"the {role} {model.name} supports {model.max_position}"
                )
        return self


CallKind = Literal["generate", "forward", "train", "environment"]


class CallLengths(Schema):
    """Lengths of the sequences of a call that sees others than the step's trajectories."""

    prompt_length: LengthDistribution
    """What is there before the call's model writes."""
    response_length: LengthDistribution
    """What it writes (or is trained on)."""
    turns: TurnSpec = TurnSpec()
    """Turns that the response has."""
    samples_per_prompt: Samples | None = None
    """Sequences that share one prompt, and so its cache; null: as many as the workload's."""


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
    rounds: Annotated[float, Field(ge=1, le=1000)] = 1.0
    """generate: times that it runs on so many sequences in one step, one after the other; a mean,
    so it need not be whole."""
    lengths: CallLengths | None = None
    """Lengths of its sequences; null: the workload's."""
