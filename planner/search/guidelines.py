"""Published rules of thumb that speak of a plan, held against it."""

from __future__ import annotations

from planner.schema import Plan, Workload
from planner.schema.analysis import Analysis
from planner.schema.explain import Guideline

_LONG_RESPONSE_TOKENS = 16_384
_SMALL_CLUSTER_DEVICES = 16
_LARGE_MODEL_PARAMETERS_B = 30


def guidelines(
    plan: Plan, workload: Workload, analysis: Analysis, parameters: float
) -> tuple[Guideline, ...]:
    """The rules whose case the plan is; `parameters` are those of the actor."""
    found = [
        _rollout(plan, workload),
        _placement(plan),
        _staleness(plan),
        _balance(plan),
        _tail(plan, analysis),
        _sync(plan),
        _layouts(plan),
        _memory(plan, parameters),
        _long_context(plan, workload),
        _experts(plan, workload),
    ]
    return tuple(each for each in found if each is not None)


def _time_s(plan: Plan, kind: str) -> float:
    return sum(call.time_s for call in plan.calls.values() if call.kind == kind)


def _generates(plan: Plan) -> bool:
    return any(call.kind == "generate" for call in plan.calls.values())


def _trains(plan: Plan) -> bool:
    return any(call.kind == "train" for call in plan.calls.values())


def _rollout(plan: Plan, workload: Workload) -> Guideline | None:
    if not _generates(plan) or plan.staleness or workload.response_length.max_tokens < 8192:
        return None
    share = _time_s(plan, "generate") / plan.step_time_s
    return Guideline(
        rule="Generation takes about 70 % of a synchronous step with long responses, up to 85 %",
        here=f"{share:.0%} of the step",
        follows=0.5 <= share <= 0.95,
        source="DAPO (arXiv:2503.14476) as verl reports it; OpenRLHF README",
    )


def _placement(plan: Plan) -> Guideline | None:
    meshes = {
        call.kind: call.mesh for call in plan.calls.values() if call.kind in ("generate", "train")
    }
    if len(meshes) < 2 or plan.devices > _SMALL_CLUSTER_DEVICES:
        return None
    shared = meshes["generate"] == meshes["train"]
    return Guideline(
        rule=f"Up to {_SMALL_CLUSTER_DEVICES} devices are better shared by generation and training "
        "than split: a split starves both sides",
        here="shared" if shared else "split",
        follows=shared,
        source="NeMo RL performance table (Qwen3-30B on 16 GB200: 221 s shared, 301 s split)",
    )


def _staleness(plan: Plan) -> Guideline | None:
    if plan.staleness == 0:
        return None
    return Guideline(
        rule="Samples up to 4 versions old train as well with a decoupled objective; more do harm",
        here=f"{plan.staleness} version{'s' * (plan.staleness > 1)} old at most",
        follows=plan.staleness <= 4,
        source="AReaL (arXiv:2505.24298)",
    )


def _balance(plan: Plan) -> Guideline | None:
    if plan.staleness == 0 or not (_generates(plan) and _trains(plan)):
        return None
    generate_s = _time_s(plan, "generate")
    other_s = _time_s(plan, "train") + _time_s(plan, "forward")
    ratio = generate_s / other_s
    return Guideline(
        rule="In an asynchronous plan generation and training should take as long as each other",
        here=f"generation {generate_s:.1f} s, training and scoring {other_s:.1f} s",
        follows=1 / 1.25 <= ratio <= 1.25,
        source="StreamRL (arXiv:2504.15930), verl one-step-off recipe",
    )


def _tail(plan: Plan, analysis: Analysis) -> Guideline | None:
    calls = [call for name, call in plan.calls.items() if call.kind == "generate"]
    tail_s = sum(call.time_parts_s.get("tail", 0.0) for call in calls)
    if not calls or plan.staleness or tail_s < 0.05 * plan.step_time_s:
        return None
    parallelism = max(
        call.parallelism for call in analysis.calls.values() if call.kind == "generate"
    )
    return Guideline(
        rule="More devices do not shorten the tail of generation; partial rollouts, a shorter cap "
        "or stale samples do",
        here=f"the longest responses alone take {tail_s:.1f} s of the step; generation can use "
        f"{parallelism:,.0f} devices and has {max(c.mesh.devices for c in calls if c.mesh)}",
        follows=max(c.mesh.devices for c in calls if c.mesh) <= 2 * parallelism,
        source="Kimi k1.5 (arXiv:2501.12599), RollPacker",
    )


def _sync(plan: Plan) -> Guideline | None:
    sync_s = sum(s for name, s in plan.overheads_s.items() if name.startswith("weight_sync"))
    if sync_s <= 0:
        return None
    share = sync_s / plan.step_time_s
    return Guideline(
        rule="Sending the weights to the engine takes seconds, below 5 % of all but tiny steps",
        here=f"{sync_s:.1f} s, {share:.1%} of the step",
        follows=share < 0.05,
        source="NeMo RL and verl weight transfer tables",
    )


def _layouts(plan: Plan) -> Guideline | None:
    kinds = {"generate": "generation", "train": "training"}
    layouts = {
        kinds[call.kind]: (call.strategy.tp, call.strategy.pp, call.strategy.cp, call.strategy.ep)
        for call in plan.calls.values()
        if call.strategy and call.kind in kinds
    }
    if len(layouts) < 2 or all(set(degrees) == {1} for degrees in layouts.values()):
        return None
    return Guideline(
        rule="Each call has a layout of its own: one for all calls is slower",
        here=", ".join(
            f"{name} TP{tp} PP{pp} CP{cp} EP{ep}" for name, (tp, pp, cp, ep) in layouts.items()
        ),
        follows=len(set(layouts.values())) > 1,
        source="ReaL (arXiv:2406.14088), HybridFlow (arXiv:2409.19256)",
    )


def _memory(plan: Plan, parameters: float) -> Guideline | None:
    calls = [call for call in plan.calls.values() if call.kind == "train" and call.strategy]
    if parameters < _LARGE_MODEL_PARAMETERS_B * 1e9 or plan.devices > 64 or not calls:
        return None
    words = []
    for call in calls:
        assert call.strategy is not None
        if call.strategy.recompute == "full":
            words.append("full recomputation")
        if call.strategy.optimizer_on_cpu:
            words.append("optimizer on the CPU")
        if call.strategy.offload != "none":
            words.append(f"offload {call.strategy.offload}")
    return Guideline(
        rule="Models from 30 B on few nodes: full recomputation, optimizer on the CPU or offloaded",
        here=", ".join(dict.fromkeys(words)) or "none of them is needed: everything fits",
        follows=bool(words),
        source="verl, slime and NeMo RL recipes for 30B to 671B models",
    )


def _long_context(plan: Plan, workload: Workload) -> Guideline | None:
    calls = [c.strategy for c in plan.calls.values() if c.kind == "train" and c.strategy]
    if workload.max_sequence_tokens < _LONG_RESPONSE_TOKENS or not calls:
        return None
    cp = max(strategy.cp for strategy in calls)
    return Guideline(
        rule="From 16k tokens on, training splits sequences over 2 to 8 devices (CP, Ulysses)",
        here=f"CP {cp}, sequences of up to {workload.max_sequence_tokens:,} tokens",
        follows=cp > 1,
        source="NeMo RL 40k, slime 64k and DAPO recipes; Ulysses (arXiv:2309.14509)",
    )


def _experts(plan: Plan, workload: Workload) -> Guideline | None:
    actor = workload.models.get("actor")
    calls = [c.strategy for c in plan.calls.values() if c.kind == "train" and c.strategy]
    if actor is None or actor.moe is None or not calls:
        return None
    strategy = calls[0]
    return Guideline(
        rule="Mixture-of-experts training: experts over 8 to 32 devices, each in one piece (ETP 1)",
        here=f"EP{strategy.ep}, ETP {strategy.etp}",
        follows=strategy.ep >= 8 and strategy.etp == 1,
        source="NeMo RL, slime and verl recipes; DeepSeek-V3 (arXiv:2412.19437)",
    )
