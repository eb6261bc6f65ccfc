"""Reads TRL's configuration: the trainer's YAML, accelerate's, and flags of launch scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.errors import InputError
from planner.launchers.algorithm_settings import TRL, fitting, recognised
from planner.launchers.key_lists import load_keys
from planner.launchers.reading import CallFields, Context, ReadConfig, Reader
from planner.launchers.settings import Broken, Given, Settings
from planner.launchers.shell import Unknown, Word, commands
from planner.launchers.sources import flag_words, flatten, read_yaml
from planner.schema import Mesh

_SOURCE = "TRL trainer/grpo_config.py"
_NEUTRAL = (
    *("learning_rate", "lr_scheduler_type", "warmup_ratio", "warmup_steps", "weight_decay", "seed"),
    *("output_dir", "logging_steps", "report_to", "save_steps", "save_strategy", "run_name"),
    *("dataset_name", "dataset_config", "dataset_train_split", "dataset_test_split", "max_steps"),
    *("num_train_epochs", "reward_funcs", "epsilon", "epsilon_high", "loss_type", "scale_rewards"),
    *("temperature", "top_p", "top_k", "log_completions", "push_to_hub", "max_grad_norm", "bf16"),
    *("mask_truncated_completions", "attn_implementation", "trust_remote_code", "dtype", "config"),
    *("vllm_server_host", "vllm_server_port", "vllm_server_base_url", "vllm_server_timeout"),
    *("do_eval", "eval_strategy", "eval_steps", "per_device_eval_batch_size", "adam_beta1"),
    *("adam_beta2", "gradient_checkpointing_kwargs", "reward_weights", "num_generations_eval"),
    *("vllm_importance_sampling_mode", "vllm_importance_sampling_clip_max", "optim"),
    *(f"accelerate.{name}" for name in (
        "compute_environment", "debug", "downcast_bf16", "enable_cpu_affinity", "machine_rank",
        "main_training_function", "mixed_precision", "rdzv_backend", "same_network", "tpu_env",
        "tpu_use_cluster", "tpu_use_sudo", "use_cpu", "main_process_ip", "main_process_port")),
    *(f"accelerate.deepspeed_config.{name}" for name in (
        "deepspeed_multinode_launcher", "zero3_init_flag", "zero3_save_16bit_model")),
    *(f"vllm-serve.{name}" for name in ("model", "host", "port", "dtype", "max_model_len")),
)  # fmt: skip
_ACCELERATE = ("num_processes", "num_machines", "machine_rank", "config_file", "main_process_ip",
               "main_process_port", "module", "mixed_precision")  # fmt: skip


def read_trl(files: Mapping[str, str], overrides: Sequence[str], context: Context) -> ReadConfig:
    """What TRL would run with these files and flags, in the planner's words."""
    keys = load_keys("trl")
    switches = frozenset({"use_vllm"})
    given: list[Given] = []
    from_scripts: list[Given] = []
    for name, text in files.items():
        if name.endswith((".yaml", ".yml")):
            content = read_yaml(text, name)
            part = (
                "accelerate." if "distributed_type" in content or "num_processes" in content else ""
            )
            # Text of a YAML file is no reference to another setting here.
            given += [
                replace(item, key=f"{part}{item.key}", literal=True)
                for item in flatten(content, name)
            ]
        else:
            for words in commands(text):
                from_scripts += _from_command(words, name, switches)
    for text in overrides:
        key, equals, value = text.removeprefix("--").partition("=")
        if not key or not equals:
            raise InputError(f"{text!r} is not name=value", where="--set")
        from_scripts.append(Given(key, value, "--set", literal=True))
    if not given and not from_scripts:
        raise InputError(
            "nothing starts or configures TRL",
            where=", ".join(files) or "CONFIG",
            remedy="Give the trainer's YAML file, accelerate's, and the launch script.",
        )
    # Words of the command line hold over the files that they name.
    return _Trl(Settings([*given, *from_scripts], keys, strict=True), context).read()


def _from_command(words: Sequence[Word], name: str, switches: frozenset[str]) -> list[Given]:
    texts = [word if isinstance(word, str) else "" for word in words]
    if "vllm-serve" in texts:
        rest = words[texts.index("vllm-serve") + 1 :]
        return [
            replace(item, key=f"vllm-serve.{item.key}") for item in flag_words(rest, name, switches)
        ]
    starts = "launch" in texts and any(text.endswith("accelerate") for text in texts)
    if not starts and not (texts and texts[0] == "trl"):
        return []
    found = []
    for item in flag_words(words, name, switches):
        if item.key in ("config", "config_file", "module") or isinstance(item.value, Unknown):
            continue  # files that are given too, and what only the machine knows
        part = "accelerate." if item.key in _ACCELERATE else ""
        found.append(replace(item, key=f"{part}{item.key}"))
    return found


class _Trl:
    def __init__(self, settings: Settings, context: Context):
        self.s = settings
        self.reader = Reader("trl", settings, context)

    def read(self) -> ReadConfig:
        s, reader = self.s, self.reader
        reader.model("actor", "model_name_or_path")
        kl_weight = s.number("beta")
        algorithm = recognised(TRL, s) or "grpo"
        samples = s.integer("num_generations")
        train_mesh = self._train_mesh()
        dp = train_mesh.devices
        micro = s.integer("per_device_train_batch_size")
        accumulation = s.integer("gradient_accumulation_steps")
        batch = self._generation_batch(dp, micro, accumulation)
        steps = reader.steps(
            batch,
            "steps_per_generation",
            min(batch, dp * micro * accumulation),
            "gradient_accumulation_steps",
        )
        if samples < 2 or batch % samples:
            s.broken.append(
                Broken(
                    "batch-of-whole-groups",
                    f"a generation batch of {batch} is not a multiple of num_generations "
                    f"{samples}, which must be two or more",
                    ("num_generations", "per_device_train_batch_size"),
                    tuple(f"num_generations={n}" for n in _group_sizes(batch, samples)),
                    _SOURCE,
                )
            )
            samples = next(iter(_group_sizes(batch, samples)), 1)
        response = s.integer("max_completion_length")
        length = s.optional_integer("vllm_max_model_length")
        if length is None:
            length = s.optional_integer("vllm-serve.max_model_len") or response + 1024
            s.notes.append(f"prompts of at most {length - response} tokens (no limit is given)")
        train = self._layout(micro)
        corrected = s.flag("vllm_importance_sampling_correction")
        iterations = s.integer("num_iterations")
        recompute = corrected or steps * iterations > 1
        reader.put("actor_train", train, train_mesh)
        forward = train.but(CallFields({"recompute": "none"}, {}))
        if recompute:
            reader.put("old_logprobs", forward, train_mesh)
        if kl_weight > 0:
            reader.models["reference"] = reader.models["actor"]
            reader.put("reference_logprobs", forward, train_mesh)
            if train.fields["zero_stage"] < 3:
                s.notes.append("the reference's unsharded weights on each device are not counted")
        self._engine(train_mesh, batch, response)
        for key, why in (
            ("load_in_4bit", "quantised weights: priced in bf16"),
            ("use_liger_kernel", "fused output head: not priced"),
            ("activation_offloading", "activation offload: not priced"),
        ):
            if key in s.keys.defaults:
                s.not_modelled(key, why, _off)
        s.ignore(*_NEUTRAL)
        prompts = max(1, batch // samples)
        return reader.finish(
            {
                "name": "trl",
                "algorithm": fitting(algorithm, samples, kl_weight, s.notes),
                "prompts_per_step": prompts,
                "samples_per_prompt": samples,
                "optimizer_steps": steps if (prompts * samples) % steps == 0 else 1,
                "epochs": iterations,
                "kl_weight": kl_weight,
                "old_logprobs": "recompute" if recompute else "skip",
                "lora_rank": self._lora_rank(),
                "max_staleness": 0,
                **reader.lengths(max(1, length - response), response),
            },
            space="trl",
        )

    def _lora_rank(self) -> int:
        s = self.s
        s.raw("lora_target_modules")
        rank = s.integer("lora_r")
        return rank if s.flag("use_peft") else 0

    def _train_mesh(self) -> Mesh:
        s = self.s
        keys = ("accelerate.num_machines", "accelerate.num_processes")
        nodes, processes = s.integer(keys[0]), s.integer(keys[1])
        if processes % nodes:
            s.broken.append(
                Broken(
                    "processes-by-machines",
                    f"num_processes {processes} (of all machines together) does not divide by "
                    f"num_machines {nodes}",
                    keys,
                    (f"{keys[1]}={max(nodes, processes // nodes * nodes)}",),
                    "accelerate commands/launch.py",
                )
            )
        return self.reader.mesh(nodes, max(1, processes // nodes), keys)

    def _generation_batch(self, dp: int, micro: int, accumulation: int) -> int:
        """Sequences of one generation, as GRPOConfig derives them."""
        s = self.s
        batch = s.optional_integer("generation_batch_size")
        steps = s.optional_integer("steps_per_generation")
        if batch is not None and steps is not None:
            s.broken.append(
                Broken(
                    "one-batch-setting",
                    "generation_batch_size and steps_per_generation are both given",
                    ("generation_batch_size", "steps_per_generation"),
                    ("generation_batch_size=null",),
                    _SOURCE,
                )
            )
        if steps is not None or batch is None:
            return dp * micro * (steps or accumulation)
        if batch % (dp * micro):
            low = max(1, batch // (dp * micro)) * dp * micro
            s.broken.append(
                Broken(
                    "generation-batch-by-devices",
                    f"generation_batch_size {batch} is not a multiple of "
                    f"per_device_train_batch_size {micro} x {dp} processes",
                    ("generation_batch_size", "per_device_train_batch_size"),
                    (f"generation_batch_size={low}", f"generation_batch_size={low + dp * micro}"),
                    _SOURCE,
                )
            )
            return low
        return batch

    def _layout(self, micro: int) -> CallFields:
        s = self.s
        config = "accelerate.deepspeed_config"
        keys = {
            "micro_batch_sequences": "per_device_train_batch_size",
            "recompute": "gradient_checkpointing",
            "zero_stage": f"{config}.zero_stage",
            "optimizer_on_cpu": f"{config}.offload_optimizer_device",
        }
        kind = str(s.text("accelerate.distributed_type", "MULTI_GPU"))
        stage, on_cpu = 0, False
        if kind == "DEEPSPEED":
            stage = s.integer(keys["zero_stage"], 2, low=0)
            on_cpu = s.text(keys["optimizer_on_cpu"], "none") == "cpu"
            s.not_modelled(
                f"{config}.offload_param_device",
                "weights on the host: not priced",
                lambda v: v in (None, "none"),
            )
        elif kind == "FSDP":
            stage = 3
            s.notes.append("FSDP is priced as DeepSpeed ZeRO-3")
            s.not_modelled("accelerate.fsdp_config.fsdp_offload_params", "not priced", _off)
            if s.flag("accelerate.fsdp_config.fsdp_activation_checkpointing"):
                s.notes.append("fsdp_activation_checkpointing is priced as gradient_checkpointing")
        if stage > 3:
            raise InputError("is not a ZeRO stage", where=s.where(keys["zero_stage"]))
        return CallFields(
            {
                "micro_batch_sequences": micro,
                "packing": False,
                "recompute": "full" if s.flag(keys["recompute"]) else "none",
                "zero_stage": stage,
                "optimizer_on_cpu": on_cpu,
            },
            keys,
        )

    def _engine(self, train: Mesh, batch: int, response: int) -> None:
        s = self.s
        if not s.flag("use_vllm"):
            s.notes.append("generation without vLLM is priced as with it; it takes far longer")
        mode = s.choice("vllm_mode", {"colocate": "colocate", "server": "server"})
        if mode == "colocate":
            keys = {
                "tp": "vllm_tensor_parallel_size",
                "memory_fraction": "vllm_gpu_memory_utilization",
            }
            mesh = train
            s.not_modelled(
                "vllm_enable_sleep_mode",
                "the engine is priced as giving its memory back",
                lambda v: v in (True, "true"),
            )
        else:
            keys = {
                "tp": "vllm-serve.tensor_parallel_size",
                "memory_fraction": "vllm-serve.gpu_memory_utilization",
            }
            replicas = "vllm-serve.data_parallel_size"
            devices = s.integer(keys["tp"]) * s.integer(replicas)
            mesh = self.reader.mesh(1, devices, (replicas, keys["tp"]))
        tp = s.integer(keys["tp"])
        fraction = s.number(keys["memory_fraction"])
        if not 0 < fraction <= 1:
            raise InputError("is not a share of the memory", where=s.where(keys["memory_fraction"]))
        # A colocated engine runs its whole share at once.
        each = -(-batch * tp // mesh.devices)
        power = 1 << max(10, (each - 1).bit_length())
        fields = {
            "tp": tp,
            "memory_fraction": fraction,
            "max_running_sequences": power if mode == "colocate" else 1024,
        }
        self.reader.put("generate", CallFields(fields, keys), mesh)


def _group_sizes(batch: int, near: int) -> list[int]:
    """Sizes of two or more that divide the batch, nearest first."""
    sizes = [size for size in range(2, batch + 1) if batch % size == 0]
    return sorted(sizes, key=lambda size: abs(size - near))[:2]


def _off(value: Any) -> bool:
    return value in (None, False, 0, "0", "false", "none")
