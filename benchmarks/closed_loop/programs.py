"""The real programs: training steps, decoding steps and weight synchronisation, timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from configurations import Configuration, Decoding, Size, Sync, Training
from exchange import Links
from model import Stage
from torch import distributed as dist

Step = Callable[[], None]
_DECODE_STEPS = 8


def program(machine: Any, links: Links, one: Configuration) -> tuple[Step, int]:
    """(a function that runs it, steps that one run has) on this rank."""
    torch.manual_seed(0)
    if isinstance(one, Training):
        return _training(machine, links, one), 1
    if isinstance(one, Decoding):
        return _decoding(machine, links, one), _DECODE_STEPS
    return _sync(machine, links, one), 1


def time_step(machine: Any, links: Links, one: Configuration, run: Step) -> float:
    """Seconds of one run: the slowest rank's."""
    links.clock.start(one.ranks)
    run()
    links.finish()
    seconds = torch.tensor([links.clock.elapsed()], dtype=torch.float64, device=machine.device)
    if one.ranks > 1:
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return float(seconds)


def _stage(machine: Any, links: Links, size: Size, tp: int = 1, pp: int = 1) -> Stage:
    rank = links.rank if pp > 1 else 0
    stage = Stage(size, size.layers // pp, tp, links, first=rank == 0, last=rank == pp - 1)
    return stage.to(device=machine.device, dtype=machine.dtype)


def _training(machine: Any, links: Links, one: Training) -> Step:
    """One step: microbatches, gradient exchange, clipping, fused Adam.

    Gradients lie in one buffer, which is reduced at once.
    """
    stage = _stage(machine, links, one.size, one.tp, one.pp)
    parameters = list(stage.parameters())
    gradients = torch.zeros(
        sum(p.numel() for p in parameters), device=machine.device, dtype=machine.dtype
    )
    begin = 0
    for parameter in parameters:
        parameter.grad = gradients[begin : begin + parameter.numel()].view_as(parameter)
        begin += parameter.numel()
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    sequences = one.sequences // one.dp
    batch = torch.randint(one.size.vocab, (sequences, one.tokens + 1), device=machine.device)
    parts = batch.split(one.micro)
    share = 1.0 / (len(parts) * one.dp)
    whole = one.pp == 1

    def step() -> None:
        gradients.zero_()
        if whole:
            for part in parts:
                hidden = stage.hidden(part[:, :-1], recompute=one.recompute)
                (stage.loss(hidden, part[:, 1:]) * share).backward()
        else:
            _pipeline(links, stage, parts, share, one)
        if one.dp > 1:
            links.all_reduce(gradients)
        square = gradients.square().sum() if one.ranks > one.dp else None
        if square is not None:
            norm = links.all_reduce(square).sqrt()
        else:
            norm = torch.linalg.vector_norm(gradients)
        gradients.mul_((1.0 / norm).clamp(max=1.0))
        optimizer.step()

    return step


def _pipeline(links: Links, stage: Stage, parts: Any, share: float, one: Training) -> None:
    """1F1B over two stages (arXiv:2104.04473)."""
    shape = (one.micro, one.tokens, one.size.hidden)
    like = next(stage.parameters())
    if stage.head is not None:
        for part in parts:
            x = links.receive(shape, like).requires_grad_()
            hidden = stage.hidden(x, recompute=one.recompute)
            (stage.loss(hidden, part[:, 1:]) * share).backward()
            links.send(x.grad)
        return
    waiting = []
    for part in parts:
        waiting.append(stage.hidden(part[:, :-1], recompute=one.recompute))
        links.send(waiting[-1])
        if len(waiting) == 2:  # one microbatch ahead of the last stage
            waiting.pop(0).backward(links.receive(shape, like))
    while waiting:
        waiting.pop(0).backward(links.receive(shape, like))


def _decoding(machine: Any, links: Links, one: Decoding) -> Step:
    """Steps of greedy decoding around `context` cached tokens."""
    stage = _stage(machine, links, one.size, one.tp)
    caches = stage.caches(one.batch, one.context + _DECODE_STEPS)
    for keys, values in caches:
        keys.normal_()
        values.normal_()
    first = torch.zeros(one.batch, 1, dtype=torch.long, device=machine.device)
    begin = one.context - _DECODE_STEPS // 2

    @torch.no_grad()
    def run() -> None:
        tokens = first
        for index in range(_DECODE_STEPS):
            hidden = stage.hidden(tokens, caches=caches, at=begin + index)
            logits = stage.logits(hidden)[:, -1]
            if one.tp == 1:
                tokens = logits.argmax(dim=-1, keepdim=True)
                continue
            best, place = logits.float().max(dim=-1)
            # Value and index of each rank's best column, so that all choose the same token.
            both = torch.zeros(2, 2, one.batch, dtype=torch.float64, device=machine.device)
            both[links.rank] = torch.stack(
                (best.double(), (place + links.rank * logits.shape[-1]).double())
            )
            links.all_reduce(both)
            winner = both[:, 0].argmax(dim=0)
            tokens = both[winner, 1, torch.arange(one.batch)].long()[:, None]

    return run


def _sync(machine: Any, links: Links, one: Sync) -> Step:
    """Each tensor is cast to bf16, sent, and copied into the receiver's weights."""
    stage = _stage(machine, links, one.size)

    @torch.no_grad()
    def run() -> None:
        for parameter in stage.parameters():
            if links.rank == 0:
                links.send(parameter)
            else:
                parameter.copy_(links.receive(tuple(parameter.shape), parameter))

    return run


def median_of(runs: list[float]) -> tuple[float, float]:
    """Median, and distance between the quartiles over it."""
    ordered = sorted(runs)
    middle = statistics.median(ordered)
    quarter = len(ordered) // 4
    return middle, (ordered[-1 - quarter] - ordered[quarter]) / middle
