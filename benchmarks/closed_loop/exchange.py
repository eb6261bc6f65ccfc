"""What ranks exchange, with the clock kept: tensor-parallel sums, messages between stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from clock import StepClock
from torch import distributed as dist


@dataclass(frozen=True)
class Links:
    """This rank, its peer, and the clock of the step."""

    rank: int
    clock: StepClock
    pending: list[Any] = field(default_factory=list)
    """Messages on their way; the stages of a pipeline would wait for one another otherwise."""

    @property
    def peer(self) -> int:
        """The other of the two ranks."""
        return 1 - self.rank

    def all_reduce(self, tensor: Any, op: Any = dist.ReduceOp.SUM) -> Any:
        """Reduce in place over both ranks."""
        self.clock.meet()
        dist.all_reduce(tensor, op=op)
        return tensor

    def send(self, tensor: Any) -> None:
        """Send activations or their gradients, as bf16."""
        message = tensor.detach().to(torch.bfloat16)
        self.pending.append((dist.isend(message, self.peer), message))
        self.clock.sent(self.peer, self.pending)

    def finish(self) -> None:
        """Wait until everything is sent."""
        while self.pending:
            self.pending.pop(0)[0].wait()

    def receive(self, shape: tuple[int, ...], like: Any) -> Any:
        """What the peer sent, in the dtype of `like`."""
        before = self.clock.now()
        box = torch.empty(shape, dtype=torch.bfloat16, device=like.device)
        dist.recv(box, self.peer)
        result = box.to(like.dtype)
        self.clock.received(self.peer, self.clock.now() - before)
        return result


class _ToRanks(torch.autograd.Function):
    """Identity forward, sum of gradients backward (arXiv:1909.08053, f)."""

    @staticmethod
    def forward(ctx, x, links):
        ctx.links = links
        return x

    @staticmethod
    def backward(ctx, gradient):
        return ctx.links.all_reduce(gradient.contiguous()), None


class _FromRanks(torch.autograd.Function):
    """Sum forward, identity backward (arXiv:1909.08053, g)."""

    @staticmethod
    def forward(ctx, x, links):
        ctx.mark_dirty(x)
        return links.all_reduce(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def to_ranks(x, links):
    """Enter a region that the ranks share."""
    return _ToRanks.apply(x, links)


def from_ranks(x, links):
    """Leave it with the sum of their results."""
    return _FromRanks.apply(x, links)


class _VocabularyLoss(torch.autograd.Function):
    """Cross-entropy of logits whose columns are split over the ranks: two reductions."""

    @staticmethod
    def forward(ctx, logits, targets, links):
        rows, columns = logits.shape
        logits = logits.float()
        largest = links.all_reduce(logits.amax(dim=1), op=dist.ReduceOp.MAX)
        logits = logits - largest[:, None]
        local = targets - links.rank * columns
        here = (local >= 0) & (local < columns)
        own = logits[torch.arange(rows), local.clamp(0, columns - 1)] * here
        probabilities = logits.exp_()
        both = links.all_reduce(torch.stack((probabilities.sum(dim=1), own)))
        probabilities /= both[0][:, None]
        ctx.save_for_backward(probabilities, local.clamp(0, columns - 1), here)
        return (both[0].log() - both[1]).mean()

    @staticmethod
    def backward(ctx, gradient):
        probabilities, local, here = ctx.saved_tensors
        rows = len(probabilities)
        result = probabilities * (gradient / rows)
        result[torch.arange(rows), local] -= here * (gradient / rows)
        return result, None, None


def vocabulary_loss(logits, targets, links):
    """Mean cross-entropy; logits [rows, columns of this rank]."""
    return _VocabularyLoss.apply(logits, targets, links)
