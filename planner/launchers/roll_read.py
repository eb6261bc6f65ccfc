"""Reads ROLL's configuration: the YAML file of its RLVR pipeline, and --set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import InputError
from planner.launchers.key_lists import load_keys
from planner.launchers.reading import CallFields, Context, ReadConfig, Reader, budget_sequences
from planner.launchers.settings import Broken, Given, Settings
from planner.launchers.sources import flatten, override, read_yaml
from planner.schema import Mesh

_RANGE = re.compile(r"\s*list\(\s*range\(\s*(?:(\d+)\s*,)?\s*(\d+)\s*\)\s*\)\s*")
_FIELDS = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
}
_NEUTRAL = (
    *("hydra", "exp_name", "seed", "logging_dir", "output_dir", "system_envs", "checkpoint_config"),
    *("track_with", "tracker_kwargs", "max_steps", "save_steps", "logging_steps", "eval_steps"),
    *("resume_from_checkpoint", "reward_pretrain", "rewards", "validation", "value_clip"),
    *("reward_clip", "advantage_clip", "dual_clip_loss", "norm_mean_type", "norm_std_type"),
    *("max_len_mask", "difficulty_mask", "difficulty_low_threshold", "difficulty_high_threshold"),
    *("error_max_len_clip", "difficulty_loss_weight", "length_loss_weight", "add_token_level_kl"),
    *("whiten_advantages", "pg_clip", "pg_clip_low", "pg_clip_high", "use_pg_clip_range"),
    *("loss_agg_mode", "entropy_loss_coef", "num_gpus_per_node", "generate_opt_level"),
    *("actor_infer.generating_args", "enable_reference", "critic", "reward"),
    *(f"{role}.{name}" for role in ("actor_train", "actor_infer", "reference") for name in (
        "data_args", "model_args", "infer_batch_size", "num_gpus_per_worker", "system_envs")),
    *(f"actor_train.training_args.{name}" for name in (
        "learning_rate", "weight_decay", "warmup_steps", "num_train_epochs", "lr_scheduler_type")),
    *(f"{role}.strategy_args.strategy_config.{name}" for role in ("actor_train", "reference")
      for name in ("moe_token_dispatcher_type", "moe_grouped_gemm", "use_distributed_optimizer")),
    *(f"actor_infer.strategy_args.strategy_config.{name}" for name in (
        "load_format", "block_size", "sleep_level", "max_model_len")),
)  # fmt: skip


def read_roll(files: Mapping[str, str], overrides: Sequence[str], context: Context) -> ReadConfig:
    """What ROLL would run with these files and overrides, in the planner's words."""
    given: list[Given] = []
    for name, text in files.items():
        if name.endswith((".yaml", ".yml")):
            given += flatten(read_yaml(text, name), name)
    if not given:
        raise InputError(
            "nothing configures ROLL",
            where=", ".join(files) or "CONFIG",
            remedy="Give the pipeline's YAML file.",
        )
    given += [override(text, "--set") for text in overrides]
    # dacite drops keys that the dataclasses lack, so ROLL does not stop at them.
    return _Roll(Settings(given, load_keys("roll")), context).read()


class _Roll:
    def __init__(self, settings: Settings, context: Context):
        self.s = settings
        self.reader = Reader("roll", settings, context)

    def read(self) -> ReadConfig:
        s, reader = self.s, self.reader
        own = "actor_train.model_args.model_name_or_path"
        reader.model("actor", own if s.given(own) else "pretrain")
        estimator = s.text("adv_estimator")
        if estimator != "grpo":
            s.notes.append(f"adv_estimator {estimator}: priced as grpo")
        prompts = s.integer("rollout_batch_size")
        samples = s.integer("num_return_sequences_in_group")
        prompt = s.integer("prompt_length")
        response = s.optional_integer("response_length")
        if response is None:
            response = max(1, s.integer("sequence_length") - prompt)
        longest = prompt + response
        train_mesh, engine_mesh = self._meshes()
        train = self._train(longest)
        part = self._part(train_mesh, train)
        steps = reader.steps(
            prompts * samples,
            "rollout_batch_size",
            min(part, prompts * samples),
            "actor_train.training_args.gradient_accumulation_steps",
        )
        self._prompts_by_ranks(prompts, train_mesh, train)
        reader.put("actor_train", train, train_mesh)
        kl_weight = max(
            s.number("kl_loss_coef") if s.flag("use_kl_loss") else 0.0, s.number("init_kl_coef")
        )
        recompute = s.flag("enable_old_logprobs_recompute") or steps > 1
        recompute = recompute or s.number("init_kl_coef") > 0
        if s.flag("force_disable_old_logprobs_recompute"):
            recompute = False
        epochs = s.integer("ppo_epochs")
        source = "recompute" if recompute else "skip"
        if not recompute and steps * epochs > 1:
            source = "engine"
            s.notes.append("old log-probs are kept from the first pass: priced as the engine's")
        if recompute:
            reader.put("old_logprobs", self._forward("actor_train", train, longest), train_mesh)
        if kl_weight > 0:
            self._reference(train, longest, train_mesh)
        staleness = self._staleness()
        self._engine(engine_mesh)
        s.ignore(*_NEUTRAL)
        return reader.finish(
            {
                "name": str(s.text("exp_name") or "roll")[:200],
                "algorithm": "grpo",
                "prompts_per_step": prompts,
                "samples_per_prompt": samples,
                "optimizer_steps": steps,
                "epochs": epochs,
                "kl_weight": kl_weight,
                "old_logprobs": source,
                "max_staleness": staleness,
                **reader.lengths(prompt, response),
            },
            space="roll",
            staleness=staleness,
        )

    def _devices(self, role: str) -> tuple[int, int]:
        """(first, one past the last) number of a role's devices."""
        key = f"{role}.device_mapping"
        value = self.s.raw(key)
        if isinstance(value, str):
            match = _RANGE.fullmatch(value)
            if match:
                return int(match[1] or 0), int(match[2])
        if isinstance(value, list) and value and all(isinstance(n, int) for n in value):
            numbers = sorted(value)
            if numbers == list(range(numbers[0], numbers[-1] + 1)):
                return numbers[0], numbers[-1] + 1
        raise InputError(
            f"{value!r} is not a range of devices",
            where=self.s.where(key),
            remedy="Write list(range(0,8)).",
        )

    def _meshes(self) -> tuple[Mesh, Mesh]:
        s = self.s
        keys = ("actor_train.device_mapping", "actor_infer.device_mapping")
        train, engine = self._devices("actor_train"), self._devices("actor_infer")
        first = self._mesh(train, keys[0])
        if train == engine:
            return first, first
        if train[0] < engine[1] and engine[0] < train[1]:
            s.notes.append(f"{keys[1]} has a part of {keys[0]}: priced as all of it")
            return first, first
        return first, self._mesh(engine, keys[1])

    def _mesh(self, devices: tuple[int, int], key: str) -> Mesh:
        number, per_node = devices[1] - devices[0], self.reader.group.devices_per_node
        if number <= per_node:
            return self.reader.mesh(1, number, (key,))
        if number % per_node:
            self.s.notes.append(f"{key}: {number} devices are priced as whole nodes")
        return self.reader.mesh(-(-number // per_node), per_node, (key,))

    def _strategy(self, role: str) -> str:
        return f"{role}.strategy_args.strategy_config"

    def _train(self, longest: int) -> CallFields:
        s, section = self.s, self._strategy("actor_train")
        s.choice("actor_train.strategy_args.strategy_name", {"megatron_train": 1}, "megatron_train")
        keys = {field: f"{section}.{name}" for field, name in _FIELDS.items()}
        fields: dict[str, Any] = {field: s.integer(key, 1) for field, key in keys.items()}
        keys["etp"] = f"{section}.expert_tensor_parallel_size"
        fields["etp"] = s.integer(keys["etp"], 1)
        keys["sequence_parallel"] = f"{section}.sequence_parallel"
        # Megatron switches it off without tensor parallelism.
        fields["sequence_parallel"] = s.flag(keys["sequence_parallel"]) and fields["tp"] > 1
        keys["recompute"] = f"{section}.recompute_granularity"
        fields["recompute"] = s.text(keys["recompute"], "none")
        if fields["recompute"] not in ("none", "full", "selective"):
            raise InputError("is not full or selective", where=s.where(keys["recompute"]))
        method = s.text(f"{section}.recompute_method", "uniform")
        layers = s.integer(f"{section}.recompute_num_layers", 1)
        if fields["recompute"] == "full" and (method, layers) != ("uniform", 1):
            s.notes.append(f"recompute {method} {layers}: priced as uniform 1")
        s.not_modelled(f"{section}.moe_layer_recompute", "not priced", lambda v: not v)
        s.not_modelled(
            "is_offload_optimizer_states_in_train_step", "not priced", lambda v: v in (None, False)
        )
        # The RLVR pipeline sends a model's state to the host after each of its calls.
        fields |= {"zero_stage": 1, "offload": "all"}
        packing, budget = "actor_train.use_sequence_packing", None
        fields["packing"] = s.flag(packing)
        keys["packing"] = packing
        if fields["packing"]:
            keys["micro_batch_sequences"], size, budget = self._budget(
                "actor_train", "train", longest
            )
        else:
            keys["micro_batch_sequences"] = "actor_train.training_args.per_device_train_batch_size"
            size = s.integer(keys["micro_batch_sequences"])
        fields["micro_batch_sequences"] = size
        s.not_modelled(
            "actor_train.use_dynamic_batching_in_train", "priced without", lambda v: not v
        )
        return CallFields(fields, keys, budget)

    def _budget(self, role: str, use: str, longest: int) -> tuple[str, int, float | None]:
        """(setting, longest sequences in a packed microbatch, exact number if not whole)."""
        s, section = self.s, f"{role}.sequence_packing_args"
        if s.text(f"{section}.algorithm", "none") != "load_balance":
            key = (
                f"{role}.training_args.per_device_train_batch_size"
                if use == "train"
                else f"{role}.infer_batch_size"
            )
            s.notes.append(f"{section}.algorithm none: so many sequences share a microbatch")
            return key, s.integer(key), None
        key = f"{section}.max_packed_sequence_length_{use}"
        tokens = s.integer(key)
        if tokens < longest:
            s.broken.append(
                Broken(
                    "budget-holds-longest",
                    f"{tokens} tokens are fewer than the longest sequence, {longest}",
                    (key,),
                    (f"{key}={longest}",),
                    "ROLL utils/sequence_packing.py",
                )
            )
        sequences, rest = budget_sequences(max(tokens, longest), 1, longest)
        return key, sequences, rest

    def _forward(self, role: str, train: CallFields, longest: int) -> CallFields:
        s, key, budget = self.s, f"{role}.infer_batch_size", None
        if train.fields["packing"]:
            key, size, budget = self._budget(role, "forward", longest)
        else:
            size = s.integer(key)
        base = train.but(CallFields({"recompute": "none"}, {}))
        return base.but(
            CallFields({"micro_batch_sequences": size}, {"micro_batch_sequences": key}, budget)
        )

    def _part(self, mesh: Mesh, train: CallFields) -> int:
        """Sequences of one optimizer step."""
        s, root = self.s, "actor_train.training_args"
        size = s.integer(f"{root}.per_device_train_batch_size")
        each = size * s.integer(f"{root}.gradient_accumulation_steps", 1)
        return each * max(1, mesh.devices // _model_ranks(train))

    def _prompts_by_ranks(self, prompts: int, mesh: Mesh, train: CallFields) -> None:
        dp = max(1, mesh.devices // _model_ranks(train))
        if prompts % dp:
            self.s.broken.append(
                Broken(
                    "prompts-by-ranks",
                    f"{prompts} prompts do not divide by {dp} data-parallel ranks",
                    ("rollout_batch_size",),
                    (f"rollout_batch_size={-(-prompts // dp) * dp}",),
                    "ROLL utils/config_utils.py",
                )
            )

    def _reference(self, train: CallFields, longest: int, mesh: Mesh) -> None:
        s, section = self.s, self._strategy("reference")
        s.choice("reference.strategy_args.strategy_name", {"megatron_infer": 1}, "megatron_infer")
        own = {field: s.integer(f"{section}.{name}", 1) for field, name in _FIELDS.items()}
        s.raw(f"{section}.sequence_parallel")
        s.raw(f"{section}.expert_tensor_parallel_size")
        if any(train.fields[field] != size for field, size in own.items()):
            s.notes.append("reference's degrees differ from the actor's: priced as the actor's")
        if self._devices("reference") != self._devices("actor_train"):
            s.notes.append("the reference is priced on the actor's devices")
        if s.flag("reference.use_sequence_packing") != train.fields["packing"]:
            s.notes.append("reference.use_sequence_packing: priced as the actor's")
        self.reader.models["reference"] = self.reader.models["actor"]
        self.reader.put("reference_logprobs", self._forward("reference", train, longest), mesh)

    def _staleness(self) -> int:
        s, key = self.s, "async_generation_ratio"
        ratio = s.number(key)
        if ratio > 0 and s.integer("generate_opt_level", 1, low=0) != 1:
            s.broken.append(
                Broken(
                    "async-needs-level-one",
                    f"{key} {ratio:g} with generate_opt_level 0",
                    ("generate_opt_level",),
                    ("generate_opt_level=1",),
                    "ROLL configs/base_config.py",
                )
            )
        if ratio != int(ratio):
            s.notes.append(f"{key} {ratio:g}: priced as {int(ratio)}")
        return int(ratio)

    def _engine(self, mesh: Mesh) -> None:
        s, section = self.s, self._strategy("actor_infer")
        s.choice("actor_infer.strategy_args.strategy_name", {"vllm": 1}, "vllm")
        keys = {
            "tp": f"{section}.tensor_parallel_size",
            "pp": f"{section}.pipeline_parallel_size",
            "memory_fraction": f"{section}.gpu_memory_utilization",
            "max_running_sequences": f"{section}.max_num_seqs",
        }
        fraction = s.number(keys["memory_fraction"], 0.9)
        if not 0 < fraction <= 1:
            raise InputError("is not a share of the memory", where=s.where(keys["memory_fraction"]))
        most = s.integer("max_running_requests")
        s.not_modelled(f"{section}.enforce_eager", "priced with CUDA graphs", lambda v: not v)
        s.not_modelled(f"{section}.enable_expert_parallel", "priced without", lambda v: not v)
        fields = {
            "tp": s.integer(keys["tp"], 1),
            "pp": s.integer(keys["pp"], 1),
            "memory_fraction": fraction,
            # The scheduler sends a replica no more than max_running_requests.
            "max_running_sequences": min(most, s.integer(keys["max_running_sequences"], most)),
        }
        self.reader.put("generate", CallFields(fields, keys), mesh)


def _model_ranks(train: CallFields) -> int:
    fields = train.fields
    return int(fields["tp"] * fields["pp"] * fields["cp"])
