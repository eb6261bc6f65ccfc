"""A set of files is written whole or not at all, and errors name the user's paths."""

from pathlib import Path

import pytest

from planner.cli.files import output_folder, write_files
from planner.errors import InputError


def test_files_are_written_below_the_folder_and_scripts_run(tmp_path: Path) -> None:
    paths = write_files(tmp_path / "x" / "out", {"a": "1\n", "b/run.sh": "#!/bin/sh\n"})
    assert [path.read_text() for path in paths] == ["1\n", "#!/bin/sh\n"]
    assert paths[1].stat().st_mode & 0o100
    assert not paths[0].stat().st_mode & 0o100
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "out", "run.sh", "x"]
    write_files(tmp_path / "x" / "out", {"a": "2\n"})
    assert paths[0].read_text() == "2\n"


def test_a_set_of_files_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    real = Path.write_text

    def full_disk(path: Path, *arguments: str, **options: str) -> int:
        if len(written) == 1:
            raise OSError(28, "No space left on device")
        written.append(path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(InputError, match=rf"^{tmp_path}/out/b/c: cannot be written: No space left"):
        write_files(tmp_path / "out", {"a": "1", "b/c": "2"})
    assert not list(tmp_path.iterdir())


def test_file_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leaves the output folder"):
        write_files(tmp_path / "out", {"../evil": "1"})
    assert not list(tmp_path.iterdir())


def test_no_file_is_replaced_when_one_target_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match=rf"^{tmp_path}/b: is a folder where .*--output"):
        write_files(tmp_path, {"a": "new", "b": "new"})
    assert (tmp_path / "a").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_no_file_is_replaced_when_a_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").write_text("old")
    with pytest.raises(InputError, match=rf"^{tmp_path}/b: is a file where a folder"):
        write_files(tmp_path, {"a": "new", "b/c": "new"})
    assert (tmp_path / "a").read_text() == "old"


def test_an_output_that_is_a_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(InputError) as caught:
        write_files(tmp_path / "file", {"a": "1"})
    assert str(caught.value) == f"--output {tmp_path / 'file'}: is a file. Give a folder."
    with pytest.raises(InputError, match=f"{tmp_path}/file is a file"):
        write_files(tmp_path / "file" / "deep" / "out", {"a": "1"})
    assert (tmp_path / "file").read_text() == "old"


def test_folders_that_were_there_stay_when_writing_fails(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="cannot be written: File name too long") as caught:
        write_files(tmp_path / "mine" / "new", {"a": "1", "b" * 300: "1"})
    assert ".tmp" not in str(caught.value)
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_a_rename_that_fails_leaves_no_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.replace

    def refuse_second(path: Path, target: Path) -> Path:
        if target.name == "b":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, target)

    monkeypatch.setattr(Path, "replace", refuse_second)
    with pytest.raises(InputError, match=rf"^{tmp_path}/out/b: cannot be written: Perm") as caught:
        write_files(tmp_path / "out", {"a": "1", "b": "2"})
    assert ".tmp" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_names_nearly_too_long_for_the_disk_are_written(tmp_path: Path) -> None:
    assert write_files(tmp_path, {"n" * 255: "1"})[0].read_text() == "1"


@pytest.mark.parametrize("name", ["", " ", "."])
def test_a_name_that_is_the_folder_itself_is_refused(tmp_path: Path, name: str) -> None:
    if name.strip() != ".":
        with pytest.raises(InputError, match="--output: the name is empty"):
            output_folder(name)
    if name != " ":
        with pytest.raises(ValueError, match="leaves"):
            write_files(tmp_path / "out", {name: "1"})
    assert output_folder("out") == Path("out")
