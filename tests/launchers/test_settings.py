"""Typed look-ups of a launcher's settings; nothing written down is dropped in silence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.launchers.settings import Given, KeyList, Settings
from planner.launchers.sources import flag_words, flatten, hydra_value, override
from planner.launchers.verl_files import override_lines

KEYS = KeyList("test 1", {"a.n": 2, "a.m": "${mul:${a.n}, 3}", "b": "${.c}", "c": "x"}, ("open",))


def make(**given_: Any) -> Settings:
    items = [Given(key.replace("__", "."), value, "file") for key, value in given_.items()]
    return Settings(items, KEYS)


def test_the_later_setting_holds_over_the_default() -> None:
    found = Settings([Given("a.n", 4, "one"), Given("a.n", "8", "two")], KEYS)
    assert found.integer("a.n") == 8
    assert found.where("a.n") == "two: a.n"
    assert make().integer("a.n") == 2


def test_references_are_followed() -> None:
    assert make(a__n=5).integer("a.m") == 15
    assert make().text("b") == "x"
    assert make(b="${oc.select:nowhere,7}").integer("b") == 7
    assert make(b="\\${a.n}").text("b") == "${a.n}"


@pytest.mark.parametrize("value", ["${b}", "${env:HOME}", "${mul:x,2}"])
def test_what_cannot_be_followed_is_an_error(value: str) -> None:
    with pytest.raises(InputError, match="file: b"):
        make(b=value).text("b")


@pytest.mark.parametrize("value", ["two", 1.5, True, [1], -1, 2**60])
def test_a_wrong_type_names_file_and_key(value: Any) -> None:
    with pytest.raises(InputError, match=r"file: a\.n"):
        make(a__n=value).integer("a.n")


def test_what_is_not_read_is_listed_with_the_reason() -> None:
    found = make(a__n=1, c="y", a__nn=3, open__x=1)
    found.integer("a.n")
    reasons = {each.key: each.reason for each in found.not_understood()}
    assert set(reasons) == {"c", "a.nn", "open.x"}
    assert "no such key" in reasons["a.nn"]
    assert "a.n" in reasons["a.nn"]
    assert [each.key for each in found.unknown_keys()] == ["a.nn"]
    assert [each.key for each in found.not_understood() if each.unknown] == ["a.nn"]


def test_a_known_key_that_is_not_priced_is_listed_unless_harmless() -> None:
    for value, listed in ((1, []), (5, ["a.n"])):
        found = make(a__n=value)
        found.not_modelled("a.n", "not priced", lambda v: v == 1)
        assert [each.key for each in found.not_understood()] == listed


def test_flatten_keeps_lists_and_empty_mappings() -> None:
    items = flatten({"a": {"b": 1, "c": {}}, "d": [1, 2]}, "f")
    assert {item.key: item.value for item in items} == {"a.b": 1, "a.c": {}, "d": [1, 2]}


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
@settings(deadline=None)
def test_texts_of_overrides_read_back(text: str) -> None:
    if "\n" in text or "\r" in text:
        return
    (line,) = override_lines({"c": text})
    item = override(line, "file")
    assert Settings([item], KEYS).raw("c") == (text if text else "")


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("0.5", 0.5), ("true", True), ("null", None), ("[1,2]", [1, 2]), ("a/b", "a/b")],
)
def test_values_of_overrides(text: str, value: Any) -> None:
    assert hydra_value(text) == value


def test_flags_switches_and_equals() -> None:
    words = ["--a", "1", "--b", "--c=x y", "--d.e", "p", "q", "--f"]
    items = flag_words(words, "s", frozenset({"b"}))
    assert {item.key: item.value for item in items} == {
        "a": "1",
        "b": True,
        "c": "x y",
        "d.e": ["p", "q"],
        "f": True,
    }
