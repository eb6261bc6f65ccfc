"""Small changes of a workload that does not fit, each tried before it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from planner.schema import CallSpace, SearchSpace, Workload
from planner.search.scope import Scope
from planner.simulate.instance import Instance

Fits = Callable[[Instance, list[Scope]], bool]
"""Whether a plan exists for the instance in one of the classes."""

_LORA_RANK = 16
_CAPS = (2, 4, 8)
"""Parts of the response limit to try."""
_ROOM = 1.25
"""A limit must stay this far above the mean response, or it would be another workload."""


def levers(instance: Instance, scopes: Sequence[Scope], fits: Fits) -> list[str]:
    """Changes that make a plan possible on the same devices, in words; empty when none does.

    A lower limit of the responses (the mean as it is), adapters in place of full training, and
    offload where the search space has none.
    """
    found = []
    for words, workload in _shorter(instance.workload):
        if fits(replace(instance, workload=workload), list(scopes)):
            found.append(words)
            break
    if instance.workload.lora_rank == 0:
        workload = instance.workload.model_copy(update={"lora_rank": _LORA_RANK})
        if fits(replace(instance, workload=workload), list(scopes)):
            found.append(f"with LoRA of rank {_LORA_RANK} in place of full training")
    space = _with_offload(scopes[0].space)
    if space is not None and fits(instance, [replace(scope, space=space) for scope in scopes]):
        found.append(f"with `offload: all`, which the space {space.name} leaves out")
    return found


def _shorter(workload: Workload) -> Iterator[tuple[str, Workload]]:
    lengths = workload.response_length
    if lengths.kind == "histogram":
        return
    for part in _CAPS:
        cap = lengths.max_tokens // part
        if cap < _ROOM * lengths.mean_tokens:
            return
        shorter = lengths.model_copy(update={"max_tokens": cap})
        yield (
            f"with responses of at most {cap:,} tokens (now {lengths.max_tokens:,})",
            workload.model_copy(update={"response_length": shorter}),
        )


def _with_offload(space: SearchSpace) -> SearchSpace | None:
    """The space with offload of whole models in every call; None when it has it."""
    calls = {
        kind: each
        if kind == "generate" or "all" in each.offload
        else CallSpace(**(each.model_dump() | {"offload": (*each.offload, "all")}))
        for kind, each in space.calls.items()
    }
    return None if calls == space.calls else space.model_copy(update={"calls": calls})
