"""Reads verl's configuration: Hydra overrides, a YAML file on top of verl's own, or a run script.

Keys and defaults: keys/verl.json and keys/verl-megatron.json (verl 0.9.1). Names of older releases
are translated and said so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.errors import InputError
from planner.launchers.algorithm_settings import VERL, fitting, recognised
from planner.launchers.key_lists import load_keys
from planner.launchers.reading import CallFields, Context, ReadConfig, Reader
from planner.launchers.settings import Broken, Settings
from planner.launchers.verl_read_trainers import TrainerReader, off
from planner.launchers.verl_sources import given_settings, is_megatron, note_renamed, renamed
from planner.schema import Mesh

# What no plan depends on.
_NEUTRAL = (
    *("data", "trainer", "algorithm", "reward", "global_profiler", "ray_kwargs", "hydra"),
    *("transfer_queue", "distillation", "critic.optim", "actor_rollout_ref.actor.optim"),
    *("actor_rollout_ref.actor.checkpoint", "actor_rollout_ref.actor.profiler"),
    *("actor_rollout_ref.rollout.multi_turn", "actor_rollout_ref.rollout.agent"),
    *("actor_rollout_ref.rollout.val_kwargs", "actor_rollout_ref.rollout.trace"),
    *(
        f"actor_rollout_ref.rollout.{name}"
        for name in (
            "temperature",
            "top_k",
            "top_p",
            "seed",
            "ignore_eos",
            "do_sample",
            "disable_log_stats",
            "load_format",
            "layered_summon",
            "dtype",
            "calculate_log_probs",
            "prometheus",
            "prompt_length",
            "response_length",
            "skip_tokenizer_init",
            "mode",
        )
    ),
    *(
        f"actor_rollout_ref.actor.{name}"
        for name in (
            "clip_ratio",
            "clip_ratio_low",
            "clip_ratio_high",
            "clip_ratio_c",
            "loss_agg_mode",
            "kl_loss_type",
            "grad_clip",
            "shuffle",
            "policy_loss",
            "use_torch_compile",
            "data_loader_seed",
        )
    ),
    *("actor_rollout_ref.model.trust_remote_code", "actor_rollout_ref.model.use_shm"),
    *("critic.model.tokenizer_path", "critic.cliprange_value", "critic.grad_clip"),
    *("critic.model.trust_remote_code", "actor_rollout_ref.model.external_lib"),
)


_BACKENDS = {
    "model_engine": ("dp", "megatron"),
    "actor_rollout_ref.actor.strategy": ("fsdp", "fsdp2", "megatron"),
}
"""Keys that choose what trains, and the values whose training is modelled."""


def read_verl(files: Mapping[str, str], overrides: Sequence[str], context: Context) -> ReadConfig:
    """What verl would run with these files and overrides, in the planner's words."""
    given, entry = given_settings(files, overrides)
    megatron = is_megatron(given)
    keys = load_keys("verl-megatron" if megatron else "verl")
    if entry != "main":
        keys = replace(keys, open_sections=(*keys.open_sections, "rollout", "async_training"))
    keys = replace(keys, defaults={**keys.defaults, "model_engine": "dp"})
    settings = Settings([renamed(item) for item in given], keys, strict=True)
    note_renamed(given, settings)
    return _Verl(settings, context, megatron=megatron, entry=entry).read()


class _Verl:
    def __init__(self, settings: Settings, context: Context, *, megatron: bool, entry: str):
        self.s = settings
        self.reader = Reader("verl", settings, context)
        self.megatron = megatron
        self.entry = entry
        self.longest = 1

    def read(self) -> ReadConfig:
        s, reader = self.s, self.reader
        for key, modelled in _BACKENDS.items():
            backend = s.text(key)
            if backend is not None and backend not in modelled:
                priced = "megatron" if self.megatron else "fsdp"
                s.notes.append(f"{key} {backend}: priced as {priced}")
        algorithm = self._algorithm()
        prompts, steps = self._batch()
        samples = s.integer("actor_rollout_ref.rollout.n")
        prompt, response = (s.integer(f"data.max_{n}_length") for n in ("prompt", "response"))
        self.longest = prompt + response
        self.trainers = TrainerReader(s, reader.models, self.longest, megatron=self.megatron)
        reader.model("actor", "actor_rollout_ref.model.path")
        reader.longer("actor", "actor_rollout_ref.model.override_config.max_position_embeddings")
        kl_weight = self._kl_weight()
        if kl_weight > 0:
            reader.models["reference"] = reader.models["actor"]
        train_mesh, engine_mesh, staleness = self._meshes(steps)
        train = self.trainers.trained("actor_rollout_ref.actor", "actor_rollout_ref.model")
        workload: dict[str, Any] = {
            "name": self._name(),
            "algorithm": fitting(algorithm, samples, kl_weight, s.notes),
            "prompts_per_step": prompts,
            "samples_per_prompt": samples,
            "optimizer_steps": steps,
            "epochs": s.integer("actor_rollout_ref.actor.ppo_epochs"),
            "kl_weight": kl_weight,
            "old_logprobs": "engine" if self._bypass() else "recompute",
            "max_staleness": staleness,
            "lora_rank": self.trainers.lora_rank(),
            **reader.lengths(prompt, response),
        }
        reader.put("actor_train", train, train_mesh)
        self._log_probs(train, train_mesh)
        workload |= self._engine(engine_mesh, staleness)
        if algorithm == "ppo":
            workload |= self._critic(train_mesh, prompts, steps)
        self._reward(train_mesh)
        s.ignore(*_NEUTRAL)
        return reader.finish(
            workload,
            space="verl-megatron" if self.megatron else "verl-fsdp",
            staleness=staleness,
            engine=self._engine_profile(),
            framework=self.trainers.framework(),
            unpadded=self.trainers.unpadded(),
        )

    def _name(self) -> str:
        with contextlib.suppress(InputError):  # an unknown variable of the script
            return str(self.s.text("trainer.experiment_name") or "verl")[:200]
        return "verl"

    def _batch(self) -> tuple[int, int]:
        """Prompts between two weight syncs, and the actor's optimizer steps on them."""
        s, key = self.s, "actor_rollout_ref.actor.ppo_mini_batch_size"
        mini = s.integer(key)
        if self.entry != "fully-async":
            prompts = s.integer("data.train_batch_size")
            return prompts, self.reader.steps(prompts, "data.train_batch_size", mini, key)
        s.raw("data.train_batch_size")  # must be 0: the rollouter counts samples
        steps = s.integer("async_training.require_batches", 1) * s.integer(
            "async_training.trigger_parameter_sync_step", 4
        )
        return mini * steps, steps

    def _algorithm(self) -> str:
        found = recognised(VERL, self.s)
        if found is None:
            name = self.s.text("algorithm.adv_estimator")
            self.s.notes.append(
                f"algorithm.adv_estimator {name}: priced as grpo, whose calls verl makes for it"
            )
        return found or "grpo"

    def _kl_weight(self) -> float:
        s = self.s
        weights = []
        if s.flag("actor_rollout_ref.actor.use_kl_loss"):
            weights.append(s.number("actor_rollout_ref.actor.kl_loss_coef"))
        if s.flag("algorithm.use_kl_in_reward"):
            weights.append(s.number("algorithm.kl_ctrl.kl_coef"))
        # The reference runs whenever a flag is set, whatever the weight.
        return max((max(weight, 1e-9) for weight in weights), default=0.0)

    def _bypass(self) -> bool:
        self.s.raw("algorithm.rollout_correction.rollout_is")
        return self.s.flag("algorithm.rollout_correction.bypass_mode")

    def _meshes(self, steps: int) -> tuple[Mesh, Mesh, int]:
        """Devices of training and generation, and the staleness."""
        s, keys = self.s, ("trainer.nnodes", "trainer.n_gpus_per_node")
        train = self.reader.mesh(s.integer(keys[0]), s.integer(keys[1]), keys)
        hybrid = s.flag("actor_rollout_ref.hybrid_engine", True)
        mode = s.text("trainer.v1.trainer_mode", "sync")
        s.flag("trainer.use_v1")
        if self.entry == "main" and mode != "separate_async":
            if mode == "colocate_async":
                s.notes.append("trainer_mode colocate_async is priced as sync")
            return train, train, 0
        root = "actor_rollout_ref.rollout" if self.entry == "main" else "rollout"
        keys = (f"{root}.nnodes", f"{root}.n_gpus_per_node")
        if s.integer(keys[0], 0, low=0) == 0:
            s.broken.append(
                Broken(
                    "rollout-has-devices",
                    "generation is separate but has no nodes",
                    (keys[0],),
                    (f"{keys[0]}=1",),
                    "verl trainer/ppo/v1/trainer_separate_async.py",
                )
            )
            return train, train, 0
        if hybrid and self.entry == "main":
            s.notes.append(
                "actor_rollout_ref.hybrid_engine is true: the trainer's devices also "
                "generate; priced without"
            )
        engine = self.reader.mesh(s.integer(keys[0]), s.integer(keys[1], 8), keys)
        return train, engine, self._staleness(steps)

    def _staleness(self, steps: int) -> int:
        s = self.s
        if self.entry == "one-step-off":
            return 1
        if self.entry == "fully-async":
            return max(1, round(s.number("async_training.staleness_threshold", 1.0)))
        warmup = s.integer("trainer.v1.separate_async.num_warmup_batches")
        sync = s.integer("trainer.v1.separate_async.parameter_sync_step")
        s.raw("trainer.v1.sampler.max_off_policy_threshold")
        backend = s.text("actor_rollout_ref.rollout.checkpoint_engine.backend")
        source = "verl trainer/ppo/v1/trainer_separate_async.py"
        key = "trainer.v1.separate_async.parameter_sync_step"
        if sync != steps:
            s.broken.append(
                Broken(
                    "batch-is-sync-times-minibatch",
                    f"parameter_sync_step {sync} x ppo_mini_batch_size is not train_batch_size",
                    (key,),
                    (f"{key}={steps}",),
                    source,
                )
            )
        if backend == "naive":
            key = "actor_rollout_ref.rollout.checkpoint_engine.backend"
            s.broken.append(
                Broken(
                    "separate-needs-transfer",
                    "the naive checkpoint engine cannot reach other devices",
                    (key,),
                    (f"{key}=nccl",),
                    source,
                )
            )
        return warmup

    def _log_probs(self, train: CallFields, mesh: Mesh) -> None:
        root = "actor_rollout_ref"
        cp = train.fields["cp"]
        base = train.but(CallFields({"recompute": "none"}, {}))
        dynamic = f"{root}.rollout.log_prob_use_dynamic_bsz"
        if not self._bypass():
            micro = self.trainers.micro(f"{root}.rollout.log_prob", dynamic, cp)
            self.reader.put("old_logprobs", base.but(micro), mesh)
        if "reference" in self.reader.models:
            dynamic = f"{root}.ref.log_prob_use_dynamic_bsz"
            micro = self.trainers.micro(f"{root}.ref.log_prob", dynamic, cp)
            self.reader.put("reference_logprobs", base.but(micro), mesh)
        section = "megatron" if self.megatron else "fsdp_config"
        self.s.raw(f"{root}.ref.{section}.param_offload")

    def _engine(self, mesh: Mesh, staleness: int) -> dict[str, Any]:
        s, root = self.s, "actor_rollout_ref.rollout"
        keys = {
            "tp": f"{root}.tensor_model_parallel_size",
            "pp": f"{root}.pipeline_model_parallel_size",
            "ep": f"{root}.expert_parallel_size",
            "memory_fraction": f"{root}.gpu_memory_utilization",
            "max_running_sequences": f"{root}.max_num_seqs",
        }
        fields: dict[str, Any] = {name: s.integer(keys[name]) for name in ("tp", "pp", "ep")}
        fields["max_running_sequences"] = s.integer(keys["max_running_sequences"])
        fields["memory_fraction"] = s.number(keys["memory_fraction"])
        if not 0 < fields["memory_fraction"] <= 1:
            raise InputError("is not a share of the memory", where=s.where(keys["memory_fraction"]))
        inner = f"{root}.data_parallel_size"
        dp = s.integer(inner)
        if fields["ep"] > 1 and fields["ep"] != fields["tp"] * dp:
            s.broken.append(
                Broken(
                    "engine-ep-is-tp-by-dp",
                    f"expert_parallel_size {fields['ep']} is not tensor_model_parallel_size "
                    f"{fields['tp']} x data_parallel_size {dp}",
                    (keys["ep"], inner),
                    (f"{keys['ep']}={fields['tp'] * dp}",),
                    "verl workers/config/rollout.py RolloutConfig.__post_init__",
                )
            )
        self._model_length(root)
        fields["dtype"] = "fp8" if s.text(f"{root}.quantization") == "fp8" else "bf16"
        kv = s.text(f"{root}.engine_kwargs.vllm.kv_cache_dtype", "auto")
        s.not_modelled(
            f"{root}.free_cache_engine",
            "priced as giving its memory back",
            lambda v: v is True or staleness > 0,
        )
        s.not_modelled(
            f"{root}.disaggregation.enabled", "prefill and decode apart: not priced", off
        )
        self.reader.put("generate", CallFields(fields, keys), mesh)
        return {
            "generate_dtype": fields["dtype"],
            "kv_cache_dtype": "fp8" if str(kv).startswith("fp8") else "bf16",
        }

    def _model_length(self, root: str) -> None:
        s = self.s
        key, batched = f"{root}.max_model_len", f"{root}.max_num_batched_tokens"
        length = s.optional_integer(key)
        if length is not None and length < self.longest:
            s.broken.append(
                Broken(
                    "engine-holds-longest",
                    f"max_model_len {length} is below prompt + response, {self.longest}",
                    (key,),
                    (f"{key}={self.longest}",),
                    "vLLM config",
                )
            )
        chunked = f"{root}.enable_chunked_prefill"
        tokens = s.integer(batched)
        # verl gives vLLM the model's own maximum when max_model_len is null.
        limit = length or self.reader.models["actor"].max_position
        if not s.flag(chunked) and tokens < limit:
            s.broken.append(
                Broken(
                    "prefill-holds-longest",
                    f"max_num_batched_tokens {tokens} is below the model length {limit} while "
                    "chunked prefill is off",
                    (key, batched, chunked),
                    (
                        f"{key}={self.longest} with {batched}={max(tokens, self.longest)}",
                        f"{chunked}=true",
                    ),
                    "vLLM config/scheduler.py",
                )
            )

    def _engine_profile(self) -> str | None:
        name = self.s.text("actor_rollout_ref.rollout.name", "vllm")
        eager = self.s.flag("actor_rollout_ref.rollout.enforce_eager")
        if name == "sglang":
            return "sglang"
        if name not in ("vllm", "???"):
            self.s.notes.append(f"rollout {name}: priced as vllm")
        return "vllm-verl-eager" if eager else None

    def _critic(self, mesh: Mesh, prompts: int, steps: int) -> dict[str, Any]:
        s = self.s
        self.reader.model("critic", "critic.model.path")
        mini = s.integer("critic.ppo_mini_batch_size")
        own = self.reader.steps(
            prompts, "data.train_batch_size", mini, "critic.ppo_mini_batch_size"
        )
        s.integer("critic.ppo_epochs")
        train = self.trainers.trained("critic", "critic.model")
        values = train.but(CallFields({"recompute": "none"}, {}))
        if train.fields["packing"] or not self.megatron:
            dynamic = "critic.use_dynamic_bsz"
            values = values.but(self.trainers.micro("critic.forward", dynamic, train.fields["cp"]))
        self.reader.put("critic_train", train, mesh)
        self.reader.put("values", values, mesh)
        return {"critic_optimizer_steps": own if own != steps else None}

    def _reward(self, train: Mesh) -> None:
        s, root = self.s, "reward.reward_model"
        if not s.flag(f"{root}.enable"):
            return
        self.reader.model("reward", f"{root}.model_path")
        pool = s.flag(f"{root}.enable_resource_pool")
        keys = (f"{root}.nnodes", f"{root}.n_gpus_per_node")
        mesh = self.reader.mesh(s.integer(keys[0]), s.integer(keys[1]), keys) if pool else train
        tp = f"{root}.rollout.tensor_model_parallel_size"
        for name in ("name", "prompt_length", "free_cache_engine"):
            s.raw(f"{root}.rollout.{name}")
        fields = {
            "tp": s.integer(tp),
            "zero_stage": 0,
            "offload": "none" if pool else "all",
            "sequence_parallel": self.megatron and s.integer(tp) > 1,
        }
        self.reader.put("rewards", CallFields(fields, {"tp": tp}), mesh)
