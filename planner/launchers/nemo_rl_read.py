"""Reads NeMo RL's configuration: YAML that inherits from one of its examples, and Hydra overrides.

Keys and defaults: keys/nemo-rl-*.json, the examples of commit 7ea279abf with what they inherit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import InputError
from planner.launchers.key_lists import load_keys
from planner.launchers.nemo_rl_backends import (
    off,
    read_dtensor,
    read_lora_rank,
    read_megatron,
)
from planner.launchers.nemo_rl_sources import given_settings
from planner.launchers.reading import CallFields, Context, ReadConfig, Reader, budget_sequences
from planner.launchers.settings import Broken, Settings
from planner.schema import Mesh

_NEUTRAL = (
    *("data", "env", "logger", "checkpointing", "loss_fn", "reward_penalties", "grpo", "ppo"),
    *("policy.tokenizer", "policy.optimizer", "policy.scheduler", "policy.max_grad_norm"),
    *("policy.megatron_cfg.optimizer", "policy.megatron_cfg.scheduler", "policy.precision"),
    *("value.tokenizer", "value.megatron_cfg.optimizer", "value.megatron_cfg.scheduler"),
    *("value.optimizer", "value.scheduler", "value.reward_model_cfg", "value.precision"),
    *("policy.megatron_cfg.checkpoint", "value.megatron_cfg.checkpoint"),
    *("policy.make_sequence_length_divisible_by", "value.make_sequence_length_divisible_by"),
    *(
        f"policy.generation.{name}"
        for name in (
            "temperature",
            "top_p",
            "top_k",
            "val_temperature",
            "stop_token_ids",
            "stop_strings",
            "vllm_cfg.async_engine",
            "vllm_kwargs.moe_backend",
            "vllm_cfg.precision",
        )
    ),
    *(
        f"{role}.megatron_cfg.{name}"
        for role in ("policy", "value")
        for name in (
            "moe_grouped_gemm",
            "moe_token_dispatcher_type",
            "apply_rope_fusion",
            "freeze_moe_router",
            "moe_router_dtype",
            "pipeline_dtype",
        )
    ),
)
_SOURCE = "NeMo RL algorithms/grpo.py setup"


def read_nemo_rl(
    files: Mapping[str, str], overrides: Sequence[str], context: Context
) -> ReadConfig:
    """What NeMo RL would run with these files and overrides, in the planner's words."""
    given, keys = given_settings(files, overrides)
    return _NemoRl(Settings(given, load_keys(keys)), context).read()


class _NemoRl:
    def __init__(self, settings: Settings, context: Context):
        self.s = settings
        self.reader = Reader("nemo-rl", settings, context)
        self.algorithm = "ppo" if "ppo.ppo_epochs" in settings.keys.defaults else "grpo"
        self.longest = 1

    def read(self) -> ReadConfig:
        s, reader, name = self.s, self.reader, self.algorithm
        prompts = s.integer(f"{name}.num_prompts_per_step")
        samples = s.integer(f"{name}.num_generations_per_prompt")
        batch = "policy.train_global_batch_size"
        steps = reader.steps(
            prompts * samples, f"{name}.num_prompts_per_step", s.integer(batch), batch
        )
        self.longest = s.integer("policy.max_total_sequence_length")
        reader.model("actor", "policy.model_name")
        reader.longer("actor", "policy.hf_config_overrides.max_position_embeddings")
        workload: dict[str, Any] = {
            "name": str(s.text("checkpointing.checkpoint_dir") or "nemo-rl")[:200],
            "algorithm": name,
            "prompts_per_step": prompts,
            "samples_per_prompt": samples,
            "optimizer_steps": steps,
            "epochs": s.integer("ppo.ppo_epochs") if name == "ppo" else 1,
            "kl_weight": self._kl_weight(),
            "old_logprobs": "skip" if s.flag("loss_fn.force_on_policy_ratio") else "recompute",
            **self._lengths(),
        }
        megatron = self._megatron_enabled()
        train_mesh, engine_mesh, staleness = self._meshes()
        split = train_mesh != engine_mesh
        train = self._trained("policy", split, megatron)
        workload["train_dtype"] = train.fields["dtype"]
        workload["lora_rank"] = read_lora_rank(s, megatron=megatron)
        workload["max_staleness"] = staleness
        reader.put("actor_train", train, train_mesh)
        log_probs = self._log_probs(train)
        if workload["old_logprobs"] == "recompute":
            reader.put("old_logprobs", log_probs, train_mesh)
        if workload["kl_weight"] > 0:
            reader.models["reference"] = reader.models["actor"]
            reader.put("reference_logprobs", log_probs, train_mesh)
        workload |= self._engine(engine_mesh)
        if name == "ppo":
            workload |= self._critic(prompts * samples, steps, split, train_mesh, megatron)
        s.ignore(*_NEUTRAL)
        space = "nemo-rl-megatron" if megatron else "nemo-rl-dtensor"
        return reader.finish(workload, space=space, staleness=staleness)

    def _lengths(self) -> dict[str, Any]:
        """Prompt and response limits; the sequence limit holds for both together."""
        s = self.s
        response = s.integer("policy.generation.max_new_tokens")
        prompt = s.integer("data.max_input_seq_length", self.longest)
        s.not_modelled(
            "policy.generation.vllm_cfg.max_model_len", "priced as prompt plus response", _any
        )
        if prompt + response > self.longest:
            # The limits overlap in NeMo RL: a long prompt leaves less room for the response.
            prompt = self.longest - response if response < self.longest else self.longest // 4
            prompt = max(1, prompt)
            response = max(1, self.longest - prompt)
            s.notes.append(
                f"prompts of at most {prompt}, responses of at most {response} tokens: together "
                "policy.max_total_sequence_length"
            )
        else:
            self.longest = prompt + response
        return self.reader.lengths(prompt, response)

    def _kl_weight(self) -> float:
        s = self.s
        weight = s.number("loss_fn.reference_policy_kl_penalty")
        skip = s.flag(f"{self.algorithm}.skip_reference_policy_logprobs_calculation")
        if skip and weight > 0:
            s.broken.append(
                Broken(
                    "kl-needs-reference",
                    f"a KL penalty of {weight:g} without reference log-probs",
                    (f"{self.algorithm}.skip_reference_policy_logprobs_calculation",),
                    ("loss_fn.reference_policy_kl_penalty=0",),
                    "NeMo RL algorithms/grpo.py",
                )
            )
        # The reference runs unless it is skipped, whatever the weight.
        return 0.0 if skip else max(weight, 1e-9)

    def _megatron_enabled(self) -> bool:
        s = self.s
        keys = ("policy.megatron_cfg.enabled", "policy.dtensor_cfg.enabled")
        megatron, dtensor = s.flag(keys[0]), s.flag(keys[1])
        if megatron == dtensor:
            s.broken.append(
                Broken(
                    "one-training-backend",
                    f"{keys[0]} and {keys[1]} are both {str(megatron).lower()}",
                    keys,
                    (f"{keys[1]}={str(not megatron).lower()}",),
                    "NeMo RL models/policy/lm_policy.py",
                )
            )
        return megatron

    def _meshes(self) -> tuple[Mesh, Mesh, int]:
        """The policy's and the engine's devices; the rest of the cluster trains."""
        s = self.s
        keys = ("cluster.num_nodes", "cluster.gpus_per_node")
        nodes, per_node = s.integer(keys[0]), s.integer(keys[1])
        env = "env.reward_model"
        reward_nodes = reward_devices = 0
        rewards = s.given(f"{env}.resources.num_nodes") or s.given(f"{env}.resources.gpus_per_node")
        if rewards:
            reward_nodes = s.integer(f"{env}.resources.num_nodes", 1)
            reward_devices = s.integer(f"{env}.resources.gpus_per_node", per_node)
        section = f"{self.algorithm}.async_{self.algorithm}"
        staleness = 0
        if s.flag(f"{section}.enabled"):
            staleness = s.integer(f"{section}.max_trajectory_age_steps")
            s.raw(f"{section}.in_flight_weight_updates")
        root = "policy.generation.colocated"
        own = (f"{root}.resources.num_nodes", f"{root}.resources.gpus_per_node")
        split = not s.flag(f"{root}.enabled")
        engine = (0, 0)
        if split:
            engine_per_node = s.integer(own[1], per_node)
            engine = (s.integer(own[0], 1), engine_per_node)
        train_nodes, train_devices = nodes, per_node
        if nodes == 1:
            train_devices = per_node - reward_devices - engine[1]
        else:
            train_nodes = nodes - reward_nodes - engine[0]
        if train_nodes < 1 or train_devices < 1:
            s.broken.append(
                Broken(
                    "devices-within-training",
                    "generation and rewards leave no devices to train on",
                    (*own, *keys),
                    (f"{own[1]}={per_node // 2}" if nodes == 1 else f"{own[0]}={nodes // 2}",),
                    _SOURCE,
                )
            )
            train_nodes, train_devices = max(1, train_nodes), max(1, train_devices)
        train = self.reader.mesh(train_nodes, train_devices, keys)
        found = self.reader.mesh(*engine, own) if split else train
        if split and nodes > 1 and engine[1] != per_node:
            s.broken.append(
                Broken(
                    "engine-takes-whole-nodes",
                    f"{own[1]} {engine[1]} on nodes of {per_node}",
                    (own[1],),
                    (f"{own[1]}={per_node}",),
                    _SOURCE,
                )
            )
        if rewards:
            self._reward(self.reader.mesh(reward_nodes, reward_devices, keys))
        return train, found, staleness

    def _reward(self, mesh: Mesh) -> None:
        s, root = self.s, "env.reward_model"
        self.reader.model("reward", f"{root}.model_name")
        tp, batch = f"{root}.dtensor_cfg.tensor_parallel_size", f"{root}.batch_size"
        parallel = f"{root}.dtensor_cfg.sequence_parallel"
        fields = {
            "tp": s.integer(tp),
            "zero_stage": 1,
            "sequence_parallel": s.flag(parallel),
            "packing": False,
            "micro_batch_sequences": s.integer(batch),
        }
        keys = {"tp": tp, "micro_batch_sequences": batch, "sequence_parallel": parallel}
        self.reader.put("rewards", CallFields(fields, keys), mesh)

    def _trained(self, owner: str, split: bool, megatron: bool) -> CallFields:
        layout = read_megatron(self.s, owner) if megatron else read_dtensor(self.s, owner)
        s = self.s
        offload = f"{owner}.offload_optimizer_for_logprob"
        layout.fields["offload"] = "all"
        if split and self.algorithm == "grpo":
            layout.fields["offload"] = "optimizer" if s.flag(offload) else "none"
            layout.keys["offload"] = offload
        return layout.but(self._micro(owner, "train_mb_tokens", f"{owner}.train_micro_batch_size"))

    def _micro(self, owner: str, budget: str, size_key: str) -> CallFields:
        """Packing (or dynamic batches) up to a token budget, or padded sequences."""
        s = self.s
        packing, dynamic = f"{owner}.sequence_packing", f"{owner}.dynamic_batching"
        on = [name for name in (packing, dynamic) if s.flag(f"{name}.enabled")]
        if len(on) == 2:
            s.broken.append(
                Broken(
                    "packing-or-dynamic",
                    "sequence packing and dynamic batching are both enabled",
                    (f"{packing}.enabled", f"{dynamic}.enabled"),
                    (f"{dynamic}.enabled=false",),
                    "NeMo RL models/policy/lm_policy.py",
                )
            )
        sequences = s.integer(size_key)
        key = size_key
        rest = None
        if on and s.given(f"{on[0]}.{budget}"):
            key = f"{on[0]}.{budget}"
            tokens = s.integer(key)
            sequences, rest = budget_sequences(tokens, 1, self.longest)
            if tokens < self.longest:
                s.broken.append(
                    Broken(
                        "budget-holds-longest",
                        f"{tokens} tokens are fewer than the longest sequence, {self.longest}",
                        (key,),
                        (f"{key}={self.longest}",),
                        "NeMo RL distributed/batched_data_dict.py",
                    )
                )
        for name in ("sequence_length_round", "algorithm"):
            for section in (packing, dynamic):
                s.raw(f"{section}.{name}")
        return CallFields(
            {"packing": bool(on), "micro_batch_sequences": sequences},
            {"packing": f"{packing}.enabled", "micro_batch_sequences": key},
            rest,
        )

    def _log_probs(self, train: CallFields) -> CallFields:
        base = train.but(CallFields({"recompute": "none"}, {}))
        return base.but(self._micro("policy", "logprob_mb_tokens", "policy.logprob_batch_size"))

    def _engine(self, mesh: Mesh) -> dict[str, Any]:
        s, root = self.s, "policy.generation"
        keys = {
            "tp": f"{root}.vllm_cfg.tensor_parallel_size",
            "pp": f"{root}.vllm_cfg.pipeline_parallel_size",
            "ep": f"{root}.vllm_cfg.expert_parallel_size",
            "memory_fraction": f"{root}.vllm_cfg.gpu_memory_utilization",
            "max_running_sequences": f"{root}.vllm_kwargs.max_num_seqs",
            "dtype": f"{root}.vllm_cfg.precision",
        }
        s.not_modelled(f"{root}.backend", "priced as vllm", lambda v: v in ("vllm", None))
        s.not_modelled(f"{root}.vllm_cfg.enforce_eager", "priced with CUDA graphs", off)
        fields: dict[str, Any] = {name: s.integer(keys[name], 1) for name in ("tp", "pp", "ep")}
        fields["memory_fraction"] = s.number(keys["memory_fraction"])
        if not 0 < fields["memory_fraction"] <= 1:
            raise InputError("is not a share of the memory", where=s.where(keys["memory_fraction"]))
        fields["max_running_sequences"] = s.integer(keys["max_running_sequences"], 1024)
        fields["dtype"] = "fp8" if s.text(keys["dtype"]) == "fp8" else "bf16"
        cache = str(s.text(f"{root}.vllm_cfg.kv_cache_dtype", "auto"))
        self.reader.put("generate", CallFields(fields, keys), mesh)
        return {
            "generate_dtype": fields["dtype"],
            "kv_cache_dtype": "fp8" if cache.startswith("fp8") else "bf16",
        }

    def _critic(
        self, sequences: int, steps: int, split: bool, mesh: Mesh, megatron: bool
    ) -> dict[str, Any]:
        s, batch = self.s, "value.train_global_batch_size"
        self.reader.model("critic", "value.model_name")
        own = self.reader.steps(sequences, "ppo.num_prompts_per_step", s.integer(batch), batch)
        train = self._trained("value", split, megatron)
        self.reader.put("critic_train", train, mesh)
        values = train.but(CallFields({"recompute": "none"}, {}))
        self.reader.put("values", values, mesh)
        return {"critic_optimizer_steps": own if own != steps else None}


def _any(value: Any) -> bool:
    return True
