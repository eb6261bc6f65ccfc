"""Reads slime's flags from the script that starts `train.py` or `train_async.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from planner.errors import InputError
from planner.launchers.algorithm_settings import SLIME, fitting, recognised
from planner.launchers.flags import given_flags
from planner.launchers.key_lists import load_keys
from planner.launchers.megatron_flags import read_parallel
from planner.launchers.reading import CallFields, Context, ReadConfig, Reader, budget_sequences
from planner.launchers.settings import Broken, Settings
from planner.launchers.shell import commands
from planner.schema import Mesh

_SYNC, _ASYNC = "train.py", "train_async.py"
_PROMPT_TOKENS = 1024
_ARCHITECTURE = (
    *("num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "num-query-groups"),
    *("kv-channels", "vocab-size", "swiglu", "normalization", "norm-epsilon", "rotary-base"),
    *("group-query-attention", "qk-layernorm", "disable-bias-linear", "add-qkv-bias"),
    *("untie-embeddings-and-output-weights", "use-rotary-position-embeddings", "num-experts"),
    *("moe-ffn-hidden-size", "moe-router-topk", "moe-shared-expert-intermediate-size"),
)
_NEUTRAL = (
    *_ARCHITECTURE,
    *("load", "save", "save-interval", "ref-load", "prompt-data", "input-key", "label-key", "lr"),
    *("apply-chat-template", "rollout-shuffle", "rm-type", "num-rollout", "rollout-temperature"),
    *("balance-data", "eval-interval", "eval-prompt-data", "eval-max-response-len", "eval-top-p"),
    *("n-samples-per-eval-prompt", "optimizer", "kl-loss-type", "entropy-coef", "eps-clip"),
    *("eps-clip-high", "lr-decay-style", "weight-decay", "adam-beta1", "adam-beta2", "use-wandb"),
    *("wandb-project", "wandb-group", "wandb-key", "attention-dropout", "hidden-dropout"),
    *("accumulate-allreduce-grads-in-fp32", "attention-softmax-in-fp32", "attention-backend"),
    *("num-gpus-per-node", "update-weights-interval", "use-tis", "metadata-key"),
    *("megatron-to-hf-mode",),
)


def read_slime(files: Mapping[str, str], overrides: Sequence[str], context: Context) -> ReadConfig:
    """What slime would run with this script, in the planner's words."""
    keys = load_keys("slime")
    switches = frozenset(key for key, value in keys.defaults.items() if value is False)
    given = given_flags(files, overrides, (_SYNC, _ASYNC), switches)
    asynchronous = any(
        isinstance(word, str) and PurePath(word).name == _ASYNC
        for text in files.values()
        for words in commands(text)
        for word in words
    )
    return _Slime(Settings(given, keys), context, asynchronous=asynchronous).read()


class _Slime:
    def __init__(self, settings: Settings, context: Context, *, asynchronous: bool):
        self.s = settings
        self.reader = Reader("slime", settings, context)
        self.asynchronous = asynchronous

    def read(self) -> ReadConfig:
        s, reader = self.s, self.reader
        reader.model("actor", "hf-checkpoint")
        algorithm = recognised(SLIME, s)
        if algorithm is None:
            s.notes.append(f"advantage-estimator {s.text('advantage-estimator')}: priced as grpo")
        prompts, samples = s.integer("rollout-batch-size"), s.integer("n-samples-per-prompt")
        steps = self._steps(prompts * samples)
        response = s.integer("rollout-max-response-len", 1024)
        prompt, longest = self._lengths(response)
        kl_weight = 0.0
        if s.flag("use-kl-loss") or s.number("kl-coef", 0.0) > 0:
            # The reference runs whenever the loss has the term, whatever its weight.
            kl_weight = max(s.number("kl-loss-coef", 0.0), s.number("kl-coef", 0.0), 1e-9)
        s.number("kl-loss-coef", 0.0)
        colocated = s.flag("colocate")
        train_mesh, engine_mesh = self._meshes(colocated)
        layout = read_parallel(s, reader.models["actor"])
        layout.fields["offload"] = "all" if colocated else "none"
        layout.keys["offload"] = "colocate"
        train = layout.but(self._micro("max-tokens-per-gpu", layout.fields["cp"], longest))
        reader.put("actor_train", train, train_mesh)
        forward = train.but(CallFields({"recompute": "none"}, {}))
        own = "log-probs-max-tokens-per-gpu"
        if s.optional_integer(own) is not None:
            forward = forward.but(self._micro(own, layout.fields["cp"], longest))
        engine_logprobs = s.flag("use-rollout-logprobs")
        if not engine_logprobs:
            reader.put("old_logprobs", forward, train_mesh)
        if kl_weight > 0:
            reader.models["reference"] = reader.models["actor"]
            reader.put("reference_logprobs", forward, train_mesh)
        self._engine(engine_mesh)
        s.ignore(*_NEUTRAL)
        staleness = 1 if self.asynchronous else 0
        return reader.finish(
            {
                "name": "slime",
                "algorithm": fitting(algorithm or "grpo", samples, kl_weight, s.notes),
                "prompts_per_step": prompts,
                "samples_per_prompt": samples,
                "optimizer_steps": steps,
                "kl_weight": kl_weight,
                "old_logprobs": "engine" if engine_logprobs else "recompute",
                "max_staleness": staleness,
                **reader.lengths(prompt, response),
            },
            space="slime",
            staleness=staleness,
        )

    def _steps(self, sequences: int) -> int:
        s = self.s
        batch, steps = (
            s.optional_integer("global-batch-size"),
            s.optional_integer("num-steps-per-rollout"),
        )
        if batch is not None:
            return self.reader.steps(sequences, "rollout-batch-size", batch, "global-batch-size")
        if steps is None:
            return 1
        if sequences % steps:
            s.broken.append(
                Broken(
                    "steps-divide-rollout",
                    f"{sequences} samples do not divide into {steps} steps",
                    ("num-steps-per-rollout",),
                    ("num-steps-per-rollout=1",),
                    "slime utils/arguments.py slime_validate_args",
                )
            )
            return 1
        return steps

    def _lengths(self, response: int) -> tuple[int, int]:
        """(longest prompt, longest sequence)."""
        s = self.s
        context = s.optional_integer("rollout-max-context-len")
        prompt = s.optional_integer("rollout-max-prompt-len")
        if prompt is None:
            prompt = _PROMPT_TOKENS
            if context is not None and context > response:
                prompt = context - response
            s.notes.append(f"prompts of at most {prompt} tokens (rollout-max-prompt-len not given)")
        return prompt, prompt + response

    def _meshes(self, colocated: bool) -> tuple[Mesh, Mesh]:
        s = self.s
        keys = ("actor-num-nodes", "actor-num-gpus-per-node")
        train = self.reader.mesh(s.integer(keys[0]), s.integer(keys[1]), keys)
        if colocated:
            if self.asynchronous:
                s.broken.append(
                    Broken(
                        "async-needs-split",
                        "train_async.py with --colocate",
                        ("colocate",),
                        ("colocate=false",),
                        "slime train_async.py",
                    )
                )
            s.raw("rollout-num-gpus")
            return train, train
        key = "rollout-num-gpus"
        devices = s.integer(key)
        per_node = self.reader.group.devices_per_node
        if devices <= per_node:
            return train, self.reader.mesh(1, devices, (key,))
        return train, self.reader.mesh(-(-devices // per_node), per_node, (key,))

    def _micro(self, key: str, cp: int, longest: int) -> CallFields:
        s = self.s
        if not s.flag("use-dynamic-batch-size"):
            key = "micro-batch-size"
            fields = {"packing": True, "micro_batch_sequences": s.integer(key, 1)}
            return CallFields(fields, {"micro_batch_sequences": key})
        tokens = s.integer(key)
        if tokens * cp < longest:
            s.notes.append(
                f"{key} {tokens} x cp {cp} is below the longest sequence, {longest}, which is then "
                "a microbatch of its own, above the budget"
            )
        sequences, budget = budget_sequences(max(tokens, -(-longest // cp)), cp, longest)
        fields = {"packing": True, "micro_batch_sequences": sequences}
        return CallFields(fields, {"micro_batch_sequences": key}, budget)

    def _engine(self, mesh: Mesh) -> None:
        s = self.s
        keys = {
            "tp": "rollout-num-gpus-per-engine",
            "ep": "sglang-ep-size",
            "memory_fraction": "sglang-mem-fraction-static",
            "max_running_sequences": "sglang-max-running-requests",
        }
        s.not_modelled("sglang-pp-size", "priced without", lambda v: v in (None, 1, "1"))
        s.not_modelled("sglang-dp-size", "priced without", lambda v: v in (None, 1, "1"))
        s.not_modelled("sglang-enable-dp-attention", "priced without", lambda v: not v)
        fields: dict[str, Any] = {
            "tp": s.integer(keys["tp"]),
            "ep": s.integer(keys["ep"], 1),
            "memory_fraction": s.number(keys["memory_fraction"], 0.85),
            "max_running_sequences": s.integer(keys["max_running_sequences"], 1024),
        }
        if not 0 < fields["memory_fraction"] <= 1:
            raise InputError("is not a share of the memory", where=s.where(keys["memory_fraction"]))
        self.reader.put("generate", CallFields(fields, keys), mesh)
