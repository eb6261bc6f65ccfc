"""Reads prime-rl's configuration: TOML files, and the flags of a launch script."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import InputError
from planner.launchers.key_lists import load_keys
from planner.launchers.numbers import divisors, near
from planner.launchers.reading import CallFields, Context, ReadConfig, Reader, budget_sequences
from planner.launchers.settings import Broken, Given, Settings
from planner.launchers.shell import Unknown, Word, commands
from planner.launchers.sources import flag_words, flatten
from planner.schema import Mesh

_SOURCE = "prime-rl configs/rl.py"
_NEUTRAL = (
    *("max_steps", "output_dir", "clean", "run", "log", "ckpt", "resume", "monitors", "tokenizer"),
    *("slurm", "env_vars", "dry_run", "weight_broadcast", "rollout_transport"),
    *(f"orchestrator.{name}" for name in (
        "train.source", "eval", "renderer", "monitors", "log", "env_vars", "ckpt", "tokenizer",
        "train.sampling.temperature", "train.sampling.extra_body", "model.client", "algo",
        "concurrency", "tasks_per_minute")),
    *(f"trainer.{name}" for name in (
        "optim", "scheduler", "loss", "ckpt", "log", "monitors", "env_vars", "gc", "tokenizer",
        "model.attn", "model.impl", "model.compile", "model.trust_remote_code",
        "model.optimization_dtype", "model.reduce_dtype", "model.fused_lm_head_token_chunk_size",
        "model.reshard_after_forward", "model.ac.freq", "model.ac.targets", "max_steps")),
    *(f"inference.{name}" for name in (
        "server", "router", "log", "env_vars", "vllm.max_model_len", "vllm.dtype", "vllm.seed",
        "vllm.tool_call_parser", "vllm.reasoning_parser", "vllm.enable_prefix_caching",
        "vllm.api_server_count", "vllm.data_parallel_size_local")),
)  # fmt: skip


def read_prime_rl(
    files: Mapping[str, str], overrides: Sequence[str], context: Context
) -> ReadConfig:
    """What prime-rl would run with these files and flags, in the planner's words."""
    given: list[Given] = []
    from_scripts: list[Given] = []
    for name, text in files.items():
        if name.endswith(".toml"):
            try:
                content = tomllib.loads(text)
            except tomllib.TOMLDecodeError as error:
                raise InputError(f"is not TOML: {error}", where=name) from None
            given += [_plain(item.key, item.value, name) for item in flatten(content, name)]
        else:
            for words in commands(text):
                from_scripts += _from_command(words, name)
    for text in overrides:
        key, equals, value = text.removeprefix("--").partition("=")
        if not key or not equals:
            raise InputError(f"{text!r} is not name=value", where="--set")
        from_scripts.append(_plain(key.replace("-", "_"), value, "--set"))
    if not given and not from_scripts:
        raise InputError(
            "nothing starts or configures prime-rl",
            where=", ".join(files) or "CONFIG",
            remedy="Give the TOML file, and the launch script if it has flags.",
        )
    # Flags of the command line hold over the files that it names.
    settings = Settings([*given, *from_scripts], load_keys("prime-rl"), strict=True)
    return _PrimeRl(settings, context).read()


def _plain(key: str, value: Any, where: str) -> Given:
    """A setting; the text "None" is null, which TOML does not have."""
    return Given(key, None if value in ("None", "null") else value, where, literal=True)


def _from_command(words: Sequence[Word], name: str) -> list[Given]:
    if not any(word == "rl" for word in words):
        return []
    return [
        _plain(item.key.replace("-", "_"), item.value, name)
        for item in flag_words(words, name, frozenset())
        if not isinstance(item.value, Unknown)
    ]


class _PrimeRl:
    def __init__(self, settings: Settings, context: Context):
        self.s = settings
        self.reader = Reader("prime-rl", settings, context)

    def read(self) -> ReadConfig:
        s, reader = self.s, self.reader
        shared = s.text("model.name")
        reader.model("actor", "model.name" if shared else "trainer.model.name")
        s.raw("trainer.model.name")
        prompts, samples = self._batch()
        longest, response = self._lengths()
        train_mesh, engine_mesh = self._meshes()
        reader.put("actor_train", self._train(train_mesh, longest), train_mesh)
        self._engine(engine_mesh)
        staleness = s.integer("orchestrator.max_off_policy_steps", low=0)
        s.ignore(*_NEUTRAL)
        return reader.finish(
            {
                "name": "prime-rl",
                "algorithm": "grpo",
                "prompts_per_step": prompts,
                "samples_per_prompt": samples,
                "optimizer_steps": 1,
                "kl_weight": 0.0,
                "old_logprobs": "engine",
                "max_staleness": staleness,
                **reader.lengths(longest - response, response),
            },
            space="prime-rl",
            staleness=staleness,
        )

    def _batch(self) -> tuple[int, int]:
        """(prompts, samples of each)."""
        s, key = self.s, "orchestrator.batch_size"
        samples = s.integer("orchestrator.group_size")
        s.not_modelled(
            "orchestrator.token_batch_size", "priced as batch_size samples", lambda v: v is None
        )
        batch = s.integer(key, 128)
        if batch % samples:
            low = max(1, batch // samples) * samples
            s.broken.append(
                Broken(
                    "batch-of-whole-groups",
                    f"{batch} samples are not a multiple of group_size {samples}",
                    (key, "orchestrator.group_size"),
                    (f"{key}={low}", f"{key}={low + samples}"),
                    "prime-rl configs/orchestrator.py",
                )
            )
        return max(1, batch // samples), samples

    def _lengths(self) -> tuple[int, int]:
        """(longest sequence, longest response)."""
        s, key = self.s, "orchestrator.train.sampling.max_completion_tokens"
        own = "orchestrator.seq_len"
        longest = s.integer(own if s.given(own) or not s.given("seq_len") else "seq_len")
        response = s.optional_integer(key)
        if response is None:
            response = longest // 2
            s.notes.append(f"responses of at most {response} tokens, half of the sequence ({key})")
        if response >= longest:
            s.broken.append(
                Broken(
                    "response-within-length",
                    f"{response} tokens of response leave no room in a sequence of {longest}",
                    (key, own),
                    (f"{own}={2 * response}",),
                    "prime-rl configs/orchestrator.py",
                )
            )
            longest = 2 * response
        return longest, response

    def _meshes(self) -> tuple[Mesh, Mesh]:
        s, root = self.s, "deployment"
        per_node = s.integer(f"{root}.gpus_per_node")
        if s.text(f"{root}.type", "single_node") == "multi_node":
            keys = (f"{root}.num_train_nodes", f"{root}.num_infer_nodes")
            replicas = s.integer(f"{root}.num_infer_replicas", 1)
            train = self.reader.mesh(s.integer(keys[0]), per_node, keys[:1])
            engine = s.integer(keys[1], 1) * replicas
            if not any(key.startswith("slurm") and s.given(key) for key in s.keys.defaults):
                s.broken.append(
                    Broken(
                        "nodes-need-slurm",
                        "several nodes without a [slurm] section",
                        ("slurm.job_name",),
                        ("slurm.job_name=rl",),
                        _SOURCE,
                    )
                )
            return train, self.reader.mesh(engine, per_node, keys[1:])
        keys = (f"{root}.num_train_gpus", f"{root}.num_infer_gpus")
        sizes = [s.integer(key) for key in keys]
        if sum(sizes) > per_node:
            s.broken.append(
                Broken(
                    "devices-within-node",
                    f"{sizes[0]} + {sizes[1]} devices on a node of {per_node}",
                    keys,
                    (f"{keys[1]}={max(1, per_node - sizes[0])}",),
                    _SOURCE,
                )
            )
        return tuple(  # type: ignore[return-value]
            self.reader.mesh(1, size, (key,)) for key, size in zip(keys, sizes, strict=True)
        )

    def _train(self, mesh: Mesh, longest: int) -> CallFields:
        s, root = self.s, "trainer.model"
        keys = {
            "cp": f"{root}.cp",
            "ulysses": f"{root}.cp_style",
            "ep": f"{root}.ep",
            "shard_ranks": f"{root}.dp_replicate",
            "recompute": f"{root}.ac",
            "optimizer_on_cpu": f"{root}.full_offload",
            "micro_batch_sequences": f"{root}.seq_len",
        }
        cp = s.integer(keys["cp"])
        copies = s.integer(keys["shard_ranks"])
        ulysses = s.choice(keys["ulysses"], {"ring": False, "ulysses": True})
        fields: dict[str, Any] = {
            "cp": cp,
            "ulysses": cp if ulysses else 1,
            "zero_stage": 3,
            "shard_ranks": mesh.devices // copies if copies > 1 else 0,
            "packing": True,
            "recompute": self._recompute(),
            "optimizer_on_cpu": self._on_host(keys["optimizer_on_cpu"]),
        }
        experts = self.reader.models["actor"].moe is not None
        if s.text(keys["ep"]) == "auto":
            fields["ep"] = min(mesh.devices // copies, 8) if experts else 1
        else:
            fields["ep"] = s.integer(keys["ep"])
        for name, why in (
            ("ac_offloading", "activation offload: not priced"),
            ("lora", "LoRA: priced as full fine-tuning"),
            ("quantization", "FP8: priced in bf16"),
            ("fsdp_cpu_offload", "weights on the host: not priced"),
        ):
            self._off(f"{root}.{name}", why)
        key = keys["micro_batch_sequences"]
        tokens = s.integer("seq_len" if s.given("seq_len") and not s.given(key) else key)
        if tokens < longest:
            s.broken.append(
                Broken(
                    "microbatch-holds-longest",
                    f"{key} {tokens} is below orchestrator.seq_len {longest}",
                    (key, "orchestrator.seq_len"),
                    (f"{key}={longest}",),
                    "prime-rl utils/validation.py",
                )
            )
        fields["micro_batch_sequences"], budget = budget_sequences(max(tokens, longest), 1, longest)
        return CallFields(fields, keys, budget)

    def _off(self, key: str, why: str) -> None:
        """A section or switch that is not priced when it is on."""
        s = self.s
        # A section that is on by default is known by its keys alone.
        on = any(s.given(name) for name in s.keys.defaults if name.startswith(f"{key}."))
        on = on or not (key in s.keys.defaults or s.given(key))
        s.not_modelled(key, why, lambda v: v in (None, False, "false") and not on)

    def _recompute(self) -> str:
        s, key = self.s, "trainer.model.ac"
        if s.given(key) and s.raw(key) is None:
            return "none"
        s.raw(key)
        mode = s.choice(f"{key}.mode", {"full": "full", "selective": "selective"}, "full")
        every = s.integer(f"{key}.freq", 1)
        if mode == "selective" or every > 1:
            s.notes.append(f"{key} {mode}, every {every} layers: priced as full recomputation")
        return "full"

    def _on_host(self, key: str) -> bool:
        s, lighter = self.s, "trainer.model.optim_cpu_offload"
        on = any(s.given(name) for name in s.keys.defaults if name.startswith(f"{key}."))
        if s.raw(key) in (True, "true") or on:
            s.raw(lighter)
            return True
        if s.flag(lighter):
            s.notes.append(f"{lighter}: priced as an optimizer that runs on the host")
            return True
        return False

    def _engine(self, mesh: Mesh) -> None:
        s, root = self.s, "inference.vllm"
        keys = {
            "tp": f"{root}.tensor_parallel_size",
            "memory_fraction": f"{root}.gpu_memory_utilization",
            "max_running_sequences": f"{root}.max_num_seqs",
        }
        tp = s.integer(keys["tp"])
        if mesh.devices % tp:
            s.broken.append(
                Broken(
                    "engine-devices-by-tp",
                    f"{mesh.devices} devices for generation do not divide by tp {tp}",
                    (keys["tp"],),
                    tuple(f"{keys['tp']}={n}" for n in near(divisors(mesh.devices), tp)),
                    _SOURCE,
                )
            )
        fraction = s.number(keys["memory_fraction"])
        if not 0 < fraction <= 1:
            raise InputError("is not a share of the memory", where=s.where(keys["memory_fraction"]))
        s.raw(f"{root}.data_parallel_size")
        for name, why in (
            ("enforce_eager", "priced with CUDA graphs"),
            ("enable_expert_parallel", "priced without"),
            ("quantization", "priced in bf16"),
        ):
            s.not_modelled(f"{root}.{name}", why, lambda v: v in (None, False))
        s.not_modelled(
            "inference.deployment.type",
            "prefill and decode are priced on the same devices",
            lambda v: v != "disaggregated",
        )
        fields = {
            "tp": tp,
            "memory_fraction": fraction,
            "max_running_sequences": s.integer(keys["max_running_sequences"], 1024),
        }
        self.reader.put("generate", CallFields(fields, keys), mesh)
