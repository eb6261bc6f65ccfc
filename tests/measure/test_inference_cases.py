"""Reading measured inference cases, and what is predicted for a sample of them."""

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from planner.catalog.frameworks import lineage, load_framework, overridden, own_constants
from planner.errors import InputError
from planner.measure.case import Prediction
from planner.measure.case_files import load_cases
from planner.measure.engines import cache_dtype, engine_profile, weight_formats
from planner.measure.inference_cases import PRICING_CONSTANTS, READER, read_inference_case

CASES = Path(__file__).parents[1] / "cases" / "inference.json"


@cache
def cases() -> list[dict]:
    """Every third published case of mixed engines and every ninth of fixed concurrency."""
    return load_cases(CASES)


def usable() -> list[dict]:
    return [case for case in cases() if case["complete"] and not case["flag"]]


@cache
def predictions() -> list[tuple[str, Prediction]]:
    return [(case["id"], READER.predict(case)) for case in usable()]


def find(**fields: object) -> dict:
    return next(c for c in usable() if all(c.get(key) == value for key, value in fields.items()))


def test_sample_is_large_and_every_complete_case_is_modelled() -> None:
    assert len(usable()) > 150
    assert all(READER.recognises(case) for case in cases())
    assert all(len(prediction.scores) == 1 for _, prediction in predictions())


def test_throughput_is_near_the_measured_one() -> None:
    errors = np.array([p.scores[0].predicted / p.scores[0].measured - 1 for _, p in predictions()])
    assert np.abs(errors).mean() < 0.13
    assert np.median(np.abs(errors)) < 0.08
    assert abs(np.median(errors)) < 0.04


def test_prepared_cases_follow_every_constant() -> None:
    """Kernel times are kept between calls; no change of a constant may be missed."""
    some = usable()[::40]
    run = READER.prepare(some)
    assert [one.scores for one in run()] == [READER.predict(case).scores for case in some]
    for name in {one.framework for one in run()}:
        for key in PRICING_CONSTANTS | {"weight_only_factor", "max_batched_tokens"}:
            constant = load_framework(name).constants[key]
            owner = next(one for one in lineage(name) if key in own_constants(one))
            with overridden({owner: {key: 1.3 * constant.value + 1e-6}}):
                for case, found in zip(some, run(), strict=True):
                    if found.framework == name:
                        expected = READER.predict(case).scores[0]
                        assert found.scores[0].predicted == expected.predicted, key


def test_replicas_are_ranked_at_equal_load() -> None:
    """Among the sample's cases of one model, device and load, more devices give more tokens/s."""
    seen: Counter[bool] = Counter()
    by_load: dict[tuple, list[tuple[float, float]]] = {}
    for case, (_, prediction) in zip(usable(), predictions(), strict=True):
        key = tuple(
            str(case.get(name))
            for name in ("engine", "gpu", "weight_dtype", "input_len", "output_len", "concurrency")
        )
        score = prediction.scores[0]
        by_load.setdefault((case["model"]["name"], *key), []).append(
            (score.measured, score.predicted)
        )
    for rows in by_load.values():
        for i, (measured, predicted) in enumerate(rows):
            for other_measured, other_predicted in rows[:i]:
                if measured != other_measured:
                    seen[(measured > other_measured) == (predicted > other_predicted)] += 1
    assert seen[True] > 10
    assert seen[True] >= 9 * seen[False]


@pytest.mark.parametrize(
    ("text", "source", "profile"),
    [
        ("trtllm 1.0.0rc3", "", "trtllm-1.0"),
        ("trtllm 1.1.0rc2.post2", "", "trtllm-1.1"),
        ("trtllm 1.3.0rc1", "", "trtllm"),
        ("trtllm nan", "x (measured=2025-11-02T00)", "trtllm-1.1"),
        ("trtllm nan", "x (measured=2026-02-02T00)", "trtllm"),
        ("trtllm gpt-oss-dev", "", "trtllm-1.1"),
        (
            "TensorRT-LLM (PyTorch backend)",
            "perf.md (v1.0, commit 00f3) table",
            "trtllm-1.0",
        ),
        ("TensorRT-LLM (PyTorch backend)", "perf.md (commit 03e2) table", "trtllm"),
        ("TensorRT-LLM (- vLLM: v0.10.2 - TensorRT-LLM: v1.0.0)", "", "trtllm-1.0"),
        ("vLLM (- vLLM: v0.11.0 - SGLang: v0.5.5.post1)", "", "vllm"),
        ("vllm 0.12.0", "", "vllm"),
        ("sglang 0.5.6.post2", "", "sglang"),
    ],
)
def test_engine_and_release_choose_the_profile(text: str, source: str, profile: str) -> None:
    assert engine_profile(text, source, "case x") == profile


def test_weight_only_formats_compute_in_what_the_device_has() -> None:
    case = find(gpu="H200-SXM-141GB", weight_dtype="nvfp4")
    formats = read_inference_case(case).formats
    assert (formats.experts.stored, formats.experts.computed) == ("fp4", "bf16")
    assert formats.attention.stored == "bf16"
    on_a100 = find(gpu="A100-SXM-80GB", weight_dtype="fp8")
    dense = read_inference_case(on_a100).formats.dense
    assert (dense.stored, dense.computed) == ("fp8", "bf16")


def test_cache_precision_follows_the_checkpoint_or_is_refused() -> None:
    assert cache_dtype({"kv_dtype": None, "weight_dtype": "fp8"}, "") == "fp8"
    assert cache_dtype({"kv_dtype": None, "weight_dtype": "fp8_block"}, "") == "bf16"
    assert cache_dtype({"weight_dtype": "fp8"}, "") == "bf16"
    with pytest.raises(InputError, match="int3"):
        cache_dtype({"kv_dtype": "int3", "weight_dtype": "fp8"}, "case x")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"engine": "llama.cpp 1"}, "engine"),
        ({"engine": "vllm next"}, "next"),
        ({"gpu": "H900"}, "H900"),
        ({"weight_dtype": "int3"}, "int3"),
        ({"concurrency": "unknown"}, "concurrency"),
        ({"n_gpus": 64}, "n_gpus"),
        ({"output_len": 0}, "length"),
    ],
)
def test_unknown_fields_are_refused_with_the_case(change: dict, named: str) -> None:
    case = find(concurrency=64) | change
    with pytest.raises(InputError) as refused:
        READER.predict(case)
    assert case["id"] in str(refused.value)
    assert named in str(refused.value)


def test_rows_with_squared_device_counts_are_refused() -> None:
    """tp x attention ranks must equal expert tp x ep."""
    case = find(gpu="H100-SXM-80GB", weight_dtype="fp8_block") | {"moe_tp": 4, "ep": 8}
    with pytest.raises(InputError, match="moe_tp"):
        READER.predict(case)


def test_a_time_per_token_is_scored_where_no_throughput_is_given() -> None:
    case = find(concurrency=16, input_len=1024)
    measured = {"tpot_ms": case["measured"]["tpot_ms"]}
    score = READER.predict(case | {"measured": measured}).scores[0]
    assert score.measured == pytest.approx(1e3 / measured["tpot_ms"])
    assert score.predicted == pytest.approx(score.measured, rel=0.3)


def test_unknown_weight_dtype_is_refused() -> None:
    read = read_inference_case(find(concurrency=64))
    with pytest.raises(InputError, match="fp3"):
        weight_formats("fp3", read.context.model, read.context.group.device, "case x")
