"""Measured inference throughput as inputs of the planner: model, engine, device and load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from planner.catalog.frameworks import load_framework
from planner.catalog.hardware import parse_cluster
from planner.cost.context import CallContext
from planner.cost.kernel_tables import load_kernels
from planner.cost.serving import Server, Throughput, server
from planner.cost.weight_formats import WeightFormats
from planner.errors import InputError
from planner.measure.case import Prediction, RawCase, Reader, Scored
from planner.measure.engines import cache_dtype, engine_profile, weight_formats
from planner.measure.shapes import device_id, model_spec
from planner.schema import LengthDistribution, NodeGroup, Strategy, Workload
from planner.workload.calls import generate

Load = Literal["fixed", "queued", "burst"]
_BURST = "burst (all requests at once)"
_QUEUED = "Offline: all requests queued at once"
# Chat lengths scatter widely; only their mean is published (ShareGPT).
_CHAT_SIGMA = 0.9
_CHAT_LONGEST_OVER_MEAN = 10
# Default limits of running sequences: vLLM V1's server on devices with 70 GB or more, but not
# A100 (vllm/engine/arg_utils.py); TensorRT-LLM max_batch_size.
_DEFAULT_SEQUENCES = {"vllm": 1024, "vllm on a100": 256, "sglang": 2048, "trtllm": 2048}
_DEVICES_PER_NODE, _DEVICES_PER_NVL_NODE = 8, 4
# Constants that are read when a load is priced, not when a replica's kernel times are tabulated.
PRICING_CONSTANTS = {
    *("request_s", "step_s", "layer_s", "moe_layer_s", "sequence_step_s", "host_roof_sequence_s"),
    *("grace_factor", "grace_roof_factor", "prefill_factor", "attention_dp_prefill_factor"),
    "prefill_hits_running",
}
_DEFAULT_FRACTION = {"vllm": 0.9, "sglang": 0.88, "trtllm": 0.9}


@dataclass(frozen=True)
class InferenceCase:
    """A measured load of one server."""

    id: str
    context: CallContext
    strategy: Strategy
    formats: WeightFormats
    load: Load
    requests: int
    """In flight, queued, or in the burst."""
    measured_tokens_per_s: float | None
    measured_token_gap_s: float | None
    """Scored only where no throughput is given."""

    @property
    def server(self) -> Server:
        """The replica that was measured."""
        return server(self.context, self.strategy, self.formats)

    def throughput(self, replica: Server | None = None) -> Throughput:
        """Predicted throughput (of `replica`, if its server is known)."""
        replica = replica or self.server
        if self.load == "fixed":
            return replica.fixed_concurrency(self.requests)
        if self.load == "queued":
            return replica.all_queued(self.requests)
        return replica.burst(self.requests)


def read_inference_case(case: RawCase) -> InferenceCase:
    """Read one complete case; InputError, naming the case and the field, for what is unknown."""
    where = f"case {case.get('id')}"
    profile = engine_profile(case["engine"], case["source"], where)
    engine = profile.split("-")[0]
    strategy = _strategy(case, engine, where)
    group = _node_group(device_id(case["gpu"], where), case["n_gpus"])
    model = model_spec(case["model"], where)
    formats = weight_formats(case["weight_dtype"], model, group.device, where)
    load, requests = _load(case, where)
    measured = case["measured"]
    throughput = measured.get("output_tokens_per_s") or measured.get("output_tokens_per_s_derived")
    gap = measured.get("tpot_ms")
    workload = Workload(
        name=case["id"],
        algorithm="grpo",
        models={"actor": model},
        prompts_per_step=requests,
        samples_per_prompt=1,
        prompt_length=_length(case["input_len"], load, where),
        response_length=_length(case["output_len"], load, where),
        kv_cache_dtype=cache_dtype(case, where),
    )
    return InferenceCase(
        id=case["id"],
        context=CallContext(
            call=generate(workload),
            model=model,
            workload=workload,
            group=group,
            framework=load_framework(profile),
            engine=load_framework(profile),
            kernels=load_kernels(group.device),
            trained=False,
        ),
        strategy=strategy,
        formats=formats,
        load=load,
        requests=requests,
        measured_tokens_per_s=float(throughput) if throughput else None,
        measured_token_gap_s=gap / 1e3 if gap else None,
    )


def _node_group(device: str, devices: int) -> NodeGroup:
    per_node = min(devices, _DEVICES_PER_NVL_NODE if "nvl72" in device else _DEVICES_PER_NODE)
    return parse_cluster(f"{device}:{-(-devices // per_node)}x{per_node}").groups[0]


def _load(case: RawCase, where: str) -> tuple[Load, int]:
    concurrency = case.get("concurrency")
    if concurrency == _BURST:
        return "burst", int(case["num_requests"])
    if concurrency is None and case["notes"].startswith(_QUEUED):
        return "queued", int(case["num_requests"])
    if isinstance(concurrency, int) and concurrency > 0:
        return "fixed", concurrency
    raise InputError(f"unknown load: concurrency {concurrency!r}", where=where)


def _length(mean: float, load: Load, where: str) -> LengthDistribution:
    if not mean or mean < 1:
        raise InputError(f"unknown length {mean!r}", where=where)
    if load != "burst":
        return LengthDistribution(kind="fixed", mean_tokens=mean, max_tokens=int(mean))
    longest = int(mean * _CHAT_LONGEST_OVER_MEAN)
    return LengthDistribution(mean_tokens=mean, max_tokens=longest, sigma=_CHAT_SIGMA)


def _strategy(case: RawCase, engine: str, where: str) -> Strategy:
    """Degrees of the replica; refuses those that do not multiply to its devices."""
    tp, ranks = case["tp"], case.get("attention_dp") or case.get("data_parallel") or 1
    experts = case["model"].get("experts")
    ep = case.get("ep") or 1
    if case.get("ep") is None and "--enable-expert-parallel" in case["notes"]:
        ep = tp * ranks
    moe_tp = case.get("moe_tp") or tp * ranks // ep
    if tp * ranks * case["pp"] != case["n_gpus"]:
        raise InputError(
            f"tp {tp} x attention_dp {ranks} x pp {case['pp']} is not n_gpus {case['n_gpus']}",
            where=where,
        )
    if experts and tp * ranks != moe_tp * ep:
        raise InputError(
            f"tp {tp} x attention_dp {ranks} is not moe_tp {moe_tp} x ep {ep}", where=where
        )
    key = "vllm on a100" if engine == "vllm" and case["gpu"].startswith("A100") else engine
    return Strategy(
        tp=tp,
        pp=case["pp"],
        ep=ep,
        dp=ranks,
        memory_fraction=_DEFAULT_FRACTION[engine],
        max_running_sequences=_DEFAULT_SEQUENCES[key],
    )


def _predict(case: RawCase) -> Prediction:
    return prediction(case, read_inference_case(case))


def prepare(cases: Sequence[RawCase]) -> Callable[[], list[Prediction]]:
    """Reads rows; each call prices them with the engines' present constants."""
    prepared = [_Prepared(case, read_inference_case(case)) for case in cases]
    return lambda: [one.prediction() for one in prepared]


class _Prepared:
    """A case whose kernel times are kept while only constants of pricing change."""

    def __init__(self, case: RawCase, read: InferenceCase) -> None:
        self.case = case
        self.read = read
        self.built: tuple[dict[str, float], Server] | None = None

    def prediction(self) -> Prediction:
        engine = load_framework(self.read.context.engine.name)
        context = replace(self.read.context, framework=engine, engine=engine)
        read = replace(self.read, context=context)
        fixed = {
            name: constant.value
            for name, constant in engine.constants.items()
            if name not in PRICING_CONSTANTS
        }
        if self.built is None or self.built[0] != fixed:
            self.built = fixed, read.server
        kept = self.built[1]
        now = replace(kept, context=context, table=replace(kept.table, context=context))
        return prediction(self.case, read, now)


def prediction(case: RawCase, read: InferenceCase, replica: Server | None = None) -> Prediction:
    """The scored prediction of a case as it was read; `replica` if its server is known."""
    replica = replica or read.server
    if read.measured_tokens_per_s is not None:
        load = read.throughput(replica)
        score = Scored("throughput", read.measured_tokens_per_s, load.tokens_per_s, _roofs(load))
    elif read.measured_token_gap_s is not None and read.load == "fixed":
        # Tokens/s of one client, so that an error has the same sign as for throughput.
        gap = replica.token_gap_s(read.requests)
        score = Scored("throughput", 1.0 / read.measured_token_gap_s, 1.0 / gap)
    else:
        raise InputError("neither throughput nor time per token", where=f"case {read.id}")
    source = case["source"].split(" ")[0]
    engine = read.context.engine.name
    model, gpu = case["model"]["name"], case["gpu"]
    load_key = (read.load, case["input_len"], case["output_len"], read.requests)
    return Prediction(
        group=f"{source} {engine} / {model} / {gpu}",
        strategy_group=f"{source} {case['engine']} / {model} {case['weight_dtype']} / "
        f"{case['n_gpus']} {gpu} / {load_key}",
        framework=engine,
        scores=(score,),
    )


def _roofs(load: Throughput) -> dict[str, float]:
    """Tokens/s if one part of a request's time were all of it: the smallest is the bottleneck."""
    total = sum(load.parts_s.values())
    return {
        f"{name} alone": load.tokens_per_s * total / seconds
        for name, seconds in load.parts_s.items()
        if seconds > 0
    }


def _recognises(case: RawCase) -> bool:
    return "engine" in case and "input_len" in case and "output_len" in case


READER = Reader("inference", _recognises, _predict, metric="throughput", prepare=prepare)
