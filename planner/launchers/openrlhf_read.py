"""Reads OpenRLHF's flags from the script that starts `openrlhf.cli.train_ppo_ray`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import InputError
from planner.launchers.algorithm_settings import GROUPED, OPENRLHF, fitting, recognised
from planner.launchers.flags import given_flags
from planner.launchers.key_lists import load_keys
from planner.launchers.numbers import divisors, near
from planner.launchers.reading import CallFields, Context, ReadConfig, Reader, budget_sequences
from planner.launchers.settings import Broken, Settings
from planner.schema import Mesh

ENTRY = "openrlhf.cli.train_ppo_ray"
_SOURCE = "OpenRLHF cli/train_ppo_ray.py"
_NEUTRAL = (
    *("data", "eval", "ckpt", "logger", "algo", "use_ms", "local_rank", "reward.remote_url"),
    *("actor.adam", "critic.adam", "actor.muon", "critic.muon", "actor.optim", "critic.optim"),
    *("train.num_episodes", "train.seed", "train.agent_func_path", "rollout.temperature"),
    *("train.full_determinism_enable", "reward.normalize_enable", "reward.clip_range"),
    *("actor.eps_clip", "actor.eps_clip_low_high", "critic.value_clip", "rollout.top_p"),
    *("actor.lr_scheduler", "critic.lr_scheduler", "actor.max_norm", "actor.policy_loss_type"),
    *("actor.lr_warmup_ratio", "critic.lr_warmup_ratio", "ds.attn_implementation"),
    *("vllm.sync_backend", "vllm.sync_with_ray", "vllm.enable_prefix_caching"),
    *("actor.gradient_checkpointing_reentrant", "ds.overlap_comm"),
)


def read_openrlhf(
    files: Mapping[str, str], overrides: Sequence[str], context: Context
) -> ReadConfig:
    """What OpenRLHF would run with this script, in the planner's words."""
    keys = load_keys("openrlhf")
    switches = frozenset(key for key, value in keys.defaults.items() if value is False)
    given = given_flags(files, overrides, (ENTRY, "train_ppo_ray.py"), switches)
    return _OpenRlhf(Settings(given, keys, strict=True), context).read()


class _OpenRlhf:
    def __init__(self, settings: Settings, context: Context):
        self.s = settings
        self.reader = Reader("openrlhf", settings, context)
        self.colocate_all = settings.flag("train.colocate_all")
        self.asynchronous = settings.flag("train.async_enable")

    def read(self) -> ReadConfig:
        s, reader = self.s, self.reader
        algorithm = self._algorithm()
        prompts = s.integer("rollout.batch_size")
        samples = s.integer("rollout.n_samples_per_prompt")
        batch = s.integer("train.batch_size")
        steps = reader.steps(prompts * samples, "rollout.batch_size", batch, "train.batch_size")
        longest = s.integer("data.max_len")
        response = s.integer("rollout.max_new_tokens", max(1, longest // 2))
        if response >= longest:
            s.broken.append(
                Broken(
                    "response-within-length",
                    f"rollout.max_new_tokens {response} leaves no room in data.max_len {longest}",
                    ("rollout.max_new_tokens", "data.max_len"),
                    (f"data.max_len={2 * response}",),
                    _SOURCE,
                )
            )
            longest = 2 * response
        reader.model("actor", "actor.model_name_or_path")
        kl_weight = s.number("algo.kl.init_coef")
        if algorithm in GROUPED and samples < 2:
            s.broken.append(
                Broken(
                    "group-needs-samples",
                    "the estimator compares the samples of a prompt, but there is one",
                    ("rollout.n_samples_per_prompt",),
                    ("rollout.n_samples_per_prompt=2",),
                    _SOURCE,
                )
            )
            samples = 2
        train = self._layout(longest)
        actor = self._mesh("actor")
        staleness = s.integer("train.async_queue_size") if self.asynchronous else 0
        reader.put("actor_train", train, actor)
        forward = self._forward(train, longest)
        reader.put("old_logprobs", forward, actor)
        if kl_weight > 0:
            self._reference(forward, actor)
        if algorithm == "ppo":
            self._critic(train, forward, actor)
        if s.text("reward.model_name_or_path") and not s.text("reward.remote_url"):
            self._reward(forward, actor)
        self._engine(actor)
        s.raw("ds.param_dtype")
        s.not_modelled("ds.tensor_parallel_size", "AutoTP: priced without", lambda v: v in (1, "1"))
        s.not_modelled("ds.zpg", "hierarchical sharding: priced without", lambda v: v in (1, "1"))
        s.not_modelled("ds.load_in_4bit", "quantised weights: priced in bf16", _off)
        s.not_modelled("ds.use_liger_kernel", "fused output head: not priced", _off)
        s.not_modelled("algo.dynamic_filtering_enable", "priced without filtering", _off)
        s.ignore(*_NEUTRAL)
        return reader.finish(
            {
                "name": "openrlhf",
                "algorithm": fitting(algorithm, samples, kl_weight, s.notes),
                "prompts_per_step": prompts,
                "samples_per_prompt": samples,
                "optimizer_steps": steps,
                "epochs": s.integer("train.max_epochs"),
                "kl_weight": kl_weight,
                "max_staleness": staleness,
                "lora_rank": s.integer("ds.lora.rank", 0, low=0),
                **reader.lengths(longest - response, response),
            },
            space="openrlhf",
            staleness=staleness,
        )

    def _algorithm(self) -> str:
        name = self.s.text("algo.advantage.estimator") or "gae"
        self.s.raw("algo.kl.use_loss")
        self.s.raw("algo.kl.estimator")
        found = recognised(OPENRLHF, self.s)
        if found is None:
            self.s.notes.append(f"algo.advantage.estimator {name}: priced as grpo")
        return found or "grpo"

    def _mesh(self, role: str) -> Mesh:
        keys = (f"{role}.num_nodes", f"{role}.num_gpus_per_node")
        return self.reader.mesh(self.s.integer(keys[0]), self.s.integer(keys[1]), keys)

    def _shares(self, role: str, actor: Mesh, switch: str) -> bool:
        """Whether a model sits on the actor's devices; it must then have as many."""
        s = self.s
        if not (s.flag(switch) or self.colocate_all):
            return False
        have = (s.integer(f"{role}.num_nodes"), s.integer(f"{role}.num_gpus_per_node"))
        want = (actor.nodes, actor.devices_per_node)
        if have != want:
            s.broken.append(
                Broken(
                    "colocated-models-have-equal-devices",
                    f"{role} has {have[0]} x {have[1]} devices, the actor {want[0]} x {want[1]}",
                    (f"{role}.num_nodes", f"{role}.num_gpus_per_node"),
                    (f"{role}.num_nodes={want[0]} {role}.num_gpus_per_node={want[1]}",),
                    _SOURCE,
                )
            )
        return True

    def _layout(self, longest: int) -> CallFields:
        s = self.s
        keys = {
            "cp": "ds.ring_attn_size",
            "zero_stage": "ds.zero_stage",
            "recompute": "actor.gradient_checkpointing_enable",
            "optimizer_on_cpu": "ds.adam_offload",
            "offload": "ds.enable_sleep",
        }
        fields: dict[str, Any] = {
            "cp": s.integer(keys["cp"]),
            "zero_stage": s.integer(keys["zero_stage"], low=0),
            "recompute": "full" if s.flag(keys["recompute"]) else "none",
            "optimizer_on_cpu": s.flag(keys["optimizer_on_cpu"]),
            "offload": "all" if s.flag(keys["offload"]) and self._all_share() else "none",
        }
        if fields["zero_stage"] > 3:
            raise InputError("is not a ZeRO stage", where=s.where(keys["zero_stage"]))
        if s.flag("vllm.enable_sleep") and not self._all_share():
            s.notes.append("vllm.enable_sleep has no effect without train.colocate_all")
        return CallFields(fields, keys).but(self._micro("train", longest, fields["cp"]))

    def _all_share(self) -> bool:
        return self.colocate_all and not self.asynchronous

    def _micro(self, stage: str, longest: int, cp: int) -> CallFields:
        s = self.s
        key = f"{stage}.micro_batch_size"
        sequences, budget = s.integer(key), None
        packing = s.flag("ds.packing_samples") or cp > 1
        if s.flag("train.dynamic_batch_enable"):
            packing = True
            key = f"{stage}.max_tokens_per_gpu"
            tokens = s.integer(key, s.integer("train.max_tokens_per_gpu"))
            if tokens * cp < longest:
                s.notes.append(f"{key} {tokens}: a longer sequence is a microbatch of its own")
            sequences, budget = budget_sequences(max(tokens, -(-longest // cp)), cp, longest)
        keys = {"packing": "ds.packing_samples", "micro_batch_sequences": key}
        fields = {"packing": packing, "micro_batch_sequences": sequences}
        return CallFields(fields, keys, budget)

    def _forward(self, train: CallFields, longest: int) -> CallFields:
        base = train.but(CallFields({"recompute": "none"}, {}))
        return base.but(self._micro("rollout", longest, train.fields["cp"]))

    def _reference(self, forward: CallFields, actor: Mesh) -> None:
        shares = self._shares("ref", actor, "train.colocate_actor_ref")
        mesh = actor if shares else self._mesh("ref")
        self.reader.models["reference"] = self.reader.models["actor"]
        self.s.not_modelled(
            "ref.offload", "its weights are priced as waiting in host memory", lambda v: not _off(v)
        )
        self.reader.put("reference_logprobs", forward, mesh)

    def _frozen(self, key: str) -> CallFields:
        offload = "all" if self.s.flag(key) else "none"
        return CallFields({"offload": offload, "optimizer_on_cpu": False}, {"offload": key})

    def _critic(self, train: CallFields, forward: CallFields, actor: Mesh) -> None:
        s = self.s
        default = s.text("reward.model_name_or_path") or s.text("actor.model_name_or_path")
        if s.text("critic.model_name_or_path") is None and default:
            s.notes.append(f"critic.model_name_or_path is not given: {default} as OpenRLHF does")
            key = "reward" if s.text("reward.model_name_or_path") else "actor"
            self.reader.model("critic", f"{key}.model_name_or_path")
        else:
            self.reader.model("critic", "critic.model_name_or_path")
        shares = self.colocate_all and self._shares("critic", actor, "train.colocate_all")
        mesh = actor if shares else self._mesh("critic")
        self.reader.put("critic_train", train, mesh)
        self.reader.put("values", forward, mesh)
        self._critic_mesh = mesh

    def _reward(self, forward: CallFields, actor: Mesh) -> None:
        self.reader.model("reward", "reward.model_name_or_path")
        mesh = actor
        if not self.colocate_all:
            with_critic = self.s.flag("train.colocate_critic_reward")
            critic = getattr(self, "_critic_mesh", None)
            mesh = critic if with_critic and critic is not None else self._mesh("reward")
        elif not self._shares("reward", actor, "train.colocate_all"):
            mesh = self._mesh("reward")
        self.reader.put("rewards", forward.but(self._frozen("reward.offload")), mesh)

    def _engine(self, actor: Mesh) -> None:
        s = self.s
        keys = {
            "tp": "vllm.tensor_parallel_size",
            "dp": "vllm.num_engines",
            "memory_fraction": "vllm.gpu_memory_utilization",
        }
        tp = s.integer(keys["tp"])
        engines = s.integer(keys["dp"], 1)
        fraction = s.number(keys["memory_fraction"])
        if not 0 < fraction <= 1:
            raise InputError("is not a share of the memory", where=s.where(keys["memory_fraction"]))
        s.not_modelled("vllm.enforce_eager", "priced with CUDA graphs", _off)
        mesh = actor
        if not self._all_share():
            mesh = self._engine_mesh(tp, engines)
        elif tp * engines != actor.devices:
            s.broken.append(
                Broken(
                    "colocated-engines-fill-the-actor",
                    f"{engines} engines of {tp} devices on the actor's {actor.devices}",
                    (keys["dp"], keys["tp"]),
                    tuple(
                        f"{keys['dp']}={actor.devices // size} {keys['tp']}={size}"
                        for size in [
                            *([tp] if actor.devices % tp == 0 else []),
                            *near(divisors(actor.devices), tp),
                        ]
                        if size <= actor.devices_per_node
                    ),
                    _SOURCE,
                )
            )
        fields = {"tp": tp, "memory_fraction": fraction, "max_running_sequences": 1024}
        self.reader.put("generate", CallFields(fields, keys), mesh)

    def _engine_mesh(self, tp: int, engines: int) -> Mesh:
        per_node = self.reader.group.devices_per_node
        devices = tp * engines
        keys = ("vllm.num_engines", "vllm.tensor_parallel_size")
        if devices <= per_node:
            return self.reader.mesh(1, devices, keys)
        if devices % per_node:
            nodes = -(-devices // per_node)
            self.s.notes.append(f"{devices} devices of engines are priced as {nodes} whole nodes")
            return self.reader.mesh(nodes, per_node, keys)
        return self.reader.mesh(devices // per_node, per_node, keys)


def _off(value: Any) -> bool:
    return value in (None, False, 0, "0", "false")
