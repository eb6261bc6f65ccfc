"""Public reports of configurations that failed or were slow, in the launchers' own settings.

Each case has the report, the devices, the settings that it states (batch sizes that it does not
state are usual ones), and what was seen: `memory` names the call that ran out, `rules` the rules
that were broken, `slow` the call that took most of the step, `runs` that it ran (or hung without a
setting that shows why). `remedy` is a setting that fixes it, `faster` settings with which a step
takes less. More are in more_reported_cases.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

VERL = "actor_rollout_ref"


@dataclass(frozen=True)
class Report:
    """One public report."""

    source: str
    launcher: str
    cluster: str
    settings: dict[str, Any]
    memory: str = ""
    rules: frozenset[str] = frozenset()
    slow: str = ""
    runs: bool = False
    remedy: dict[str, Any] = field(default_factory=dict)
    faster: dict[str, Any] = field(default_factory=dict)
    device_memory_gib: int | None = None
    host_memory_gib: int | None = None
    models: dict[str, str] = field(default_factory=dict)
    entry: str = "train.py"

    @property
    def text(self) -> dict[str, str]:
        """The configuration as the launcher's file."""
        if self.launcher == "verl":
            words = [f"{key}={value}" for key, value in self.settings.items()]
            if self.entry != "train.py":
                return {"run.sh": f"python3 -m {self.entry} {' '.join(words)}\n"}
            return {"overrides.txt": "".join(f"{word}\n" for word in words)}
        if self.launcher == "nemo-rl":
            import yaml

            nested: dict[str, Any] = {"defaults": "grpo_math_1B_megatron.yaml"}
            if self.entry == "dtensor":
                nested = {"defaults": "grpo_math_1B.yaml"}
            for key, value in self.settings.items():
                *sections, last = key.split(".")
                place = nested
                for section in sections:
                    place = place.setdefault(section, {})
                place[last] = value
            return {"config.yaml": yaml.safe_dump(nested)}
        if self.launcher == "areal":
            import yaml

            sections: dict[str, Any] = {}
            for key, value in self.settings.items():
                section, _, last = key.partition(".")
                sections.setdefault(section, {})[last] = value
            return {"areal.yaml": yaml.safe_dump(sections)}
        if self.launcher == "trl":
            import yaml

            plain = {k: v for k, v in self.settings.items() if "." not in k}
            machines = {
                k.removeprefix("accelerate."): v
                for k, v in self.settings.items()
                if k.startswith("accelerate.")
            }
            serve = " ".join(
                f"--{k.removeprefix('vllm-serve.')} {v}"
                for k, v in self.settings.items()
                if k.startswith("vllm-serve.")
            )
            return {
                "grpo.yaml": yaml.safe_dump(plain),
                "accelerate.yaml": yaml.safe_dump(machines),
                "serve.sh": f"trl vllm-serve {serve}\n",
            }
        words = " ".join(
            f"--{key}" if value is True else f"--{key} {value}"
            for key, value in self.settings.items()
        )
        command = {"openrlhf": "python3 -m openrlhf.cli.train_ppo_ray"}.get(
            self.launcher, f"python3 {self.entry}"
        )
        return {"run.sh": f"{command} {words}\n"}


def verl(model: str, nodes: int, per_node: int, **more: Any) -> dict[str, Any]:
    return {
        "algorithm.adv_estimator": "grpo",
        f"{VERL}.model.path": model,
        f"{VERL}.rollout.name": "vllm",
        f"{VERL}.rollout.n": 8,
        "data.train_batch_size": 64,
        f"{VERL}.actor.ppo_mini_batch_size": 64,
        f"{VERL}.actor.use_dynamic_bsz": "true",
        "trainer.nnodes": nodes,
        "trainer.n_gpus_per_node": per_node,
        **more,
    }


def megatron(**degrees: int) -> dict[str, Any]:
    names = {
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "cp": "context_parallel_size",
        "ep": "expert_model_parallel_size",
        "etp": "expert_tensor_parallel_size",
    }
    keys = {f"{VERL}.actor.megatron.{names[name]}": value for name, value in degrees.items()}
    return {"model_engine": "megatron", **keys}


OFFLOAD = {
    f"{VERL}.actor.megatron.param_offload": "true",
    f"{VERL}.actor.megatron.optimizer_offload": "true",
}
FSDP_OFFLOAD = {
    f"{VERL}.actor.fsdp_config.param_offload": "true",
    f"{VERL}.actor.fsdp_config.optimizer_offload": "true",
}

REPORTS: dict[str, Report] = {
    "experts-on-few-ranks": Report(
        "verl-project/verl#3364",
        "verl",
        "h200:4x8",
        verl("Qwen/Qwen3-30B-A3B", 4, 8)
        | megatron(tp=4, pp=2, ep=2, etp=1)
        | {
            "data.max_prompt_length": 4096,
            "data.max_response_length": 8192,
            f"{VERL}.rollout.gpu_memory_utilization": 0.65,
            f"{VERL}.rollout.tensor_model_parallel_size": 4,
        },
        memory="generate",
        remedy=OFFLOAD,
    ),
    "long-sequence-on-one-rank": Report(
        "verl-project/verl#2935",
        "verl",
        "a100-80-sxm:4x8",
        verl("Qwen/Qwen3-30B-A3B", 4, 8)
        | megatron(tp=4, pp=1, cp=1, ep=32, etp=1)
        | OFFLOAD
        | {
            "data.max_prompt_length": 2000,
            "data.max_response_length": 30000,
            f"{VERL}.actor.ppo_max_token_len_per_gpu": 32000,
            f"{VERL}.rollout.tensor_model_parallel_size": 4,
        },
        memory="actor_train",
        remedy={
            f"{VERL}.actor.megatron.context_parallel_size": 4,
            f"{VERL}.actor.ppo_max_token_len_per_gpu": 8000,
            f"{VERL}.actor.megatron.override_transformer_config.recompute_granularity": "full",
        },
    ),
    "engine-larger-than-the-node-and-minibatch-than-the-batch": Report(
        "verl-project/verl#1191",
        "verl",
        "a100-80-sxm:1x1",
        verl("Qwen/Qwen2.5-7B-Instruct-1M", 1, 1)
        | {
            "data.train_batch_size": 16,
            f"{VERL}.actor.ppo_mini_batch_size": 32,
            f"{VERL}.rollout.n": 16,
            "data.max_prompt_length": 2048,
            "data.max_response_length": 4096,
        },
        rules=frozenset({"devices-by-degrees", "minibatch-divides-batch"}),
        models={"actor": "Qwen/Qwen2.5-7B"},
    ),
    "minibatch-in-prompts": Report(
        "verl-project/verl#5821",
        "verl",
        "h100:1x8",
        verl("Qwen/Qwen2.5-1.5B", 1, 8)
        | {
            "data.train_batch_size": 32,
            f"{VERL}.actor.ppo_mini_batch_size": 64,
            f"{VERL}.actor.use_dynamic_bsz": "false",
            f"{VERL}.actor.ppo_micro_batch_size_per_gpu": 1,
            f"{VERL}.rollout.log_prob_micro_batch_size_per_gpu": 1,
        },
        rules=frozenset({"minibatch-divides-batch"}),
        remedy={f"{VERL}.actor.ppo_mini_batch_size": 32},
    ),
    "token-budget-times-vocabulary": Report(
        "Jiayi-Pan/TinyZero#107",
        "verl",
        "a100-80-sxm:1x8",
        verl("Qwen/Qwen2.5-1.5B", 1, 8)
        | FSDP_OFFLOAD
        | {
            "data.train_batch_size": 128,
            f"{VERL}.actor.ppo_mini_batch_size": 32,
            "data.max_prompt_length": 766,
            "data.max_response_length": 16384,
            f"{VERL}.actor.ppo_max_token_len_per_gpu": 33534,
            f"{VERL}.actor.ulysses_sequence_parallel_size": 2,
            f"{VERL}.rollout.tensor_model_parallel_size": 1,
            f"{VERL}.rollout.gpu_memory_utilization": 0.85,
            f"{VERL}.rollout.max_num_batched_tokens": 33534,
            f"{VERL}.actor.entropy_coeff": 0.001,  # the default of that release
        },
        memory="actor_train",
        remedy={f"{VERL}.actor.ppo_max_token_len_per_gpu": 8576},
    ),
    "prefill-in-one-piece": Report(
        "verl-project/verl#7632",
        "verl",
        "h100:1x8",
        verl("meta-llama/Llama-3.2-1B", 1, 8) | {f"{VERL}.rollout.enable_chunked_prefill": "false"},
        rules=frozenset({"prefill-holds-longest"}),
        remedy={f"{VERL}.rollout.max_model_len": 1024},
    ),
    "host-memory-of-offloading": Report(
        "verl-project/verl#224",
        "verl",
        "a100-80-sxm:1x8",
        verl("Qwen/Qwen2.5-7B", 1, 8) | FSDP_OFFLOAD,
        memory="host memory",
        host_memory_gib=96,
    ),
    "no-recomputation-at-ten-thousand-tokens": Report(
        "ISEEKYAN/verl_megatron_practice#2",
        "verl",
        "h100:1x8",
        verl("Qwen/Qwen2-7B", 1, 8)
        | megatron(tp=2, pp=1)
        | {
            # The reported 88.27 GB are 18 bytes a parameter over TP 2 and the activations.
            f"{VERL}.actor.megatron.use_distributed_optimizer": "false",
            "data.max_prompt_length": 2048,
            "data.max_response_length": 8192,
            f"{VERL}.actor.ppo_max_token_len_per_gpu": 10240,
            f"{VERL}.rollout.tensor_model_parallel_size": 2,
            f"{VERL}.rollout.gpu_memory_utilization": 0.4,
        },
        memory="actor_train",
        remedy={
            f"{VERL}.actor.megatron.use_distributed_optimizer": "true",
            f"{VERL}.actor.megatron.override_transformer_config.recompute_granularity": "full",
        },
    ),
    "heads-by-engine-tp": Report(
        "THU-KEG/AdaptThink#1",
        "verl",
        "h100:1x8",
        verl("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 1, 8)
        | {f"{VERL}.rollout.tensor_model_parallel_size": 8},
        rules=frozenset({"heads-by-tp"}),
        remedy={f"{VERL}.rollout.tensor_model_parallel_size": 4},
        models={"actor": "Qwen/Qwen2.5-7B"},
    ),
    "reference-takes-the-devices": Report(
        "OpenRLHF/OpenRLHF#887",
        "openrlhf",
        "h100:3x8",
        {
            "actor.model_name_or_path": "Qwen/Qwen2.5-7B",
            "algo.advantage.estimator": "group_norm",
            "actor.num_nodes": 3,
            "actor.num_gpus_per_node": 1,
            "ref.num_nodes": 3,
            "ref.num_gpus_per_node": 6,
            "vllm.num_engines": 3,
            "vllm.tensor_parallel_size": 1,
            "data.max_len": 37888,
            "rollout.max_new_tokens": 36864,
            "rollout.n_samples_per_prompt": 8,
            "rollout.batch_size": 72,
            "train.batch_size": 576,
            "train.micro_batch_size": 1,
            "ds.zero_stage": 3,
            "actor.gradient_checkpointing_enable": True,
        },
        memory="actor_train",
        remedy={
            "actor.num_nodes": 2,
            "actor.num_gpus_per_node": 8,
            "ref.num_nodes": 2,
            "ref.num_gpus_per_node": 8,
            "train.colocate_actor_ref": True,
            "vllm.num_engines": 8,
            "ds.ring_attn_size": 4,
            "ds.packing_samples": True,
        },
    ),
    "two-long-samples-at-once": Report(
        "OpenRLHF/OpenRLHF#908",
        "openrlhf",
        "h20:2x8",
        {
            "actor.model_name_or_path": "Qwen/Qwen2.5-7B-Instruct",
            "algo.advantage.estimator": "group_norm",
            "actor.num_nodes": 1,
            "actor.num_gpus_per_node": 8,
            "ref.num_nodes": 1,
            "ref.num_gpus_per_node": 4,
            "vllm.num_engines": 1,
            "vllm.tensor_parallel_size": 4,
            "data.max_len": 26048,
            "rollout.max_new_tokens": 13024,
            "rollout.n_samples_per_prompt": 8,
            "rollout.batch_size": 8,
            "train.batch_size": 64,
            "train.micro_batch_size": 2,
            "rollout.micro_batch_size": 2,
            "ds.zero_stage": 3,
            "actor.gradient_checkpointing_enable": True,
        },
        memory="actor_train",
        remedy={"ds.ring_attn_size": 4, "ds.packing_samples": True, "train.micro_batch_size": 1},
    ),
    "many-samples-in-a-forward-pass": Report(
        "OpenRLHF/OpenRLHF#1066",
        "openrlhf",
        "h800:1x8",
        {
            "actor.model_name_or_path": "Qwen/Qwen3-8B",
            "algo.advantage.estimator": "group_norm",
            "actor.num_nodes": 1,
            "actor.num_gpus_per_node": 4,
            "ref.num_nodes": 1,
            "ref.num_gpus_per_node": 1,
            "vllm.num_engines": 2,
            "vllm.tensor_parallel_size": 1,
            "data.max_len": 12288,
            "rollout.max_new_tokens": 8192,
            "rollout.n_samples_per_prompt": 2,
            "rollout.batch_size": 128,
            "train.batch_size": 256,
            "train.micro_batch_size": 1,
            "rollout.micro_batch_size": 32,
            "ds.zero_stage": 3,
            "ds.adam_offload": True,
            "vllm.enable_sleep": True,
            "actor.gradient_checkpointing_enable": True,
        },
        memory="old_logprobs",
        remedy={"rollout.micro_batch_size": 1},
    ),
    "every-model-on-its-own-devices": Report(
        "OpenRLHF/OpenRLHF#930",
        "openrlhf",
        "h100:4x8",
        {
            "actor.model_name_or_path": "Qwen/Qwen2.5-1.5B",
            "critic.model_name_or_path": "Qwen/Qwen2.5-1.5B",
            "reward.model_name_or_path": "Qwen/Qwen2.5-1.5B",
            "actor.num_gpus_per_node": 8,
            "critic.num_gpus_per_node": 8,
            "ref.num_gpus_per_node": 8,
            "reward.num_gpus_per_node": 8,
            "vllm.num_engines": 4,
            "vllm.tensor_parallel_size": 2,
            "actor.gradient_checkpointing_enable": True,
        },
        rules=frozenset({"devices-within-cluster"}),
        remedy={"train.colocate_all": True},
    ),
    "engine-across-nodes": Report(
        "OpenRLHF/OpenRLHF#758",
        "openrlhf",
        "h100:3x8",
        {
            "actor.model_name_or_path": "Qwen/Qwen2.5-1.5B",
            "algo.advantage.estimator": "group_norm",
            "rollout.n_samples_per_prompt": 8,
            "vllm.num_engines": 1,
            "vllm.tensor_parallel_size": 16,
            "train.colocate_actor_ref": True,
            "actor.gradient_checkpointing_enable": True,
        },
        rules=frozenset({"engine-inside-node"}),
        models={"actor": "Qwen/Qwen3-30B-A3B"},
    ),
    "optimizer-in-host-memory": Report(
        "THUDM/slime#1851",
        "slime",
        "h100:1x8",
        {
            "hf-checkpoint": "Qwen/Qwen3-30B-A3B",
            "actor-num-nodes": 1,
            "actor-num-gpus-per-node": 8,
            "colocate": True,
            "rollout-num-gpus-per-engine": 8,
            "rollout-batch-size": 32,
            "n-samples-per-prompt": 8,
            "global-batch-size": 256,
            "rollout-max-response-len": 8192,
            "tensor-model-parallel-size": 4,
            "sequence-parallel": True,
            "expert-model-parallel-size": 8,
            "expert-tensor-parallel-size": 1,
            "recompute-granularity": "full",
            "use-dynamic-batch-size": True,
            "max-tokens-per-gpu": 20480,
            "optimizer-cpu-offload": True,
            "use-kl-loss": True,
            "sglang-mem-fraction-static": 0.7,
        },
        memory="host memory",
        host_memory_gib=938,  # 1,007.5 GB
    ),
    "hundred-thousand-tokens-of-logits": Report(
        "THUDM/slime#1767",
        "slime",
        "h100:1x8",
        {
            "hf-checkpoint": "Qwen/Qwen3-4B",
            "actor-num-nodes": 1,
            "actor-num-gpus-per-node": 4,
            "rollout-num-gpus": 4,
            "rollout-num-gpus-per-engine": 1,
            "rollout-batch-size": 32,
            "n-samples-per-prompt": 8,
            "global-batch-size": 256,
            "rollout-max-response-len": 30000,
            "recompute-granularity": "full",
            "use-dynamic-batch-size": True,
            "max-tokens-per-gpu": 108000,
        },
        memory="actor_train",
        remedy={"max-tokens-per-gpu": 8192, "context-parallel-size": 4},
    ),
    "sixteen-bytes-a-parameter": Report(
        "skypilot-org/skypilot#10269",
        "slime",
        "h100:1x4",
        {
            "hf-checkpoint": "Qwen/Qwen3-14B",
            "actor-num-nodes": 1,
            "actor-num-gpus-per-node": 4,
            "colocate": True,
            "rollout-num-gpus-per-engine": 4,
            "rollout-batch-size": 32,
            "n-samples-per-prompt": 8,
            "global-batch-size": 256,
            "rollout-max-response-len": 8192,
            "tensor-model-parallel-size": 4,
            "sequence-parallel": True,
            "recompute-granularity": "full",
            "use-dynamic-batch-size": True,
            # The allocation that failed, 3.84 GiB, is fp32 logits of so many tokens over TP 4.
            "max-tokens-per-gpu": 27136,
            "sglang-mem-fraction-static": 0.6,
        },
        memory="actor_train",
        remedy={"optimizer-cpu-offload": True},
    ),
    "one-engine-for-seven-trainers": Report(
        "huggingface/trl#2971",
        "trl",
        "a100-80-sxm:1x8",
        {
            "model_name_or_path": "meta-llama/Llama-2-13b-hf",
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 4,
            "num_generations": 7,
            "max_completion_length": 1024,
            "vllm_max_model_length": 2048,
            "use_vllm": True,
            "vllm_mode": "server",
            "accelerate.distributed_type": "DEEPSPEED",
            "accelerate.num_machines": 1,
            "accelerate.num_processes": 7,
            "accelerate.deepspeed_config": {"zero_stage": 3, "offload_optimizer_device": "cpu"},
            "vllm-serve.tensor_parallel_size": 1,
            "vllm-serve.gpu_memory_utilization": 0.55,
        },
        slow="generate",
    ),
    "fewer-nodes-than-the-recipe": Report(
        "NVIDIA-NeMo/RL#916",
        "nemo-rl",
        "h100:4x8",
        {
            "policy.model_name": "Qwen/Qwen3-30B-A3B",
            "policy.max_total_sequence_length": 4096,
            "policy.train_micro_batch_size": 1,
            "policy.logprob_batch_size": 1,
            "policy.megatron_cfg.expert_model_parallel_size": 8,
            "policy.megatron_cfg.activation_checkpointing": True,
            "policy.generation.vllm_cfg.tensor_parallel_size": 2,
            "cluster.num_nodes": 4,
            "cluster.gpus_per_node": 8,
        },
        runs=True,
    ),
    "hundreds-of-devices": Report(
        "NVIDIA-NeMo/RL#613",
        "nemo-rl",
        "h100:40x8",
        {
            "policy.model_name": "deepseek-ai/DeepSeek-V3",
            "policy.max_total_sequence_length": 1536,
            "policy.train_micro_batch_size": 1,
            "policy.logprob_batch_size": 2,
            "policy.megatron_cfg.pipeline_model_parallel_size": 16,
            "policy.megatron_cfg.expert_model_parallel_size": 16,
            "policy.megatron_cfg.num_layers_in_first_pipeline_stage": 3,
            "policy.megatron_cfg.num_layers_in_last_pipeline_stage": 2,
            "policy.megatron_cfg.activation_checkpointing": True,
            "policy.generation.colocated.enabled": False,
            "policy.generation.colocated.resources.num_nodes": 8,
            "policy.generation.colocated.resources.gpus_per_node": 8,
            "policy.generation.vllm_cfg.tensor_parallel_size": 32,
            "policy.generation.vllm_cfg.gpu_memory_utilization": 0.8,
            "cluster.num_nodes": 40,
            "cluster.gpus_per_node": 8,
        },
        runs=True,
    ),
    "expert-groups-over-context-ranks": Report(
        "radixark/miles#3290",
        "slime",
        "h200:4x8",
        {
            "hf-checkpoint": "Qwen/Qwen3-30B-A3B",
            "actor-num-nodes": 4,
            "actor-num-gpus-per-node": 8,
            "colocate": True,
            "rollout-num-gpus-per-engine": 4,
            "rollout-batch-size": 32,
            "n-samples-per-prompt": 8,
            "global-batch-size": 256,
            "rollout-max-response-len": 8192,
            "tensor-model-parallel-size": 2,
            "sequence-parallel": True,
            "pipeline-model-parallel-size": 4,
            "context-parallel-size": 4,
            "expert-model-parallel-size": 8,
            "expert-tensor-parallel-size": 1,
            "recompute-granularity": "full",
            "use-dynamic-batch-size": True,
            "max-tokens-per-gpu": 4096,
            "sglang-mem-fraction-static": 0.6,
        },
        runs=True,
    ),
}
