"""Reads verl's keys of the trained models: layout and microbatches, for FSDP and for Megatron."""

from __future__ import annotations

from typing import Any

from planner.errors import InputError
from planner.launchers.numbers import divisors, near, stage_ends
from planner.launchers.reading import CallFields, budget_sequences
from planner.launchers.settings import Broken, Settings
from planner.schema import ModelSpec


class TrainerReader:
    """Strategy fields of train and forward calls; `models` fills up while verl's keys are read."""

    def __init__(
        self, settings: Settings, models: dict[str, ModelSpec], longest: int, *, megatron: bool
    ):
        self.s = settings
        self.models = models
        self.longest = longest
        self.megatron = megatron

    def micro(self, prefix: str, dynamic_key: str, cp: int) -> CallFields:
        """Packing and microbatch of one pass."""
        s = self.s
        packing = s.flag(dynamic_key)
        budget = None
        if packing:
            key = f"{prefix}_max_token_len_per_gpu"
            tokens = s.integer(key)
            sequences, budget = budget_sequences(tokens, cp, self.longest)
            if tokens * cp < self.longest:
                self.s.broken.append(
                    Broken(
                        "budget-holds-longest",
                        f"{tokens} tokens x {cp} devices are fewer than the longest sequence, "
                        f"{self.longest}",
                        (key,),
                        (f"{key}={-(-self.longest // cp)}",),
                        "verl utils/seqlen_balancing.py rearrange_micro_batches",
                    )
                )
        else:
            key = f"{prefix}_micro_batch_size_per_gpu"
            whole = s.optional_integer(key)
            total_key = f"{prefix}_micro_batch_size"
            total = s.optional_integer(total_key) if whole is None else None
            if whole is None and total is not None:
                key, whole = total_key, max(1, total // self._ranks(cp))
            if whole is None:
                s.broken.append(
                    Broken(
                        "microbatch-given",
                        "no microbatch size is given",
                        (key,),
                        (f"{key}=1",),
                        "verl utils/config.py validate_config",
                    )
                )
                whole = 1
            sequences = whole
        fields = {"packing": packing, "micro_batch_sequences": sequences}
        keys = {"packing": dynamic_key, "micro_batch_sequences": key}
        return CallFields(fields, keys, budget)

    def framework(self) -> str | None:
        """The profile of the loss: an entropy term keeps more bytes of every logit."""
        s, actor = self.s, "actor_rollout_ref.actor"
        entropy = s.number(f"{actor}.entropy_coeff", 0.0) != 0.0
        if s.flag(f"{actor}.calculate_entropy") or entropy:
            return f"verl-{'megatron' if self.megatron else 'fsdp'}-entropy"
        return None

    def unpadded(self) -> list[str]:
        """Calls of models that drop padding; the actor's settings hold for its reference too."""
        of = {"actor_rollout_ref.model": ("actor_train", "old_logprobs", "reference_logprobs"),
              "critic.model": ("critic_train", "values")}  # fmt: skip
        return [
            call
            for model, calls in of.items()
            for call in calls
            if self.s.flag(f"{model}.use_remove_padding")
        ]

    def lora_rank(self) -> int:
        """Rank of the actor's adapters; verl takes zero and less as none."""
        root = "actor_rollout_ref.model"
        rank = self.s.integer(f"{root}.lora.rank", 0, low=-(2**31))
        if rank <= 0:
            rank = self.s.integer(f"{root}.lora_rank", 0, low=-(2**31))
        return max(0, rank)

    def _ranks(self, cp: int) -> int:
        s = self.s
        return max(1, s.integer("trainer.nnodes") * s.integer("trainer.n_gpus_per_node") // cp)

    def trained(self, owner: str, model: str) -> CallFields:
        """A trained model's layout and its training microbatch."""
        s = self.s
        s.not_modelled(f"{model}.use_fused_kernels", "fused output head: not priced", off)
        s.not_modelled(f"{model}.enable_activation_offload", "activation offload: not priced", off)
        layout = self._megatron(owner) if self.megatron else self._fsdp(owner, model)
        micro = self.micro(f"{owner}.ppo", f"{owner}.use_dynamic_bsz", layout.fields["cp"])
        found = layout.but(micro)
        packed = s.flag(f"{model}.use_remove_padding")
        if not packed and (layout.fields["cp"] > 1 or self.megatron):
            key = f"{model}.use_remove_padding"
            s.broken.append(
                Broken(
                    "packing-needs-remove-padding",
                    "sequence parallelism and Megatron need use_remove_padding",
                    (key,),
                    (f"{key}=true",),
                    "verl workers/config/actor.py FSDPActorConfig.validate",
                )
            )
        return found

    def _fsdp(self, owner: str, model: str) -> CallFields:
        s = self.s
        section = f"{owner}.fsdp_config" if owner.startswith("actor") else f"{owner}.fsdp"
        cp_key = f"{owner}.ulysses_sequence_parallel_size"
        checkpoint = f"{model}.enable_gradient_checkpointing"
        params, optimizer = f"{section}.param_offload", f"{section}.optimizer_offload"
        s.raw(f"{owner}.strategy")
        s.raw(f"{section}.reshard_after_forward")
        s.not_modelled(f"{section}.offload_policy", "FSDP2 CPU offload: not priced", off)
        s.not_modelled(
            f"{section}.model_dtype",
            "weights are priced in fp32, verl's default",
            lambda v: v in ("fp32", "float32", None),
        )
        cp = s.integer(cp_key)
        return CallFields(
            {
                "cp": cp,
                "zero_stage": 3,
                "shard_ranks": self._shard_ranks(f"{section}.fsdp_size"),
                "recompute": "full" if s.flag(checkpoint) else "none",
                "offload": self._offload(params, optimizer),
            },
            {
                "cp": cp_key,
                "recompute": checkpoint,
                "offload": params,
                "shard_ranks": f"{section}.fsdp_size",
            },
        )

    def _shard_ranks(self, key: str) -> int:
        """Ranks of a sharding group; 0 for all of them. The groups must make up the ranks."""
        s = self.s
        size, ranks = s.integer(key, -1, low=-(2**31)), self._ranks(1)
        if size < 0 or size >= ranks:
            return 0
        if size == 0 or ranks % size:
            s.broken.append(
                Broken(
                    "sharding-groups-divide-ranks",
                    f"{ranks} ranks do not divide into sharding groups of {size}",
                    (key,),
                    (*(f"{key}={n}" for n in near(divisors(ranks), max(size, 1))), f"{key}=-1"),
                    "verl workers/engine/fsdp/utils.py create_device_mesh",
                )
            )
            return 0
        # Groups of one rank shard nothing; the nearest that a strategy can say is two.
        if size == 1:
            s.notes.append(f"{key} 1: every rank holds everything; priced in groups of two")
        return max(2, size) if ranks > 2 else 0

    def _offload(self, params: str, optimizer: str) -> str:
        s = self.s
        if not s.flag(optimizer):
            if s.flag(params):
                s.notes.append(f"{params} without {optimizer}: priced as no offload")
            return "none"
        return "all" if s.flag(params) else "optimizer"

    def _megatron(self, owner: str) -> CallFields:
        s, section = self.s, f"{owner}.megatron"
        names = {
            "tp": "tensor_model_parallel_size",
            "pp": "pipeline_model_parallel_size",
            "vpp": "virtual_pipeline_model_parallel_size",
            "cp": "context_parallel_size",
            "ep": "expert_model_parallel_size",
            "etp": "expert_tensor_parallel_size",
        }
        keys = {field: f"{section}.{name}" for field, name in names.items()}
        fields: dict[str, Any] = {field: s.integer(keys[field], 1) for field in names}
        if s.optional_integer(keys["etp"]) is None:
            moe = self.models["critic" if owner == "critic" else "actor"].moe
            fields["etp"] = fields["tp"] if moe else 1
        transformer = f"{section}.override_transformer_config"
        for field, name in (
            ("first_stage_layers", "num_layers_in_first_pipeline_stage"),
            ("last_stage_layers", "num_layers_in_last_pipeline_stage"),
        ):
            keys[field] = f"{transformer}.{name}"
            fields[field] = s.integer(keys[field], 0, low=0)
        layers = self.models["critic" if owner == "critic" else "actor"].num_layers
        fields["first_stage_layers"], fields["last_stage_layers"] = stage_ends(
            fields["first_stage_layers"], fields["last_stage_layers"], layers, fields["pp"]
        )
        keys["recompute"] = f"{transformer}.recompute_granularity"
        fields["recompute"] = s.text(keys["recompute"], "none")
        if fields["recompute"] not in ("none", "selective", "full"):
            raise InputError(
                f"{fields['recompute']!r} is not selective or full",
                where=s.where(keys["recompute"]),
            )
        method = s.text(f"{transformer}.recompute_method", "uniform")
        each = s.integer(f"{transformer}.recompute_num_layers", 1)
        if fields["recompute"] == "full" and (method, each) != ("uniform", 1):
            s.notes.append(f"recompute {method} {each}: priced as uniform 1")
        s.raw(f"{transformer}.recompute_modules")
        keys["sequence_parallel"] = f"{section}.sequence_parallel"
        fields["sequence_parallel"] = s.flag(keys["sequence_parallel"]) and fields["tp"] > 1
        s.flag(f"{section}.grad_offload")
        keys["offload"] = f"{section}.param_offload"
        fields["offload"] = self._offload(keys["offload"], f"{section}.optimizer_offload")
        optimizer = f"{owner}.optim.override_optimizer_config"
        keys["optimizer_on_cpu"] = f"{optimizer}.optimizer_cpu_offload"
        fields["optimizer_on_cpu"] = s.flag(keys["optimizer_on_cpu"])
        s.raw(f"{optimizer}.optimizer_offload_fraction")
        s.raw(f"{optimizer}.use_precision_aware_optimizer")
        s.not_modelled(f"{section}.use_megatron_fsdp", "Megatron FSDP: priced without", off)
        # Without it every data-parallel rank holds the whole optimizer state.
        fields["zero_stage"] = int(s.flag(f"{section}.use_distributed_optimizer"))
        return CallFields(fields, keys)


def off(value: Any) -> bool:
    """True for a value that switches something off."""
    return value in (None, False, 0, "false", "0")
