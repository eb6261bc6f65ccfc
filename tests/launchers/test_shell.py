"""Scripts are read, not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.launchers.shell import Unknown, commands


def only(script: str) -> list[str | Unknown]:
    (words,) = commands(script)
    return words


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('run a \'b c\' "d\\"e" f\\ g', ["run", "a", "b c", 'd"e', "f g"]),
        ("run a \\\n  b # comment\n", ["run", "a", "b"]),
        ("X=2\nrun a=$X b=${X}0 c=$((X * 1024 + 1))", ["run", "a=2", "b=20", "c=2049"]),
        ("X=a\nrun '$X' \"$X\"", ["run", "$X", "a"]),
        ("run ${Y:-7}", ["run", "7"]),
        ("ARGS=(--a 1\n  --b 'x y' # note\n)\nrun ${ARGS[@]}", ["run", "--a", "1", "--b", "x y"]),
        ('A=(1)\nA+=(2 3)\nrun "${A[@]}"', ["run", "1", "2", "3"]),
        ("export N=4; run $N", ["run", "4"]),
        ("run a=b\nrun", ["run", "a=b"]),
        ('run "${Y:-{\\}}" z', ["run", "{}", "z"]),
    ],
)
def test_words_of_a_command(script: str, words: list[str]) -> None:
    assert commands(script)[0] == words


@pytest.mark.parametrize(
    "word", ["$(touch x)", "`touch x`", "$UNSET", "${UNSET}", "$1", "$((UNSET + 1))", "${X:?msg}"]
)
def test_what_depends_on_the_machine_is_unknown(word: str) -> None:
    assert only(f"run {word}") == ["run", Unknown(word)]


def test_a_variable_that_branches_set_differently_is_unknown() -> None:
    script = "if [ -n a ]; then\n  X=1\nelse\n  X=2\nfi\nrun $X"
    assert commands(script)[-1] == ["run", Unknown("$X")]


def test_here_documents_are_no_commands() -> None:
    assert commands("cat <<EOF\nrun me\nEOF\nrun you")[-1] == ["run", "you"]
    assert ["run", "me"] not in commands("cat <<EOF\nrun me\nEOF\nrun you")


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "x"
    commands(f'touch {mark}; X=$(touch {mark}); `touch {mark}`; run "$(touch {mark})"')
    assert not mark.exists()


@pytest.mark.parametrize("script", ["'", '"', "$(", "${", "((", "A=(", "<<EOF", "\\", "$"])
def test_unfinished_scripts_are_read_to_the_end(script: str) -> None:
    assert isinstance(commands(script), list)


def test_a_variable_that_doubles_again_and_again_ends_unknown() -> None:
    doubled = "A=xx\n" + "A=$A$A\n" * 60
    assert isinstance(only(f"{doubled}run $A")[1], Unknown)
    array = "A=(x)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 60
    assert isinstance(only(f'{array}run "${{A[@]}}"')[1], Unknown)
    assert only('A=()\nrun "${A[@]}" $((1 + 1))') == ["run", "2"]


@pytest.mark.parametrize("script", ["A=" + "${B:-" * 3000, "A=" + '"$(' * 3000])
def test_nesting_without_end_is_refused(script: str) -> None:
    with pytest.raises(InputError, match="nested too deeply"):
        commands(script)
