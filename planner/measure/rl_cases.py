"""Published RL steps as inputs of the planner: workload, cluster and the strategy that ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.catalog.hardware import parse_cluster
from planner.errors import InputError
from planner.measure.shapes import device_id, model_spec
from planner.schema import (
    Assignment,
    Cluster,
    DType,
    LengthDistribution,
    Mesh,
    Strategy,
    Workload,
)

# Math prompts; used where a case states no plausible mean prompt (its figure is derived from
# rounded rates and scatters when steps overlap).
_USUAL_PROMPT_TOKENS = 110
_PLAUSIBLE_PROMPT_TOKENS = (60, 200)
_DTYPES: dict[str, DType] = {"bf16": "bf16", "fp8": "fp8", "fp8 blockwise": "fp8"}
_ALGORITHMS = ("GRPO",)
# gpu_memory_utilization where a case does not state it: the launchers' own defaults
# (NeMo RL examples/configs/grpo_math_1B.yaml; verl rollout.yaml).
_DEFAULT_MEMORY_FRACTION = {"vllm-nemo-rl": 0.6, "vllm-verl": 0.5, "vllm-verl-eager": 0.5}
_ENGINE_DEFAULT_SEQUENCES = 1024  # vLLM V1's max_num_seqs on these devices


@dataclass(frozen=True)
class RLCase:
    """A measured RL step."""

    id: str
    workload: Workload
    cluster: Cluster
    assignment: Assignment
    space: str
    """The search space of its launcher."""
    measured: dict[str, float]
    """Figure -> value, as published."""


def read_rl_case(case: dict[str, Any]) -> RLCase:
    """Read one complete case of `rl.json` that has a whole step.

    Raises InputError, naming the case, for what it does not understand.
    """
    where = f"case {case.get('id')}"
    if case.get("algorithm") not in _ALGORITHMS:
        raise InputError(f"not a whole RL step: {case.get('algorithm')}", where=where)
    if not case["complete"]:
        raise InputError("incomplete: something that a prediction needs is not stated", where=where)
    train, gen = case["train"], case["gen"]
    backend = str(train["backend"]).lower()
    framework, engine, space = _software(case["framework"], backend, where)
    if engine == "vllm-verl" and gen.get("enforce_eager", True):
        # verl's default until 0.6, and these cases state what differs from the defaults.
        engine = "vllm-verl-eager"
    nodes = case["n_gpus"] // case["gpus_per_node"]
    cluster = parse_cluster(f"{device_id(case['gpu'], where)}:{nodes}x{case['gpus_per_node']}")
    workload = _workload(case, where)
    calls = ("generate", "old_logprobs", "reference_logprobs", "actor_train")
    meshes = _meshes(case, cluster)
    strategies = {name: _trainer(case, name, backend, where) for name in calls[1:]}
    strategies["generate"] = Strategy(
        tp=gen["tp"],
        pp=gen.get("pp") or 1,
        ep=gen.get("ep") or 1,
        dp=case["gen_gpus"] // (gen["tp"] * (gen.get("pp") or 1)),
        memory_fraction=gen.get("gpu_memory_utilization") or _DEFAULT_MEMORY_FRACTION[engine],
        max_running_sequences=_ENGINE_DEFAULT_SEQUENCES,
        dtype=workload.generate_dtype,
    )
    return RLCase(
        id=case["id"],
        workload=workload,
        cluster=cluster,
        assignment=Assignment(
            meshes={name: meshes[name == "generate"] for name in calls},
            strategies=strategies,
            staleness=case["off_policy_lag_steps"],
            framework=framework,
            engine=engine,
            space=space,
        ),
        space=space,
        measured={
            key: float(value)
            for key, value in case["measured"].items()
            if isinstance(value, int | float)
        },
    )


def _software(name: str, backend: str, where: str) -> tuple[str, str, str]:
    """Framework profile, engine profile, search space."""
    if name.startswith("NeMo RL"):
        if backend == "dtensor":
            # There is no search space for NeMo RL's DTensor backend: its plans are the Megatron
            # backend's, which the same launcher runs.
            return "nemo-rl-dtensor", "vllm-nemo-rl", "nemo-rl-megatron"
        return "nemo-rl", "vllm-nemo-rl", "nemo-rl-megatron"
    if name.startswith("verl (Megatron"):
        return "verl-megatron", "vllm-verl", "verl-megatron"
    raise InputError(
        f"unknown framework {name!r} with backend {backend!r}",
        where=where,
        remedy="Known: NeMo RL (Megatron, DTensor), verl with Megatron",
    )


def _workload(case: dict[str, Any], where: str) -> Workload:
    actor = model_spec(case["models"]["actor"], where)
    implied = case.get("mean_prompt_len") or case.get("mean_prompt_len_implied") or 0
    low, high = _PLAUSIBLE_PROMPT_TOKENS
    prompt = round(implied) if low <= implied <= high else _USUAL_PROMPT_TOKENS
    cap = case.get("max_response_len") or case["max_total_seq_len"] - prompt
    return Workload(
        name=case["id"],
        algorithm="grpo",
        models={"actor": actor, "reference": actor},
        prompts_per_step=case["prompts_per_step"],
        samples_per_prompt=case["generations_per_prompt"],
        prompt_length=LengthDistribution(kind="fixed", mean_tokens=prompt, max_tokens=prompt),
        response_length=LengthDistribution(
            mean_tokens=float(case["mean_response_len"]), max_tokens=cap
        ),
        optimizer_steps=case["optimizer_steps_per_rl_step"],
        kl_weight=0.01,
        max_staleness=case["off_policy_lag_steps"],
        train_dtype=_dtype(case, "dtype_train", where),
        generate_dtype=_dtype(case, "dtype_gen", where),
    )


def _meshes(case: dict[str, Any], cluster: Cluster) -> tuple[Mesh, Mesh]:
    """Meshes of the trainer and of the engine."""
    group = cluster.groups[0]
    per_node = group.devices_per_node
    train_nodes = case["train_gpus"] // per_node
    gen_nodes = case["gen_gpus"] // per_node
    first = 0 if case["placement"] == "colocated" else train_nodes
    return (
        Mesh(group=group.name, first_node=0, nodes=train_nodes, devices_per_node=per_node),
        Mesh(group=group.name, first_node=first, nodes=gen_nodes, devices_per_node=per_node),
    )


def _trainer(case: dict[str, Any], call: str, backend: str, where: str) -> Strategy:
    train = case["train"]
    tp, pp, cp = train["tp"], train["pp"], train["cp"]
    first, last = _ends(case["models"]["actor"]["layers"], pp, train)
    training = call == "actor_train"
    batch = train["micro_batch"] if training else train.get("logprob_batch")
    packing = bool(train.get("sequence_packing"))
    if isinstance(batch, str) or (batch is None and isinstance(train["micro_batch"], str)):
        # A token budget of one longest sequence: dynamic batching, one sequence's worth each.
        batch, packing = 1, True
    colocated = case["placement"] == "colocated"
    return Strategy(
        tp=tp,
        pp=pp,
        cp=cp,
        vpp=train.get("vpp") or 1,
        ep=train.get("ep") or 1,
        etp=train.get("etp") or 1,
        dp=case["train_gpus"] // (tp * pp * cp),
        zero_stage=3 if backend == "dtensor" else 1,
        sequence_parallel=bool(train.get("sequence_parallel")),
        micro_batch_sequences=batch or 1,
        packing=packing,
        recompute=train["recompute"] if training else "none",
        offload="all" if colocated else "none",
        first_stage_layers=first,
        last_stage_layers=last,
        optimizer_on_cpu=train.get("optimizer_cpu_offload") == 1.0,
        dtype=_dtype(case, "dtype_train", where),
    )


def _ends(layers: int, pp: int, train: dict[str, Any]) -> tuple[int, int]:
    """Layers of the first and last stage; a case may state only the last."""
    first, last = train.get("layers_first_stage"), train.get("layers_last_stage")
    if last and not first:
        first = (layers - last) // (pp - 1)
    return first or 0, last or 0


def _dtype(case: dict[str, Any], field: str, where: str) -> DType:
    if case[field] not in _DTYPES:
        raise InputError(f"unknown {field} {case[field]!r}", where=where)
    return _DTYPES[case[field]]
