"""Which engine profile, weight formats and cache a measured case of generation ran with."""

from __future__ import annotations

import re
from typing import Any, Literal

from planner.cost.weight_formats import WeightFormat, WeightFormats, uniform
from planner.errors import InputError
from planner.schema import DeviceProfile, DType, ModelSpec

_NAMES = {"tensorrt-llm": "trtllm", "trtllm": "trtllm", "vllm": "vllm", "sglang": "sglang"}
_PROFILES: dict[str, tuple[tuple[tuple[int, int], str], ...]] = {
    "trtllm": (((1, 0), "trtllm-1.0"), ((1, 1), "trtllm-1.1"), ((1, 2), "trtllm")),
    "vllm": (((0, 10), "vllm"),),
    "sglang": (((0, 5), "sglang"),),
}
"""Engine -> (first release of a profile, profile), ascending; the newest when none is stated."""
_CURRENT = {"trtllm": (("2025-07", (1, 0)), ("2025-10", (1, 1)), ("2026-01", (1, 2)))}
"""Engine -> (month, release current since then), ascending (release dates on GitHub)."""
_GPT_OSS_IMAGE = (1, 1)  # the public gpt-oss-dev image: a branch between 1.0 and 1.1
_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:[.\w]*)")


def engine_profile(text: str, source: str, where: str) -> str:
    """The profile of an engine as a case names it.

    Spellings: "vllm 0.12.0", "trtllm nan", "trtllm gpt-oss-dev", "vLLM (- vLLM: v0.11.0 -
    SGLang: v0.5.5)", "TensorRT-LLM (PyTorch backend)" with the release in the `source`.
    """
    first, _, rest = text.partition(" ")
    engine = _NAMES.get(first.lower())
    if engine is None:
        raise InputError(f"unknown engine {text!r}", where=where, remedy=f"Known: {list(_NAMES)}")
    release = _release(engine, first, rest, source, where)
    profiles = _PROFILES[engine]
    if release is None:
        return profiles[-1][1]
    known = [name for since, name in profiles if since <= release]
    return known[-1] if known else profiles[0][1]


def _release(engine: str, name: str, rest: str, source: str, where: str) -> tuple[int, int] | None:
    if rest.startswith("(-"):
        listed = re.search(rf"{re.escape(name)}: (\S+?)[)\s]", rest)
        rest = listed[1] if listed else ""
    elif rest == "(PyTorch backend)":
        stated = re.search(r"\((v[\d.]+)[,)]", source)
        # Unreleased pages are those of the development branch: the newest profile.
        rest = stated[1] if stated else "nan"
    if rest == "gpt-oss-dev":
        return _GPT_OSS_IMAGE
    if rest in ("nan", ""):
        measured = re.search(r"measured=(\d{4}-\d{2})", source)
        return _release_at(engine, measured[1]) if measured else None
    found = _RELEASE.fullmatch(rest)
    if found is None:
        raise InputError(f"unknown release {rest!r} of {engine}", where=where)
    return int(found[1]), int(found[2])


def _release_at(engine: str, month: str) -> tuple[int, int] | None:
    """The release that was current when a case without one was measured."""
    current = [release for since, release in _CURRENT.get(engine, ()) if since <= month]
    return current[-1] if current else None


def weight_formats(text: str, model: ModelSpec, device: DeviceProfile, where: str) -> WeightFormats:
    """Formats of a quantised checkpoint by the name that a case gives its precision."""
    bf16 = WeightFormat("bf16", "bf16")
    if text in ("bf16", "nan (column precision)"):
        # No precision stated: the published checkpoint as it is, bf16.
        return uniform("bf16")
    if text in ("fp8", "fp8_block"):
        one = WeightFormat("fp8", _widest(device, "fp8"))
        return WeightFormats(one, one, one)
    if text == "awq/int4":
        one = WeightFormat("fp4", "bf16")
        return WeightFormats(one, one, one)
    if text == "mxfp4" or (text == "nvfp4" and "fp4" not in device.peak_flop_per_s):
        # Only experts are quantised. Without fp4 units "fp4" can only be this format, and its
        # kernels unpack to bf16; Blackwell multiplies it with fp8 activations.
        computed: DType = "fp8" if "fp4" in device.peak_flop_per_s else "bf16"
        return WeightFormats(bf16, bf16, WeightFormat("fp4", computed))
    if text == "nvfp4":
        one = WeightFormat("fp4", "fp4")
        return WeightFormats(bf16 if model.mla else one, one, one)
    raise InputError(f"unknown weight dtype {text!r}", where=where)


def _widest(device: DeviceProfile, dtype: DType) -> DType:
    return dtype if dtype in device.peak_flop_per_s else "bf16"


def cache_dtype(case: dict[str, Any], where: str) -> Literal["bf16", "fp8"]:
    """Precision of the key-value cache.

    Benchmarks that record no cache precision but quantise activations per tensor store the cache
    in fp8 as well (their checkpoints say so); with bf16 the longest rows would beat the memory's
    bandwidth and overfill it. Cases without the field state all serve options: engine default.
    """
    stated = case.get("kv_dtype")
    if stated == "fp8" or stated == "bf16":
        return "fp8" if stated == "fp8" else "bf16"
    if stated is not None:
        raise InputError(f"unknown cache dtype {stated!r}", where=where)
    if "kv_dtype" in case and case["weight_dtype"] in ("fp8", "nvfp4"):
        return "fp8"
    return "bf16"
