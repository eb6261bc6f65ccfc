"""Runs NeMo RL's own configuration code on an exported file. Not a test: started by
test_nemo_rl_real.py with a Python that has NeMo RL's dependencies.

    python nemo_rl_check.py CHECKOUT CONFIG grpo|ppo [key=value ...]

Loads the file as examples/run_*.py do (inheritance, Hydra overrides, resolvers), validates it with
the algorithm's pydantic MasterConfig, and prints the configuration and the keys that neither the
example configurations nor NeMo RL's types know.
"""

from __future__ import annotations

import importlib
import json
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typing_extensions
from omegaconf import DictConfig, OmegaConf

CHECKOUT, CONFIG, ALGORITHM = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), sys.argv[3]
sys.path.insert(0, str(CHECKOUT))
if sys.version_info < (3, 12):  # NeMo RL targets 3.12, where pydantic takes typing's own
    for name in ("TypedDict", "override"):
        setattr(typing, name, getattr(typing_extensions, name))


def dotted(section: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in section.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        yield name
        if isinstance(value, dict):
            yield from dotted(value, name)


def main() -> None:
    from nemo_rl.utils.config import (
        load_config_with_inheritance,
        parse_hydra_overrides,
        register_omegaconf_resolvers,
    )

    register_omegaconf_resolvers()
    examples = CHECKOUT / "examples" / "configs"
    config = load_config_with_inheritance(CONFIG, examples)
    if sys.argv[4:]:
        config = parse_hydra_overrides(config, sys.argv[4:])
    plain = OmegaConf.to_container(config, resolve=True)
    master = importlib.import_module(f"nemo_rl.algorithms.{ALGORITHM}").MasterConfig(**plain)
    print(json.dumps({"config": plain, "unknown": unknown_keys(examples), "ok": bool(master)}))


def unknown_keys(examples: Path) -> list[str]:
    from nemo_rl.models.policy import MegatronConfig
    from nemo_rl.utils.config import load_config_with_inheritance

    own = OmegaConf.load(CONFIG)
    assert isinstance(own, DictConfig)
    base = load_config_with_inheritance(examples / str(own.pop("defaults")), examples)
    known = set(dotted(OmegaConf.to_container(base)))
    known |= set(
        dotted(OmegaConf.to_container(load_config_with_inheritance(examples / "grpo_rm_1B.yaml")))
    )
    module = importlib.import_module(f"nemo_rl.algorithms.{ALGORITHM}")
    section = getattr(module, f"{ALGORITHM.upper()}Config")
    known |= {f"{ALGORITHM}.{name}" for name in section.model_fields}
    for owner in ("policy", "value"):
        known |= {f"{owner}.megatron_cfg.{name}" for name in MegatronConfig.__annotations__}
    return [
        key
        for key in dotted(OmegaConf.to_container(own))
        if key not in known and not key.startswith("policy.generation.vllm_kwargs.")
    ]


main()
