"""Writing files so that a reader never sees half of one, or of a set."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from planner.errors import InputError

_OTHER_FOLDER = "Give another folder with --output."


def output_folder(text: str | Path) -> Path:
    """The folder that ``--output`` names, which need not exist.

    InputError, before any work is done, for an empty name (which would mean ".") and where a file
    stands in the way.
    """
    if not os.fspath(text).strip():
        raise InputError("the name is empty", where="--output", remedy="Give a folder's name.")
    folder = Path(text)
    _check(folder, [])
    return folder


def named_file(path: Path | None, option: str, *others: Path | None) -> None:
    """Raise InputError for an option that names no file to write, before the work that it costs.

    `others` are files of the same command that it must not replace: what it reads and writes.
    """
    if path is None:
        return
    if path.name in ("", ".."):
        raise InputError("names no file", where=option, remedy="Give a file's name.")
    for other in others:
        if other is not None and path.resolve() == other.resolve():
            raise InputError(
                "would replace another file of this command",
                where=f"{option} {path}",
                remedy="Give another file.",
            )


def write_file(path: Path, content: str, option: str) -> None:
    """Write one file; InputError naming the option when it cannot be written."""
    try:
        write_files(path.parent, {path.name: content})
    except InputError as error:
        where = f"{option} {path}"
        raise InputError(error.message, where=where, remedy="Give another file.") from None


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write a set of files below `folder`: all to temporary names first, then renamed.

    Scripts (content that starts with "#!") become executable. Raises ValueError for a name that
    leaves the folder, InputError naming the user's path when something cannot be written. Every
    target is checked before the first is touched; after an error no file and no folder is left
    behind that was not there before (a disk that fails between two renames may leave some of the
    files that were there replaced).
    """
    paths = [folder / name for name in files]
    _check(folder, paths)
    # Short names of their own: a long name with a suffix could exceed what the disk allows.
    temporary = [path.with_name(f".{os.getpid()}-{i}.tmp") for i, path in enumerate(paths)]
    fresh = [path for path in paths if not path.exists()]
    made: list[Path] = []
    current = folder
    try:
        for path, draft, content in zip(paths, temporary, files.values(), strict=True):
            current = path
            _make_folder(path.parent, made)
            if isinstance(content, bytes):
                draft.write_bytes(content)
                continue
            draft.write_text(content, encoding="utf-8", newline="\n")
            if content.startswith("#!"):
                draft.chmod(draft.stat().st_mode | 0o111)
        for path, draft in zip(paths, temporary, strict=True):
            current = path
            draft.replace(path)
    except BaseException as error:
        # Undo what can be undone: the error that led here is the one to report.
        for undo in (
            *(path.unlink for path in (*temporary, *fresh)),
            *(path.rmdir for path in reversed(made)),
        ):
            with contextlib.suppress(OSError):
                undo()
        if isinstance(error, OSError):
            raise InputError(
                f"cannot be written: {error.strerror or error}",
                where=str(current),
                remedy=_OTHER_FOLDER,
            ) from None
        raise
    return paths


def _check(folder: Path, paths: list[Path]) -> None:
    """Raise for every target that a rename could not replace, before anything is written."""
    root = folder.resolve()
    for path in paths:
        resolved = path.resolve()
        if not resolved.is_relative_to(root) or resolved == root:
            raise ValueError(f"file name {path.name!r} leaves the output folder")
    where = f"--output {folder}"
    for place in (folder, *folder.parents):
        if place.exists():
            if not place.is_dir():
                what = "is a file" if place == folder else f"{place} is a file"
                raise InputError(what, where=where, remedy="Give a folder.")
            break
    for path in paths:
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise InputError(
                f"cannot be written: {error.strerror or error}",
                where=str(path),
                remedy=_OTHER_FOLDER,
            ) from None
        if path.is_dir():
            raise InputError(
                "is a folder where a file would be written",
                where=str(path),
                remedy=f"Remove it, or give another folder than {folder} with --output.",
            )
        for place in path.parents:
            if place == folder:
                break
            if place.exists() and not place.is_dir():
                raise InputError(
                    "is a file where a folder would be made",
                    where=str(place),
                    remedy=f"Remove it, or give another folder than {folder} with --output.",
                )


def _make_folder(folder: Path, made: list[Path]) -> None:
    """Create the folder and those above it; append the new ones to `made`, outermost first."""
    missing = []
    place = folder
    while not place.exists():
        missing.append(place)
        place = place.parent
    for place in reversed(missing):
        place.mkdir()
        made.append(place)
