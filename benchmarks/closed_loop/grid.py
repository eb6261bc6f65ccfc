"""Kernel shapes that the small models come near, and the reference kernels beside each run."""

from __future__ import annotations

from planner.measure.bench.points import Grids, Point

_CPU = Grids(
    gemm_rows=(1, 4, 16, 64, 256, 1024, 2048),
    gemm_sizes=(128, 256, 512, 1024, 2048),
    head_dims=(64,),
    prefill_tokens=(64, 128, 256, 512, 1024),
    prefill_rows=(4, 16, 64),
    decode_context=(64, 256, 1024),
    decode_rows=(4, 16, 64, 256),
    groups=(1,),
    elementwise=((256, 256, 1024), (1024, 256, 1024), (512, 512, 1536), (1024, 384, 1024)),
    loss=(1024, 2048),
    stream_bytes=(2**27,),
    message_elements=(2**6, 2**10, 2**14, 2**17, 2**20, 2**23),
)
_GPU = Grids(
    gemm_rows=(1, 4, 16, 64, 256, 1024, 4096),
    gemm_sizes=(128, 256, 512, 1024, 2048, 4096),
    head_dims=(64,),
    prefill_tokens=(64, 128, 256, 512, 1024),
    prefill_rows=(4, 16, 64),
    decode_context=(64, 256, 1024),
    decode_rows=(4, 16, 64, 256),
    groups=(1,),
    elementwise=_CPU.elementwise,
    loss=(1024, 2048),
    stream_bytes=(2**30,),
    message_elements=(2**6, 2**10, 2**14, 2**17, 2**20, 2**24),
)
GRIDS = {"cpu": _CPU, "cuda": _GPU}

REFERENCES = {
    "training": (
        Point("gemm", (1024, 512, 512)),
        Point("layer_elementwise_backward", (256, 256, 1024)),
    ),
    "decode": (Point("gemm", (1, 2048, 1024)), Point("layer_elementwise", (1, 256, 1024))),
    "weight sync": (Point("small_kernel"), Point("small_kernel")),
}
"""Kernels measured beside each run: of products, and of everything else."""
