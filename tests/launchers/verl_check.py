"""Runs verl's own configuration code on exported files. Not a test: started by test_verl_real.py
with a Python that has verl.

    python verl_check.py FOLDER [override ...]

Composes verl's configuration with FOLDER/overrides.txt, composes FOLDER/rlmplan_verl.yaml, checks
that both agree, and runs verl's validate_config and its rollout dataclass. Ends with an error where
verl does.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import verl
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config


def main() -> None:
    folder, more = Path(sys.argv[1]).resolve(), sys.argv[2:]
    overrides = [*(folder / "overrides.txt").read_text().splitlines(), *more]
    own = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(config_dir=str(own), version_base=None):
        config = compose(config_name="ppo_trainer", overrides=overrides)
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        from_yaml = compose(config_name="rlmplan_verl", overrides=more)
    assert OmegaConf.to_container(config) == OmegaConf.to_container(from_yaml)
    OmegaConf.resolve(config)
    plain = OmegaConf.to_container(config)
    if need_critic(config):
        # The critic's configuration reads the model's; a tiny one stands in for it.
        with tempfile.TemporaryDirectory() as tiny:
            write_tiny_model(Path(tiny))
            config.critic.model.path = tiny
            check(config)
    else:
        check(config)
    print(json.dumps(plain))


def check(config: OmegaConf) -> None:
    validate_config(
        config=config,
        use_reference_policy=need_reference_policy(config),
        use_critic=need_critic(config),
    )
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    if config.reward.reward_model.enable:
        omega_conf_to_dataclass(config.reward.reward_model)


def write_tiny_model(folder: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=8,
        architectures=["LlamaForCausalLM"],
    ).save_pretrained(folder)
    tokenizer = Tokenizer(WordLevel({"<unk>": 0, "<eos>": 1}, unk_token="<unk>"))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>", pad_token="<eos>"
    ).save_pretrained(folder)


main()
