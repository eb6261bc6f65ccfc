"""Model architectures: read from any config.json, found by name, refused with a reason."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog import models
from planner.catalog.models import (
    catalogue,
    known_architectures,
    list_models,
    load_model,
    read_config,
)
from planner.errors import InputError
from planner.schema import ModelSpec

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
CONFIGS = {str(e.config["model_type"]): dict(e.config) for e in catalogue()}


def read(config: dict[str, Any], **changes: Any) -> ModelSpec:
    return read_config({**config, **changes}, "m", "config.json")


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-such-cache"))


# The catalogue ------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", catalogue(), ids=lambda e: e.id)
def test_every_entry_loads_and_keeps_what_was_published(entry: models.CatalogueEntry) -> None:
    spec = load_model(entry.id)
    assert spec.name == entry.id
    assert spec.published_total_parameters == entry.published_total
    assert spec.max_position == entry.max_position >= entry.config["max_position_embeddings"]
    assert spec.source
    assert ModelSpec.model_validate_json(spec.model_dump_json()) == spec


def test_no_name_stands_for_two_models() -> None:
    names = [n.lower() for e in catalogue() for n in (e.id, *e.variants, *e.aliases)]
    assert len(names) == len(set(names))
    shorts = [n.rpartition("/")[2].lower() for e in catalogue() for n in (e.id, *e.variants)]
    assert len(shorts) == len(set(shorts)) + len(_same_model_two_publishers())


def _same_model_two_publishers() -> list[str]:
    """The renamed organisation THUDM / zai-org publishes some models under both names."""
    return [v for e in catalogue() for v in e.variants if v.startswith("THUDM/")]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.1-70B"),
        ("qwen/qwen3-32b", "Qwen/Qwen3-32B"),
        ("Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B"),
        ("DEEPSEEK-V3", "deepseek-ai/DeepSeek-V3"),
        ("deepseek-r1", "deepseek-ai/DeepSeek-R1"),
        ("Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("Llama-2-7B", "meta-llama/Llama-2-7b-hf"),
        ("Llama-3-70B", "meta-llama/Meta-Llama-3-70B"),
    ],
)
def test_names_are_found_in_any_case_and_keep_their_own_id(given: str, name: str) -> None:
    assert load_model(given).name == name


def test_a_variant_has_the_shape_of_its_entry() -> None:
    base, tuned = load_model("Qwen/Qwen2.5-7B"), load_model("Qwen/Qwen2.5-7B-Instruct")
    assert tuned == base.model_copy(update={"name": tuned.name})


def test_documented_rotary_scaling_extends_the_catalogued_length() -> None:
    assert load_model("Qwen/Qwen3-32B").max_position == 131072
    assert load_model("Llama-3-8B").max_position == 8192


def test_list_models_names_every_entry_with_published_counts() -> None:
    listed = {m.name: m for m in list_models()}
    assert len(listed) == len(catalogue()) >= 70
    moe = listed["Qwen/Qwen3-30B-A3B"]
    assert (moe.architecture, moe.total_parameters, moe.active_parameters) == (
        "qwen3_moe",
        30.5e9,
        3.3e9,
    )
    assert listed["Qwen/Qwen3-32B"].active_parameters == 32.76e9


def test_reading_the_whole_catalogue_is_fast() -> None:
    def seconds() -> float:
        catalogue.cache_clear()
        models._index.cache_clear()
        start = time.perf_counter()
        load_model("Qwen/Qwen3-32B")
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.02


# Reading a config.json ----------------------------------------------------------------------


def test_what_a_config_omits_takes_the_value_transformers_would_take() -> None:
    minimal = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
    spec = read(minimal)
    assert (spec.num_kv_heads, spec.head_dim, spec.tie_embeddings) == (32, 128, False)
    assert read(LLAMA, num_key_value_heads=None).num_kv_heads == 32
    assert read(minimal, model_type="mistral").num_kv_heads == 8
    assert read(minimal, model_type="mistral").window is not None
    assert read(minimal, model_type="mistral", sliding_window=None).window is None
    gemma = {**LLAMA, "model_type": "gemma2"}
    assert read(gemma).tie_embeddings
    assert read(gemma).head_dim == 256


def test_biases_follow_the_architecture() -> None:
    llama = read(LLAMA, attention_bias=True, mlp_bias=True)
    assert (llama.qkv_bias, llama.output_bias, llama.mlp_bias) == (True, True, True)
    qwen = read(LLAMA, model_type="qwen2", attention_bias=False)
    assert (qwen.qkv_bias, qwen.output_bias) == (True, False)
    glm = read(CONFIGS["glm4_moe"])
    assert (glm.qkv_bias, glm.output_bias, glm.qk_norm) == (True, False, "head")


def test_rotary_scaling_in_the_config_stretches_the_length() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    qwen = {**LLAMA, "model_type": "qwen2", "max_position_embeddings": 32768}
    assert read(qwen, rope_scaling=yarn).max_position == 131072
    assert read(qwen, rope_parameters=yarn).max_position == 131072
    assert read(qwen, rope_scaling={"type": "linear", "factor": 2}).max_position == 65536
    deepseek = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}
    assert read(CONFIGS["deepseek_v3"], rope_scaling=deepseek).max_position == 163840
    llama3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    assert read(LLAMA, rope_scaling=llama3).max_position == 131072
    gemma = {"rope_type": "linear", "factor": 8.0}
    assert read(CONFIGS["gemma3_text"], rope_scaling=gemma).max_position == 131072


def test_windows_come_from_layer_types_or_from_the_architecture() -> None:
    def every(spec: ModelSpec) -> int | None:
        return spec.window.full_attention_every if spec.window else None

    assert every(read(CONFIGS["gpt_oss"])) == 2
    assert every(read(CONFIGS["gemma3_text"])) == 6
    assert every(read(CONFIGS["olmo3"])) == 4
    kinds = ["sliding_attention", "sliding_attention", "full_attention"]
    gemma = {**CONFIGS["gemma2"], "num_hidden_layers": 9}
    assert every(read(gemma, layer_types=kinds * 3)) == 3
    assert every(read(gemma, layer_types=["full_attention"] * 9)) is None
    qwen = {**LLAMA, "model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 32}
    assert every(read(qwen, use_sliding_window=True)) is None
    assert every(read(qwen, use_sliding_window=True, max_window_layers=0)) == 0


def test_dense_layers_among_experts() -> None:
    qwen = {**CONFIGS["qwen3_moe"], "num_hidden_layers": 8}
    spec = read(qwen, mlp_only_layers=[0, 1])
    assert spec.moe is not None
    assert (spec.moe.first_dense_layers, spec.moe.layer_interval) == (2, 1)
    stepped = read(qwen, decoder_sparse_step=2).moe
    assert stepped is not None
    assert stepped.layer_interval == 2
    with pytest.raises(InputError, match="no regular pattern"):
        read(qwen, mlp_only_layers=[0, 3])
    with pytest.raises(InputError, match="no layer has experts"):
        read(qwen, mlp_only_layers=list(range(8)))


def test_the_language_model_of_a_multimodal_gemma_is_read() -> None:
    """The published 4B config leaves out what equals Gemma3TextConfig's defaults."""
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    text |= {"model_type": "gemma3_text", "sliding_window": 1024}
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {}}
    spec = read_config(config, "m", "config.json")
    listed = load_model("google/gemma-3-4b-pt")
    same = {"name", "architecture", "source", "published_total_parameters"}
    assert spec.model_dump(exclude=same) == listed.model_dump(exclude=same)


def test_quantization_does_not_change_the_shape() -> None:
    plain, quantized = read(LLAMA), read(LLAMA, quantization_config={"quant_method": "fp8"})
    assert plain == quantized


# Where a model is looked for ----------------------------------------------------------------


def write(folder: Path, name: str, content: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_folder_and_its_config_are_the_same_model(tmp_path: Path) -> None:
    path = write(tmp_path / "ckpt", "config.json", LLAMA)
    assert load_model(path.parent) == load_model(path) == load_model(str(path))
    assert load_model(path).name == str(path.parent)


def test_the_working_folder_is_named_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(tmp_path / "ckpt", "config.json", LLAMA).parent)
    assert load_model(".").name == load_model("config.json").name == "ckpt"


def test_a_model_spec_by_hand_in_yaml_or_json(tmp_path: Path) -> None:
    fields = {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2}
    fields |= {"head_dim": 16, "ffn_size": 128, "vocab_size": 1000}
    text = "\n".join(f"{k}: {v}" for k, v in fields.items())
    from_yaml = load_model(write(tmp_path, "mine.yaml", text))
    from_json = load_model(write(tmp_path, "mine.json", fields))
    assert (from_yaml.name, from_yaml.architecture) == ("mine", "custom")
    assert from_yaml == from_json.model_copy(update={"source": from_yaml.source})
    with pytest.raises(InputError, match=r"num_layer: unknown field. Did you mean num_layers"):
        load_model(write(tmp_path, "typo.json", {**fields, "num_layer": 2}))


def test_the_local_hugging_face_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = tmp_path / "hub" / "models--acme--rocket-7B"
    write(repo / "snapshots" / "aaa", "config.json", {**LLAMA, "num_hidden_layers": 10})
    write(repo / "snapshots" / "bbb", "config.json", {**LLAMA, "num_hidden_layers": 20})
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    write(repo / "refs", "main", "aaa")
    spec = load_model("acme/rocket-7B")
    assert (spec.name, spec.num_layers) == ("acme/rocket-7B", 10)
    assert load_model(repo / "snapshots" / "bbb").name == "acme/rocket-7B"
    (repo / "refs" / "main").unlink()
    assert load_model("acme/rocket-7B").num_layers in (10, 20)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    with pytest.raises(InputError, match="unknown model"):
        load_model("acme/rocket-7B")


# Refusals -----------------------------------------------------------------------------------


def message(config: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_config(config, "m", "config.json")
    return str(caught.value)


def test_an_unknown_architecture_lists_the_known_and_the_way_by_hand() -> None:
    text = message({**LLAMA, "model_type": "lama"})
    assert text.startswith("config.json: model_type: unknown architecture 'lama'")
    assert "Did you mean llama" in text
    assert all(name in text for name in known_architectures())
    assert "ModelSpec file" in text


def test_an_unknown_wrapper_of_a_known_model_says_so() -> None:
    inner = {**CONFIGS["kimi_k2"]}
    assert '"kimi_k2"' in message({"model_type": "kimi_k25", "text_config": inner})


@pytest.mark.parametrize("model_type", sorted(CONFIGS))
def test_every_missing_size_is_named(model_type: str) -> None:
    for field in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        config = {k: v for k, v in CONFIGS[model_type].items() if k != field}
        assert f"missing field `{field}`" in message(config)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", -1),
        ("hidden_size", 0),
        ("hidden_size", "4096"),
        ("hidden_size", 4096.0),
        ("hidden_size", True),
        ("hidden_size", [4096]),
        ("vocab_size", float("nan")),
        ("num_hidden_layers", 10**9),
        pytest.param("num_hidden_layers", 10**5000, id="thousands of digits"),
        ("tie_word_embeddings", "yes"),
        ("rope_scaling", 3),
        ("layer_types", {"a": 1}),
    ],
)
def test_an_implausible_value_is_named(field: str, value: Any) -> None:
    assert f"config.json: {field}: must be" in message(
        {**LLAMA, "model_type": "mistral", field: value}
    )


def test_inconsistent_heads_are_refused() -> None:
    assert "num_heads 32 is not a multiple of num_kv_heads 5" in message(
        {**LLAMA, "num_key_value_heads": 5}
    )
    assert "head_dim" in message({**LLAMA, "num_attention_heads": 24})


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("Qwen/Qwen3-33B", "Did you mean Qwen/Qwen3-32B"),
        ("llama3.1-8b", r"Did you mean .*meta-llama/Llama-3.1-8B"),
        ("acme/nothing-like-it", "rlmplan models list"),
        ("", "no model is named"),
        ("nowhere.yaml", "no such file"),
        ("../../no/such/place", "unknown model"),
    ],
)
def test_a_name_that_is_not_found_says_what_to_do(reference: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        load_model(reference)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "{"),
        pytest.param("config.json", "[" * 100_000, id="deep"),
        ("config.json", "[1, 2]"),
        pytest.param("config.json", '{"vocab_size": 1' + "0" * 5000 + "}", id="long"),
        ("config.json", '"text"'),
        ("spec.yaml", "a: [1"),
        ("spec.yaml", "- 1"),
    ],
)
def test_a_broken_file_is_an_input_error(tmp_path: Path, name: str, content: str) -> None:
    with pytest.raises(InputError, match=name):
        load_model(write(tmp_path, name, content))


def test_a_folder_without_config_and_a_binary_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        load_model(tmp_path)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["sliding_attention", "full_attention", "yarn", 2**53, 2**64, -1, 0, 1]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.sampled_from(["rope_type", "factor"]), inner)
    ),
    max_leaves=8,
)
_OPTIONAL = ["rope_scaling", "rope_parameters", "layer_types", "mlp_only_layers", "text_config"]
_OPTIONAL += ["num_nextn_predict_layers", "attention_bias", "sliding_window", "use_sliding_window"]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_damaged_config_is_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    config = dict(CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))])
    fields = st.sampled_from(sorted(set(config) | set(_OPTIONAL)))
    config.update(data.draw(st.dictionaries(fields, json_values, min_size=1, max_size=3)))
    for field in data.draw(st.lists(fields, max_size=1)):
        config.pop(field, None)
    try:
        spec = read_config(config, "m", "config.json")
    except InputError:
        return
    assert ModelSpec.model_validate_json(spec.model_dump_json()) == spec


@settings(max_examples=100, deadline=None)
@given(json_values)
def test_no_json_document_breaks_the_reader(document: Any) -> None:
    with pytest.raises(InputError):
        read_config(document, "m", "config.json")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_no_name_breaks_the_search(name: str) -> None:
    try:
        load_model(name)
    except InputError:
        return
    assert name.lower() in models._index()


# The documentation --------------------------------------------------------------------------

GUIDE = (Path(__file__).parents[2] / "docs" / "adding-a-model.md").read_text()


def test_the_guide_lists_the_known_architectures() -> None:
    listed = re.search(r"Known `model_type`s: (.*)\.\n", GUIDE)
    assert listed is not None
    assert sorted(re.findall(r"`(\w+)`", listed.group(1))) == known_architectures()


def test_the_guides_model_by_hand_loads(tmp_path: Path) -> None:
    block = re.search(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    assert block is not None
    spec = load_model(write(tmp_path, "my-model.yaml", block.group(1)))
    assert spec.moe is not None
    assert spec.moe.num_experts == 64


def test_pipes_and_devices_are_refused_unread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for path in (str(tmp_path / "pipe.json"), "/dev/zero"):
        with pytest.raises(InputError, match=f"{path}: not a regular file"):
            load_model(path)


def test_a_large_file_is_no_config(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("[" + " " * 2**20 + "]")
    with pytest.raises(InputError, match="larger than 1 MiB"):
        load_model(path)


def test_a_name_with_control_characters_is_refused_by_field(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"name": "a\nb"}))
    with pytest.raises(InputError, match=r"name: holds a control character"):
        load_model(path)
