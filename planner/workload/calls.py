"""The calls that algorithms share, under the names that every other room uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from planner.errors import InputError
from planner.schema import Call, Workload
from planner.schema.workload import CallLengths
from planner.workload.sampling import (
    expected_rounds,
    generated_sequences,
    optimizer_steps,
    round_prompts,
    trained_sequences,
)
from planner.workload.turns import answer_lengths

ENVIRONMENT = "environment"
"""Role of calls that run on CPUs."""
Output = Literal["tokens", "logprobs", "values", "rewards", "loss"]


class MissingRoleError(InputError):
    """The algorithm cannot do without a model in the role `role`."""

    def __init__(self, algorithm: str, role: str):
        self.role = role
        super().__init__(
            f"{algorithm} needs a model in the role {role!r}",
            where="models",
            remedy=f"Add `{role}` (on the command line {option_of(role)}).",
        )


def check_roles(workload: Workload, *, needs: Sequence[str], may_have: Sequence[str]) -> None:
    """Raise InputError unless the workload's models are exactly those that the algorithm knows;
    MissingRoleError where one is missing."""
    name = workload.algorithm
    for role in needs:
        if role not in workload.models:
            raise MissingRoleError(name, role)
    for role in workload.models:
        if role not in (*needs, *may_have):
            known = ", ".join((*needs, *may_have))
            raise InputError(
                f"{name} has no role {role!r}",
                where=f"models.{role}",
                remedy=f"Remove it; the roles of {name} are {known}.",
            )


def option_of(role: str) -> str:
    """The option of `rlmplan plan` that gives the role's model."""
    own = ("actor", "critic", "reward", "reference")
    return f"--{role}" if role in own else f"--model {role}=MODEL"


def check_samples(workload: Workload, *, least: int, because: str) -> None:
    """Raise InputError for fewer than `least` samples of a prompt; `because` starts the reason."""
    if workload.samples_per_prompt < least:
        only = "there is only one" if workload.samples_per_prompt == 1 else "there are fewer"
        raise InputError(
            f"{because}, but {only}",
            where="samples_per_prompt",
            remedy=f"Give {'two' if least == 2 else least} or more samples"
            + (", or use ppo." if least == 2 else "."),
        )


def generate(workload: Workload, *, extra_per_prompt: int = 0) -> Call:
    """The actor writes every response of the step, in rounds when prompts are dropped.

    `extra_per_prompt` responses are written besides the samples (a greedy baseline, say).
    """
    per_prompt = workload.samples_per_prompt + extra_per_prompt
    return Call(
        name="generate",
        kind="generate",
        role="actor",
        sequences=round_prompts(workload) * per_prompt,
        rounds=expected_rounds(workload),
        output="tokens",
        lengths=same_lengths(workload, per_prompt) if extra_per_prompt else None,
    )


def same_lengths(workload: Workload, samples_per_prompt: int) -> CallLengths:
    """The workload's own lengths, with another number of samples to a prompt."""
    return CallLengths(
        prompt_length=workload.prompt_length,
        response_length=workload.response_length,
        turns=workload.turns,
        samples_per_prompt=samples_per_prompt,
    )


def score(workload: Workload, *, extra_per_prompt: int = 0) -> Call:
    """One score for each response: from the reward model if there is one, else on CPUs."""
    generated = generated_sequences(workload)
    per_prompt = workload.samples_per_prompt
    sequences = generated * (per_prompt + extra_per_prompt) // per_prompt
    if "reward" in workload.models:
        return forward("rewards", "reward", "rewards", sequences)
    return Call(
        name="verify",
        kind="environment",
        role=ENVIRONMENT,
        sequences=sequences,
        output="rewards",
    )


def policy_logprobs(workload: Workload) -> list[Call]:
    """Forward passes of the old policy and of the reference, where the workload asks for them."""
    return [*old_logprobs(workload), *reference_logprobs(workload)]


def old_logprobs(workload: Workload) -> list[Call]:
    """The old policy's log-probabilities of what is trained on, unless the engine gave them."""
    if workload.old_logprobs in ("recompute", "either"):
        return [forward("old_logprobs", "actor", "logprobs", trained_sequences(workload, "actor"))]
    if workload.old_logprobs == "skip" and workload.optimizer_steps * workload.epochs > 1:
        raise InputError(
            f"old log-probabilities cannot be skipped with {workload.optimizer_steps} optimizer "
            f"steps and {workload.epochs} epochs: after the first step the policy has changed",
            where="old_logprobs",
            remedy='Use "recompute" or "engine", or one optimizer step and one epoch.',
        )
    return []


def reference_logprobs(workload: Workload, *, lengths: CallLengths | None = None) -> list[Call]:
    """The reference's log-probabilities of what is trained on, with a KL weight above zero."""
    if workload.kl_weight <= 0:
        return []
    if "reference" not in workload.models:
        raise InputError(
            f"a KL weight of {workload.kl_weight:g} needs a reference model",
            where="models",
            remedy="Add `reference` (usually the actor's model), or set kl_weight to 0.",
        )
    sequences = trained_sequences(workload, "actor")
    return [forward("reference_logprobs", "reference", "logprobs", sequences, lengths=lengths)]


def values(workload: Workload) -> Call:
    """The critic's value of every response token."""
    return forward("values", "critic", "values", trained_sequences(workload, "actor"))


def train(workload: Workload, role: str, *, lengths: CallLengths | None = None) -> Call:
    """All optimizer steps of one model in one RL step."""
    epochs = workload.critic_epochs if role == "critic" else None
    return Call(
        name=f"{role}_train",
        kind="train",
        role=role,
        sequences=trained_sequences(workload, role),
        output="loss",
        epochs=epochs or workload.epochs,
        optimizer_steps=optimizer_steps(workload, role),
        lengths=lengths,
    )


def forward(
    name: str,
    role: str,
    output: Output,
    sequences: int,
    *,
    lengths: CallLengths | None = None,
) -> Call:
    """One forward pass of a model over `sequences`."""
    return Call(
        name=name, kind="forward", role=role, sequences=sequences, output=output, lengths=lengths
    )


def workload_of(call: Call, workload: Workload) -> Workload:
    """The workload with the lengths that the call sees."""
    if call.lengths is None:
        return workload
    return workload.model_copy(
        update={
            "prompt_length": call.lengths.prompt_length,
            "response_length": call.lengths.response_length,
            "turns": call.lengths.turns,
            "samples_per_prompt": call.lengths.samples_per_prompt or workload.samples_per_prompt,
        }
    )


def simulate_environment(workload: Workload) -> Call:
    """A model plays the environment: it writes the answers of every trajectory.

    It follows the policy's generation, as if all trajectories took their turns together: an upper
    estimate, since with many in flight one model writes while others read.
    """
    return Call(
        name="simulate_environment",
        kind="generate",
        role="env_llm",
        sequences=generated_sequences(workload),
        output="tokens",
        lengths=answer_lengths(workload),
    )
