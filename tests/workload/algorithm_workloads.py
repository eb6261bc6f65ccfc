"""A small workload for every registered algorithm."""

from __future__ import annotations

from typing import Any

from planner.catalog.models import load_model
from planner.schema import LengthDistribution, Workload

SMALL = load_model("Qwen/Qwen2.5-0.5B")
TURNS: dict[str, Any] = {"mean": 4.0, "observation_tokens": 50.0}

SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"roles": ("actor", "critic", "reference", "reward"), "kl_weight": 0.01},
    "grpo": {},
    "dr-grpo": {},
    "dapo": {"acceptance": 0.5, "oversampling": 3.0},
    "gspo": {},
    "cispo": {"optimizer_steps": 16},
    "rloo": {"roles": ("actor", "reference", "reward"), "kl_weight": 0.01},
    "remax": {
        "roles": ("actor", "reference", "reward"),
        "kl_weight": 0.01,
        "samples_per_prompt": 1,
    },
    "reinforce-pp": {"roles": ("actor", "reference", "reward"), "kl_weight": 0.01},
    "reinforce-pp-baseline": {},
    "vapo": {"roles": ("actor", "critic"), "acceptance": 0.5},
    "prime": {"roles": ("actor", "prm", "reference"), "acceptance": 0.4, "oversampling": 4.0},
    "dpo": {"roles": ("actor", "reference"), "samples_per_prompt": 2},
    "online-dpo": {"roles": ("actor", "reference", "reward")},
    "raft": {"roles": ("actor", "reward")},
    "on-policy-distillation": {"roles": ("actor", "teacher")},
    "archer": {
        "roles": ("actor", "critic", "target_critic"),
        "turns": TURNS,
        "replay_sequences": {"critic": 12_800, "actor": 768},
        "optimizer_steps": 1,
        "critic_optimizer_steps": 50,
    },
    "sweet-rl": {"roles": ("actor", "critic", "env_llm", "reference"), "turns": TURNS},
    "expert-iteration": {"replay_sequences": {"actor": 1024}},
    "planned-proving": {"roles": ("actor", "env_llm"), "turns": TURNS},
    "c3po": {"token_budget": 50_000, "optimizer_steps": 2},
    "dipo": {"block_diffusion": {"block_tokens": 4, "mean_passes": 2.0}},
    "reward-model": {"roles": ("reward",), "samples_per_prompt": 2},
    "irl": {"roles": ("actor", "reward", "reference"), "kl_weight": 0.01},
    "agentic": {"turns": TURNS},
    "deeprec": {"roles": ("actor", "reference", "reward"), "kl_weight": 0.01, "turns": TURNS},
}


def workload_for(name: str, **fields: Any) -> Workload:
    """A workload that suits the algorithm; `fields` override."""
    given = {**SETTINGS[name], **fields}
    roles = given.pop("roles", ("actor",))
    return Workload.model_validate(
        {
            "name": name,
            "algorithm": name,
            "models": dict.fromkeys(roles, SMALL),
            "prompts_per_step": 64,
            "samples_per_prompt": 8,
            "prompt_length": LengthDistribution(mean_tokens=100.0, max_tokens=500),
            "response_length": LengthDistribution(mean_tokens=500.0, max_tokens=2000),
            **given,
        }
    )
