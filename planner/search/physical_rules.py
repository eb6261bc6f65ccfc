"""Legality that holds in every search space, as rules: arithmetic of degrees, heads and batches."""

from __future__ import annotations

from planner.schema import Rule
from planner.schema.workload import CallKind

MODEL_CALLS: tuple[CallKind, ...] = ("train", "forward", "generate")
TRAINER_CALLS: tuple[CallKind, ...] = ("train", "forward")
_MEGATRON = "Megatron-LM arguments.py and transformer_config.py"
_VLLM = "vLLM config/parallel.py and config/model.py"


def _rule(
    name: str, calls: tuple[CallKind, ...], check: str, message: str, remedy: str, source: str
) -> Rule:
    return Rule(id=name, calls=calls, check=check, message=message, remedy=remedy, source=source)


_ARITHMETIC = "arithmetic"
PHYSICAL_RULES: tuple[Rule, ...] = (
    _rule(
        "mesh-of-whole-nodes",
        MODEL_CALLS,
        "devices <= devices_per_node or devices % devices_per_node == 0",
        "{devices} devices are neither whole nodes of {devices_per_node} nor part of one node",
        "Use a multiple of devices_per_node",
        _ARITHMETIC,
    ),
    _rule(
        "mesh-within-cluster",
        MODEL_CALLS,
        "devices <= cluster_devices",
        "{devices} devices are more than the cluster's {cluster_devices}",
        "Lower a degree",
        _ARITHMETIC,
    ),
    _rule(
        "heads-by-tp",
        MODEL_CALLS,
        "num_heads % tp == 0",
        "{num_heads} query heads do not divide by tp {tp}",
        "Use a tp that divides the heads",
        f"{_MEGATRON}; {_VLLM}",
    ),
    _rule(
        "kv-heads-by-tp",
        MODEL_CALLS,
        "num_kv_heads % tp == 0 or tp % num_kv_heads == 0",
        "{num_kv_heads} key-value heads cannot be split or repeated evenly over tp {tp}",
        "Use a tp that divides the key-value heads or is a multiple of them",
        f"{_MEGATRON}; {_VLLM}",
    ),
    _rule(
        "ffn-by-tp",
        MODEL_CALLS,
        "ffn_size % tp == 0",
        "ffn_size {ffn_size} does not divide by tp {tp}",
        "Use a tp that divides it",
        f"{_MEGATRON}; {_VLLM}",
    ),
    _rule(
        "tp-inside-scale-up-domain",
        TRAINER_CALLS,
        "tp <= max(scale_up_domain_devices, devices_per_node)",
        "tp {tp} spans scale-up domains of {scale_up_domain_devices} devices: every layer would "
        "wait for the network",
        "Use a smaller tp with more pp or dp",
        "Megatron-LM's guidance: tensor parallelism inside NVLink",
    ),
    _rule(
        "engine-tp-whole-nodes",
        ("generate",),
        "tp <= max(scale_up_domain_devices, devices_per_node) or tp % devices_per_node == 0",
        "tp {tp} is neither inside a scale-up domain nor a multiple of {devices_per_node}",
        "Use whole nodes for one engine",
        _VLLM,
    ),
    _rule(
        "tp-aligned-to-nodes",
        MODEL_CALLS,
        "devices < devices_per_node or devices_per_node % tp == 0 or tp % devices_per_node == 0",
        "groups of tp {tp} do not tile nodes of {devices_per_node} devices",
        "Use a tp that divides devices_per_node or is a multiple of it",
        _ARITHMETIC,
    ),
    _rule(
        "engine-aligned-to-nodes",
        ("generate",),
        "devices <= devices_per_node or devices_per_node % (tp * pp) == 0 "
        "or (tp * pp) % devices_per_node == 0",
        "engines of tp {tp} x pp {pp} devices do not tile nodes of {devices_per_node}",
        "Use a replica size that divides devices_per_node or is a multiple of it",
        _ARITHMETIC,
    ),
    _rule(
        "experts-by-ep",
        MODEL_CALLS,
        "ep == 1 or (is_moe and num_experts % max(ep, 1) == 0)",
        "{num_experts} experts do not divide by ep {ep}",
        "Use an ep that divides the number of experts (1 for a dense model)",
        f"{_MEGATRON}; {_VLLM}",
    ),
    _rule(
        "expert-ffn-by-etp",
        TRAINER_CALLS,
        "etp == 1 or (is_moe and expert_ffn_size % etp == 0)",
        "expert_ffn_size {expert_ffn_size} does not divide by etp {etp}",
        "Use an etp that divides it (1 for a dense model)",
        _MEGATRON,
    ),
    _rule(
        "engine-expert-ffn-by-tp",
        ("generate",),
        "not is_moe or ep > 1 or expert_ffn_size % tp == 0",
        "expert_ffn_size {expert_ffn_size} does not divide by tp {tp}",
        "Use a smaller tp or expert parallelism",
        _VLLM,
    ),
    _rule(
        "expert-groups-fill-a-stage",
        TRAINER_CALLS,
        "(tp * cp * dp) % (ep * etp) == 0",
        "tp x cp x dp = the ranks of a stage do not divide by ep {ep} x etp {etp}",
        "Lower ep or etp",
        "Megatron-LM parallel_state.py: expert data-parallel size is a whole number",
    ),
    _rule(
        "engine-expert-groups",
        ("generate",),
        "(tp * dp) % ep == 0 and (ep % tp == 0 or tp % ep == 0)",
        "ep {ep} does not fit into tp {tp} x {dp} replicas",
        "Use ep 1, tp, or a multiple of tp",
        _VLLM,
    ),
    _rule(
        "layers-by-stages",
        TRAINER_CALLS,
        "first_stage_layers + last_stage_layers > 0 or num_layers % (pp * vpp) == 0",
        "{num_layers} layers do not divide by pp {pp} x vpp {vpp}",
        "Use another pp, or set first_stage_layers and last_stage_layers",
        _MEGATRON,
    ),
    _rule(
        "stage-split-given-in-full",
        TRAINER_CALLS,
        "min(first_stage_layers, 1) == min(last_stage_layers, 1) "
        "and (first_stage_layers == 0 or (pp > 1 and vpp == 1))",
        "first_stage_layers {first_stage_layers} and last_stage_layers {last_stage_layers} with pp "
        "{pp}, vpp {vpp}",
        "Give both, with pp above 1 and vpp 1, or neither",
        _MEGATRON,
    ),
    _rule(
        "stage-split-adds-up",
        TRAINER_CALLS,
        "first_stage_layers == 0 or (first_stage_layers + last_stage_layers == num_layers "
        "if pp == 2 else first_stage_layers + last_stage_layers < num_layers)",
        "{first_stage_layers} + {last_stage_layers} layers on the ends leave no fitting middle of "
        "{num_layers} layers over pp {pp}",
        "Change the layers of the first and last stage",
        _MEGATRON,
    ),
    _rule(
        "middle-stages-equal",
        TRAINER_CALLS,
        "first_stage_layers == 0 or "
        "(num_layers - first_stage_layers - last_stage_layers) % max(pp - 2, 1) == 0",
        "{num_layers} layers less {first_stage_layers} and {last_stage_layers} do not divide by "
        "the middle stages of pp {pp}",
        "Change the layers of the first and last stage",
        _MEGATRON,
    ),
    _rule(
        "vpp-needs-pp",
        TRAINER_CALLS,
        "vpp == 1 or pp > 1",
        "vpp {vpp} without pipeline stages",
        "Use vpp 1",
        _MEGATRON,
    ),
    _rule(
        "engine-layers",
        ("generate",),
        "pp <= num_layers",
        "{num_layers} layers are fewer than pp {pp}",
        "Use a smaller pp",
        _VLLM,
    ),
    _rule(
        "sequence-by-cp",
        TRAINER_CALLS,
        "cp == 1 or 2 * cp <= max_sequence_tokens",
        "{max_sequence_tokens} tokens cannot be cut into 2 x cp {cp} pieces",
        "Use a smaller cp",
        "Megatron-LM: each rank holds two chunks of the sequence",
    ),
    _rule(
        "sequence-parallel-needs-tp",
        TRAINER_CALLS,
        "not sequence_parallel or tp > 1",
        "sequence parallelism with tp {tp}",
        "Set sequence_parallel false or tp above 1",
        _MEGATRON,
    ),
    _rule(
        "ulysses-in-cp",
        TRAINER_CALLS,
        "cp % ulysses == 0 and num_heads % (tp * ulysses) == 0",
        "Ulysses degree {ulysses} with cp {cp}, tp {tp} and {num_heads} query heads",
        "Use a degree that divides cp and, with tp, the heads",
        "arXiv:2309.14509, 2405.07719",
    ),
    _rule(
        "shards-divide-ranks",
        TRAINER_CALLS,
        "shard_ranks == 0 or (zero_stage >= 1 and shard_ranks > 1 and shard_ranks < dp * cp "
        "and dp * cp % shard_ranks == 0)",
        "ZeRO stage {zero_stage} in groups of {shard_ranks} with dp {dp} and cp {cp}",
        "Use a size that divides dp x cp, or 0 for all ranks",
        "PyTorch FSDP HYBRID_SHARD",
    ),
    _rule(
        "schedule-needs-plain-pipeline",
        TRAINER_CALLS,
        "pipeline_schedule == '1f1b' or (pp > 1 and vpp == 1)",
        "schedule {pipeline_schedule} with pp {pp} and vpp {vpp}",
        "Use 1f1b, or a pipeline without virtual stages",
        "arXiv:2401.10241, 2412.19437",
    ),
    _rule(
        "dualpipe-microbatches",
        ("train",),
        "pipeline_schedule != 'dualpipe' or (pp % 2 == 0 and "
        "sequences_per_optimizer_step // (dp * micro_batch_sequences) >= 2 * pp)",
        "DualPipe with pp {pp} and fewer than two microbatches a stage",
        "Use an even pp, smaller microbatches or 1f1b",
        "arXiv:2412.19437",
    ),
    _rule(
        "batch-by-dp",
        ("train",),
        "sequences_per_optimizer_step % dp == 0",
        "{sequences_per_optimizer_step} sequences in an optimizer step do not divide by dp {dp}",
        "Change dp, the batch, or the number of optimizer steps",
        f"{_MEGATRON}; NeMo RL batched_data_dict.py; verl engine_workers.py",
    ),
    _rule(
        "forward-batch-by-dp",
        ("forward",),
        "call_sequences % dp == 0",
        "{call_sequences} sequences do not divide by dp {dp}",
        "Change dp or the batch",
        "NeMo RL batched_data_dict.py; verl engine_workers.py",
    ),
    _rule(
        "replicas-have-work",
        ("generate",),
        "dp <= call_sequences",
        "{dp} replicas for {call_sequences} sequences",
        "Use fewer or larger replicas",
        _ARITHMETIC,
    ),
    _rule(
        "microbatch-within-batch",
        ("train",),
        "dp * micro_batch_sequences <= sequences_per_optimizer_step",
        "a microbatch of {micro_batch_sequences} on each of dp {dp} exceeds the "
        "{sequences_per_optimizer_step} sequences of an optimizer step",
        "Use a smaller microbatch",
        _ARITHMETIC,
    ),
    _rule(
        "forward-microbatch-within-batch",
        ("forward",),
        "dp * micro_batch_sequences <= call_sequences",
        "a microbatch of {micro_batch_sequences} on each of dp {dp} exceeds {call_sequences} "
        "sequences",
        "Use a smaller microbatch",
        _ARITHMETIC,
    ),
    _rule(
        "padded-batch-by-microbatch",
        ("train",),
        "packing or sequences_per_optimizer_step % (dp * micro_batch_sequences) == 0",
        "{sequences_per_optimizer_step} sequences do not divide by dp {dp} x microbatch "
        "{micro_batch_sequences}",
        "Change the microbatch, or pack sequences",
        _MEGATRON,
    ),
    _rule(
        "padded-forward-by-microbatch",
        ("forward",),
        "packing or call_sequences % (dp * micro_batch_sequences) == 0",
        "{call_sequences} sequences do not divide by dp {dp} x microbatch {micro_batch_sequences}",
        "Change the microbatch, or pack sequences",
        _MEGATRON,
    ),
)
