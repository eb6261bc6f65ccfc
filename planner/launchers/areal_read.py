"""Reads AReaL's configuration: a YAML file, the overrides of a launch script, and --set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import InputError
from planner.launchers.key_lists import load_keys
from planner.launchers.reading import CallFields, Context, ReadConfig, Reader, budget_sequences
from planner.launchers.settings import Broken, Given, Settings
from planner.launchers.shell import commands
from planner.launchers.sources import flatten, override, override_words, read_yaml
from planner.schema import Mesh

_SOURCE = "AReaL api/alloc_mode.py"
_LETTERS = {"d": "dp", "p": "pp", "t": "tp", "c": "cp", "e": "ep"}
_INFERENCE, _TRAINING = ("sglang", "vllm"), ("fsdp", "megatron", "archon")
_DIMS = re.compile(r"(?:[dptce][1-9][0-9]*)+")
_HYBRID = re.compile(r"\(attn:([a-z0-9]+)\|ffn:([a-z0-9]+)\)")
_PROMPT_TOKENS = 1024
_NEUTRAL = (
    *("experiment_name", "trial_name", "seed", "total_train_epochs", "total_train_steps"),
    *("tokenizer_path", "cluster.fileroot", "cluster.name_resolve", "cluster.cluster_name"),
    *("saver", "recover", "evaluator", "stats_logger", "perf_tracer", "valid_dataset"),
    *("memory_profiler", "eval_gconfig", "scheduler", "enable_offload"),
    *(f"train_dataset.{name}" for name in (
        "path", "type", "shuffle", "pin_memory", "num_workers", "split", "drop_last")),
    *(f"rollout.{name}" for name in (
        "experiment_name", "trial_name", "fileroot", "queue_size", "consumer_batch_size",
        "enable_rollout_tracing", "scheduling_spec", "tokenizer_path", "dump_to_file",
        "setup_timeout", "request_timeout", "request_retries")),
    *(f"gconfig.{name}" for name in (
        "temperature", "top_p", "top_k", "greedy", "min_new_tokens", "stop_token_ids")),
    *(f"{role}.{name}" for role in ("actor", "ref") for name in (
        "experiment_name", "trial_name", "init_from_scratch", "disable_dropout", "dtype",
        "optimizer", "scheduling_spec", "attn_impl", "temperature", "fsdp.memory_efficient_load",
        "weight_update_mode", "mb_spec.packing_algorithm", "mb_spec.n_mbs",
        "mb_spec.granularity", "mb_spec.n_mbs_divisor")),
    *(f"actor.{name}" for name in (
        "eps_clip", "eps_clip_higher", "c_clip", "reward_scaling", "reward_bias", "reward_clip",
        "reward_norm", "adv_norm", "discount", "gae_lambda", "kl_estimator", "max_new_tokens",
        "rejection_sampling", "importance_sampling_level", "overlong_reward_penalty",
        "overlong_tokens", "overlong_penalty_factor", "mask_no_eos_with_zero")),
    *(f"sglang.{name}" for name in (
        "model_path", "random_seed", "skip_tokenizer_init", "dtype", "enable_memory_saver",
        "log_level", "attention_backend", "context_length")),
    *("vllm.model", "vllm.seed", "vllm.dtype", "vllm.skip_tokenizer_init", "vllm.max_model_len"),
)  # fmt: skip


def read_areal(files: Mapping[str, str], overrides: Sequence[str], context: Context) -> ReadConfig:
    """What AReaL would run with these files and overrides, in the planner's words."""
    given: list[Given] = []
    from_scripts: list[Given] = []
    for name, text in files.items():
        if name.endswith((".yaml", ".yml")):
            given += flatten(read_yaml(text, name), name)
            continue
        for words in commands(text):
            if any(word == "--config" for word in words):
                from_scripts += override_words(words, name)
    from_scripts += [override(text, "--set") for text in overrides]
    if not given and not from_scripts:
        raise InputError(
            "nothing starts or configures AReaL",
            where=", ".join(files) or "CONFIG",
            remedy="Give the YAML file, and the launch script if it has overrides.",
        )
    # Overrides of the command line hold over the file that it names.
    settings = Settings([*given, *from_scripts], load_keys("areal"), strict=True)
    return _Areal(settings, context).read()


class _Areal:
    def __init__(self, settings: Settings, context: Context):
        self.s = settings
        self.reader = Reader("areal", settings, context)

    def read(self) -> ReadConfig:
        s, reader = self.s, self.reader
        reader.model("actor", "actor.path")
        prompts, samples = s.integer("train_dataset.batch_size"), s.integer("gconfig.n_samples")
        response = s.integer("gconfig.max_new_tokens")
        prompt = s.optional_integer("train_dataset.max_length")
        if prompt is None:
            prompt = _PROMPT_TOKENS
            s.notes.append(f"prompts of at most {prompt} tokens (train_dataset.max_length: none)")
        backend, train = self._allocation("actor", _TRAINING)
        engine_kind, engine = self._allocation("rollout", _INFERENCE)
        colocated = self._colocated()
        train_mesh, engine_mesh = self._meshes(train, engine, colocated)
        if backend == "archon":
            s.notes.append("archon is priced as FSDP2")
        layout = self._trained("actor", backend, train, prompt + response)
        offload = "actor.offload"
        layout.fields["offload"] = "all" if s.flag(offload) or colocated else "none"
        layout.keys["offload"] = offload
        reader.put("actor_train", layout, train_mesh)
        decoupled = s.flag("actor.use_decoupled_loss")
        skips = s.text("actor.prox_logp_method", "recompute") == "loglinear"
        recompute = s.flag("actor.recompute_logprob")
        recompute = not skips if decoupled else recompute
        forward = layout.but(CallFields({"recompute": "none"}, {}))
        if recompute:
            reader.put("old_logprobs", forward, train_mesh)
        kl_weight = self._reference(forward, prompt + response, train, backend, train_mesh)
        staleness = s.integer("rollout.max_head_offpolicyness", low=0)
        self._engine(engine_kind, engine, engine_mesh)
        self._left_aside(prompts)
        batch = prompts * samples
        steps = s.integer("actor.ppo_n_minibatches")
        if batch % steps:
            s.notes.append(f"{batch} samples in {steps} unequal minibatches: priced as one")
        return reader.finish(
            {
                "name": "areal",
                "algorithm": "grpo",
                "prompts_per_step": prompts,
                "samples_per_prompt": samples,
                "optimizer_steps": steps if batch % steps == 0 else 1,
                "kl_weight": kl_weight,
                "old_logprobs": "recompute" if recompute else "engine",
                "max_staleness": staleness,
                **reader.lengths(prompt, response),
            },
            space="areal-megatron" if backend == "megatron" else "areal-fsdp",
            staleness=staleness,
            engine="vllm" if engine_kind == "vllm" else None,
        )

    def _allocation(self, role: str, kinds: tuple[str, ...]) -> tuple[str, dict[str, int]]:
        """(backend, degrees) of an engine: its own `backend`, or its part of `allocation_mode`."""
        s, key = self.s, f"{role}.backend"
        text = s.text(key)
        if text is None and s.text("allocation_mode"):
            key = "allocation_mode"
            parts = re.sub(r"\[[a-z0-9_]+\]", "", str(s.text(key))).split("+")
            text = next((part for part in parts if part.startswith(kinds)), None)
            s.notes.append("allocation_mode is what AReaL before 1.0 reads; now backend does")
        if text is None:
            raise InputError("is not given", where=s.where(key), remedy=f"Set {role}.backend.")
        name, colon, dims = text.partition(":")
        hybrid = _HYBRID.fullmatch(dims)
        if not colon or name not in kinds or not (hybrid or _DIMS.fullmatch(dims)):
            raise InputError(
                f"{text!r} cannot be read",
                where=s.where(key),
                remedy=f"Write {kinds[0]}:d4t2 (or {', '.join(kinds[1:])}), as {_SOURCE} has it.",
            )
        degrees = _degrees(hybrid[1] if hybrid else dims)
        if hybrid:
            experts = _degrees(hybrid[2])
            degrees |= {"ep": experts.get("ep", 1), "etp": experts.get("tp", 1)}
        if name == "fsdp" and (degrees.get("pp", 1) > 1 or degrees.get("ep", 1) > 1):
            s.broken.append(
                Broken(
                    "fsdp-has-no-stages-or-experts",
                    f"{key} {text}: FSDP has data, tensor and context parallelism only",
                    (key,),
                    (f"{key}=megatron:{dims}",),
                    _SOURCE,
                )
            )
            degrees |= {"pp": 1, "ep": 1}
        return name, degrees

    def _colocated(self) -> bool:
        s = self.s
        found = False
        for role, other in (("rollout", "actor"), ("actor", "rollout")):
            section = f"{role}.scheduling_strategy"
            kind, target = s.text(f"{section}.type"), s.text(f"{section}.target")
            found = found or (kind == "colocation" and target == other)
        if found and s.text("actor.weight_update_mode") != "disk":
            s.broken.append(
                Broken(
                    "colocated-updates-from-disk",
                    "the engine shares the actor's devices, but weights do not come from disk",
                    ("actor.weight_update_mode",),
                    ("actor.weight_update_mode=disk",),
                    "AReaL trainer/rl_trainer.py",
                )
            )
        if (found or s.flag("actor.offload")) and not s.flag("enable_offload"):
            s.broken.append(
                Broken(
                    "offload-is-enabled",
                    "a model is to leave the devices, but enable_offload is false",
                    ("enable_offload",),
                    ("enable_offload=true",),
                    "AReaL trainer/rl_trainer.py",
                )
            )
        return found

    def _meshes(
        self, train: dict[str, int], engine: dict[str, int], colocated: bool
    ) -> tuple[Mesh, Mesh]:
        s = self.s
        keys = ("cluster.n_nodes", "cluster.n_gpus_per_node")
        nodes, per_node = s.integer(keys[0]), s.integer(keys[1])
        worlds = (_world(train), _world(engine))
        if colocated and engine["dp"] != worlds[0]:
            s.broken.append(
                Broken(
                    "colocated-engines-one-a-worker",
                    f"{engine['dp']} engines beside {worlds[0]} workers of the actor",
                    ("rollout.backend", "actor.backend"),
                    (f"rollout.backend=sglang:d{worlds[0]}",),
                    "AReaL infra/scheduler/local.py",
                )
            )
        used = worlds[0] if colocated else sum(worlds)
        if used > nodes * per_node:
            s.broken.append(
                Broken(
                    "devices-within-cluster",
                    f"the backends take {used} devices of {nodes} nodes of {per_node}",
                    (keys[0], "actor.backend", "rollout.backend"),
                    (f"{keys[0]}={-(-used // per_node)}",),
                    "AReaL infra/scheduler",
                )
            )
        mesh = self._mesh(worlds[0], per_node, "actor.backend")
        return mesh, mesh if colocated else self._mesh(worlds[1], per_node, "rollout.backend")

    def _mesh(self, devices: int, per_node: int, key: str) -> Mesh:
        if devices <= per_node:
            return self.reader.mesh(1, devices, (key,))
        if devices % per_node:
            self.s.notes.append(f"{key}: {devices} devices are priced as whole nodes")
        return self.reader.mesh(-(-devices // per_node), per_node, (key,))

    def _trained(
        self, role: str, backend: str, degrees: dict[str, int], longest: int
    ) -> CallFields:
        s, key = self.s, f"{role}.backend"
        megatron = backend == "megatron"
        fields: dict[str, Any] = {name: size for name, size in degrees.items() if name != "dp"}
        keys = dict.fromkeys(("dp", *fields), key)
        fields["zero_stage"] = 1 if megatron else 3
        fields["sequence_parallel"] = degrees.get("tp", 1) > 1
        keys["recompute"] = f"{role}.gradient_checkpointing"
        fields["recompute"] = "full" if s.flag(keys["recompute"]) else "none"
        if megatron:
            section = f"{role}.megatron"
            keys["vpp"] = f"{section}.virtual_pipeline_parallel_size"
            fields["vpp"] = s.integer(keys["vpp"])
            granularity = s.text(f"{section}.recompute_granularity", "full")
            method = s.text(f"{section}.recompute_method")
            layers = s.optional_integer(f"{section}.recompute_num_layers")
            if fields["recompute"] == "full" and granularity == "selective":
                fields["recompute"] = "selective"
            elif fields["recompute"] == "full" and (method, layers) != ("uniform", 1):
                s.notes.append(f"recompute {method} {layers}: priced as uniform 1")
            s.not_modelled(f"{section}.fp8_config", "FP8: priced in bf16", lambda v: v is None)
        else:
            for name, why in (
                ("offload_params", "weights on the host: not priced"),
                ("per_layer_optim_step", "optimizer streamed from the host: not priced"),
            ):
                s.not_modelled(f"{role}.fsdp.{name}", why, lambda v: not v)
        s.not_modelled(f"{role}.use_lora", "LoRA: priced as full fine-tuning", lambda v: not v)
        return CallFields(fields, keys).but(self._micro(role, longest))

    def _micro(self, role: str, longest: int) -> CallFields:
        key = f"{role}.mb_spec.max_tokens_per_mb"
        tokens = self.s.optional_integer(key)
        if tokens is None:
            raise InputError(
                "is not given, so a microbatch is a whole minibatch",
                where=self.s.where(key),
                remedy=f"Set {key}, the tokens of a microbatch.",
            )
        if tokens < longest:
            self.s.notes.append(f"{key} {tokens}: a longer sequence is a microbatch of its own")
        sequences, budget = budget_sequences(max(tokens, longest), 1, longest)
        fields = {"packing": True, "micro_batch_sequences": sequences}
        return CallFields(fields, {"micro_batch_sequences": key}, budget)

    def _reference(
        self, forward: CallFields, longest: int, train: dict[str, int], backend: str, mesh: Mesh
    ) -> float:
        """The KL weight; the reference's call when there is one."""
        s = self.s
        weight = s.number("actor.kl_ctl")
        if weight <= 0 or not s.text("ref.backend"):
            return 0.0
        if self._allocation("ref", _TRAINING) != (backend, train):
            s.notes.append("ref.backend differs from actor.backend: priced as the actor's")
        beside = s.text("ref.scheduling_strategy.type"), s.text("ref.scheduling_strategy.target")
        if beside != ("colocation", "actor"):
            s.notes.append("the reference is priced on the actor's devices")
        for key in ("ref.path", "ref.gradient_checkpointing", "ref.megatron"):
            s.raw(key)
        for name in ("virtual_pipeline_parallel_size", "recompute_granularity",
                     "recompute_method", "recompute_num_layers"):  # fmt: skip
            s.raw(f"ref.megatron.{name}")
        s.not_modelled("ref.offload", "its weights are priced as waiting in host memory", bool)
        self.reader.models["reference"] = self.reader.models["actor"]
        self.reader.put("reference_logprobs", forward.but(self._micro("ref", longest)), mesh)
        return weight

    def _engine(self, kind: str, degrees: dict[str, int], mesh: Mesh) -> None:
        s = self.s
        if kind == "vllm":
            names = ("vllm.gpu_memory_utilization", "vllm.max_num_seqs")
        else:
            names = ("sglang.mem_fraction_static", "sglang.max_running_requests")
        keys = dict.fromkeys(("tp", "pp", "dp"), "rollout.backend")
        keys |= {"memory_fraction": names[0], "max_running_sequences": names[1]}
        fraction = s.number(names[0], 0.9)
        if not 0 < fraction <= 1:
            raise InputError("is not a share of the memory", where=s.where(names[0]))
        fields: dict[str, Any] = {
            "tp": degrees.get("tp", 1),
            "pp": degrees.get("pp", 1),
            "memory_fraction": fraction,
            "max_running_sequences": s.integer(names[1], 1024),
        }
        if kind == "sglang":
            keys["ep"] = "sglang.ep_size"
            fields["ep"] = s.integer(keys["ep"], 1)
            s.not_modelled("sglang.enable_dp_attention", "priced without", lambda v: not v)
            s.not_modelled("sglang.disable_cuda_graph", "priced with CUDA graphs", lambda v: not v)
            cache = "sglang.kv_cache_dtype"
        else:
            cache = "vllm.kv_cache_dtype"
            s.not_modelled("vllm.enforce_eager", "priced with CUDA graphs", lambda v: not v)
        s.not_modelled(cache, "priced in bf16", lambda v: v in (None, "auto"))
        self.reader.put("generate", CallFields(fields, keys), mesh)

    def _left_aside(self, prompts: int) -> None:
        s = self.s
        flight = s.integer("rollout.max_concurrent_rollouts", prompts)
        if flight < prompts:
            s.notes.append(
                f"rollout.max_concurrent_rollouts {flight}: priced with all {prompts} prompts of a "
                "step in flight"
            )
        s.not_modelled("dynamic_bs", "priced with whole batches", lambda v: not v)
        s.not_modelled("gconfig.max_tokens", "priced as prompt plus response", lambda v: True)
        s.ignore(*_NEUTRAL)


def _degrees(dims: str) -> dict[str, int]:
    found = {_LETTERS[letter]: int(size) for letter, size in re.findall(r"([a-z])(\d+)", dims)}
    return {"dp": 1} | found


def _world(degrees: dict[str, int]) -> int:
    """Devices: experts are spread over the ranks that there are."""
    world = 1
    for name in ("dp", "pp", "tp", "cp"):
        world *= degrees.get(name, 1)
    return world
