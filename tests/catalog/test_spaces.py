"""Search spaces: they load, their rules compile, none is vacuous, each has its source."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import yaml

from planner.catalog.data import data_path
from planner.catalog.frameworks import list_frameworks
from planner.catalog.hardware import parse_cluster
from planner.catalog.spaces import list_spaces, load_space
from planner.cost.arrays import StrategyArrays
from planner.cost.rule_values import RULE_NAMES, call_values, strategy_values
from planner.cost.rules import compile_rule_list, compile_rules
from planner.errors import InputError
from planner.schema import Call, LengthDistribution, ModelSpec, MoESpec, Rule, Workload
from planner.search.physical_rules import PHYSICAL_RULES

SPACES = list_spaces()
DOCS = Path(__file__).parents[2] / "docs" / "search-spaces.md"


def test_shipped_spaces_are_listed_in_order() -> None:
    assert sorted(SPACES) == SPACES
    assert {"any", "nemo-rl-megatron", "verl-fsdp", "verl-megatron"} <= set(SPACES)


@pytest.mark.parametrize("name", SPACES)
def test_space_loads_and_its_rules_compile(name: str) -> None:
    space = load_space(name)
    assert space.name == name
    assert {"train", "forward", "generate"} == set(space.calls)
    assert len(compile_rules(space)) == len(space.rules) > 0
    assert space.framework in list_frameworks()
    assert space.engine in list_frameworks()
    assert (space.launcher is None) == (name in ("any", "frontier", "relayout"))


@pytest.mark.parametrize("name", SPACES)
def test_calls_of_a_unit_can_share_a_layout(name: str) -> None:
    calls = load_space(name).calls
    for field in (
        *("tp", "pp", "vpp", "cp", "ulysses", "ep", "etp", "zero_stage", "shard_ranks"),
        *("pipeline_schedule", "packing", "offload"),
    ):
        missing = set(getattr(calls["train"], field)) - set(getattr(calls["forward"], field))
        assert not missing, f"forward calls lack {field} {missing}"
    assert calls["train"].uneven_stages == calls["forward"].uneven_stages
    assert calls["train"].optimizer_on_cpu == calls["forward"].optimizer_on_cpu


RULES = [("built-in", rule) for rule in PHYSICAL_RULES] + [
    (name, rule) for name in SPACES for rule in load_space(name).rules
]


@pytest.mark.parametrize(("space", "rule"), RULES, ids=lambda part: getattr(part, "id", part))
def test_every_rule_accepts_some_strategies_and_refuses_others(space: str, rule: Rule) -> None:
    (compiled,) = compile_rule_list((rule,), space)
    strategies = _random_strategies(2_000)
    seen: set[bool] = set()
    for kind, values in _contexts():
        if kind in rule.calls:
            mask = compiled.check.mask(values | strategy_values(strategies), len(strategies))
            seen |= set(mask.tolist())
            if not mask.all():
                text = compiled.message(values | strategy_values(strategies), int(np.argmin(mask)))
                assert rule.remedy.rstrip(".") in text
                assert rule.source in text
    assert seen == {True, False}


def test_a_space_can_be_given_as_a_file(tmp_path: Path) -> None:
    source = data_path("search_spaces", "verl-fsdp.yaml")
    copy = tmp_path / "mine.yaml"
    copy.write_text(source.read_text().replace("name: verl-fsdp", "name: mine", 1))
    assert load_space(str(copy)).name == "mine"


def test_unknown_space_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="nemo-rl-megatron"):
        load_space("nemo-rl")


def test_unknown_fields_and_repeated_rules_are_refused(tmp_path: Path) -> None:
    content = yaml.safe_load(data_path("search_spaces", "any.yaml").read_text())
    path = tmp_path / "broken.yaml"
    path.write_text(yaml.safe_dump(content | {"max_stalness": 3}))
    with pytest.raises(InputError, match="max_staleness"):
        load_space(str(path))
    path.write_text(yaml.safe_dump(content | {"rules": content["rules"][:1] * 2}))
    with pytest.raises(InputError, match="repeat"):
        load_space(str(path))
    with pytest.raises(InputError, match="no such file"):
        load_space(str(tmp_path / "absent.yaml"))


def test_the_page_explains_every_name_that_rules_can_use() -> None:
    text = DOCS.read_text()
    assert [name for name in RULE_NAMES if f"`{name}`" not in text] == []


def _random_strategies(n: int) -> StrategyArrays:
    random = np.random.default_rng(0)
    powers = [1, 2, 3, 4, 8, 12, 16, 32]
    columns = {
        name: random.choice(powers, n) for name in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")
    }
    columns |= {
        "ulysses": random.choice([1, 2, 4], n),
        "shard_ranks": random.choice([0, 2, 4], n),
        "pipeline_schedule": random.integers(0, 4, n),
        "zero_stage": random.integers(0, 4, n),
        "sequence_parallel": random.random(n) < 0.5,
        "packing": random.random(n) < 0.5,
        "optimizer_on_cpu": random.random(n) < 0.5,
        "micro_batch_sequences": random.choice([1, 2, 3, 64], n),
        "max_running_sequences": random.choice([8, 1024, 2048], n),
        "recompute": random.integers(0, 3, n),
        "offload": random.integers(0, 3, n),
        "first_stage_layers": random.integers(0, 4, n),
        "last_stage_layers": random.integers(0, 4, n),
        "dtype": random.integers(0, 2, n),
    }
    return StrategyArrays.from_columns(columns, n)


def _contexts() -> list[tuple[str, dict[str, object]]]:
    """Calls of a small model, dense and MoE, in both placements, with and without a critic.

    Stale samples bring their old log-probs from the engine.
    """
    group = parse_cluster("h100:4x8").groups[0]
    found = []
    for moe, critic, staleness, steps, placement in itertools.product(
        (False, True), (False, True), (0, 2), (1, 3, 4), ("colocated", "disaggregated")
    ):
        model = ModelSpec(
            name="m",
            architecture="custom",
            hidden_size=64,
            num_layers=12,
            num_heads=12,
            num_kv_heads=6,
            head_dim=8,
            ffn_size=40,
            vocab_size=256,
            mlp_bias=moe,
            moe=MoESpec(num_experts=8, top_k=2, expert_ffn_size=24) if moe else None,
        )
        models = {"actor": model, "reward": model} | ({"critic": model} if critic else {})
        workload = Workload(
            name="w",
            algorithm="ppo",
            models=models,
            prompts_per_step=6,
            samples_per_prompt=4,
            prompt_length=LengthDistribution(kind="fixed", mean_tokens=4, max_tokens=4),
            response_length=LengthDistribution(kind="fixed", mean_tokens=6, max_tokens=6),
            optimizer_steps=steps,
            old_logprobs="engine" if staleness else "recompute",
        )
        for role in ("actor", "critic", "reward"):
            for kind in ("train", "forward", "generate"):
                call = Call(
                    name="c",
                    kind=kind,  # type: ignore[arg-type]
                    role=role,
                    sequences=24,
                    output="loss",
                    optimizer_steps=steps if kind == "train" else 0,
                )
                values = call_values(
                    call,
                    model,
                    workload,
                    group,
                    placement=placement,  # type: ignore[arg-type]
                    staleness=staleness,
                )
                found.append((kind, values))
    return found
