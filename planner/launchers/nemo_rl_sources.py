"""The settings of NeMo RL's files: YAML with inheritance, a launch script, Hydra overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from planner.errors import InputError
from planner.launchers.settings import Given
from planner.launchers.shell import commands
from planner.launchers.sources import flatten, override, override_words, read_yaml

_EXAMPLES = {
    "grpo_math_1B.yaml": "nemo-rl-grpo",
    "grpo_math_1B_megatron.yaml": "nemo-rl-grpo-megatron",
    "ppo_math_1B.yaml": "nemo-rl-ppo",
    "ppo_math_1B_megatron.yaml": "nemo-rl-ppo-megatron",
}


def given_settings(files: Mapping[str, str], overrides: Sequence[str]) -> tuple[list[Given], str]:
    """Settings in the order in which they apply, and the key list of the example they rest on."""
    configs = {name: text for name, text in files.items() if name.endswith((".yaml", ".yml"))}
    given: list[Given] = []
    keys: str | None = None
    inherited: set[str] = set()
    chains = {}
    for name, text in configs.items():
        chains[name], base = _chain(name, text, configs, inherited)
        keys = base or keys
    for name, chain in chains.items():
        if name not in inherited:
            given += chain
    if not configs:
        raise InputError(
            "there is no YAML file",
            where=", ".join(files) or "CONFIG",
            remedy="Give the configuration that --config names.",
        )
    if keys is None:
        keys = _guess(given)
    for name, text in files.items():
        if name not in configs:
            for words in commands(text):
                if any("run_grpo" in str(word) or "run_ppo" in str(word) for word in words):
                    given += override_words(words, name)
    return [*given, *(override(text, "--set") for text in overrides)], keys


def _chain(
    name: str, text: str, configs: Mapping[str, str], inherited: set[str], depth: int = 0
) -> tuple[list[Given], str | None]:
    """Settings of a file over those that it inherits, and the shipped example at the bottom."""
    content = read_yaml(text, name)
    defaults = content.pop("defaults", None) or []
    given: list[Given] = []
    base = _EXAMPLES.get(PurePath(name).name)
    for parent in [defaults] if isinstance(defaults, str) else defaults:
        short = PurePath(str(parent)).name
        known = [other for other in configs if PurePath(other).name == short and other != name]
        if known and depth < 16:
            inherited.add(known[0])
            above, found = _chain(known[0], configs[known[0]], configs, inherited, depth + 1)
            given += above
            base = found or base
        elif short in _EXAMPLES:
            base = _EXAMPLES[short]
        else:
            raise InputError(
                f"inherits from {parent}, which is not given",
                where=f"{name}: defaults",
                remedy="Give that file too, before this one.",
            )
    return given + flatten(content, name), base


def _guess(given: Sequence[Given]) -> str:
    """The example whose keys fit a file that inherits from none."""
    ppo = any(item.key.startswith("ppo.") for item in given)
    megatron = any(item.key == "policy.megatron_cfg.enabled" and item.value for item in given)
    return f"nemo-rl-{'ppo' if ppo else 'grpo'}{'-megatron' if megatron else ''}"
