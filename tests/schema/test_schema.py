"""The schema types refuse what they should, and survive a round trip through JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import planner.schema as schema
from planner.schema import (
    Cluster,
    LengthDistribution,
    Mesh,
    ModelSpec,
    MoESpec,
    Schema,
    Strategy,
    Workload,
)

TINY = ModelSpec(
    name="tiny",
    architecture="custom",
    hidden_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    ffn_size=128,
    vocab_size=1000,
    max_position=4096,
)


def workload(**changes: object) -> Workload:
    fields: dict[str, object] = {
        "name": "w",
        "algorithm": "grpo",
        "models": {"actor": TINY},
        "prompts_per_step": 8,
        "samples_per_prompt": 4,
        "prompt_length": LengthDistribution(mean_tokens=10.0, max_tokens=20),
        "response_length": LengthDistribution(mean_tokens=100.0, max_tokens=200),
    }
    return Workload(**(fields | changes))  # type: ignore[arg-type]


SCHEMA_TYPES = [
    value
    for value in vars(schema).values()
    if isinstance(value, type) and issubclass(value, Schema) and value is not Schema
]


def test_there_are_schema_types() -> None:
    assert len(SCHEMA_TYPES) > 20


@pytest.mark.parametrize("each", SCHEMA_TYPES, ids=lambda each: each.__name__)
def test_every_schema_type_describes_all_its_fields(each: type[Schema]) -> None:
    """The JSON schema says what each field means, in the type and in those that it holds."""
    whole = each.model_json_schema()
    for name, part in {each.__name__: whole, **whole.get("$defs", {})}.items():
        assert part["description"], name
        assert part["additionalProperties"] is False
        silent = [
            field for field, values in part["properties"].items() if not values.get("description")
        ]
        assert not silent, f"{name} does not describe {silent}"


def test_extra_fields_are_refused() -> None:
    with pytest.raises(ValidationError, match="extra"):
        ModelSpec.model_validate(TINY.model_dump() | {"hiden_size": 3})


@pytest.mark.parametrize("value", ["64", 64.5, True, None, float("nan"), -1, 0, 2**60])
def test_sizes_take_positive_whole_numbers_only(value: object) -> None:
    with pytest.raises(ValidationError):
        ModelSpec.model_validate(TINY.model_dump() | {"hidden_size": value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_kv_heads": 3}, "multiple of num_kv_heads"),
        ({"attention": "mla"}, "needs the field `mla`"),
        (
            {"moe": MoESpec(num_experts=4, top_k=2, expert_ffn_size=8, first_dense_layers=2)},
            "leaves no MoE layer",
        ),
    ],
)
def test_contradictory_models_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModelSpec(**(TINY.model_dump() | changes))


def test_more_experts_a_token_than_there_are_is_refused() -> None:
    with pytest.raises(ValidationError, match="exceeds num_experts"):
        MoESpec(num_experts=4, top_k=5, expert_ffn_size=8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer_steps": 5}, "not a multiple of optimizer_steps"),
        (
            {"response_length": LengthDistribution(mean_tokens=9000.0, max_tokens=9000)},
            "supports 4096",
        ),
    ],
)
def test_contradictory_workloads_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        workload(**changes)


@pytest.mark.parametrize(
    "fields",
    [
        {"mean_tokens": 30.0, "max_tokens": 20},
        {"mean_tokens": 10.0, "max_tokens": 20, "kind": "histogram"},
        {"mean_tokens": 10.0, "max_tokens": 20, "histogram": ((10, 1.0),)},
        {
            "mean_tokens": 10.0,
            "max_tokens": 20,
            "kind": "histogram",
            "histogram": ((10, 1.0), (5, 1.0)),
        },
        {
            "mean_tokens": 10.0,
            "max_tokens": 20,
            "kind": "histogram",
            "histogram": ((10, 1.0), (25, 1.0)),
        },
    ],
)
def test_contradictory_lengths_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        LengthDistribution(**fields)  # type: ignore[arg-type]


def test_a_cluster_needs_groups() -> None:
    with pytest.raises(ValidationError, match="at least one node group"):
        Cluster(name="none", groups=())


def mesh(first_node: int, nodes: int, first_device: int = 0, devices: int = 8) -> Mesh:
    return Mesh(
        group="g",
        first_node=first_node,
        nodes=nodes,
        first_device=first_device,
        devices_per_node=devices,
    )


@given(st.integers(0, 6), st.integers(1, 4), st.integers(0, 6), st.integers(1, 4))
def test_meshes_overlap_exactly_when_they_share_a_node(a: int, n: int, b: int, m: int) -> None:
    shared = set(range(a, a + n)) & set(range(b, b + m))
    assert mesh(a, n).overlaps(mesh(b, m)) == bool(shared)


def test_slices_of_a_node_overlap_by_devices() -> None:
    assert not mesh(0, 1, 0, 4).overlaps(mesh(0, 1, 4, 4))
    assert mesh(0, 1, 0, 4).overlaps(mesh(0, 1, 2, 4))
    with pytest.raises(ValidationError, match="one node"):
        mesh(0, 2, 4, 4)


def test_types_survive_json() -> None:
    for value in (TINY, workload(), Strategy(tp=2, recompute="full", memory_fraction=0.5)):
        text = value.model_dump_json()
        assert type(value).model_validate_json(text) == value
        assert json.loads(text) == value.model_dump(mode="json")


@pytest.mark.parametrize(
    "changes",
    [
        {"prompts_per_step": 10**9 + 1},
        {"samples_per_prompt": 10**6 + 1},
        {"optimizer_steps": 10**6 + 1},
        {"epochs": 2**52},
        {"max_staleness": 1025},
        {"kl_weight": 1e300},
        {"name": "two\nlines"},
        {"algorithm": "bell\x07"},
    ],
)
def test_workloads_stay_within_bounds(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(changes))):
        workload(**changes)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mean_tokens", 0.99),
        ("mean_tokens", 1e-300),
        ("max_tokens", 2**31 + 1),
        ("sigma", 1e300),
        ("sigma", 0.001),
        ("histogram", ((1, 1e308),)),
        ("histogram", ((1, 1e-308),)),
    ],
)
def test_lengths_stay_within_bounds(field: str, value: object) -> None:
    fields: dict[str, object] = {"mean_tokens": 10.0, "max_tokens": 100, field: value}
    with pytest.raises(ValidationError, match=field):
        LengthDistribution(**fields)  # type: ignore[arg-type]


def test_a_model_of_impossible_size_is_refused() -> None:
    fields = {
        "name": "m",
        "architecture": "custom",
        "hidden_size": 64,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 4,
        "head_dim": 16,
        "ffn_size": 128,
        "vocab_size": 99,
    }
    ModelSpec.model_validate(fields)
    for field in ("hidden_size", "num_heads", "head_dim", "ffn_size", "vocab_size"):
        with pytest.raises(ValidationError, match=field):
            ModelSpec.model_validate(fields | {field: 2**40})
