"""Packaged data is found, YAML is read strictly, wrong input is explained."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from planner.catalog import data
from planner.catalog.data import data_path, did_you_mean, load_yaml, read_text, validate
from planner.errors import InputError
from planner.schema import Cluster, Constant, FrameworkProfile, Schema


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "input.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_packaged_folders_exist() -> None:
    assert data_path("hardware_profiles", "devices").is_dir()
    assert data_path("search_spaces").is_dir()


def test_an_installed_wheel_is_looked_up_inside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "planner" / "_data"
    (inside / "hardware_profiles").mkdir(parents=True)
    monkeypatch.setattr(data, "_ROOTS", (inside, tmp_path))
    assert data_path("hardware_profiles", "x.yaml") == inside / "hardware_profiles" / "x.yaml"


def test_a_checkout_is_looked_up_beside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hardware_profiles").mkdir()
    monkeypatch.setattr(data, "_ROOTS", (tmp_path / "planner" / "_data", tmp_path))
    assert data_path("hardware_profiles") == tmp_path / "hardware_profiles"


def test_exponents_without_a_point_are_numbers_and_dates_stay_text(tmp_path: Path) -> None:
    content = load_yaml(write(tmp_path, "a: 1e9\nb: 2024-01-01\nc: -2.5E-3\nd: 1e\n"))
    assert content == {"a": 1e9, "b": "2024-01-01", "c": -2.5e-3, "d": "1e"}


def test_merge_keys_work(tmp_path: Path) -> None:
    text = "base: &b {x: 1, y: 2}\nother:\n  <<: *b\n  y: 3\n"
    assert load_yaml(write(tmp_path, text))["other"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: not valid YAML: the key 'a' occurs twice"),
        ("outer:\n  a: 1\n  a: 2\n", "line 3"),
        ("a: [1, 2\n", "line 2"),
        ("? [1]\n: 2\n", "a key must be plain text or a number"),
        ("a: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
        ("a: \x01\n", "not valid YAML"),
    ],
)
def test_bad_yaml_names_file_and_line(tmp_path: Path, text: str, part: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_yaml(path)
    assert str(path) in str(caught.value)
    assert part in str(caught.value)


def test_a_missing_file_a_folder_and_a_binary_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_yaml(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="folder"):
        load_yaml(tmp_path)
    binary = tmp_path / "weights.yaml"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InputError, match="not UTF-8"):
        load_yaml(binary)


def test_devices_and_pipes_are_refused_before_they_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(InputError, match="not a regular file"):
            load_yaml(path)
    with pytest.raises(InputError, match="not a path"):
        load_yaml(Path("a\0b"))


def test_large_files_are_refused_with_the_limit(tmp_path: Path) -> None:
    path = write(tmp_path, "a: 1 #" + "x" * 2**20)
    with pytest.raises(InputError, match="larger than 1 MiB"):
        load_yaml(path)
    assert load_yaml(path, limit_bytes=2**21) == {"a": 1}


def test_text_comes_without_byte_order_mark_and_with_plain_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\rc: 3\n")
    assert read_text(path, 100) == "a: 1\nb: 2\nc: 3\n"
    assert read_text(path, 19).endswith("c: 3\n")
    with pytest.raises(InputError, match="here: the file is larger"):
        read_text(path, 18, "here")


def doubled(first: str, item: str, levels: int) -> str:
    lines = [f"a{i}: &a{i} {item.replace('?', f'*a{i - 1}')}\n" for i in range(1, levels)]
    return f"a0: &a0 {first}\n" + "".join(lines)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (doubled("[1, 2]", "[?, ?]", 40), "too many values"),
        (doubled("[1, 2]", "[?, ?]", 2000), "too many values"),
        (doubled("{x: 1}", "{<<: [?, ?]}", 40), "too many values"),
        (f"a: &a {'x' * 900_000}\nb: [{'*a, ' * 20}]\n", "too many values"),
        ("a: &a [*a]\n", "refers to what it stands in"),
        ("a: &a {b: &b [*a], c: *b}\n", "refers to what it stands in"),
        ("a: [" * 100_000, "not valid YAML"),
    ],
)
def test_documents_that_blow_up_are_refused_at_once(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(InputError, match=part):
        load_yaml(write(tmp_path, text))


def test_aliases_that_repeat_a_little_are_fine(tmp_path: Path) -> None:
    text = "a: &a [1, 2]\nb: *a\nc: &c {x: *a}\nd: [*c, *c, *a]\n"
    content = load_yaml(write(tmp_path, text))
    assert content["d"] == [{"x": [1, 2]}, {"x": [1, 2]}, [1, 2]]


CONSTANT = {"value": 1.0, "unit": "s", "meaning": "m", "low": 0.5, "high": 2.0, "source": "x"}
PROFILE = {
    "name": "x",
    "kind": "engine",
    "description": "d",
    "constants": {"a": CONSTANT},
    "relative_error": 0.1,
    "relative_error_source": "s",
}


def test_plain_values_become_strict_types() -> None:
    class Tuples(Schema):
        items: tuple[int, ...]

    assert validate(Tuples, {"items": [1, 2]}, "f").items == (1, 2)
    assert validate(FrameworkProfile, PROFILE, "f").constants["a"] == Constant(**CONSTANT)  # type: ignore[arg-type]


def test_an_unknown_field_deep_inside_gets_a_suggestion() -> None:
    wrong = {**PROFILE, "constants": {"a": {**CONSTANT, "meanin": "m"}}}
    with pytest.raises(InputError) as caught:
        validate(FrameworkProfile, wrong, "engine.yaml")
    assert caught.value.where == "engine.yaml: constants.a.meanin"
    assert caught.value.remedy == "Did you mean meaning?"


def test_every_wrong_field_is_named_with_what_was_given() -> None:
    wrong = {"name": "c", "groups": [{"nodes": "3"}]}
    with pytest.raises(InputError) as caught:
        validate(Cluster, wrong, "c.yaml")
    text = str(caught.value)
    assert "c.yaml: groups[0].name: missing field" in text
    assert 'groups[0].nodes: should be a valid integer, given "3"' in text


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (float("nan"), "must be a finite number, given nan"),
        (float("-inf"), "must be a finite number, given -inf"),
        ({1, 2}, "given a set"),
        ([1.0, object()], "given a object"),
    ],
)
def test_values_outside_json_are_refused_by_field(value: object, part: str) -> None:
    constants = {"a": {**CONSTANT, "low": value}}
    with pytest.raises(InputError, match=part) as caught:
        validate(FrameworkProfile, {**PROFILE, "constants": constants}, "f.yaml")
    assert str(caught.value).startswith("f.yaml: constants.a.low")


def test_control_characters_in_a_name_are_refused_by_field() -> None:
    for bad in ("a\nb", "tab\t", "nul\0", "esc\x1b[31m", "c1\x85", "line\u2028"):
        with pytest.raises(InputError, match=r"f\.yaml: name: holds a control character"):
            validate(FrameworkProfile, {**PROFILE, "name": bad}, "f.yaml")
    assert validate(FrameworkProfile, {**PROFILE, "name": "Größe ×2 模型"}, "f").name


def test_suggestions_fall_back_to_the_whole_list() -> None:
    assert did_you_mean("h10", ["h100", "a100", "zebra"]).startswith("Did you mean h100")
    assert did_you_mean("qqqq", ["b", "a"]) == "Known: a, b."
    assert did_you_mean("x", []) == "None is known."
