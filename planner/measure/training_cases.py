"""Measured training steps: from a published row to a prediction with its given strategy."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.catalog.frameworks import load_framework
from planner.catalog.hardware import load_device
from planner.cost.arrays import StrategyArrays
from planner.cost.context import CallContext
from planner.cost.kernel_tables import load_kernels
from planner.cost.train import train_cost
from planner.errors import InputError
from planner.measure.case import Prediction, RawCase, Reader, Scored
from planner.measure.profiles import training_profile
from planner.measure.recomputation import Mix, recomputation
from planner.measure.shapes import device_id, model_spec
from planner.schema import (
    Call,
    DeviceProfile,
    DType,
    FrameworkProfile,
    LengthDistribution,
    ModelSpec,
    NodeGroup,
    Strategy,
    Workload,
)

_DTYPES: dict[str, DType] = {
    "bf16": "bf16",
    "fp16": "bf16",
    "fp16 mixed": "bf16",
    "fp16/bf16 mixed": "bf16",
    "fp8": "fp8",
    "fp8 linear": "fp8",
    "mxfp8": "fp8",
    "nvfp4": "fp4",
}
"""Spelling, without a recipe in brackets ("fp8 (current scaling)") -> dtype of products."""
_KNOWN_FIELDS = {
    *("id", "source", "model", "gpu", "n_gpus", "gpus_per_node", "dtype", "seq_len", "setup"),
    *("global_batch", "micro_batch", "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero_stage"),
    *("fsdp", "sequence_parallel", "recompute", "measured", "notes", "complete", "flag", "lora"),
}
_KNOWN_SETUP = {
    *("framework", "release", "attention_kernel", "elementwise", "balanced_routing"),
    *("cuda_graphs", "mtp_layers", "param_dtype", "reduce_dtype", "nic_gbit_per_node"),
    *("zero_shard_group", "float8", "device_variant", "activation_offload", "lora_rank"),
}
_FSDP: dict[str | bool, int] = {
    "FULL_SHARD": 3,
    "SHARD_GRAD_OP": 2,
    "FSDP2": 3,
    "FSDP2 full shard": 3,
    True: 3,
}
"""Spelling -> ZeRO stage."""
# Rank of the adapters of rows that say "peft" but not how large: the share of adapter work is
# small at any usual rank, so this only marks the base weights as frozen.
_USUAL_LORA_RANK = 16
_BYTES_PER_GBIT = 1e9 / 8.0
# Fields that tell two measurements of one configuration apart, but not two configurations.
_NOT_CONFIGURATION = {
    *("id", "source", "measured", "notes", "setup", "flag", "complete"),
    *("recompute", "sequence_parallel"),  # read from recipes that may be newer than the row
}
# What a strategy decides; two cases that agree in everything else are compared by rank.
_STRATEGY_FIELDS = {
    *("micro_batch", "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero_stage", "fsdp"),
    *("sequence_parallel", "recompute"),
}
_STRATEGY_SETUP = {"zero_shard_group", "activation_offload"}


@dataclass(frozen=True)
class TrainingCase:
    """A measured training step as inputs of the cost model."""

    id: str
    profile: str
    facts: dict[str, float]
    """Constants of the profile that the row states."""
    model: ModelSpec
    workload: Workload
    group: NodeGroup
    extra_heads: int
    strategies: tuple[tuple[float, Strategy], ...]
    """Weights and strategies whose weighted times add up: recomputation of part of the layers is
    between two strategies."""
    measured_s: float
    group_name: str
    strategy_group: str
    context_key: str
    """Equal for cases that the same call context prices."""

    def context(self, framework: FrameworkProfile) -> CallContext:
        """The train call under a profile, with the row's facts."""
        call = Call(
            name="actor_train",
            kind="train",
            role="actor",
            sequences=self.workload.prompts_per_step,
            output="loss",
            optimizer_steps=1,
        )
        constants = dict(framework.constants)
        for name, value in self.facts.items():
            constants[name] = constants[name].model_copy(update={"value": value})
        profile = framework.model_copy(update={"constants": constants})
        return CallContext(
            call=call,
            model=self.model,
            workload=self.workload,
            group=self.group,
            framework=profile,
            engine=profile,
            kernels=load_kernels(self.group.device),
            trained=True,
            extra_heads=self.extra_heads,
        )


def recognises(case: RawCase) -> bool:
    """True for a row with a training setup and a measured rate or step time."""
    return isinstance(case.get("setup"), dict) and "seq_len" in case and "measured" in case


def predict(case: RawCase) -> Prediction:
    """Step time of a measured training run; InputError for what is not understood."""
    return price([read_training_case(case)])[0]


def prepare(cases: Sequence[RawCase]) -> Callable[[], list[Prediction]]:
    """Reads rows; each call prices them with the profiles' present constants."""
    read = [read_training_case(case) for case in cases]
    return lambda: price(read)


def price(cases: Sequence[TrainingCase]) -> list[Prediction]:
    """Predictions in order; cases that differ only in strategy are costed together."""
    alike: dict[str, list[int]] = {}
    for index, case in enumerate(cases):
        alike.setdefault(case.context_key, []).append(index)
    result: dict[int, Prediction] = {}
    for members in alike.values():
        rows = [(index, *share) for index in members for share in cases[index].strategies]
        strategies = StrategyArrays.from_strategies([strategy for _, _, strategy in rows])
        one = cases[members[0]]
        costs = train_cost(one.context(load_framework(one.profile)), strategies)
        for index in members:
            at = [row for row, (owner, _, _) in enumerate(rows) if owner == index]
            weights = np.array([rows[row][1] for row in at])
            parts = {name: float(weights @ x[at]) for name, x in costs.time_parts_s.items()}
            result[index] = _prediction(cases[index], float(weights @ costs.time_s[at]), parts)
    return [result[index] for index in range(len(cases))]


def _prediction(case: TrainingCase, seconds: float, parts: dict[str, float]) -> Prediction:
    if not math.isfinite(seconds):
        raise InputError("the device cannot compute in that dtype", where=f"case {case.id}")
    return Prediction(
        group=case.group_name,
        strategy_group=case.strategy_group,
        framework=case.profile,
        scores=(Scored("step_time", case.measured_s, seconds, parts),),
    )


def superseded(cases: Sequence[RawCase]) -> dict[str, str]:
    """Rows of Megatron-Bridge that a newer release measured again -> the newest row."""
    newest: dict[str, RawCase] = {}
    members: dict[str, list[str]] = {}
    for case in cases:
        setup = case["setup"]
        if setup.get("framework") != "megatron-bridge" or not case["complete"] or case["flag"]:
            continue
        key = json.dumps(
            {name: value for name, value in case.items() if name not in _NOT_CONFIGURATION},
            sort_keys=True,
        )
        members.setdefault(key, []).append(case["id"])
        if key not in newest or _newer(setup, newest[key]["setup"]):
            newest[key] = case
    return {
        old: newest[key]["id"]
        for key, ids in members.items()
        for old in ids
        if old != newest[key]["id"]
    }


def _newer(setup: dict[str, Any], other: dict[str, Any]) -> bool:
    def parts(one: dict[str, Any]) -> list[int]:
        return [int(part) for part in str(one["release"]).split(".")]

    return parts(setup) > parts(other)


def read_training_case(case: RawCase) -> TrainingCase:
    """Inputs of a complete training row.

    Raises InputError, naming the case and the field, for a spelling that is not known.
    """
    where = f"case {case['id']}"
    setup = case["setup"]
    for name, given, known in (
        ("fields", set(case), _KNOWN_FIELDS),
        ("setup fields", set(setup), _KNOWN_SETUP),
    ):
        if given - known:
            raise InputError(f"unknown {name} {sorted(given - known)}", where=where)
    device = _device(case, where)
    lora_rank = setup.get("lora_rank") or _rank_in_notes(case)
    mtp = setup.get("mtp_layers") or 0
    model = model_spec(case["model"], where)
    if mtp:
        model = model.model_copy(update={"num_layers": model.num_layers + mtp})
    if model.window is not None and model.moe is not None:
        # gpt-oss, the one such model that trains so: its experts have biases and clamp.
        model = model.model_copy(update={"mlp_bias": True})
    mix = recomputation(case["recompute"], setup["framework"], case["pp"], model, where)
    profile = training_profile(setup, device)
    return TrainingCase(
        id=case["id"],
        profile=profile,
        facts=_facts(case, mix, where),
        model=model,
        workload=_workload(case, model, lora_rank),
        group=_node_group(case, device),
        extra_heads=mtp,
        strategies=_strategies(case, mix, where),
        measured_s=_measured_s(case, where),
        group_name=f"{setup['framework']} / {case['model']['name']} / {case['gpu']}",
        strategy_group=_agreeing(case),
        context_key=_agreeing(case, "zero_shard_group", "activation_offload"),
    )


def _device(case: RawCase, where: str) -> DeviceProfile:
    device = load_device(device_id(case["gpu"], where))
    changes: dict[str, Any] = {}
    gbit = case["setup"].get("nic_gbit_per_node")
    if gbit:
        rate = gbit * _BYTES_PER_GBIT / case["gpus_per_node"]
        changes["scale_out_bandwidth_bytes_per_s"] = rate
    if device.scale_up_domain_devices > case["gpus_per_node"] and not _is_rack(device):
        changes["scale_up_domain_devices"] = case["gpus_per_node"]
    return device.model_copy(update=changes) if changes else device


def _is_rack(device: DeviceProfile) -> bool:
    """True when the scale-up network joins several nodes (NVL72)."""
    return device.scale_up_domain_devices > 8


def _node_group(case: RawCase, device: DeviceProfile) -> NodeGroup:
    per_node = case["gpus_per_node"]
    return NodeGroup(
        name="all",
        nodes=math.ceil(case["n_gpus"] / per_node),
        devices_per_node=per_node,
        device=device,
        host_memory_bytes=2**41,  # no part of a step time
    )


def _workload(case: RawCase, model: ModelSpec, lora_rank: int) -> Workload:
    """Pretraining as the train call of a step: all tokens but the first are predicted."""
    return Workload(
        name=case["id"],
        algorithm="grpo",
        models={"actor": model},
        prompts_per_step=case["global_batch"],
        samples_per_prompt=1,
        prompt_length=_fixed(1),
        response_length=_fixed(case["seq_len"] - 1),
        lora_rank=lora_rank,
    )


def _fixed(tokens: int) -> LengthDistribution:
    return LengthDistribution(kind="fixed", mean_tokens=float(tokens), max_tokens=tokens)


def _rank_in_notes(case: RawCase) -> int:
    """Megatron-Bridge says what it trains only in the notes: "task=peft."."""
    return _USUAL_LORA_RANK if "task=peft" in (case["notes"] or "") else 0


def _facts(case: RawCase, mix: Mix, where: str) -> dict[str, float]:
    setup = case["setup"]
    facts: dict[str, float] = {}
    shard = setup.get("zero_shard_group")
    if shard not in (None, "all"):
        if not isinstance(shard, int):
            raise InputError(f"setup.zero_shard_group: unknown {shard!r}", where=where)
        facts["zero_shard_ranks"] = float(shard)
    if setup.get("attention_kernel") == "unfused":
        facts["attention_unfused"] = 1.0
    if setup.get("activation_offload") or mix.on_host:  # both say the same
        facts["activations_on_host"] = 1.0
    if setup.get("float8") or case["dtype"] == "fp8 linear":
        facts["gather_bytes_per_parameter"] = 1.0  # float8 all-gather of sharded weights
    if setup.get("mtp_layers"):
        # Megatron places such layers by a hand-made pipeline layout, which balances the stages.
        facts["balanced_stages"] = 1.0
    return facts


def _strategies(case: RawCase, mix: Mix, where: str) -> tuple[tuple[float, Strategy], ...]:
    if case["fsdp"] not in (False, None, *_FSDP):
        raise InputError(f"fsdp: unknown {case['fsdp']!r}", where=where)
    dtype = _DTYPES.get(case["dtype"].split(" (")[0])
    if dtype is None:
        raise InputError(f"dtype: unknown {case['dtype']!r}", where=where)
    tp, pp, cp = case["tp"] or 1, case["pp"] or 1, case["cp"] or 1
    dp = case["dp"] or case["n_gpus"] // (tp * pp * cp)
    if tp * pp * cp * dp != case["n_gpus"]:
        raise InputError(
            f"tp {tp} x pp {pp} x cp {cp} x dp {dp} is not n_gpus {case['n_gpus']}", where=where
        )
    # torchtitan's tensor parallelism always splits activations too.
    split = bool(case["sequence_parallel"]) or case["setup"]["framework"] == "torchtitan"
    return tuple(
        (
            weight,
            Strategy(
                tp=tp,
                pp=pp,
                vpp=case["vpp"] or 1,
                cp=cp,
                ep=case["ep"] or 1,
                etp=case["etp"] or 1,
                dp=dp,
                zero_stage=_FSDP.get(case["fsdp"], case["zero_stage"] or 0),
                sequence_parallel=split and tp > 1,
                micro_batch_sequences=case["micro_batch"],
                packing=False,
                recompute=recompute,
                dtype=dtype,
            ),
        )
        for weight, recompute in mix.shares
    )


def _measured_s(case: RawCase, where: str) -> float:
    measured = case["measured"]
    for name in ("step_time_s", "step_time_s_derived"):
        if measured.get(name):
            return float(measured[name])
    rate = measured.get("tokens_per_s_per_gpu")
    if not rate:
        raise InputError("measured: neither a step time nor a token rate", where=where)
    return float(case["global_batch"] * case["seq_len"] / (rate * case["n_gpus"]))


def _agreeing(case: RawCase, *also: str) -> str:
    """Everything but what a strategy decides (unless named in `also`) as one text."""
    dropped = _STRATEGY_FIELDS | {"id", "source", "measured", "notes", "flag", "complete"}
    kept = {name: value for name, value in case.items() if name not in dropped}
    kept["setup"] = {
        k: v for k, v in case["setup"].items() if k not in _STRATEGY_SETUP or k in also
    }
    kept["lora_rank"] = _rank_in_notes(case)
    return json.dumps(kept, sort_keys=True)


READER = Reader("training", recognises, predict, prepare=prepare, superseded=superseded)
