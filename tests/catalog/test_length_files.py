"""Files of measured lengths: every form, condensing, and what is refused."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from planner.catalog.lengths import lengths_from_file
from planner.cost.lengths import length_moments
from planner.errors import InputError


def write(folder: Path, text: str) -> Path:
    path = folder / "lengths"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "100\n100\n\n400\n",
        "[100, 100, 400]",
        "[100.0,\n 100,\n 400]",
        '[{"length": 100}, {"length": 100}, {"length": 400}]',
        '{"response_length": 100}\n{"response_length": 100}\n{"response_length": 400}\n',
        '{"tokens": 100, "text": "x"}\n{"tokens": 100}\n400',
        "\ufeff100\r\n100\r\n400\r\n",
    ],
)
def test_every_form_gives_the_same_histogram(tmp_path: Path, text: str) -> None:
    dist = lengths_from_file(write(tmp_path, text))
    assert dist.histogram == ((100, 2.0), (400, 1.0))
    assert (dist.mean_tokens, dist.max_tokens) == (200.0, 400)


def test_a_named_field(tmp_path: Path) -> None:
    path = write(tmp_path, '{"n": 7, "length": 1}\n{"n": 9, "length": 1}\n')
    assert lengths_from_file(path, field="n").histogram == ((7, 1.0), (9, 1.0))
    with pytest.raises(InputError, match=r"line 1 has no length field. Did you mean length"):
        lengths_from_file(path, field="lenght")


def test_equal_lengths_are_fixed(tmp_path: Path) -> None:
    dist = lengths_from_file(write(tmp_path, "50\n50\n"), max_tokens=80)
    assert (dist.kind, dist.mean_tokens, dist.max_tokens) == ("fixed", 50.0, 80)


def test_a_cap_cuts_longer_ones(tmp_path: Path) -> None:
    dist = lengths_from_file(write(tmp_path, "50\n90\n300\n"), max_tokens=100)
    assert dist.histogram == ((50, 1.0), (90, 1.0), (100, 1.0))


def test_many_lengths_are_condensed_without_losing_mean_or_longest(tmp_path: Path) -> None:
    lengths = np.random.default_rng(0).lognormal(7.0, 0.9, 20_000).astype(int) + 1
    dist = lengths_from_file(write(tmp_path, json.dumps(lengths.tolist())))
    assert len(dist.histogram) <= 256
    assert dist.histogram[-1][0] == lengths.max()
    moments = length_moments(dist)
    assert moments.mean == pytest.approx(lengths.mean(), rel=1e-3)
    assert moments.mean_square == pytest.approx((lengths.astype(float) ** 2).mean(), rel=0.002)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no lengths"),
        ("[]", "holds no lengths"),
        ("12\nabc\n", "line 2 is neither a number nor JSON: 'abc'"),
        ("12\n0\n", "line 2 is not a length in tokens, given 0"),
        ("12\n-3\n", "line 2 is not a length"),
        ("12.5\n", "line 1 is not a length"),
        ("NaN\n", "line 1 is not a length"),
        ("1e999\n", "line 1 is not a length"),
        ("true\n", "line 1 is not a length"),
        ('["12"]', "item 0 is not a length"),
        ("[[1, 2]]", "item 0 is not a length"),
        ('{"size": 3}\n', "line 1 has no length field. Known: length"),
        ("[1, 2", "neither a number nor JSON"),
        ("[" * 100_000, "item 0 is not a length"),
        ('[{"tokens":' * 50_000, "item 0 is not a length|neither a number nor JSON"),
        ("9" * 400 + "\n", "line 1 is not a length in tokens, given 9999"),
        ("[1, " + "9" * 400 + "]", "item 1 is not a length in tokens, given 9999"),
        ("9" * 5000 + "\n", "line 1 is neither a number nor JSON"),
        (f"{2**31 + 1}\n", "A length is a whole number from 1 to 2,147,483,648"),
        ("[1 2]", "neither a number nor JSON"),
        ("[1, ]", "item 1 is neither a number nor JSON"),
        ("[1] 2", "what follows the list is neither"),
    ],
)
def test_bad_content_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=message.replace("(", r"\(")) as caught:
        lengths_from_file(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 300


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        lengths_from_file(tmp_path / "nowhere")
    with pytest.raises(InputError, match="this is a folder"):
        lengths_from_file(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(InputError, match="not UTF-8"):
        lengths_from_file(tmp_path / "binary")
    with pytest.raises(InputError, match="not a regular file"):
        lengths_from_file("/dev/zero")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(32 * 2**20 + 1)
    with pytest.raises(InputError, match="larger than 32 MiB"):
        lengths_from_file(tmp_path / "large")


def test_line_separators_inside_text_do_not_split_a_line(tmp_path: Path) -> None:
    path = write(tmp_path, '{"length": 5, "text": "a\u2028b"}\n{"length": 9}\n')
    assert lengths_from_file(path).histogram == ((5, 1.0), (9, 1.0))


def test_a_large_list_is_read_in_little_memory(tmp_path: Path) -> None:
    path = write(tmp_path, "[" + ",".join(["1000", "70000"] * 200_000) + "]")
    tracemalloc.start()
    try:
        dist = lengths_from_file(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert dist.histogram == ((1000, 200_000.0), (70_000, 200_000.0))
    # The file, its text and four bytes a length; a list of the 400,000 numbers would take 16 MB.
    assert peak_bytes < 12e6
