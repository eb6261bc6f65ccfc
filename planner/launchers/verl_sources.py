"""The settings of verl's files: Hydra overrides, a YAML file on top of verl's own, a run script."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.errors import InputError
from planner.launchers.settings import Given, Settings
from planner.launchers.shell import Word
from planner.launchers.sources import command_words, flatten, override, override_words, read_yaml

ENTRIES = ("verl.trainer.main_ppo", "verl.trainer.main_ppo_v0", "main_ppo.py")
_ENTRY_ONE_STEP = "verl.experimental.one_step_off_policy.main_ppo"
_ENTRY_FULLY_ASYNC = "verl.experimental.fully_async_policy.fully_async_main"
# Name of an older release -> name in 0.9.
_RENAMED = (
    (r"reward_model\.model\.path", "reward.reward_model.model_path"),
    (r"reward_model\.(.*)", r"reward.reward_model.\1"),
    (r"custom_reward_function\.(.*)", r"reward.custom_reward_function.\1"),
    (r"critic\.model\.fsdp_config\.(.*)", r"critic.fsdp.\1"),
    (
        r"actor_rollout_ref\.actor\.fsdp_config\.ulysses_sequence_parallel_size",
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
    ),
)


def given_settings(files: Mapping[str, str], overrides: Sequence[str]) -> tuple[list[Given], str]:
    """Settings in the order in which Hydra applies them, and which trainer is started."""
    from_yaml: list[Given] = []
    from_words: list[Given] = []
    entry, started = "main", False
    for name, text in files.items():
        if name.endswith((".yaml", ".yml")):
            from_yaml += _from_yaml(text, name)
        elif _is_script(text):
            for kind, starts in (
                ("main", ENTRIES),
                ("one-step-off", (_ENTRY_ONE_STEP,)),
                ("fully-async", (_ENTRY_FULLY_ASYNC,)),
            ):
                words = command_words(text, name, starts)
                if words is not None:
                    entry, started = kind, True
                    from_words += _config_name(words, name) + override_words(words, name)
        else:
            for number, line in enumerate(text.splitlines(), start=1):
                if line.strip() and not line.lstrip().startswith("#"):
                    from_words.append(override(line, f"{name}, line {number}"))
    scripts = [name for name, text in files.items() if _is_script(text)]
    if scripts and not started:
        raise InputError(
            f"no command starts {ENTRIES[0]}",
            where=", ".join(scripts),
            remedy="Give the script that starts verl, or its configuration.",
        )
    from_set = [override(text, "--set") for text in overrides]
    return [*from_yaml, *from_words, *from_set], entry


def _is_script(text: str) -> bool:
    return text.startswith("#!") or "main_ppo" in text or "fully_async_main" in text


def _from_yaml(text: str, name: str) -> list[Given]:
    content = read_yaml(text, name)
    content.pop("hydra", None)
    found = []
    defaults = content.pop("defaults", None) or []
    if not isinstance(defaults, list):
        raise InputError(
            f"should be a list, given {defaults!r:.60}",
            where=f"{name}: defaults",
            remedy="Write it as Hydra has it: a list of configuration groups.",
        )
    for item in defaults:
        if isinstance(item, dict):
            for key, value in item.items():
                if str(key).removeprefix("override").strip() == "model_engine":
                    found.append(Given("model_engine", value, name))
        elif isinstance(item, str) and "megatron" in item:
            found.append(Given("model_engine", "megatron", name))
    return found + flatten(content, name)


def _config_name(words: Sequence[Word], name: str) -> list[Given]:
    """`--config-name ppo_megatron_trainer` chooses the Megatron engine."""
    texts = [word for word in words if isinstance(word, str)]
    for word, following in zip(texts, [*texts[1:], ""], strict=False):
        if word == "--config-name" or word.startswith("--config-name="):
            value = word.partition("=")[2] or following
            if "megatron" in value:
                return [Given("model_engine", "megatron", name)]
    return []


def is_megatron(given: Sequence[Given]) -> bool:
    chosen = {item.key: item.value for item in given}
    strategy = chosen.get("actor_rollout_ref.actor.strategy")
    return "megatron" in (chosen.get("model_engine"), strategy)


def renamed(item: Given) -> Given:
    """The setting under its name in 0.9; one that is gone without a successor is let pass."""
    if item.key.endswith(".megatron.grad_offload"):
        return replace(item, added=True)
    for old, new in _RENAMED:
        if re.fullmatch(old, item.key):
            return replace(item, key=re.sub(f"^{old}$", new, item.key))
    return item


def note_renamed(given: Sequence[Given], settings: Settings) -> None:
    for item in given:
        new = renamed(item).key
        if new != item.key:
            settings.notes.append(f"{item.key} is {new} in verl 0.9")
