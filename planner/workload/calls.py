"""The calls that algorithms share, under the names that every other room uses."""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import InputError
from planner.schema import Call, Workload

ENVIRONMENT = "environment"
"""Role of calls that run on CPUs."""


def check_roles(workload: Workload, *, needs: Sequence[str], may_have: Sequence[str]) -> None:
    """Raise InputError unless the workload's models are exactly those that the algorithm knows."""
    name = workload.algorithm
    for role in needs:
        if role not in workload.models:
            raise InputError(
                f"{name} needs a model in the role {role!r}",
                where="models",
                remedy=f"Add `{role}` (on the command line --{role}).",
            )
    for role in workload.models:
        if role not in (*needs, *may_have):
            known = ", ".join((*needs, *may_have))
            raise InputError(
                f"{name} has no role {role!r}",
                where=f"models.{role}",
                remedy=f"Remove it; the roles of {name} are {known}.",
            )


def generate(workload: Workload) -> Call:
    """The actor writes every response of the step."""
    return Call(
        name="generate",
        kind="generate",
        role="actor",
        sequences=workload.sequences_per_step,
        output="tokens",
    )


def score(workload: Workload) -> Call:
    """One score for each response: from the reward model if there is one, else on CPUs."""
    if "reward" in workload.models:
        return _forward(workload, "rewards", "reward", "rewards")
    return Call(
        name="verify",
        kind="environment",
        role=ENVIRONMENT,
        sequences=workload.sequences_per_step,
        output="rewards",
    )


def policy_logprobs(workload: Workload) -> list[Call]:
    """Forward passes of the old policy and of the reference, where the workload asks for them."""
    passes: list[Call] = []
    if workload.old_logprobs == "recompute":
        passes.append(_forward(workload, "old_logprobs", "actor", "logprobs"))
    elif workload.old_logprobs == "skip" and workload.optimizer_steps * workload.epochs > 1:
        raise InputError(
            f"old log-probabilities cannot be skipped with {workload.optimizer_steps} optimizer "
            f"steps and {workload.epochs} epochs: after the first step the policy has changed",
            where="old_logprobs",
            remedy='Use "recompute" or "engine", or one optimizer step and one epoch.',
        )
    if workload.kl_weight > 0:
        if "reference" not in workload.models:
            raise InputError(
                f"a KL weight of {workload.kl_weight:g} needs a reference model",
                where="models",
                remedy="Add `reference` (usually the actor's model), or set kl_weight to 0.",
            )
        passes.append(_forward(workload, "reference_logprobs", "reference", "logprobs"))
    return passes


def values(workload: Workload) -> Call:
    """The critic's value of every response token."""
    return _forward(workload, "values", "critic", "values")


def train(workload: Workload, role: str) -> Call:
    """All optimizer steps of one model in one RL step."""
    steps = workload.optimizer_steps
    if role == "critic" and workload.critic_optimizer_steps is not None:
        steps = workload.critic_optimizer_steps
    if workload.sequences_per_step % steps != 0:
        raise InputError(
            f"{workload.sequences_per_step} sequences do not divide into {steps} optimizer steps",
            where="critic_optimizer_steps" if role == "critic" else "optimizer_steps",
            remedy="Give a divisor of prompts x samples.",
        )
    return Call(
        name=f"{role}_train",
        kind="train",
        role=role,
        sequences=workload.sequences_per_step,
        output="loss",
        epochs=workload.epochs,
        optimizer_steps=steps,
    )


def _forward(workload: Workload, name: str, role: str, output: str) -> Call:
    return Call.model_validate(
        {
            "name": name,
            "kind": "forward",
            "role": role,
            "sequences": workload.sequences_per_step,
            "output": output,
        }
    )
