"""Public peers and this planner on the same measured cases, in one run.

    pip install -e .[peers]
    python benchmarks/peers.py                            # the cases in tests/cases
    python benchmarks/peers.py FILE.json ... [--limit N]  # N cases a peer, evenly spread

A peer that is not installed is named with the command that installs it, and left out. A case
counts where the peer can express it and both predict it; flagged, incomplete and superseded
measurements do not count. What is left out is listed with the reason.

llm-analysis predicts step times of dense models in 16 bit. Its step time is FLOP / (peak x
efficiency): no pipeline bubble and no communication, so all strategies of a model and cluster
that recompute alike take the same time (tau and regret stay blank). By default the efficiency
is 1; the source of its default names 0.5 as what Megatron-LM reaches in training. Both are run.
Its FLOP count takes every MLP for two products of width 4 x hidden: gated MLPs are apart.

aiconfigurator predicts time per output token and throughput of serving at a fixed concurrency,
with its newest tables for the engine (its default), mode "agg", and otherwise its defaults. Only
model configurations that it brings are used. Precision of weights and cache is as in the case;
for DeepSeek and gpt-oss it is that of the published checkpoint, which it reads itself.

Our constants were fitted to cases that include these ones (docs/accuracy.md has the figures with
whole groups left out); the peers were not fitted to them.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from planner.errors import PlannerError
from planner.measure import inference_cases, training_cases
from planner.measure.case import RawCase
from planner.measure.case_files import load_cases
from planner.measure.engines import cache_dtype
from planner.measure.scores import Score, summarise

CASES = Path(__file__).resolve().parent.parent / "tests" / "cases"
FILES = ("training_vtrain_single.json", "training.json", "inference.json")
INSTALL = "pip install -e .[peers]"
# The remark at FLOPS_EFFICIENCY in llm_analysis/constant.py (0.2.2).
MEGATRON_EFFICIENCY = 0.5
LLM_ANALYSIS_DEVICES = {
    "A100-SXM-40GB": "a100-sxm-40gb",
    "A100-SXM-80GB": "a100-sxm-80gb",
    "H100-SXM-80GB": "h100-sxm-80gb",
}
AIC_SYSTEMS = {
    "A100-SXM-80GB": "a100_sxm",
    "H100-SXM-80GB": "h100_sxm",
    "H200-SXM-141GB": "h200_sxm",
    "B200-SXM-180GB": "b200_sxm",
    "GB200-NVL72-186GB": "gb200",
}
AIC_BACKENDS = {"trtllm": "trtllm", "tensorrt-llm": "trtllm", "vllm": "vllm", "sglang": "sglang"}
# Checkpoints whose configuration aiconfigurator 0.12.0 brings.
AIC_MODELS = {
    "Llama-3-8B": "meta-llama/Meta-Llama-3.1-8B",
    "Llama-3-70B": "meta-llama/Meta-Llama-3.1-70B",
    "Llama-3.1-405B": "meta-llama/Meta-Llama-3.1-405B",
    "Qwen3-8B": "Qwen/Qwen3-8B",
    "Qwen3-32B": "Qwen/Qwen3-32B",
    "Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B",
    "Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B",
    "DeepSeek-V3-671B": "deepseek-ai/DeepSeek-V3",
    "GPT-OSS-20B": "openai/gpt-oss-20b",
    "GPT-OSS-120B": "openai/gpt-oss-120b",
}
AIC_QUANTISED = {("DeepSeek-V3-671B", "nvfp4"): "nvidia/DeepSeek-V3.1-NVFP4"}
AIC_OWN_PRECISION = ("DeepSeek", "GPT-OSS")
AIC_PRECISIONS = {
    "bf16": "bfloat16",
    "nan (column precision)": "bfloat16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
}
AIC_CACHES = {"bf16": "bfloat16", "fp8": "fp8"}


class NotCoveredError(Exception):
    """The peer has no way to say this case."""


@dataclass(frozen=True)
class Row:
    """One figure that both predicted."""

    part: str
    metric: str
    measured: float
    peer: float
    ours: float
    strategy_group: str


@dataclass
class Comparison:
    """All figures of one peer under one setting."""

    peer: str
    setting: str
    rows: list[Row] = field(default_factory=list)
    cases: int = 0
    peer_s: float = 0.0
    ours_s: float = 0.0
    left_out: Counter[str] = field(default_factory=Counter)


Figures = dict[str, float]
"""Metric -> seconds or tokens/s."""
Predict = Callable[[RawCase], Figures]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, default=[CASES / name for name in FILES])
    parser.add_argument("--limit", type=int, default=None, help="cases a peer, evenly spread")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the peers log every case
    files = {path.name: load_cases(path) or [] for path in given.files}
    for package, settings, belongs in (
        ("llm-analysis", llm_analysis_settings, training_cases.recognises),
        ("aiconfigurator", aiconfigurator_settings, inference_cases.READER.recognises),
    ):
        try:
            release = version(package)
            runs = settings()
        except (PackageNotFoundError, ImportError) as error:
            print(f"{package} is left out ({error}); to compare with it: {INSTALL}\n")
            continue
        for setting, predict in runs:
            work = countable(files, belongs)
            if given.limit is not None and given.limit < len(work):
                work = [work[at * len(work) // given.limit] for at in range(given.limit)]
            done = compare(f"{package} {release}", setting, predict, work)
            print("\n".join(report(done)), end="\n\n")


def countable(
    files: dict[str, list[RawCase]], belongs: Callable[[RawCase], bool]
) -> list[tuple[str, RawCase]]:
    """(file, case) of the cases that count, each id once."""
    result: dict[str, tuple[str, RawCase]] = {}
    for name, cases in files.items():
        old = training_cases.superseded([one for one in cases if training_cases.recognises(one)])
        for case in cases:
            sound = case["complete"] and not case.get("flag") and case["id"] not in old
            if belongs(case) and sound:
                result.setdefault(case["id"], (name, case))
    return list(result.values())


def compare(
    peer: str, setting: str, predict: Predict, work: Sequence[tuple[str, RawCase]]
) -> Comparison:
    """Predict the cases with the peer and, where it can, with ours."""
    result = Comparison(peer, setting)
    for name, case in track(work, peer, console=Console(stderr=True), transient=True):
        start = time.perf_counter()
        try:
            theirs = predict(case)
        except NotCoveredError as reason:
            result.left_out[str(reason)] += 1
            continue
        except PlannerError as error:
            result.left_out[f"ours cannot read it: {error}"] += 1
            continue
        except Exception as error:  # whatever a peer raises for what it cannot model
            text = (str(error).splitlines() or [""])[0].split("{")[0].strip()
            result.left_out[f"the peer fails: {type(error).__name__}: {text}"] += 1
            continue
        middle = time.perf_counter()
        try:
            measured, ours, group = own(case)
        except PlannerError as error:
            result.left_out[f"ours: {error}"] += 1
            continue
        result.cases += 1
        result.peer_s += middle - start
        result.ours_s += time.perf_counter() - middle
        part = f"{name}, {part_of(case)}"
        result.rows += [
            Row(part, metric, measured[metric], theirs[metric], ours[metric], group)
            for metric in measured
        ]
    return result


def own(case: RawCase) -> tuple[Figures, Figures, str]:
    """Measured figures, our predictions, and the group in which strategies are ranked."""
    if training_cases.recognises(case):
        prediction = training_cases.predict(case)
        score = prediction.scores[0]
        step = {"step_time": score.measured}, {"step_time": score.predicted}
        return *step, prediction.strategy_group
    read = inference_cases.read_inference_case(case)
    measured = {"tpot": read.measured_token_gap_s, "throughput": read.measured_tokens_per_s}
    ours = {
        "tpot": read.server.token_gap_s(read.requests),
        "throughput": read.throughput().tokens_per_s,
    }
    given = {metric: value for metric, value in measured.items() if value is not None}
    model, load = case["model"]["name"], (case["input_len"], case["output_len"], read.requests)
    software = f"{case['engine']} / {model} {case['weight_dtype']}"
    return given, ours, f"{software} / {case['n_gpus']} {case['gpu']} / {load}"


def part_of(case: RawCase) -> str:
    """What the tables separate within a file."""
    if training_cases.recognises(case):
        return "gated MLP" if case["model"]["mlp"].startswith("swiglu") else "plain MLP"
    return AIC_BACKENDS[case["engine"].split(" ")[0].lower()]


def report(done: Comparison) -> list[str]:
    """The table of a comparison, in Markdown."""
    head = ["n", "peer mean %", "median %", "bias %", "tau", "regret %"]
    head += [f"ours {name}" for name in ("mean %", "median %", "bias %", "tau", "regret %")]
    lines = [f"### {done.peer}: {done.setting}", ""]
    if done.rows:
        lines.append(f"| cases | metric | {' | '.join(head)} |")
        lines.append("| --- " * (len(head) + 2) + "|")
    for metric in dict.fromkeys(row.metric for row in done.rows):
        rows = [row for row in done.rows if row.metric == metric]
        parts = list(dict.fromkeys(row.part for row in rows))
        for part in [*parts, *(["all"] if len(parts) > 1 else [])]:
            these = [row for row in rows if part in ("all", row.part)]
            cells = [str(len(these)), *figures(these, "peer"), *figures(these, "ours")]
            lines.append(f"| {part} | {metric} | {' | '.join(cells)} |")
    if done.cases:
        each, own_each = done.peer_s / done.cases, done.ours_s / done.cases
        lines += [
            "",
            f"{done.cases} cases; wall time a case, loading of tables included: peer "
            f"{each * 1e3:.3g} ms, ours {own_each * 1e3:.3g} ms; peer / ours "
            f"{each / own_each:.3g}.",
        ]
    if done.left_out:
        lines += ["", f"Left out, {sum(done.left_out.values())} cases:", ""]
        lines += [f"- {n}: {reason}" for reason, n in done.left_out.most_common()]
    return lines


def figures(rows: Sequence[Row], who: str) -> list[str]:
    """Mean, median and bias in per cent, Kendall's tau, regret in per cent.

    Tau and regret are blank for who predicts the same time for all strategies of every group.
    """
    summary = summarise(
        [
            # Rounded, so that equal times that were added up in another order stay equal.
            Score(row.metric, row.measured, float(f"{getattr(row, who):.9g}"), row.strategy_group)
            for row in rows
        ]
    )
    tau, regret = summary.kendall_tau, summary.top1_regret
    return [
        *(
            "" if value is None else f"{value * 100:.1f}"
            for value in (summary.mape, summary.median_ape, summary.bias)
        ),
        "" if tau is None else f"{tau:.2f}",
        "" if tau is None or regret is None else f"{regret * 100:.1f}",
    ]


def llm_analysis_settings() -> list[tuple[str, Predict]]:
    """Its default efficiency, and the one that its source names for training."""
    from llm_analysis import analysis, config

    def with_efficiency(efficiency: float | None) -> Predict:
        def predict(case: RawCase) -> Figures:
            return {"step_time": llm_analysis_step_s(case, analysis, config, efficiency)}

        return predict

    return [
        ("defaults (efficiency 1)", with_efficiency(None)),
        (f"flops_efficiency={MEGATRON_EFFICIENCY}", with_efficiency(MEGATRON_EFFICIENCY)),
    ]


def llm_analysis_step_s(
    case: RawCase, analysis: Any, config: Any, efficiency: float | None
) -> float:
    """Step time by llm-analysis, seconds."""
    model, setup = case["model"], case["setup"]
    if model.get("experts") or model["attention"] not in ("mha", "gqa"):
        raise NotCoveredError("mixture of experts, or latent or windowed attention")
    if case["gpu"] not in LLM_ANALYSIS_DEVICES:
        raise NotCoveredError("device without a profile")
    if not case["dtype"].startswith(("fp16", "bf16")):
        raise NotCoveredError("products in fp8 or fp4")
    if (case["cp"] or 1) > 1:
        raise NotCoveredError("context parallel")
    if case["recompute"] not in (None, "none", "full", "selective"):
        raise NotCoveredError("recomputation of part of the layers, or offload")
    if setup.get("lora_rank") or "task=peft" in (case["notes"] or ""):
        raise NotCoveredError("adapters (LoRA)")
    tp, pp = case["tp"] or 1, case["pp"] or 1
    tool = analysis.LLMAnalysis(
        config.ModelConfig(
            name=model["name"],
            num_layers=model["layers"],
            n_head=model["heads"],
            hidden_dim=model["hidden"],
            vocab_size=model["vocab"],
            max_seq_len=case["seq_len"],
            num_key_value_heads=model["kv_heads"],
            ffn_embed_dim=model["ffn"],
            expansion_ratio=model["ffn"] / model["hidden"],
        ),
        config.get_gpu_config_by_name(LLM_ANALYSIS_DEVICES[case["gpu"]]),
        config.get_dtype_config_by_name("w16a16e16"),
        config.ParallelismConfig(
            tp_size=tp,
            pp_size=pp,
            dp_size=case["dp"] or case["n_gpus"] // (tp * pp),
            sp_size=tp if case["sequence_parallel"] else 1,
        ),
        flops_efficiency=efficiency,
    )
    zero = 3 if case["fsdp"] else case["zero_stage"] or 0
    summary = tool.training(
        batch_size_per_gpu=case["micro_batch"],
        global_batch_size=case["global_batch"],
        seq_len=case["seq_len"],
        activation_recomputation=analysis.ActivationRecomputation[
            (case["recompute"] or "none").upper()
        ],
        ds_zero=analysis.DSZeRO(zero),
        mlp_gated_linear_units=model["mlp"].startswith("swiglu"),
    )
    return float(summary["latency_per_iter"])


def aiconfigurator_settings() -> list[tuple[str, Predict]]:
    """Its defaults."""
    from aiconfigurator.cli.api import cli_estimate

    def predict(case: RawCase) -> Figures:
        result = cli_estimate(**aiconfigurator_inputs(case))
        if result.raw["concurrency"] != case["concurrency"]:
            raise NotCoveredError("concurrency does not divide over the ranks")
        return {"tpot": float(result.tpot) / 1e3, "throughput": float(result.raw["tokens/s"])}

    return [('defaults (newest tables, mode "agg")', predict)]


def aiconfigurator_inputs(case: RawCase) -> dict[str, Any]:
    """Arguments of cli_estimate; NotCoveredError for what cannot be said with them."""
    if inference_cases.read_inference_case(case).load != "fixed":
        raise NotCoveredError("all requests at once, not a fixed concurrency")
    name, precision = case["model"]["name"], case["weight_dtype"]
    if name not in AIC_MODELS or case["gpu"] not in AIC_SYSTEMS:
        raise NotCoveredError("model or device that it does not bring")
    ranks = case.get("attention_dp") or case.get("data_parallel") or 1
    inputs = {
        "model_path": AIC_QUANTISED.get((name, precision), AIC_MODELS[name]),
        "system_name": AIC_SYSTEMS[case["gpu"]],
        "backend_name": AIC_BACKENDS[case["engine"].split(" ")[0].lower()],
        "isl": int(case["input_len"]),
        "osl": int(case["output_len"]),
        "batch_size": max(1, case["concurrency"] // (ranks * case["pp"])),
        "tp_size": case["tp"],
        "pp_size": case["pp"],
        "attention_dp_size": ranks,
    }
    if case["model"].get("experts"):
        ep = case.get("ep") or 1
        inputs["moe_ep_size"] = ep
        inputs["moe_tp_size"] = case.get("moe_tp") or case["tp"] * ranks // ep
    if not name.startswith(AIC_OWN_PRECISION):
        if precision not in AIC_PRECISIONS:
            raise NotCoveredError(f"weights in {precision}")
        inputs["gemm_quant_mode"] = inputs["moe_quant_mode"] = AIC_PRECISIONS[precision]
        inputs["kvcache_quant_mode"] = AIC_CACHES[cache_dtype(case, f"case {case['id']}")]
    return inputs


if __name__ == "__main__":
    sys.exit(main())
