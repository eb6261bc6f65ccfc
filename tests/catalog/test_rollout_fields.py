"""The keys of a problem file for sampling, turns, blocks, drafts and replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.catalog.workloads import load_problem
from planner.errors import InputError
from planner.schema import Workload

BASE = """
algorithm: dapo
models: {actor: Qwen/Qwen2.5-0.5B}
cluster: h100:1x2
response: {mean: 100, max: 400}
"""


def read(folder: Path, text: str) -> Workload:
    path = folder / "problem.yaml"
    path.write_text(BASE + text)
    return load_problem(path).workload


def test_every_key_reaches_the_workload(tmp_path: Path) -> None:
    workload = read(
        tmp_path,
        "batch: {prompts: 16, samples: 4, acceptance: 0.5, oversampling: 2, max_rounds: 3, "
        "kept_fraction: 0.25, token_budget: 1000, replay: {actor: 64}, critic_epochs: 2}\n"
        "turns: {mean: 3, observation_tokens: 20, prefix_cache_hit: 0.5, "
        "environment: {latency_s: 1, workers: 8, latency_sigma: 0.5}}\n"
        "speculation: {draft_tokens: 3, acceptance: 0.8}\n"
        "lora_rank: 16\n",
    )
    assert (workload.acceptance, workload.oversampling, workload.max_rounds) == (0.5, 2.0, 3)
    assert (workload.kept_fraction, workload.token_budget) == (0.25, 1000)
    assert workload.replay_sequences == {"actor": 64}
    assert workload.critic_epochs == 2
    assert workload.turns.environment.latency_sigma == 0.5
    assert workload.turns.prefix_cache_hit == 0.5
    assert workload.speculation is not None
    assert workload.speculation.draft_cost == 0.05
    assert workload.lora_rank == 16
    blocks = read(
        tmp_path,
        "batch: {prompts: 16, samples: 4}\nblock_diffusion: {block_tokens: 4, mean_passes: 2}\n",
    )
    assert blocks.training_views == 2.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch: {prompts: 16, samples: 4, acceptance: 0}", "batch.acceptance: should be greater"),
        ("batch: {prompts: 16, samples: 4, oversampling: 0.5}", "batch.oversampling: should be"),
        ("batch: {prompts: 16, samples: 4, kept_fraction: .nan}", "batch.kept_fraction: must be"),
        ("batch: {prompts: 16, samples: 4, replay: {critic: 5}}", "roles without a model"),
        ("batch: {prompts: 16, samples: 4}\nturns: {mean: 0.5}", "turns.mean: should be greater"),
        (
            "batch: {prompts: 16, samples: 4}\nturns: {mean: 5, observation_tokens: 9000}",
            "answers of the environment may reach 144912 tokens",
        ),
        (
            "batch: {prompts: 16, samples: 4}\nblock_diffusion: {block: 4}",
            "Did you mean block_tokens",
        ),
        (
            "batch: {prompts: 16, samples: 4}\nspeculation: {draft_tokens: 3, acceptance: 1.0}",
            "speculation.acceptance: should be less than 1",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert expected in str(error.value)
