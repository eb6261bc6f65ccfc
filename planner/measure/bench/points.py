"""What is measured: points on grids of kernel shapes, small for a quick look, dense for a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

Kind = Literal["cpu", "cuda"]

STREAMS = ("copy", "add", "read")
SMALL = ("small_kernel", "launch")
COLLECTIVE_KERNELS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


@dataclass(frozen=True)
class Point:
    """One kernel at one shape.

    Shapes: gemm (m, n, k); prefill (head_dim, tokens, batch x heads, heads / kv_heads); decode
    (head_dim, context, batch x kv_heads, heads / kv_heads); layer_elementwise (tokens, hidden,
    ffn); loss (tokens, vocabulary); streams and host links (bytes); small kernels (); collectives
    (members, elements), with the prefix "across_" when each member is on another node.
    """

    kernel: str
    shape: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        """The name of the point in a journal."""
        return "/".join((self.kernel, *(str(size) for size in self.shape)))

    @property
    def is_collective(self) -> bool:
        """True when all ranks must take part."""
        return self.kernel.removeprefix("across_") in COLLECTIVE_KERNELS


@dataclass(frozen=True)
class Grids:
    """Coordinates of the points; every kernel is measured on its full grid."""

    gemm_rows: tuple[int, ...]
    gemm_sizes: tuple[int, ...]
    """Of n and of k."""
    head_dims: tuple[int, ...]
    prefill_tokens: tuple[int, ...]
    prefill_rows: tuple[int, ...]
    decode_context: tuple[int, ...]
    decode_rows: tuple[int, ...]
    groups: tuple[int, ...]
    elementwise: tuple[tuple[int, int, int], ...]
    loss: tuple[int, int]
    stream_bytes: tuple[int, ...]
    message_elements: tuple[int, ...]


_CPU_QUICK = Grids(
    gemm_rows=(1, 8, 64, 256, 1024),
    gemm_sizes=(128, 512, 2048),
    head_dims=(64,),
    prefill_tokens=(64, 256, 1024),
    prefill_rows=(2, 16),
    decode_context=(64, 512, 4096),
    decode_rows=(2, 32),
    groups=(1,),
    elementwise=((512, 256, 1024), (2048, 512, 2048)),
    loss=(512, 4096),
    stream_bytes=(2**28,),
    message_elements=(2**8, 2**14, 2**18, 2**22),
)
_CPU_FULL = Grids(
    gemm_rows=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048),
    gemm_sizes=(64, 128, 256, 512, 1024, 2048, 4096),
    head_dims=(64, 128),
    prefill_tokens=(32, 64, 128, 256, 512, 1024, 2048),
    prefill_rows=(1, 4, 16, 64),
    decode_context=(16, 64, 256, 1024, 4096),
    decode_rows=(1, 4, 16, 64),
    groups=(1, 4),
    elementwise=((256, 256, 1024), (512, 512, 2048), (1024, 512, 2048), (2048, 1024, 4096)),
    loss=(1024, 8192),
    stream_bytes=(2**27, 2**29),
    message_elements=tuple(4**i for i in range(4, 13)),
)
_GPU_QUICK = Grids(
    gemm_rows=(1, 16, 128, 1024, 8192),
    gemm_sizes=(1024, 4096, 16384),
    head_dims=(128,),
    prefill_tokens=(256, 1024, 4096, 16384),
    prefill_rows=(8, 64),
    decode_context=(256, 2048, 16384),
    decode_rows=(8, 256),
    groups=(1, 8),
    elementwise=((4096, 4096, 14336),),
    loss=(4096, 65536),
    stream_bytes=(2**31,),
    message_elements=(2**10, 2**16, 2**21, 2**26),
)
_GPU_FULL = Grids(
    gemm_rows=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
    gemm_sizes=(512, 1024, 2048, 4096, 8192, 16384, 32768),
    head_dims=(64, 128),
    prefill_tokens=(64, 256, 1024, 2048, 4096, 8192, 16384),
    prefill_rows=(1, 8, 32, 128),
    decode_context=(64, 256, 1024, 4096, 16384, 65536),
    decode_rows=(1, 8, 32, 128, 512),
    groups=(1, 4, 8),
    elementwise=((2048, 4096, 14336), (8192, 4096, 14336), (8192, 8192, 28672)),
    loss=(4096, 131072),
    stream_bytes=(2**30, 2**32),
    message_elements=tuple(4**i for i in range(5, 15)),
)


def grids(kind: Kind, *, quick: bool) -> Grids:
    """The grids for a kind of device."""
    if kind == "cpu":
        return _CPU_QUICK if quick else _CPU_FULL
    return _GPU_QUICK if quick else _GPU_FULL


def points(kind: Kind, grid: Grids, *, node_ranks: int = 1, nodes: int = 1) -> Iterator[Point]:
    """All points of a machine of `nodes` nodes with `node_ranks` processes each, in the order of
    measurement: what other figures rest on comes first.
    """
    yield from (Point(kernel) for kernel in SMALL)
    yield from (Point(kernel, (size,)) for kernel in STREAMS for size in grid.stream_bytes)
    if kind == "cuda":
        links = ("host_to_device", "device_to_host")
        yield from (Point(link, (min(grid.stream_bytes) // 4,)) for link in links)
    yield from (
        Point("layer_elementwise" + way, shape)
        for shape in grid.elementwise
        for way in ("", "_backward")
    )
    # One token: nothing but launches.
    yield Point("layer_elementwise", (1, *grid.elementwise[0][1:]))
    yield Point("loss", grid.loss)
    yield from _full("gemm", grid.gemm_rows, grid.gemm_sizes, grid.gemm_sizes)
    yield from _full("prefill", grid.head_dims, grid.prefill_tokens, grid.prefill_rows, grid.groups)
    yield from _full("decode", grid.head_dims, grid.decode_context, grid.decode_rows, grid.groups)
    inside = [2**i for i in range(1, node_ranks.bit_length()) if 2**i <= node_ranks]
    yield from _full_of(COLLECTIVE_KERNELS, inside, grid.message_elements)
    across = [nodes] if nodes > 1 else []
    yield from _full_of(
        [f"across_{kernel}" for kernel in COLLECTIVE_KERNELS], across, grid.message_elements
    )


def _full(kernel: str, *axes: tuple[int, ...]) -> Iterator[Point]:
    return (Point(kernel, shape) for shape in product(*axes))


def _full_of(
    kernels: Iterable[str], members: Iterable[int], elements: Iterable[int]
) -> Iterator[Point]:
    counts = list(members)
    for kernel in kernels:
        # A message has two ends, however many ranks there are.
        chosen = [2] if counts and kernel.endswith("send_recv") else counts
        yield from (Point(kernel, shape) for shape in product(chosen, elements))
