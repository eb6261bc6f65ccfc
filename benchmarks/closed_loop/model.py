"""A small decoder-only transformer in plain torch, whole, split by tensor or by pipeline."""

from __future__ import annotations

import torch
from configurations import Size
from exchange import Links, from_ranks, to_ranks, vocabulary_loss
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from planner.measure.bench.kernels import rotary

HEAD_DIM = 64


class Layer(nn.Module):
    """Norm, attention, norm, gated feed-forward; heads and width split over `tp` ranks."""

    def __init__(self, size: Size, tp: int, links: Links):
        super().__init__()
        self.links, self.tp = links, tp
        self.heads = size.hidden // HEAD_DIM // tp
        self.first = nn.Parameter(torch.ones(size.hidden))
        self.second = nn.Parameter(torch.ones(size.hidden))
        self.qkv = nn.Linear(size.hidden, 3 * size.hidden // tp, bias=False)
        self.out = nn.Linear(size.hidden // tp, size.hidden, bias=False)
        self.gate_up = nn.Linear(size.hidden, 2 * size.ffn // tp, bias=False)
        self.down = nn.Linear(size.ffn // tp, size.hidden, bias=False)

    def forward(self, x, angles, cache=None, at=0):
        """x [batch, tokens, hidden]; with a cache, its keys and values before `at` count too."""
        batch, tokens, hidden = x.shape
        y = functional.rms_norm(x, (hidden,), self.first)
        y = to_ranks(y, self.links) if self.tp > 1 else y
        packed = self.qkv(y).view(batch, tokens, 3, self.heads, HEAD_DIM)
        query, key, value = packed.unbind(2)
        query, key = rotary(torch, query, *angles), rotary(torch, key, *angles)
        query, key, value = (one.transpose(1, 2) for one in (query, key, value))
        if cache is None:
            y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            keys, values = cache
            keys[:, :, at : at + tokens] = key
            values[:, :, at : at + tokens] = value
            seen = at + tokens
            y = functional.scaled_dot_product_attention(
                query, keys[:, :, :seen], values[:, :, :seen], is_causal=tokens > 1
            )
        y = self.out(y.transpose(1, 2).reshape(batch, tokens, -1))
        x = x + (from_ranks(y, self.links) if self.tp > 1 else y)
        y = functional.rms_norm(x, (hidden,), self.second)
        y = to_ranks(y, self.links) if self.tp > 1 else y
        gate, up = self.gate_up(y).chunk(2, dim=-1)
        y = self.down(functional.silu(gate) * up)
        return x + (from_ranks(y, self.links) if self.tp > 1 else y)


class Stage(nn.Module):
    """Consecutive layers, with the embedding in the first and the head in the last stage."""

    def __init__(self, size: Size, layers: int, tp: int, links: Links, *, first: bool, last: bool):
        super().__init__()
        self.size, self.tp, self.links = size, tp, links
        self.embedding = nn.Embedding(size.vocab, size.hidden) if first else None
        self.layers = nn.ModuleList(Layer(size, tp, links) for _ in range(layers))
        self.norm = nn.Parameter(torch.ones(size.hidden)) if last else None
        self.head = nn.Linear(size.hidden, size.vocab // tp, bias=False) if last else None
        turn = 1e4 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        table = torch.outer(torch.arange(size.longest), turn)[:, None, :]
        self.register_buffer("cos", table.cos(), persistent=False)
        self.register_buffer("sin", table.sin(), persistent=False)

    def hidden(self, x, *, recompute=False, caches=None, at=0):
        """Tokens or hidden states in, hidden states out."""
        if self.embedding is not None:
            x = self.embedding(x)
        tokens = x.shape[1]
        angles = self.cos[at : at + tokens], self.sin[at : at + tokens]
        for index, layer in enumerate(self.layers):
            if recompute:
                x = checkpoint(layer, x, angles, use_reentrant=False, preserve_rng_state=False)
            else:
                x = layer(x, angles, None if caches is None else caches[index], at)
        return x

    def logits(self, x):
        """[batch, tokens, vocabulary of this rank]."""
        x = functional.rms_norm(x, (self.size.hidden,), self.norm)
        return self.head(to_ranks(x, self.links) if self.tp > 1 else x)

    def loss(self, x, targets):
        """Mean cross-entropy of the targets."""
        logits = self.logits(x).flatten(0, 1)
        if self.tp > 1:
            return vocabulary_loss(logits, targets.flatten(), self.links)
        return functional.cross_entropy(logits.float(), targets.flatten())

    def caches(self, batch: int, longest: int):
        """Empty key-value caches, one a layer."""
        weight = self.layers[0].qkv.weight
        shape = (batch, self.layers[0].heads, longest, HEAD_DIM)
        return [(weight.new_zeros(shape), weight.new_zeros(shape)) for _ in self.layers]
