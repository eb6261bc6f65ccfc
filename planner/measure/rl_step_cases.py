"""Scores of published RL steps and weight synchronisations."""

from __future__ import annotations

from planner.catalog.frameworks import load_framework
from planner.catalog.hardware import load_device
from planner.cost.transfer import SyncRoute, weight_sync_s
from planner.errors import InputError
from planner.measure.case import Prediction, RawCase, Reader, Scored
from planner.measure.rl_cases import RLCase, read_rl_case
from planner.measure.shapes import device_id, model_spec
from planner.schema import DType
from planner.schema import Prediction as StepPrediction
from planner.simulate.evaluate import evaluate
from planner.simulate.instance import SYNC

_SYNC_ONLY = "weight sync only"
_BYTE_DTYPES: dict[str, DType] = {"bf16": "bf16", "fp8": "fp8"}
_STAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "generation_s": ("generation", ("generate",)),
    "update_actor_s": ("train", ("actor_train",)),
    "logprob_s": ("logprob", ("old_logprobs", "reference_logprobs")),
}
"""Published stage -> metric and the calls in it."""


def _predict(case: RawCase) -> Prediction:
    if case["algorithm"] == _SYNC_ONLY:
        return _predict_sync(case)
    return prediction(case, read_rl_case(case))


def prediction(case: RawCase, read: RLCase) -> Prediction:
    """The scored prediction of a whole step as it was read."""
    step = evaluate(read.assignment, read.workload, read.cluster)
    model = read.workload.models["actor"].name
    source = case["framework"].split(" (")[0]
    sizes = (read.workload.sequences_per_step, read.workload.response_length.mean_tokens)
    return Prediction(
        group=f"{source} / {model} / {case['gpu']}",
        strategy_group=f"{case['source'].split(';')[0]} / {model} / {case['n_gpus']} "
        f"{case['gpu']} / {case['dtype_train']} {case['dtype_gen']} / {sizes[0]}",
        framework=read.assignment.framework,
        scores=tuple(_scores(read, step)),
    )


def _scores(read: RLCase, step: StepPrediction) -> list[Scored]:
    calls = {name: call.time_s for name, call in step.calls.items() if call.time_s > 0}
    scores = []
    if "step_time_s" in read.measured:
        parts = calls | step.overheads_s
        scores.append(Scored("step_time", read.measured["step_time_s"], step.step_time_s, parts))
    for stage, (metric, names) in _STAGES.items():
        if stage in read.measured:
            parts = {
                f"{name} {part}": value
                for name in names
                for part, value in step.calls[name].time_parts_s.items()
            }
            seconds = sum(step.calls[name].time_s for name in names)
            scores.append(Scored(metric, read.measured[stage], seconds, parts))
    if "refit_s" in read.measured:
        scores.append(Scored("refit", read.measured["refit_s"], step.overheads_s[SYNC]))
    return scores


def _predict_sync(case: RawCase) -> Prediction:
    """A row that measures weight synchronisation alone, by its mechanism's profile."""
    where = f"case {case.get('id')}"
    profile, measured = _mechanism(case, where)
    framework = load_framework(profile)
    device = load_device(device_id(case["gpu"], where))
    model = model_spec(case["models"]["actor"], where)
    if case["dtype_gen"] not in _BYTE_DTYPES:
        raise InputError(f"unknown dtype_gen {case['dtype_gen']!r}", where=where)
    within = case["n_gpus"] <= device.scale_up_domain_devices
    route = SyncRoute(
        device.scale_up_bandwidth_bytes_per_s if within else device.scale_out_bandwidth_bytes_per_s,
        case["n_gpus"],
        within,
    )
    seconds = weight_sync_s(
        model,
        framework,
        _BYTE_DTYPES[case["dtype_gen"]],
        route if case["placement"] == "disaggregated" else None,
    )
    return Prediction(
        # Both mechanisms of one trainer are left out together: they share its link.
        group=f"{case['framework']} / {model.name} / {case['gpu']}",
        strategy_group=case["id"],
        framework=profile,
        scores=(Scored("refit", measured, seconds),),
    )


def _mechanism(case: RawCase, where: str) -> tuple[str, float]:
    """Profile of the mechanism, and the measured seconds."""
    name, measured = case["framework"], case["measured"]
    if name.startswith("checkpoint-engine"):
        return "checkpoint-engine", float(measured["refit_broadcast_s"])
    if name.startswith("verl fully async"):
        if case["notes"].startswith("checkpoint-engine off"):
            return "verl-per-tensor", float(measured["refit_s"])
        if case["notes"].startswith("checkpoint-engine on"):
            return "verl-bucketed", float(measured["refit_s"])
    raise InputError(f"unknown weight synchronisation of {name!r}", where=where)


def _recognises(case: RawCase) -> bool:
    return "algorithm" in case and "models" in case and "measured" in case


READER = Reader("rl", _recognises, _predict)
