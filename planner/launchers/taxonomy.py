"""The strategies of RL post-training by name, and which of them each launcher has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.catalog.spaces import load_space
from planner.launchers.base import Launcher
from planner.schema import CallSpace, SearchSpace

PLANNED = "yes"
ABSENT = ""

_Degree = Callable[[SearchSpace], int]


@dataclass(frozen=True)
class TaxonomyEntry:
    """One strategy: how a space shows that the launcher's plans may use it."""

    id: str
    group: str
    meaning: str
    largest: _Degree | None
    """The largest degree (or 1 for yes, 0 for no) in a space; None: no plan uses it yet."""


@dataclass(frozen=True)
class Support:
    """What one launcher has of one strategy."""

    planned: bool
    """Plans of its spaces may use it, and `write` exports it."""
    largest: int
    """Largest degree that the search tries; 0 or 1 without one."""
    setting: str
    """The launcher's setting, when it has the strategy but no plan uses it."""

    @property
    def word(self) -> str:
        """The cell of a table."""
        if self.planned:
            return f"up to {self.largest}" if self.largest > 1 else PLANNED
        return f"own: {self.setting}" if self.setting else ABSENT


def _train(field: str) -> _Degree:
    return lambda space: max(int(v) for v in getattr(space.calls["train"], field, (0,)))


def _engine(field: str) -> _Degree:
    return lambda space: max(getattr(space.calls["generate"], field)) if _generates(space) else 0


def _generates(space: SearchSpace) -> bool:
    return "generate" in space.calls


def _holds(test: Callable[[CallSpace], bool], call: str = "train") -> _Degree:
    return lambda space: int(call in space.calls and test(space.calls[call]))


def _has(field: str, value: object) -> _Degree:
    return _holds(lambda call: value in getattr(call, field))


TAXONOMY: tuple[TaxonomyEntry, ...] = (
    TaxonomyEntry("zero-1", "training", "optimizer sharded (ZeRO-1)", _has("zero_stage", 1)),
    TaxonomyEntry("zero-2", "training", "gradients sharded too (ZeRO-2)", _has("zero_stage", 2)),
    TaxonomyEntry("zero-3", "training", "weights sharded too (FSDP)", _has("zero_stage", 3)),
    TaxonomyEntry("train-tp", "training", "tensor parallelism", _train("tp")),
    TaxonomyEntry(
        "sequence-parallel",
        "training",
        "sequence parallelism beside tensor parallelism",
        _holds(lambda call: call.sequence_parallel != "never"),
    ),
    TaxonomyEntry("train-pp", "training", "pipeline parallelism", _train("pp")),
    TaxonomyEntry("vpp", "training", "interleaved pipeline stages", _train("vpp")),
    TaxonomyEntry(
        "uneven-stages", "training", "uneven pipeline ends", _holds(lambda call: call.uneven_stages)
    ),
    TaxonomyEntry("cp", "training", "context parallelism (ring or Ulysses)", _train("cp")),
    TaxonomyEntry("train-ep", "training", "expert parallelism", _train("ep")),
    TaxonomyEntry("etp", "training", "tensor parallelism inside experts", _train("etp")),
    TaxonomyEntry("packing", "training", "packed or dynamic microbatches", _has("packing", True)),
    TaxonomyEntry(
        "recompute-full", "memory", "recomputation of whole blocks", _has("recompute", "full")
    ),
    TaxonomyEntry(
        "recompute-selective", "memory", "selective recomputation", _has("recompute", "selective")
    ),
    TaxonomyEntry("offload", "memory", "state offloaded between calls", _has("offload", "all")),
    TaxonomyEntry(
        "optimizer-on-cpu", "memory", "optimizer step on the host", _has("optimizer_on_cpu", True)
    ),
    TaxonomyEntry("activation-offload", "memory", "activations offloaded in training", None),
    TaxonomyEntry("lora", "memory", "low-rank adapters", None),
    TaxonomyEntry("train-fp8", "precision", "FP8 training", _has("dtype", "fp8")),
    TaxonomyEntry(
        "generate-fp8",
        "precision",
        "FP8 generation",
        _holds(lambda call: "fp8" in call.dtype, "generate"),
    ),
    TaxonomyEntry("generate-tp", "generation", "tensor parallelism", _engine("tp")),
    TaxonomyEntry("generate-pp", "generation", "pipeline parallelism", _engine("pp")),
    TaxonomyEntry("generate-ep", "generation", "expert parallelism", _engine("ep")),
    TaxonomyEntry("prefill-decode", "generation", "prefill and decode on devices apart", None),
    TaxonomyEntry(
        "colocated",
        "placement",
        "generation on the training devices",
        lambda space: int("colocated" in space.placements),
    ),
    TaxonomyEntry(
        "disaggregated",
        "placement",
        "generation on devices of its own",
        lambda space: int("disaggregated" in space.placements),
    ),
    TaxonomyEntry(
        "staleness",
        "placement",
        "asynchronous steps (staleness)",
        lambda space: space.max_staleness,
    ),
    TaxonomyEntry("partial-rollout", "placement", "unfinished responses carried over", None),
)


def support(launcher: Launcher, entry: TaxonomyEntry) -> Support:
    """What the launcher has of a strategy, by its spaces and its own declaration."""
    setting = launcher.capabilities.also.get(entry.id, "")
    if entry.largest is None:
        return Support(False, 0, setting)
    spaces = [load_space(name) for name in launcher.capabilities.spaces]
    largest = max(entry.largest(space) for space in spaces)
    # Degree one is no parallelism; a Boolean strategy is there at one.
    degree = entry.id.rpartition("-")[2] in ("tp", "pp", "ep") or entry.id in ("vpp", "cp", "etp")
    planned = largest > 1 if degree else largest > 0
    return Support(planned, largest if planned else 0, setting)
