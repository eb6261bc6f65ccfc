"""What is run: sizes of models, training steps, decoding, weight synchronisation."""

from __future__ import annotations

from dataclasses import dataclass

from planner.schema import ModelSpec


@dataclass(frozen=True)
class Size:
    """A model; heads of 64 elements."""

    name: str
    hidden: int
    layers: int
    ffn: int
    vocab: int
    longest: int = 2048

    @property
    def spec(self) -> ModelSpec:
        """The same model for the planner."""
        return ModelSpec(
            name=self.name,
            architecture="closed loop",
            hidden_size=self.hidden,
            num_layers=self.layers,
            num_heads=self.hidden // 64,
            num_kv_heads=self.hidden // 64,
            head_dim=64,
            ffn_size=self.ffn,
            vocab_size=self.vocab,
            max_position=self.longest,
        )


@dataclass(frozen=True)
class Training:
    """One optimizer step on `sequences` sequences of `tokens` each."""

    size: Size
    tokens: int
    sequences: int
    micro: int
    """Sequences in one microbatch."""
    dp: int = 1
    tp: int = 1
    pp: int = 1
    recompute: bool = False

    @property
    def ranks(self) -> int:
        """Processes that take part."""
        return self.dp * self.tp * self.pp

    @property
    def group(self) -> str:
        """Configurations of one group do the same work and are ranked against one another."""
        return f"{self.size.name} {self.sequences}x{self.tokens}"

    @property
    def label(self) -> str:
        """The strategy in words."""
        parallel = f"dp{self.dp} tp{self.tp} pp{self.pp}"
        return f"{parallel}{' recompute' if self.recompute else ''}"


@dataclass(frozen=True)
class Decoding:
    """Steps of `batch` sequences with about `context` tokens cached."""

    size: Size
    batch: int
    context: int
    tp: int = 1

    @property
    def ranks(self) -> int:
        """Processes that take part."""
        return self.tp

    @property
    def group(self) -> str:
        """Model and load."""
        return f"{self.size.name} {self.batch}x{self.context}"

    @property
    def label(self) -> str:
        """What runs, in words."""
        return f"decode tp{self.tp}"


@dataclass(frozen=True)
class Sync:
    """All weights from the first process to the second, as bf16, tensor by tensor."""

    size: Size
    ranks: int = 2

    @property
    def group(self) -> str:
        """The model."""
        return self.size.name

    label = "weight sync"


Configuration = Training | Decoding | Sync

SMALL = Size("256h-4L", 256, 4, 1024, 2048)
MIDDLE = Size("384h-6L", 384, 6, 1024, 2048)
WIDE = Size("512h-4L", 512, 4, 1536, 4096)
BIG = Size("768h-4L", 768, 4, 2048, 2048)
DEEP = Size("512h-8L", 512, 8, 2048, 2048)

_TRAININGS = (
    (SMALL, 64, 8),
    (SMALL, 256, 2),
    (MIDDLE, 64, 4),
    (MIDDLE, 128, 4),
    (WIDE, 64, 4),
    (WIDE, 256, 2),
)
_DECODINGS = (
    (BIG, 1, 256),
    (BIG, 8, 256),
    (BIG, 32, 128),
    (DEEP, 1, 512),
    (DEEP, 4, 1024),
    (DEEP, 16, 256),
    (DEEP, 32, 256),
)


def all_configurations() -> list[Configuration]:
    """48 training steps, 14 decodings, 3 weight synchronisations."""
    listed: list[Configuration] = []
    for size, tokens, sequences in _TRAININGS:
        half = sequences // 2
        quarter = max(sequences // 4, 1)  # microbatches of a pipeline
        for recompute in (False, True):
            shared = {"size": size, "tokens": tokens, "sequences": sequences}
            listed += [
                Training(**shared, micro=half, recompute=recompute),
                Training(**shared, micro=half, dp=2, recompute=recompute),
                Training(**shared, micro=half, tp=2, recompute=recompute),
                Training(**shared, micro=quarter, pp=2, recompute=recompute),
            ]
    for tp in (1, 2):
        listed += [Decoding(size, batch, context, tp) for size, batch, context in _DECODINGS]
    return [*listed, *(Sync(size) for size in (SMALL, WIDE, DEEP))]
