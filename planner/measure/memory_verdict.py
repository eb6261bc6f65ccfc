"""Will it run out of memory? A verdict also when some inputs are not given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from planner.catalog.frameworks import load_framework
from planner.catalog.hardware import load_device
from planner.cost.memory import usable_bytes, verdict
from planner.measure.case import Scored
from planner.measure.memory_core import TrainingRun, peak_parts, with_constants
from planner.schema import ModelSpec, Strategy

Answer = Literal["fits", "tight", "does not fit", "unknown"]

_CHUNK_TOKENS = 1024.0  # a usual chunk of a chunked loss
# What a missing input may be: (least memory, most memory).
_RANGES: dict[str, tuple[object, object]] = {
    "tokens": (1024, 131072),
    "zero_stage": (3, 0),
    "recompute": ("full", "none"),
    "engine_fraction": (0.0, 0.9),
    "chunked_logits": (True, False),
    "device": ("b300-sxm", "rtx4090-24"),
    "dp": (1024, 1),
    "tp": (8, 1),
}


@dataclass(frozen=True)
class Question:
    """One model's training step (or log-probability pass) on one kind of device.

    None means that the input is not given; such an input may be anything that is usual.
    """

    model: ModelSpec | None
    profile: str
    device: str | None = None
    tokens: int | None = None
    """The most tokens of a microbatch (over all context-parallel ranks)."""
    tp: int | None = None
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    dp: int | None = None
    zero_stage: int | None = None
    recompute: str | None = None
    engine_fraction: float | None = 0.0
    """Share of the device that a generation engine holds at the same time."""
    chunked_logits: bool | None = None
    kind: Literal["train", "forward"] = "train"
    state_on_host: bool = False
    """True when optimizer states wait in host memory while the call runs."""


@dataclass(frozen=True)
class Judgement:
    """The verdict and what it rests on."""

    verdict: Answer
    need_bytes: tuple[float, float]
    """Least and most that the call may need, with an engine beside it; equal when all is given."""
    usable_bytes: tuple[float, float]
    """Of the largest and the smallest device that it may be."""
    largest_item: str
    decided_by: tuple[str, ...]
    """Inputs that would settle an unknown verdict."""

    @property
    def remedy(self) -> str:
        """What to say to the user when nothing can be said."""
        return f"Set {', '.join(self.decided_by)}." if self.decided_by else ""


def judge(question: Question) -> Judgement:
    """Verdict from the least and the most memory that the missing inputs allow.

    "does not fit" when even the least is too much, "fits" or "tight" when even the most is not;
    otherwise "unknown", and `decided_by` names the inputs that move it. Without a model nothing
    is computed.
    """
    if question.model is None:
        return Judgement("unknown", (0.0, float("inf")), (0.0, float("inf")), "", ("model",))
    missing = [name for name in _RANGES if getattr(question, name) is None]
    least = replace(question, **{name: _RANGES[name][0] for name in missing})  # type: ignore[arg-type]
    most = replace(question, **{name: _RANGES[name][1] for name in missing})  # type: ignore[arg-type]
    low, high = _answer(least), _answer(most)
    answer: Answer = low[0] if low[0] == high[0] else "unknown"
    if low[0] != "does not fit" and high[0] != "does not fit" and answer == "unknown":
        answer = "tight"
    decided: tuple[str, ...] = ()
    if answer == "unknown":
        decided = tuple(
            name
            for name in missing
            if _answer(replace(least, **{name: _RANGES[name][1]}))[0] == "does not fit"  # type: ignore[arg-type]
            or _answer(replace(most, **{name: _RANGES[name][0]}))[0] != "does not fit"  # type: ignore[arg-type]
        ) or tuple(missing)
    return Judgement(answer, (low[1], high[1]), (low[2], high[2]), high[3], decided)


def fits_score(run: TrainingRun, peak_bytes: float, *, ran: bool) -> Scored:
    """1 or 0 for what happened and what is predicted; a tight fit counts as fitting."""
    usable = usable_bytes(load_device(run.device), run.profile)
    predicted = verdict(peak_bytes, usable) != "does not fit"
    parts = {"need": peak_bytes, "usable": usable}
    return Scored("fits", float(ran), float(predicted), parts)


def _answer(question: Question) -> tuple[Answer, float, float, str]:
    """Verdict, need, usable bytes and the largest item of a complete question."""
    assert question.model is not None
    assert question.device is not None
    profile = load_framework(question.profile)
    if question.chunked_logits is not None:
        chunk = _CHUNK_TOKENS if question.chunked_logits else 0.0
        profile = with_constants(profile, {"logits_chunk_tokens": chunk})
    strategy = Strategy(
        tp=question.tp or 1,
        pp=question.pp,
        cp=question.cp,
        ep=question.ep,
        etp=question.etp,
        dp=question.dp or 1,
        zero_stage=question.zero_stage or 0,
        sequence_parallel=(question.tp or 1) > 1,
        packing=False,
        recompute=question.recompute or "none",  # type: ignore[arg-type]
        offload="optimizer" if question.state_on_host else "none",
    )
    run = TrainingRun(
        model=question.model,
        strategy=strategy,
        profile=profile,
        device=question.device,
        devices_per_node=min(8, strategy.devices),
        tokens=question.tokens or 1,
        microbatches=question.pp,
        kind=question.kind,
    )
    parts = peak_parts(run)
    device = load_device(question.device)
    parts["engine"] = (question.engine_fraction or 0.0) * device.memory_bytes
    need, usable = sum(parts.values()), usable_bytes(device, profile)
    return verdict(need, usable), need, usable, max(parts, key=lambda name: parts[name])
