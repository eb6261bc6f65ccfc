"""How a policy turns passes into tokens: one by one, block by block, or with a draft.

Every mode is described by three numbers for one running sequence: the tokens that enter a pass,
the passes for one token of the response, and what drafting adds to a pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.schema import Workload


@dataclass(frozen=True)
class DecodeMode:
    """Passes of the policy while it generates."""

    rows: float = 1.0
    """Tokens of one sequence that enter one pass."""
    passes_per_token: float = 1.0
    """Passes for one token of the response, on average."""
    draft_share: float = 0.0
    """Time of drafting for one pass over that of a pass of one token a sequence."""

    @property
    def work_per_token(self) -> float:
        """Tokens that pass through the policy for one token of the response."""
        return self.rows * self.passes_per_token


def decode_mode(workload: Workload) -> DecodeMode:
    """The mode of the workload's policy; autoregressive decoding is all ones.

    Block diffusion (SDAR, arXiv:2510.06303): a block of K tokens takes S passes on average and one
    more to commit its cache unless that is fused with the next block, so S / K passes a token.
    Speculation (Leviathan et al., arXiv:2211.17192): q drafted tokens of acceptance a give
    (1 - a^(q + 1)) / (1 - a) tokens a pass.
    """
    if workload.block_diffusion is not None:
        block = workload.block_diffusion
        passes = block.mean_passes + block.separate_commit
        return DecodeMode(float(block.block_tokens), passes / block.block_tokens)
    if workload.speculation is not None:
        draft = workload.speculation
        verified = draft.draft_tokens + 1
        gained = (1.0 - draft.acceptance**verified) / (1.0 - draft.acceptance)
        return DecodeMode(float(verified), 1.0 / gained, draft.draft_tokens * draft.draft_cost)
    return DecodeMode()
