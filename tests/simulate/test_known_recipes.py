"""Configurations that ran are predicted to fit."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.catalog.hardware import parse_cluster
from planner.catalog.models import load_model
from planner.schema import Assignment, LengthDistribution, Mesh, Prediction, Strategy, Workload
from planner.simulate.evaluate import evaluate

CASES = Path(__file__).parents[1] / "cases"
RECIPES: list[dict[str, Any]] = yaml.safe_load((CASES / "recipes.yaml").read_text())


def workload_of(recipe: dict[str, Any]) -> Workload:
    model = load_model(recipe["model"])
    prompts, samples, steps = recipe["batch"]
    prompt, response = recipe["lengths"]
    return Workload(
        name=recipe["id"],
        algorithm="grpo",
        models={"actor": model},
        prompts_per_step=prompts,
        samples_per_prompt=samples,
        prompt_length=LengthDistribution(mean_tokens=prompt / 4, max_tokens=prompt),
        response_length=LengthDistribution(mean_tokens=response / 4, max_tokens=response),
        optimizer_steps=steps,
    )


def predict(recipe: dict[str, Any]) -> Prediction:
    cluster = parse_cluster(recipe["cluster"])
    group = cluster.groups[0]
    split = recipe.get("split_nodes", 0)
    per_node = group.devices_per_node
    trainer = Mesh(
        group=group.name, first_node=0, nodes=split or group.nodes, devices_per_node=per_node
    )
    engine = Mesh(
        group=group.name, first_node=split, nodes=group.nodes - split, devices_per_node=per_node
    )
    train = with_dp(recipe["train"], trainer)
    forward = train.model_copy(update={"recompute": "none"})
    return evaluate(
        Assignment(
            meshes={"generate": engine, "old_logprobs": trainer, "actor_train": trainer},
            strategies={
                "generate": with_dp(recipe["generate"], engine),
                "old_logprobs": forward,
                "actor_train": train,
            },
            framework=recipe["framework"],
            engine=recipe["engine"],
            space=recipe["space"],
            staleness=1 if split else 0,
        ),
        workload_of(recipe),
        cluster,
    )


def with_dp(fields: dict[str, Any], mesh: Mesh) -> Strategy:
    strategy = Strategy(**fields)
    return strategy.model_copy(update={"dp": mesh.devices // strategy.devices})


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["id"])
def test_a_configuration_that_ran_fits(recipe: dict[str, Any]) -> None:
    prediction = predict(recipe)
    verdicts = {
        name: (call.memory_verdict, call.memory_bytes) for name, call in prediction.calls.items()
    }
    assert prediction.fits, verdicts
